#include "broker/broker.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/limits.h"

namespace broker {

namespace {

// Odd, so that no two incarnations begin with the same epoch, and the golden ratio, so that their
// epochs stay far apart.
constexpr uint64_t kEpochsApart = 0x9E3779B97F4A7C15u;

}  // namespace

Broker::Broker(BrokerOptions options)
    : options_(std::move(options)),
      plan_epoch_(options_.incarnation * kEpochsApart + 1),
      adopting_(options_.adopt) {
  if (plan_epoch_ == 0) plan_epoch_++;  // 0 is nobody's
  CHECK(options_.rank_count >= 1 && options_.rank_count <= base::kRanksMax, "rank_count ",
        options_.rank_count);
}

void Broker::on_message(const std::string& peer, const proto::Message& message, base::TimeNs now) {
  auto parsed = proto::parse(message);
  if (!parsed.ok()) {
    // Another version deserves to hear why it gets no answer; noise does not.
    if (parsed.error().code == base::Code::kUnsupported)
      send(peer, proto::HelloReply{.reason = parsed.error().message});
    return;
  }
  const proto::Header& header = parsed->header;
  proto::Body& body = parsed->body;
  if (const auto* hello = std::get_if<proto::Hello>(&body)) return on_hello(peer, header, *hello);
  Member* member = member_of(peer, *parsed);
  if (member == nullptr) return;
  const int rank = rank_of(peer);
  if (const auto* progress = std::get_if<proto::LoadProgress>(&body)) {
    member->info.bytes_done = progress->bytes_done;
    member->info.bytes_total = progress->bytes_total;
    events_.push_back(LoadEvent{});
  } else if (const auto* is_ready = std::get_if<proto::Ready>(&body)) {
    on_ready(*member, *is_ready, now);
  } else if (const auto* failed = std::get_if<proto::WorkerFailed>(&body)) {
    send(peer, proto::Shutdown{"noted"});
    on_peer_lost(peer, failed->error);
  } else if (auto* placement = std::get_if<proto::PlacementReply>(&body)) {
    on_placement(rank, std::move(*placement));
  } else if (const auto* stats = std::get_if<proto::StatsReply>(&body)) {
    if (rank == 0)
      events_.push_back(StatsEvent{*stats});
    else
      events_.push_back(RankStatsEvent{rank, *stats});
  } else if (rank == 0) {
    // Only the leader answers requests.
    if (auto* chunk = std::get_if<proto::TokenChunk>(&body)) {
      on_token_chunk(std::move(*chunk), now);
    } else if (auto* score = std::get_if<proto::ScoreChunk>(&body)) {
      on_score_chunk(std::move(*score), now);
    } else if (const auto* accepted = std::get_if<proto::Accepted>(&body)) {
      if (const auto found = live_.find(accepted->request_id); found != live_.end())
        found->second.answered = true;
    }
  }
}

Member* Broker::member_of(const std::string& peer, const proto::Envelope& envelope) {
  const proto::Header& header = envelope.header;
  const int rank = rank_of(peer);
  if (rank < 0 || header.plan_epoch != plan_epoch_) {
    on_foreign_epoch(peer, envelope);
    return nullptr;
  }
  Member& member = members_.at(rank);
  const bool is_itself =
      header.incarnation == member.incarnation && header.node_id == member.info.node_id;
  return is_itself ? &member : nullptr;
}

void Broker::on_foreign_epoch(const std::string& peer, const proto::Envelope& envelope) {
  const uint64_t epoch = envelope.header.plan_epoch;
  const bool has_failed = std::holds_alternative<proto::WorkerFailed>(envelope.body);
  // In the epoch it is to leave: whoever has left it by then is not meant.
  if (adopting_ && !closing_ && !has_failed && epoch != plan_epoch_) {
    if (const auto* loads = std::get_if<proto::LoadProgress>(&envelope.body))
      events_.push_back(AdoptLoadEvent{peer, loads->bytes_done, loads->bytes_total});
    return send_in(epoch, peer, proto::Rejoin{}, {});
  }
  // What an adopted worker said before it joined, and comes only now.
  const int rank = rank_of(peer);
  if (rank >= 0 && !members_.at(rank).group_id.empty()) return;
  // It has missed that its group is gone; the word that told it so may be lost as well.
  send(peer, proto::Shutdown{closing_.value_or("its group is no more")});
}

std::string Broker::refusal(const proto::Header& header, const proto::Hello& hello) const {
  if (hello.numerics_version != base::kNumericsVersion)
    return base::cat("the worker has numerics version ", hello.numerics_version, ", the broker ",
                     base::kNumericsVersion, "; run the same numoe on every host");
  if (hello.model_fingerprint != options_.model_fingerprint)
    return base::cat("the worker has a model of fingerprint ", hello.model_fingerprint,
                     ", the broker one of ", options_.model_fingerprint,
                     "; give both the same unchanged file");
  if (hello.rank_count != options_.rank_count)
    return base::cat("the worker counts ", hello.rank_count, " ranks, the broker ",
                     options_.rank_count);
  const auto member = members_.find(hello.rank);
  if (member != members_.end() && member->second.info.node_id != header.node_id)
    return base::cat("rank ", hello.rank, " is taken by ", member->second.info.node_id);
  return {};
}

std::string Broker::oddness(const proto::Header& header, const proto::Hello& hello) const {
  const auto oldest = oldest_.find(header.node_id);
  if (oldest != oldest_.end() && header.incarnation < oldest->second)
    return "it was replaced, or its group was broken";
  if (!adopting_) return hello.group_id.empty() ? "" : "its group is no more";
  for (const auto& [rank, member] : members_)
    if (rank == hello.rank || member.group_id != hello.group_id)
      return "other workers that have loaded were here before it";
  return {};
}

void Broker::on_hello(const std::string& peer, const proto::Header& header,
                      const proto::Hello& hello) {
  if (closing_) return send(peer, proto::Shutdown{*closing_});
  const std::string reason = refusal(header, hello);
  if (!reason.empty()) return send(peer, proto::HelloReply{.reason = reason});
  const auto found = members_.find(hello.rank);
  const bool is_member = found != members_.end() && found->second.incarnation == header.incarnation;
  // From before it had loaded, and late; or it loads, and there is no place for it yet.
  if (is_member ? found->second.group_id != hello.group_id : adopting_ && hello.group_id.empty())
    return;
  if (!is_member) {
    const std::string odd = oddness(header, hello);
    if (!odd.empty()) return send(peer, proto::Shutdown{odd});
    if (found != members_.end())
      lose_group(
          {base::Code::kPeerLost, base::cat("worker ", header.node_id, " was started again")});
    oldest_[header.node_id] = header.incarnation;
    Member& member = members_[hello.rank];
    member.peer = peer;
    member.incarnation = header.incarnation;
    member.group_id = hello.group_id;
    member.info.node_id = header.node_id;
  }
  send(peer, proto::HelloReply{.accepted = true, .reason = {}, .plan_epoch = plan_epoch_});
}

void Broker::on_ready(Member& member, const proto::Ready& is_ready, base::TimeNs now) {
  if (closing_) return send(member.peer, proto::Shutdown{*closing_});  // it did not hear us
  const bool was_ready = ready();
  member.info.ready = is_ready;
  send(member.peer, proto::ReadyReply{});
  if (was_ready || !ready()) return;
  adopting_ = false;
  events_.push_back(GroupReadyEvent{});
  send_waiting(now);
}

bool Broker::ready() const {
  if (static_cast<int>(members_.size()) != options_.rank_count) return false;
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return entry.second.info.ready.has_value(); });
}

const RankInfo* Broker::rank(int rank) const {
  const auto found = members_.find(rank);
  return found == members_.end() ? nullptr : &found->second.info;
}

int Broker::rank_of(const std::string& peer) const {
  for (const auto& [rank, member] : members_)
    if (member.peer == peer) return rank;
  return -1;
}

void Broker::on_peer_lost(const std::string& peer, const base::Error& what) {
  const int rank = rank_of(peer);
  if (rank < 0) return;
  dismiss(rank);
  lose_group(what);
}

// A hello of it that is still on its way must not bring it back.
void Broker::dismiss(int rank) {
  const auto member = members_.find(rank);
  oldest_[member->second.info.node_id] = member->second.incarnation + 1;
  members_.erase(member);
}

void Broker::request_placement() {
  if (!ready()) return;
  placement_.clear();
  for (const auto& [rank, member] : members_) send(member.peer, proto::PlacementRequest{});
}

void Broker::on_placement(int rank, proto::PlacementReply reply) {
  reply.rank = rank;  // whatever it says
  placement_[rank] = std::move(reply);
  if (static_cast<int>(placement_.size()) < options_.rank_count) return;
  PlacementEvent event;
  for (auto& [ignored, own] : placement_) event.ranks.push_back(std::move(own));
  placement_.clear();
  events_.push_back(std::move(event));
}

void Broker::dismiss_all(const std::string& reason) {
  while (!members_.empty()) {
    const auto& [rank, member] = *members_.begin();
    send(member.peer, proto::Shutdown{reason});
    dismiss(rank);
  }
  if (++plan_epoch_ == 0) plan_epoch_++;
}

void Broker::lose_group(const base::Error& error) {
  dismiss_all(base::cat("the group was broken: ", error.message));
  adopting_ = false;
  placement_.clear();
  if (options_.replay) {
    keep_requests(error);
  } else {
    end_all(error);
  }
  events_.push_back(GroupLostEvent{error});
}

void Broker::give_up_adoption(std::string_view reason) {
  if (!adopting_) return;
  adopting_ = false;
  dismiss_all(std::string(reason));
}

void Broker::shut_down(std::string_view reason) {
  closing_ = reason;
  // Nobody will compute them any more.
  end_all({base::Code::kUnavailable, base::cat("shutting down: ", reason)});
  for (const auto& [rank, member] : members_)
    send(member.peer, proto::Shutdown{std::string(reason)});
}

void Broker::send(const std::string& peer, proto::Body body, const std::string& trace_id) {
  send_in(plan_epoch_, peer, std::move(body), trace_id);
}

void Broker::send_in(uint64_t epoch, const std::string& peer, proto::Body body,
                     const std::string& trace_id) {
  outbox_.push_back({peer, proto::encode({.header = {.node_id = options_.node_id,
                                                     .incarnation = options_.incarnation,
                                                     .plan_epoch = epoch,
                                                     .trace_id = trace_id,
                                                     .sequence = ++sequence_},
                                          .body = std::move(body)})});
}

void Broker::send_leader(proto::Body body, const std::string& trace_id) {
  if (const auto leader = members_.find(0); leader != members_.end())
    send(leader->second.peer, std::move(body), trace_id);
}

std::vector<Outgoing> Broker::take_outbox() {
  return std::exchange(outbox_, {});
}

std::vector<Event> Broker::take_events() {
  return std::exchange(events_, {});
}

}  // namespace broker
