#include "broker/router.h"

#include <tuple>
#include <utility>

#include "base/check.h"

namespace broker {

std::optional<size_t> least_loaded(std::span<const GroupLoad> board) {
  std::optional<size_t> best;
  const auto rank_of = [&](size_t group) {
    const GroupLoad& load = board[group];
    return std::tuple(load.held, load.requests, load.tokens);
  };
  for (size_t group = 0; group < board.size(); group++) {
    if (!board[group].ready || board[group].full) continue;
    if (!best || rank_of(group) < rank_of(*best)) best = group;
  }
  return best;
}

Router::Router(std::vector<Broker*> groups) : groups_(std::move(groups)), ids_(groups_.size()) {
  CHECK(!groups_.empty(), "a router without groups");
}

bool Router::ready() const {
  for (const Broker* group : groups_)
    if (group->ready()) return true;
  return false;
}

std::vector<GroupLoad> Router::board() const {
  std::vector<GroupLoad> board;
  for (const Broker* group : groups_) board.push_back(group->load());
  return board;
}

base::Result<uint64_t> Router::generate(proto::GenerateRequest request, base::TimeNs now) {
  // Where nobody takes it, the first one says why.
  const size_t group = least_loaded(board()).value_or(0);
  ASSIGN_OR_RETURN(const uint64_t there, groups_[group]->generate(std::move(request), now));
  const uint64_t id = ++last_id_;
  routed_[id] = {.group = group, .id = there};
  ids_[group][there] = id;
  return id;
}

void Router::cancel(uint64_t request_id, base::TimeNs now) {
  const auto found = routed_.find(request_id);
  if (found != routed_.end()) groups_[found->second.group]->cancel(found->second.id, now);
}

void Router::on_event(size_t group, Event& event) {
  auto* token = std::get_if<TokenEvent>(&event);
  if (token == nullptr) return;
  proto::TokenChunk& chunk = token->chunk;
  const auto found = ids_[group].find(chunk.request_id);
  chunk.request_id = found == ids_[group].end() ? 0 : found->second;
  if (chunk.request_id == 0 || chunk.finish == proto::Finish::kNone) return;
  ids_[group].erase(found);
  routed_.erase(chunk.request_id);
}

void Router::on_tick(base::TimeNs now) {
  if (groups_.size() == 1) return;
  for (auto& [id, routed] : routed_) {
    if (!groups_[routed.group]->may_move(routed.id)) {
      routed.waits_since.reset();
    } else if (!routed.waits_since) {
      routed.waits_since = now;
    } else if (now - *routed.waits_since >= kPatience) {
      move(id, routed, now);
    }
  }
}

void Router::move(uint64_t id, Routed& routed, base::TimeNs now) {
  std::vector<GroupLoad> others = board();
  // Where it would only wait again it may as well stay.
  for (GroupLoad& load : others) load.ready = load.ready && !load.held;
  others[routed.group].ready = false;
  const auto target = least_loaded(others);
  if (!target) return;
  LiveRequest request = groups_[routed.group]->release(routed.id);
  ids_[routed.group].erase(routed.id);
  const auto there = groups_[*target]->go_on(request, now);
  CHECK(there.ok(), "a group that is ready and not full takes no request");
  routed = {.group = *target, .id = *there};
  ids_[*target][*there] = id;
}

std::optional<size_t> Router::group_of(uint64_t request_id) const {
  const auto found = routed_.find(request_id);
  if (found == routed_.end()) return std::nullopt;
  return found->second.group;
}

}  // namespace broker
