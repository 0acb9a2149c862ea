#include "cli/status_watch.h"

#include <utility>
#include <variant>

#include "base/cat.h"
#include "cli/placement_table.h"
#include "shm/machine_facts.h"

namespace cli {

namespace {

constexpr base::TimeNs kStatsEvery = 1'000'000'000;

}  // namespace

std::vector<broker::RankStatus> rank_statuses(const ClusterLoop& loop) {
  std::vector<broker::RankStatus> ranks;
  for (int rank = 0; rank < loop.ranks(); rank++) {
    const shm::RankPlacement& place = loop.placement().ranks[static_cast<size_t>(rank)];
    ranks.push_back({.rank = rank,
                     .os_node = place.os_node,
                     .pid = loop.worker_pid(rank),
                     .cpus = shm::cpu_list(place.cpus),
                     .ready = loop.ready(rank)});
  }
  return ranks;
}

void StatusWatch::on_ready(std::vector<broker::RankStatus> ranks, broker::Broker& broker) {
  if (std::exchange(was_ready_, true)) {
    server_.restarts++;
  } else {
    // Only now: after a restart running answers would wait for it.
    asks_placement_ = true;
    broker.request_placement();
  }
  server_.ranks = std::move(ranks);
  broker.request_stats();
}

void StatusWatch::on_event(const broker::Event& event) {
  if (const auto* stats = std::get_if<broker::StatsEvent>(&event)) {
    server_.stats = stats->stats;
  } else if (const auto* placement = std::get_if<broker::PlacementEvent>(&event)) {
    asks_placement_ = false;
    if (!std::exchange(told_, true)) tell_placement(placement->ranks);
    parts_.gate.answer_placement({.round = round_, .ranks = placement->ranks});
  } else if (std::holds_alternative<broker::GroupLostEvent>(event)) {
    asks_placement_ = false;  // its answer will never be whole
  }
}

void StatusWatch::tell_placement(const std::vector<proto::PlacementReply>& ranks) {
  if (parts_.print_table) parts_.print_table(placement_table(ranks));
  for (const std::string& line : placement_warnings(ranks)) parts_.log.warning(line);
}

void StatusWatch::step(broker::Broker* broker, base::TimeNs now, int live) {
  server_.answers_live = live;
  server_.now = now;
  const bool ready = broker != nullptr && broker->ready();
  if (!ready) asks_placement_ = false;
  const bool wanted = parts_.gate.placement_asked() > parts_.gate.placement().round;
  if (ready && wanted && !asks_placement_) {
    asks_placement_ = true;
    round_ = parts_.gate.placement_asked();
    broker->request_placement();
  }
  // Once more after the last answer, so that its blocks are seen to be free again.
  const bool busy = live > 0;
  if (ready && (busy || was_busy_) && now - asked_stats_at_ >= kStatsEvery) {
    asked_stats_at_ = now;
    was_busy_ = busy;
    broker->request_stats();
  }
  parts_.gate.set_server(server_);
}

}  // namespace cli
