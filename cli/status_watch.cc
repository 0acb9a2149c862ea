#include "cli/status_watch.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/cat.h"
#include "cli/expert_use.h"
#include "cli/placement_table.h"
#include "shm/machine_facts.h"

namespace cli {

namespace {

constexpr base::TimeNs kStatsEvery = 1'000'000'000;

std::vector<broker::RankStatus> rank_statuses(const ClusterLoop& loop, int group) {
  std::vector<broker::RankStatus> ranks;
  for (int rank = 0; rank < loop.ranks(); rank++) {
    const shm::RankPlacement& place = loop.placement().ranks[static_cast<size_t>(rank)];
    ranks.push_back({.group = group,
                     .rank = rank,
                     .os_node = place.os_node,
                     .pid = loop.worker_pid(rank),
                     .cpus = shm::cpu_list(place.cpus),
                     .ready = loop.ready(rank)});
  }
  return ranks;
}

}  // namespace

void StatusWatch::begin(std::vector<ServedGroup*> groups) {
  for (ServedGroup* const group : groups) groups_.push_back({.group = group});
  server_.groups.resize(groups_.size());
}

std::string StatusWatch::name_of(size_t index) const {
  return groups_.size() > 1 ? base::cat("replica ", index, ": ") : "";
}

void StatusWatch::on_ready(size_t index) {
  Watched& watched = groups_[index];
  if (std::exchange(watched.was_ready, true)) {
    server_.restarts++;
    server_.groups[index].restarts++;
  } else {
    // Only now: after a restart running answers would wait for it.
    ask_placement(watched);
  }
  watched.ranks = rank_statuses(watched.group->loop(), static_cast<int>(index));
  collect_ranks();
  watched.group->loop().broker().request_stats();
}

void StatusWatch::ask_placement(Watched& watched) {
  watched.asks_placement = true;
  watched.group->loop().broker().request_placement();
}

// Of ranks that were ready once; those of a group that is started again count from 0.
void StatusWatch::tell_stats(Watched& watched, int rank, const proto::StatsReply& stats) {
  if (static_cast<size_t>(rank) >= watched.ranks.size()) return;
  watched.ranks[static_cast<size_t>(rank)].stats = stats;
  collect_ranks();
}

void StatusWatch::collect_ranks() {
  server_.ranks.clear();
  for (const Watched& own : groups_)
    server_.ranks.insert(server_.ranks.end(), own.ranks.begin(), own.ranks.end());
}

void StatusWatch::on_event(size_t index, const broker::Event& event) {
  Watched& watched = groups_[index];
  if (const auto* stats = std::get_if<broker::StatsEvent>(&event)) {
    proto::StatsReply& own = server_.groups[index].stats;
    const std::vector<proto::LayerUse> before = std::move(own.expert_use);
    own = stats->stats;
    tell_stats(watched, 0, stats->stats);
    complete(own.expert_use, before);  // layers of other stages, until their ranks tell again
    std::vector<proto::StatsReply> all;
    for (const broker::GroupReport& group : server_.groups) all.push_back(group.stats);
    server_.stats = broker::merged(all);
  } else if (const auto* rank = std::get_if<broker::RankStatsEvent>(&event)) {
    tell_stats(watched, rank->rank, rank->stats);
    // Newer than what is known of the layers that this rank tells.
    std::vector<proto::LayerUse> newest = rank->stats.expert_use;
    proto::StatsReply& own = server_.groups[index].stats;
    complete(newest, own.expert_use);
    own.expert_use = std::move(newest);
  } else if (const auto* placement = std::get_if<broker::PlacementEvent>(&event)) {
    watched.asks_placement = watched.is_in_round = false;
    watched.placement = placement->ranks;
    if (!std::exchange(watched.told, true)) tell_placement(index);
  } else if (std::holds_alternative<broker::GroupLostEvent>(event)) {
    watched.asks_placement = false;  // its answer will never be whole
    watched.placement.clear();
  }
}

void StatusWatch::tell_placement(size_t index) {
  const broker::GroupPlacement& ranks = groups_[index].placement;
  if (parts_.print_table) parts_.print_table(name_of(index) + placement_table(ranks));
  for (const std::string& line : placement_warnings(ranks))
    parts_.log.warning(name_of(index) + line);
}

void StatusWatch::end_round_if_all_answered() {
  if (!round_) return;
  broker::PlacementAnswer answer{.round = *round_};
  for (const Watched& watched : groups_) {
    if (watched.is_in_round) return;
    answer.groups.push_back(watched.placement);
  }
  parts_.gate.answer_placement(std::move(answer));
  round_.reset();
}

void StatusWatch::step(base::TimeNs now, int live) {
  server_.answers_live = live;
  server_.now = now;
  bool any_ready = false;
  for (size_t index = 0; index < groups_.size(); index++) {
    Watched& watched = groups_[index];
    broker::Broker& broker = watched.group->loop().broker();
    if (watched.group->take_ready()) on_ready(index);
    server_.groups[index].status = watched.group->status();
    server_.groups[index].load = broker.load();
    const bool ready = broker.ready();
    any_ready = any_ready || ready;
    if (!ready) watched.asks_placement = watched.is_in_round = false;
    // Once more after the last answer, so that its blocks are seen to be free again.
    const bool busy = broker.live_requests() > 0;
    if (ready && (busy || watched.was_busy) && now - watched.asked_stats_at >= kStatsEvery) {
      watched.asked_stats_at = now;
      watched.was_busy = busy;
      broker.request_stats();
    }
  }
  const uint64_t asked = parts_.gate.placement_asked();
  if (any_ready && !round_ && asked > parts_.gate.placement().round) {
    round_ = asked;
    for (Watched& watched : groups_) {
      watched.is_in_round = watched.group->loop().broker().ready();
      if (watched.is_in_round) ask_placement(watched);
    }
  }
  if (any_ready) end_round_if_all_answered();
  parts_.gate.set_server(server_);
}

}  // namespace cli
