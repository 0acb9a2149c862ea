// What one seed simulates: sizes, limits, network, faults.
//
// Every number is drawn from the seed, and many faults are off in many seeds (swarm testing: a
// fault that is always on hides what only happens without it). Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "broker/broker.h"
#include "tests/sim/random.h"
#include "tests/worker/scripted_runner.h"
#include "worker/leader.h"

namespace sim {

inline constexpr base::TimeNs kMs = 1'000'000;
inline constexpr base::TimeNs kSecond = 1000 * kMs;
/// A prompt that begins so ends workers, if there are killers.
inline constexpr int32_t kKillerToken = 95;

enum class Fault {
  kWorkerCrash,
  kBrokerCrash,
  kPartition,   // messages of one rank, or of one of its directions, do not pass for a while
  kDisconnect,  // sends to one rank and from it fail for a while
  kStall,       // a process does not run for a while
  kTimeJump,    // nobody does
  kStepError,   // the next step of the leader fails
};
inline constexpr int kFaultCount = 7;
const char* fault_name(Fault fault);

struct Scenario {
  uint64_t seed = 0;
  int ranks = 1;

  // Network. Shares are probabilities of each message.
  double lost = 0, twice = 0, slow = 0;
  double very_late = 0;  // arrives twice, the second time when epochs may have changed
  base::TimeNs delay_min = 0, delay_max = 0, slow_max = 0;
  size_t queue_max = 1000;

  // Processes.
  base::TimeNs step_max = 0, load_max = 0, restart_max = 0, join_max = 0;
  bool ranks_meet = true;  // while loading, as ranks that share memory do
  double load_fails = 0;
  double told = 0;                // share of ended workers whose end the broker is told of
  bool followers_notice = false;  // followers end by themselves when one of them died
  worker::ScriptedOptions runner = {};
  worker::LeaderOptions leader = {};
  broker::BrokerOptions broker = {};  // `adopt` is set for each broker but the first

  // Crashes and what outlives them.
  bool together = false;  // when one worker ends, all are ended and started again as a new group
  bool keeps_kv = false;  // the next leader finds the KV pool and what is sealed in it
  bool watches = false;   // workers notice that there is no broker
  bool adopts = false;    // brokers take over workers that live
  base::TimeNs adopt_within = 0;  // or give it up
  double killers = 0;             // share of requests that end a worker whenever they run,
  int64_t kill_position = 0;      // when this position is computed:
  bool kills_leader = false;      // the leader; else another rank

  // Faults, until `chaos_end`.
  std::vector<Fault> faults;
  base::TimeNs fault_every = 0;  // on average
  base::TimeNs chaos_end = 0;
  bool ends_abruptly = false;  // shut down in the middle of everything

  // Clients.
  int submissions = 0;
  double cancelled = 0, scores = 0, wrong = 0, unread = 0;
  int burst_max = 1;

  /// Whether requests may end because their group was lost.
  bool groups_break() const;
  /// Whether a broker without faults around it always gets the workers of the one before.
  bool always_adopts() const;
  /// Whether a rank can be of one group while another one loads for the next.
  bool leaves_parts_of_groups() const {
    return adopts && !together && !ranks_meet && ranks == 2 && load_fails == 0;
  }
  /// One line for people.
  std::string text() const;
};

Scenario draw_scenario(uint64_t seed);

}  // namespace sim
