#include "tests/sim/clients.h"

#include <algorithm>
#include <limits>

#include "base/cat.h"

namespace sim {

Clients::Clients(const World& world, Cluster& cluster)
    : world_(world),
      cluster_(cluster),
      random_(world.scenario.seed, Stream::kClients),
      left_(world.scenario.submissions) {}

base::TimeNs Clients::next_event() const {
  base::TimeNs next = left_ > 0 ? submit_at_ : std::numeric_limits<base::TimeNs>::max();
  for (const auto& [id, plan] : plans_)
    if (plan.cancel_at) next = std::min(next, *plan.cancel_at);
  return next;
}

void Clients::run_due() {
  const base::TimeNs now = world_.clock.now();
  if (left_ > 0 && submit_at_ <= now) {
    // Most clients wait for a cluster that is there.
    const auto serves = [&] { return cluster_.broker() != nullptr && cluster_.broker()->ready(); };
    for (int64_t burst = random_.between(1, world_.scenario.burst_max);
         burst > 0 && left_ > 0 && (serves() || random_.chance(0.05)); burst--)
      submit();
    if (serves() && random_.chance(0.2)) {
      cluster_.broker()->request_stats();
      cluster_.flush_broker();
    }
    const base::TimeNs every = world_.scenario.chaos_end / world_.scenario.submissions;
    submit_at_ = now + random_.between(0, 2 * every);
  }
  std::vector<uint64_t> gone;
  for (auto& [id, plan] : plans_) {
    if (!world_.checker.is_open(id)) {
      gone.push_back(id);
    } else if (plan.cancel_at && *plan.cancel_at <= now) {
      plan.cancel_at.reset();
      cancel(id);
    } else if (plan.unread_max && world_.checker.chunks(id) > *plan.unread_max) {
      plan.unread_max.reset();
      cancel(id);
    }
  }
  for (const uint64_t id : gone) {
    // An end that was not noticed yet: cancelling it then is no error.
    if (random_.chance(0.1)) cancel(id);
    plans_.erase(id);
  }
}

void Clients::cancel(uint64_t id) {
  broker::Broker* broker = cluster_.broker();
  if (broker == nullptr) return;
  world_.checker.on_cancel(id);
  broker->cancel(id, world_.clock.now());
  if (random_.chance(0.2)) broker->cancel(id, world_.clock.now());
  cluster_.flush_broker();
}

void Clients::submit() {
  left_--;
  const bool wrong = random_.chance(world_.scenario.wrong);
  if (random_.chance(world_.scenario.scores)) {
    proto::ScoreRequest request = draw_score();
    if (wrong) request.first_scored = 0;
    return ask(std::move(request), wrong);
  }
  proto::GenerateRequest request = draw_generate();
  if (random_.chance(world_.scenario.killers)) request.prompt.front() = kKillerToken;
  bool refused_at_once = wrong;
  switch (wrong ? random_.below(5) : 5) {
    case 0: request.prompt.clear(); break;
    case 1:
      request.prompt.assign(static_cast<size_t>(world_.scenario.runner.context) + 1, 1);
      break;
    case 2: request.prompt.back() = 97; break;
    case 3: request.max_tokens = -1; break;
    case 4:  // only the leader knows that this is wrong
      request.sampling.top_p = 2;
      refused_at_once = false;
      break;
    default: break;
  }
  ask(std::move(request), refused_at_once);
}

template <class Request>
void Clients::ask(Request request, bool wrong) {
  broker::Broker* broker = cluster_.broker();
  asked_.reset();
  if (broker == nullptr) return;
  const base::TimeNs now = world_.clock.now();
  const bool has_room = !world_.checker.is_stopping() && broker->ready() &&
                        broker->live_requests() < world_.scenario.broker.requests_max;
  const auto id = [&] {
    if constexpr (std::is_same_v<Request, proto::GenerateRequest>) {
      return broker->generate(request, now);
    } else {
      return broker->score(request, now);
    }
  }();
  if (id.ok()) {
    world_.checker.expect(has_room && !wrong, "a request was accepted that must be refused");
    world_.checker.on_accepted(*id, std::move(request));
    asked_ = *id;
    Plan& plan = plans_[*id];
    plan = {};
    if (random_.chance(world_.scenario.cancelled))
      plan.cancel_at = now + random_.between(0, random_.chance(0.3) ? 0 : 2 * kSecond);
    if (random_.chance(world_.scenario.unread))
      plan.unread_max = static_cast<uint64_t>(random_.between(0, 100));
  } else {
    world_.checker.counts.refused++;
    const base::Code right = has_room ? base::Code::kInvalidArgument : base::Code::kUnavailable;
    world_.checker.expect(id.error().code == right && (wrong || !has_room),
                          "a request was refused for the wrong reason");
  }
  cluster_.flush_broker();
}

bool Clients::probe(int64_t max_tokens) {
  proto::GenerateRequest request{.prompt = {1, 2, 3}, .max_tokens = max_tokens};
  ask(std::move(request), false);
  if (asked_) plans_.erase(*asked_);
  return asked_.has_value();
}

bool Clients::probe_cancel() {
  proto::GenerateRequest request{.prompt = {1}, .max_tokens = 60};
  ask(std::move(request), false);
  if (!asked_) return false;
  plans_.erase(*asked_);
  cancel(*asked_);
  return true;
}

std::vector<int32_t> Clients::draw_tokens(int64_t most) {
  std::vector<int32_t> tokens(static_cast<size_t>(random_.between(1, most)));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random_.below(90));
  if (random_.chance(0.3)) {
    // As texts do that have a beginning in common: what is sealed of one serves another.
    const auto text = static_cast<int32_t>(random_.below(3));
    const size_t common = std::min<size_t>(tokens.size(), random_.below(140));
    for (size_t i = 0; i < common; i++) tokens[i] = (static_cast<int32_t>(i) * 7 + text) % 90;
  }
  if (random_.chance(0.05)) tokens.back() = 96;  // what a router may choke on
  return tokens;
}

proto::GenerateRequest Clients::draw_generate() {
  const int64_t context = world_.scenario.runner.context;
  proto::GenerateRequest request;
  request.prompt = draw_tokens(random_.chance(0.1) ? context : std::min<int64_t>(context, 150));
  request.max_tokens = random_.chance(0.05) ? 0 : random_.between(1, 120);
  request.sampling.temperature = random_.chance(0.3) ? 0.0f : 0.9f;
  request.sampling.top_k = static_cast<int32_t>(random_.between(0, 60));
  request.sampling.repeat_penalty = random_.chance(0.3) ? 1.2f : 1.0f;
  request.sampling.seed = random_.bits();
  request.prompt_index = static_cast<uint32_t>(random_.below(3));
  request.choice_index = static_cast<uint32_t>(random_.below(3));
  request.prefill_chunk = random_.chance(0.3) ? static_cast<int>(random_.between(1, 40)) : 0;
  for (int64_t count = random_.chance(0.3) ? random_.between(1, 3) : 0; count > 0; count--)
    request.stop_tokens.push_back(static_cast<int32_t>(random_.below(90)));
  return request;
}

proto::ScoreRequest Clients::draw_score() {
  proto::ScoreRequest request;
  request.tokens = draw_tokens(std::min<int64_t>(world_.scenario.runner.context, 100));
  request.first_scored = random_.between(1, 120);
  request.want_top = random_.chance(0.3);
  request.want_last = random_.chance(0.5);
  request.chunk = random_.chance(0.3) ? static_cast<int>(random_.between(1, 20)) : 0;
  return request;
}

}  // namespace sim
