#include "broker/report.h"

#include <algorithm>

#include "base/check.h"

namespace broker {

GroupStatus merged(std::span<const GroupStatus> groups) {
  CHECK(!groups.empty(), "a server without a group");
  using State = GroupStatus::State;
  GroupStatus all{.groups = static_cast<int>(groups.size())};
  all.stalled = true;
  all.retry_seconds = groups.front().retry_seconds;
  const auto any = [&](State state) {
    return std::any_of(groups.begin(), groups.end(),
                       [state](const GroupStatus& group) { return group.state == state; });
  };
  all.state = any(State::kReady)        ? State::kReady
              : any(State::kRestarting) ? State::kRestarting
                                        : State::kLoading;
  const bool answers = std::any_of(groups.begin(), groups.end(), [](const GroupStatus& group) {
    return group.state == State::kReady && group.reason.empty();
  });
  for (const GroupStatus& group : groups) {
    all.bytes_done += group.bytes_done;
    all.bytes_total += group.bytes_total;
    if (group.context > 0) all.context = group.context;
    if (group.vocabulary > 0) all.vocabulary = group.vocabulary;
    if (all.reason.empty() && !answers && group.state == all.state) all.reason = group.reason;
    all.retry_seconds = std::min(all.retry_seconds, group.retry_seconds);
    all.stalled = all.stalled && group.stalled;
    all.groups_ready += group.state == State::kReady;
  }
  return all;
}

namespace {

/// Adds what another group has counted of its copy of the model.
void add_use(const std::vector<proto::LayerUse>& more, std::vector<proto::LayerUse>& all) {
  if (all.size() < more.size()) all.resize(more.size());
  for (size_t layer = 0; layer < more.size(); layer++) {
    const proto::LayerUse& own = more[layer];
    proto::LayerUse& sum = all[layer];
    if (own.choices.empty()) continue;
    if (sum.choices.empty()) {
      sum = own;
      continue;
    }
    if (sum.owners != own.owners) sum.owners.clear();
    if (sum.choices.size() < own.choices.size()) sum.choices.resize(own.choices.size());
    for (size_t expert = 0; expert < own.choices.size(); expert++)
      sum.choices[expert] += own.choices[expert];
  }
}

}  // namespace

proto::StatsReply merged(std::span<const proto::StatsReply> groups) {
  proto::StatsReply all;
  for (const proto::StatsReply& group : groups) {
    all.steps += group.steps;
    all.columns += group.columns;
    all.step_ns += group.step_ns;
    all.prefill_columns += group.prefill_columns;
    all.prefill_ns += group.prefill_ns;
    all.decode_columns += group.decode_columns;
    all.decode_ns += group.decode_ns;
    all.wait_ns += group.wait_ns;
    all.waits_per_layer = std::max(all.waits_per_layer, group.waits_per_layer);
    all.kv_blocks_used += group.kv_blocks_used;
    all.kv_blocks_peak += group.kv_blocks_peak;
    all.kv_block_count += group.kv_block_count;
    all.kv_blocks_reused += group.kv_blocks_reused;
    all.matmul_ns += group.matmul_ns;
    all.attention_ns += group.attention_ns;
    all.exchange_ns += group.exchange_ns;
    all.barrier_ns += group.barrier_ns;
    all.sample_ns += group.sample_ns;
    all.weight_bytes += group.weight_bytes;
    all.threads += group.threads;
    add_use(group.expert_use, all.expert_use);
  }
  return all;
}

double Misplaced::percent() const {
  return present == 0 ? 0 : 100 * static_cast<double>(elsewhere) / static_cast<double>(present);
}

Misplaced misplaced_in(const proto::PlacementClass& own, int os_node) {
  Misplaced result;
  for (size_t node = 0; node < own.bytes_on_node.size(); node++) {
    const uint64_t bytes = own.bytes_on_node[node];
    result.present += bytes;
    if (os_node >= 0 && node != static_cast<size_t>(os_node)) result.elsewhere += bytes;
  }
  return result;
}

Misplaced misplaced_in(const proto::PlacementReply& rank) {
  Misplaced sum;
  for (const proto::PlacementClass& own : rank.classes) {
    const Misplaced part = misplaced_in(own, rank.os_node);
    sum.present += part.present;
    sum.elsewhere += part.elsewhere;
  }
  return sum;
}

bool is_sample(const proto::PlacementReply& rank) {
  uint64_t bytes = 0, asked = 0;
  for (const proto::PlacementClass& own : rank.classes) {
    bytes += own.bytes;
    asked += own.bytes_asked;
  }
  return asked < bytes;
}

}  // namespace broker
