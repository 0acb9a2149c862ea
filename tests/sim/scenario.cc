#include "tests/sim/scenario.h"

#include <algorithm>

#include "base/cat.h"

namespace sim {

namespace {

constexpr size_t kQueueNeverFull = 20'000;

void draw_network(Random& random, Scenario& s) {
  const auto share = [&](double on, int percent_max) {
    return random.chance(on) ? static_cast<double>(random.between(1, percent_max)) / 100 : 0;
  };
  s.lost = share(0.5, 40);
  s.twice = share(0.5, 30);
  s.very_late = share(0.3, 10);
  s.delay_min = random.between(0, 2 * kMs);
  s.delay_max = s.delay_min + (random.chance(0.5) ? random.between(0, 200 * kMs) : 0);
  s.slow = share(0.3, 20);
  s.slow_max = random.between(100 * kMs, 3 * kSecond);
  s.queue_max =
      random.chance(0.8) ? kQueueNeverFull : static_cast<size_t>(random.between(100, 1000));
}

void draw_processes(Random& random, Scenario& s) {
  s.ranks = static_cast<int>(random.between(1, 4));
  s.step_max = random.between(kMs / 10, 30 * kMs);
  s.load_max = random.between(kMs, 2 * kSecond);
  s.restart_max = random.between(kMs, 2 * kSecond);
  s.join_max = random.between(kSecond, 10 * kSecond);
  s.load_fails = random.chance(0.1) ? 0.1 : 0;
  s.told = random.chance(0.5) ? 1 : random.chance(0.5) ? 0 : 0.5;
  s.ranks_meet = random.chance(0.7);
  s.followers_notice = s.ranks_meet && random.chance(0.5);
  s.runner.context = random.between(64, 640);
  s.runner.kv_block_count = static_cast<int32_t>(random.between(random.chance(0.1) ? 2 : 11, 40));
  s.runner.columns_max =
      static_cast<int>(random.chance(0.3) ? random.between(1, 4) : random.between(5, 128));
  s.runner.logit_columns_max = random.chance(0.7)
                                   ? s.runner.columns_max
                                   : static_cast<int>(random.between(1, s.runner.columns_max));
  s.runner.poison = random.chance(0.3) ? 96 : -1;
}

void draw_limits(Random& random, Scenario& s) {
  s.leader.token_count = 90;
  s.leader.requests_max = static_cast<int>(random.chance(0.7) ? 256 : random.between(1, 12));
  s.leader.unacknowledged_max = static_cast<size_t>(random.between(1, 64));
  s.leader.resend_after = random.between(20 * kMs, kSecond);
  s.broker.rank_count = s.ranks;
  s.broker.model_fingerprint = "model";
  s.broker.requests_max = static_cast<int>(random.chance(0.7) ? 256 : random.between(1, 12));
  s.broker.repeat_after = random.between(50 * kMs, 2 * kSecond);
  s.broker.acknowledge_every = static_cast<uint64_t>(random.between(1, 32));
  s.broker.acknowledge_after = random.between(5 * kMs, 300 * kMs);
}

void draw_faults(Random& random, Scenario& s) {
  s.chaos_end = random.between(2 * kSecond, 25 * kSecond);
  s.ends_abruptly = random.chance(0.15);
  s.fault_every = random.between(200 * kMs, 4 * kSecond);
  for (int kind = 0; kind < kFaultCount; kind++)
    if (random.chance(0.35)) s.faults.push_back(static_cast<Fault>(kind));
}

void draw_clients(Random& random, Scenario& s) {
  s.submissions = static_cast<int>(random.between(5, 60));
  s.burst_max = static_cast<int>(random.chance(0.3) ? random.between(2, 30) : 1);
  s.cancelled = random.chance(0.5) ? 0.4 : 0;
  s.scores = random.chance(0.5) ? 0.3 : 0;
  s.wrong = random.chance(0.5) ? 0.2 : 0;
  s.unread = random.chance(0.3) ? 0.2 : 0;
}

void draw_outliving(Random& random, Scenario& s) {
  s.broker.replay = random.chance(0.7);
  s.together = random.chance(0.6);
  s.keeps_kv = random.chance(0.5);
  s.watches = random.chance(0.7);
  s.adopts = random.chance(0.6);
  s.adopt_within = random.between(kSecond, 4 * kSecond);
  s.killers = random.chance(0.25) ? 0.1 : 0;
  s.kill_position = random.between(0, random.chance(0.5) ? 0 : 100);
  s.kills_leader = s.ranks == 1 || random.chance(0.5);
}

}  // namespace

const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::kWorkerCrash: return "worker crash";
    case Fault::kBrokerCrash: return "broker crash";
    case Fault::kPartition: return "partition";
    case Fault::kDisconnect: return "disconnect";
    case Fault::kStall: return "stall";
    case Fault::kTimeJump: return "time jump";
    case Fault::kStepError: return "step error";
  }
  return "?";
}

bool Scenario::groups_break() const {
  const auto breaks = [](Fault fault) {
    return fault != Fault::kStall && fault != Fault::kTimeJump && fault != Fault::kPartition;
  };
  // A full queue to a worker counts as its loss.
  return std::any_of(faults.begin(), faults.end(), breaks) || queue_max < kQueueNeverFull ||
         load_fails > 0 || killers > 0;
}

bool Scenario::always_adopts() const {
  // Ranks that are started one by one have never been a group under one name, and a very late hello
  // of the dead may come first.
  return adopts && watches && adopt_within >= 2 * kSecond && (together || ranks == 1) &&
         very_late == 0;
}

std::string Scenario::text() const {
  std::string text =
      base::cat(ranks, " ranks, ", submissions, " submissions, lost ", lost, ", twice ", twice,
                ", very late ", very_late, ", delay ", delay_min / kMs, "…", delay_max / kMs,
                " ms, slow ", slow, ", queue ", queue_max, ", blocks ", runner.kv_block_count,
                ", columns ", runner.columns_max, ", faults:");
  for (const Fault fault : faults) text += base::cat(" ", fault_name(fault), ",");
  text += base::cat(" every ", fault_every / kMs, " ms until ", chaos_end / kMs, " ms");
  if (broker.replay) text += ", replay";
  if (together) text += ", together";
  if (keeps_kv) text += ", keeps KV";
  if (watches) text += ", watches";
  if (adopts) text += base::cat(", adopts within ", adopt_within / kMs, " ms");
  if (killers > 0)
    text += base::cat(", killers of ", kills_leader ? "the leader" : "a follower", " at ",
                      kill_position);
  return text;
}

Scenario draw_scenario(uint64_t seed) {
  Random random(seed, Stream::kScenario);
  Scenario s;
  s.seed = seed;
  draw_processes(random, s);
  draw_limits(random, s);
  draw_clients(random, s);
  draw_network(random, s);
  draw_faults(random, s);
  draw_outliving(random, s);
  if (random.chance(0.1)) {
    // Now and then nothing goes wrong at all: then nothing may.
    s.faults.clear();
    s.lost = s.twice = s.slow = s.very_late = s.load_fails = s.killers = 0;
    s.queue_max = kQueueNeverFull;
  }
  // Ranks that wait for each other give up at some time, which is a loss too.
  if (!s.groups_break()) s.join_max = 1'000'000 * kSecond;
  return s;
}

}  // namespace sim
