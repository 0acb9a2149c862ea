#include "tests/sim/simulation.h"

#include <algorithm>
#include <exception>
#include <functional>

#include "base/cat.h"
#include "tests/sim/clients.h"

namespace sim {

namespace {

// After the faults have stopped. What was started, was loading, or comes very late takes that long.
constexpr base::TimeNs kQuietWithin = 180 * kSecond;
constexpr base::TimeNs kServedWithin = 60 * kSecond;
constexpr base::TimeNs kSlowStep = 500 * kMs;
constexpr base::TimeNs kStoppedWithin = 60 * kSecond;
constexpr uint64_t kEventsMax = 5'000'000;

class Simulation {
 public:
  Simulation(const Scenario& scenario, const Plant& plant)
      : scenario_(scenario),
        checker_(scenario),
        world_{scenario, clock_, trace_, checker_, plant},
        faults_(scenario.seed, Stream::kFaults),
        cluster_(world_),
        clients_(world_, cluster_) {}

  Outcome run() {
    try {
      live();
    } catch (const std::exception& thrown) {
      checker_.fail(base::cat("an exception came out of a state machine: ", thrown.what()));
    }
    Outcome outcome{.failure = checker_.failure(),
                    .hash = trace_.hash(),
                    .events = trace_.count(),
                    .counts = checker_.counts};
    if (outcome.failure) outcome.trace = trace_.text();
    return outcome;
  }

 private:
  void live() {
    chaos();
    if (!scenario_.ends_abruptly) {
      if (!checker_.failure()) recover();
      if (!checker_.failure()) serve();
      if (!checker_.failure() && scenario_.broker.replay) survive();
      if (!checker_.failure() && scenario_.adopts) take_over();
      if (!checker_.failure() && scenario_.leaves_parts_of_groups()) take_over_parts();
      if (!checker_.failure()) cancel();
    }
    if (!checker_.failure()) shut_down();
  }

  /// Runs until `done`; false if that does not come until `deadline`, or something was violated.
  bool run_until(const std::function<bool()>& done, base::TimeNs deadline) {
    while (!done()) {
      const base::TimeNs next = std::min(cluster_.next_event(), clients_.next_event());
      if (next > deadline || checker_.failure()) return false;
      if (trace_.count() > kEventsMax) {
        checker_.fail("messages go round and round");
        return false;
      }
      if (next > clock_.now()) clock_.advance(next - clock_.now());
      clients_.run_due();
      cluster_.run_due();
    }
    return true;
  }

  void chaos() {
    base::TimeNs end = scenario_.chaos_end;
    while (clock_.now() < end && !checker_.failure()) {
      const base::TimeNs fault_at =
          scenario_.faults.empty() ? end
                                   : clock_.now() + faults_.between(0, 2 * scenario_.fault_every);
      run_until([] { return false; }, std::min(fault_at, end));
      if (fault_at >= end) break;
      if (clock_.now() < fault_at) clock_.advance(fault_at - clock_.now());
      const auto kind = faults_.below(scenario_.faults.size());
      const base::TimeNs before = clock_.now();
      cluster_.inject(scenario_.faults[kind], faults_);
      end += clock_.now() - before;
    }
    cluster_.heal(0);
  }

  bool is_over() const {
    return clients_.done() && checker_.open_requests() == 0 && cluster_.quiet();
  }

  void recover() {
    if (run_until([&] { return is_over(); }, clock_.now() + kQuietWithin)) return;
    checker_.fail(base::cat("the cluster does not recover: ", checker_.open_requests(),
                            " requests are open, the broker is ",
                            cluster_.broker() == nullptr ? "down"
                            : cluster_.broker()->ready() ? "ready"
                                                         : "not ready",
                            ", the leader keeps ", cluster_.leader_requests(), " requests"));
  }

  void serve() {
    const uint64_t finished = checker_.counts.finished;
    if (!clients_.probe()) return checker_.fail("a cluster without faults refuses a request");
    run_until([&] { return is_over(); }, clock_.now() + kServedWithin);
    checker_.expect(checker_.counts.finished == finished + 1,
                    "a cluster without faults does not serve a request");
    checker_.expect(is_over(), "the leader keeps a request that has ended");
  }

  /// Submits a request of so many tokens and runs until some of them have come.
  void begin(int64_t max_tokens) {
    const uint64_t tokens = checker_.counts.tokens + 3;
    if (!clients_.probe(max_tokens))
      return checker_.fail("a cluster without faults refuses a request");
    run_until([&] { return checker_.counts.tokens >= tokens; }, clock_.now() + kServedWithin);
  }

  // A worker dies, and nothing else happens: nobody may notice.
  void survive() {
    const uint64_t finished = checker_.counts.finished;
    checker_.on_crash_to_come();
    begin(50);
    cluster_.crash_worker(static_cast<int>(faults_.below(static_cast<uint64_t>(scenario_.ranks))));
    run_until([&] { return is_over(); }, clock_.now() + kQuietWithin);
    checker_.expect(is_over() && checker_.counts.finished == finished + 1,
                    "a request does not survive its group");
  }

  // The broker dies, and nothing else happens: its requests end with it, its workers go on.
  void take_over() {
    checker_.on_crash_to_come();  // not all may come in time
    begin(50);
    const uint64_t started = cluster_.incarnations();
    cluster_.crash_broker();
    run_until([&] { return is_over(); }, clock_.now() + kQuietWithin);
    checker_.expect(is_over(), "a cluster does not go on under the next broker");
    if (scenario_.always_adopts())
      checker_.expect(cluster_.incarnations() == started,
                      "workers were started again that the next broker could have taken over");
    if (!checker_.failure()) serve();
  }

  // Rank 0 does not hear that its group is no more, rank 1 is of the next one, and the broker dies:
  // the workers that are left have never been one group.
  void take_over_parts() {
    checker_.on_crash_to_come();
    const uint64_t epoch = cluster_.broker()->plan_epoch();
    cluster_.cut(0, kQuietWithin);
    cluster_.crash_worker(1);
    run_until([&] { return cluster_.has_loaded_since(1, epoch); }, clock_.now() + kServedWithin);
    cluster_.crash_broker();
    cluster_.cut(0, 0);
    run_until([&] { return is_over(); }, clock_.now() + kQuietWithin);
    checker_.expect(is_over(), "a cluster of which parts are left does not recover");
    if (!checker_.failure()) serve();
  }

  // A request that would take half a minute, over a network that loses as much as before.
  void cancel() {
    cluster_.heal(scenario_.lost);
    cluster_.set_step_time(kSlowStep);
    const uint64_t cancelled = checker_.counts.cancelled;
    if (!clients_.probe_cancel())
      return checker_.fail("a cluster without faults refuses a request");
    run_until([&] { return is_over(); }, clock_.now() + kServedWithin);
    checker_.expect(is_over() && checker_.counts.cancelled == cancelled + 1,
                    "cancelling a request does not end it");
  }

  void shut_down() {
    cluster_.heal(scenario_.lost);
    run_until([&] { return cluster_.broker() != nullptr; }, clock_.now() + kQuietWithin);
    if (checker_.failure()) return;
    checker_.on_shut_down();
    cluster_.shut_down();
    checker_.expect(checker_.open_requests() == 0, "a shutdown does not end every request");
    if (!run_until([&] { return cluster_.all_ended(); }, clock_.now() + kStoppedWithin))
      checker_.fail("a shutdown does not reach every worker");
  }

  const Scenario& scenario_;
  base::ManualClock clock_;
  Trace trace_;
  Checker checker_;
  const World world_;
  Random faults_;
  Cluster cluster_;
  Clients clients_;
};

}  // namespace

Outcome simulate(const Scenario& scenario, const Plant& plant) {
  return Simulation(scenario, plant).run();
}

}  // namespace sim
