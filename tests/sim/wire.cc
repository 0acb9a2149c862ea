#include "tests/sim/wire.h"

#include <algorithm>
#include <iterator>

#include "base/cat.h"
#include "base/check.h"

namespace sim {

namespace {

constexpr std::string_view kNodePrefix = "node-";
constexpr base::TimeNs kVeryLateMax = 20 * kSecond;
// Where there are very late messages at all, as many of those that are rare and matter most.
constexpr double kRareVeryLate = 0.5;

struct Numbers {
  uint64_t id = 0, index = 0;
};

Numbers numbers_of(const proto::Body& body) {
  if (const auto* chunk = std::get_if<proto::TokenChunk>(&body))
    return {chunk->request_id, chunk->index};
  if (const auto* chunk = std::get_if<proto::ScoreChunk>(&body))
    return {chunk->request_id, chunk->index};
  if (const auto* ack = std::get_if<proto::Ack>(&body)) return {ack->request_id, ack->next_index};
  if (const auto* request = std::get_if<proto::GenerateRequest>(&body))
    return {request->request_id, 0};
  if (const auto* request = std::get_if<proto::ScoreRequest>(&body))
    return {request->request_id, 0};
  if (const auto* cancel = std::get_if<proto::Cancel>(&body)) return {cancel->request_id, 0};
  if (const auto* accepted = std::get_if<proto::Accepted>(&body)) return {accepted->request_id, 0};
  return {};
}

}  // namespace

const char* body_name(const proto::Body& body) {
  static constexpr const char* kNames[] = {"Hello",         "HelloReply", "LoadProgress",
                                           "Ready",         "ReadyReply", "Rejoin",
                                           "WorkerFailed",  "Shutdown",   "GenerateRequest",
                                           "ScoreRequest",  "Accepted",   "TokenChunk",
                                           "ScoreChunk",    "Ack",        "Cancel",
                                           "StatsRequest",  "StatsReply", "PlacementRequest",
                                           "PlacementReply"};
  static_assert(std::size(kNames) == std::variant_size_v<proto::Body>);
  return kNames[body.index()];
}

std::string node_name(int rank) {
  return base::cat(kNodePrefix, rank);
}

int rank_of_peer(std::string_view peer) {
  return peer.starts_with(kNodePrefix) ? peer[kNodePrefix.size()] - '0' : -1;
}

Wire::Wire(const World& world)
    : world_(world),
      random_(world.scenario.seed, Stream::kNetwork),
      lost_(world.scenario.lost),
      cuts_(static_cast<size_t>(world.scenario.ranks)),
      network_(world.clock, {.queue_max = world.scenario.queue_max,
                             .fate = [this](std::string_view from, std::string_view to) {
                               return decide(from, to);
                             }}) {}

void Wire::heal(double lost) {
  healed_ = true;
  lost_ = lost;
  for (Cut& cut : cuts_) cut = {};
}

proto::Fate Wire::decide(std::string_view from, std::string_view to) {
  const Scenario& s = world_.scenario;
  const bool is_from_rank = to == proto::kBroker;
  const Cut& cut = cuts_[static_cast<size_t>(rank_of_peer(is_from_rank ? from : to))];
  const base::TimeNs now = world_.clock.now();
  base::TimeNs held = 0;
  if (cut.until > now && (is_from_rank ? cut.from_rank : cut.to_rank)) {
    if (cut.disconnected) return {.delays = {}, .disconnected = true};
    if (!cut.held) return {.delays = {}};
    held = cut.until - now;
  }
  if (healed_ && !random_.chance(lost_)) return {.delays = {s.delay_min}};
  if (healed_) return {.delays = {}};
  const auto delay = [&] {
    const base::TimeNs most = random_.chance(s.slow) ? s.slow_max : s.delay_max;
    return held + random_.between(s.delay_min, std::max(s.delay_min, most));
  };
  proto::Fate fate{.delays = {}};
  if (!random_.chance(lost_)) fate.delays.push_back(delay());
  if (random_.chance(s.twice)) fate.delays.push_back(delay());
  const double very_late = s.very_late > 0 && is_rare_ ? kRareVeryLate : s.very_late;
  if (random_.chance(very_late)) fate.delays.push_back(random_.between(0, kVeryLateMax));
  return fate;
}

base::Status Wire::send(proto::Channel& from, int who, std::string_view to,
                        proto::Message message) {
  auto parsed = proto::parse(message);
  if (!parsed.ok()) {
    world_.checker.fail(base::cat("an unreadable message was sent: ", parsed.error().message));
    return {};
  }
  world_.checker.on_sent(*parsed);
  const proto::Header& header = parsed->header;
  if (std::holds_alternative<proto::Hello>(parsed->body))
    hellos_[proto::peer_name(header.node_id, header.incarnation)] = message;
  is_rare_ = parsed->body.index() <= proto::Body(proto::Shutdown()).index();
  if (!world_.plant.wire) {
    const Numbers numbers = numbers_of(parsed->body);
    const base::Status sent = from.send(to, std::move(message));
    world_.trace.add({.at = world_.clock.now(),
                      .who = who,
                      .what = sent.ok() ? "sent" : "could not send",
                      .detail = body_name(parsed->body),
                      .numbers = {numbers.id, numbers.index, parsed->header.plan_epoch}});
    return sent;
  }
  base::Status sent;
  for (const proto::Envelope& envelope : world_.plant.wire(std::move(*parsed)))
    sent = from.send(to, proto::encode(envelope));
  return sent;
}

void Wire::repeat_hello(proto::Channel& from, const std::string& name) {
  const auto hello = hellos_.find(name);
  if (hello == hellos_.end()) return;
  is_rare_ = true;
  // As lost as any other message.
  [[maybe_unused]] const auto sent = from.send(proto::kBroker, hello->second);
}

std::optional<proto::Received> Wire::receive(proto::Channel& channel, int who) {
  auto received = channel.receive();
  if (!received) return received;
  const auto parsed = proto::parse(received->message);
  if (parsed.ok()) {
    const Numbers numbers = numbers_of(parsed->body);
    world_.trace.add({.at = world_.clock.now(),
                      .who = who,
                      .what = "got",
                      .detail = body_name(parsed->body),
                      .numbers = {numbers.id, numbers.index, parsed->header.plan_epoch}});
  }
  for (const std::string& frame : received->message.frames) world_.trace.mix(frame);
  return received;
}

}  // namespace sim
