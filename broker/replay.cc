// The part of Broker that decides which requests the leader has: waiting for a group, going on in
// the next or in another one, running alone, ending.
#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "broker/broker.h"

namespace broker {

namespace {

Event last_event(uint64_t id, const LiveRequest& live, const base::Error& error) {
  if (live.generates())
    return TokenEvent{{.request_id = id,
                       .index = live.next_index,
                       .finish = proto::Finish::kError,
                       .error = error}};
  return ScoreEvent{{.request_id = id,
                     .index = live.next_index,
                     .finish = proto::Finish::kError,
                     .error = error}};
}

Event cancelled_event(uint64_t id, const LiveRequest& live) {
  const base::Error error{base::Code::kCancelled, "the request was cancelled"};
  if (!live.generates()) {
    return ScoreEvent{{.request_id = id,
                       .index = live.next_index,
                       .finish = proto::Finish::kCancelled,
                       .error = error}};
  }
  return TokenEvent{{.request_id = id,
                     .index = live.next_index,
                     .finish = proto::Finish::kCancelled,
                     .usage = {.prompt_tokens = static_cast<int64_t>(live.prompt_tokens),
                               .generated_tokens = static_cast<int64_t>(live.generated())},
                     .error = error}};
}

}  // namespace

void Broker::send_waiting(base::TimeNs now) {
  if (!ready()) return;
  // One after the other, oldest first, and nobody else until they are cleared or have ended.
  const auto alone = std::find_if(live_.begin(), live_.end(), [](const auto& entry) {
    return entry.second.blame.must_run_alone();
  });
  if (alone != live_.end()) {
    if (!alone->second.sent) send_request(alone->second, now);
    return;
  }
  for (auto& [id, live] : live_)
    if (!live.sent) send_request(live, now);
}

void Broker::send_request(Live& live, base::TimeNs now) {
  if (auto* generate = std::get_if<proto::GenerateRequest>(&live.request)) {
    const auto generated = live.tokens.begin() + static_cast<std::ptrdiff_t>(live.prompt_tokens);
    generate->generated.assign(generated, live.tokens.end());
    generate->first_index = live.next_index;
  }
  live.sent = true;
  live.asked_at = now;
  send_leader(live.request, live.trace_id);
}

void Broker::cancel(uint64_t request_id, base::TimeNs now) {
  const auto found = live_.find(request_id);
  if (found == live_.end()) return;
  Live& live = found->second;
  if (!live.sent) {
    events_.push_back(cancelled_event(request_id, live));
    live_.erase(found);
    return send_waiting(now);
  }
  live.cancelling = true;
  live.asked_at = now;
  send_leader(proto::Cancel{request_id}, live.trace_id);
}

void Broker::keep_requests(const base::Error& error) {
  for (auto entry = live_.begin(); entry != live_.end();) {
    std::optional<Event> end = end_with_group(entry->first, entry->second, error);
    if (end) events_.push_back(std::move(*end));
    entry = end ? live_.erase(entry) : std::next(entry);
  }
}

std::optional<Event> Broker::end_with_group(uint64_t id, Live& live, const base::Error& error) {
  if (!live.generates()) return last_event(id, live, error);
  if (live.cancelling) return cancelled_event(id, live);
  if (!live.sent) return std::nullopt;
  live.blame.on_crash(live.generated());
  if (const auto why = live.blame.given_up())
    return last_event(id, live,
                      {base::Code::kPeerLost,
                       base::cat("this request is given up: ", *why,
                                 " of the workers, so it may be what ends them; the last time: ",
                                 error.message)});
  live.sent = live.answered = false;
  live.repeats = 0;
  live.acknowledged = live.next_index;  // the next leader owes only what comes
  return std::nullopt;
}

bool Broker::may_move(uint64_t request_id) const {
  const auto found = live_.find(request_id);
  if (found == live_.end()) return false;
  const Live& live = found->second;
  return live.generates() && !live.sent && !live.blame.must_run_alone();
}

LiveRequest Broker::release(uint64_t request_id) {
  CHECK(may_move(request_id), "request ", request_id, " does not wait");
  return std::move(live_.extract(request_id).mapped());
}

base::Result<uint64_t> Broker::go_on(LiveRequest& request, base::TimeNs now) {
  RETURN_IF_ERROR(check_open());
  const uint64_t id = ++last_request_id_;
  std::get<proto::GenerateRequest>(request.request).request_id = id;
  live_[id] = std::move(request);
  send_waiting(now);
  return id;
}

GroupLoad Broker::load() const {
  GroupLoad load{.ready = ready() && !closing_, .full = live_requests() >= options_.requests_max};
  for (const auto& [id, live] : live_) {
    load.requests++;
    load.tokens += static_cast<int64_t>(live.tokens.size());
    load.held = load.held || live.blame.must_run_alone();
  }
  return load;
}

void Broker::end_all(const base::Error& error) {
  for (const auto& [id, live] : live_) events_.push_back(last_event(id, live, error));
  live_.clear();
}

}  // namespace broker
