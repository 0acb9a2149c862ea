#include "broker/reception.h"

#include <utility>

#include "base/cat.h"

namespace broker {

void Reception::take(Router* router, base::TimeNs now) {
  Gate::Taken taken = gate_.take();
  for (Submission& submission : taken.submissions) admit(std::move(submission), router, now);
  if (router == nullptr) return;
  for (const CancelSlots& cancel : taken.cancels) {
    const auto found = ids_.find(cancel.ticket);
    if (found == ids_.end()) continue;  // it has ended meanwhile
    for (const auto& [slot, id] : found->second)
      if (!cancel.slot || *cancel.slot == slot) router->cancel(id, now);
  }
}

void Reception::admit(Submission submission, Router* router, base::TimeNs now) {
  const uint64_t ticket = submission.ticket;
  const auto refuse = [&](Reply::Kind kind, base::Error error) {
    gate_.reply({.ticket = ticket, .kind = kind, .error = std::move(error)});
  };
  if (router == nullptr || !router->ready())
    return refuse(Reply::Kind::kRefused,
                  {base::Code::kUnavailable, "the model is not loaded; try again later"});
  const size_t live = static_cast<size_t>(live_slots());
  if (live + submission.slots.size() > static_cast<size_t>(slots_max_))
    return refuse(
        Reply::Kind::kBusy,
        {base::Code::kUnavailable, base::cat("the queue is full: ", live, " of ", slots_max_,
                                             " answers are under way or wait; try again later")});
  std::map<size_t, uint64_t> ids;
  for (size_t slot = 0; slot < submission.slots.size(); slot++) {
    auto id = router->generate(std::move(submission.slots[slot]), now);
    if (!id.ok()) {
      // All or nothing. What the cancelled ones still say finds no slot and is dropped.
      for (const auto& [ignored, started] : ids) router->cancel(started, now);
      return refuse(Reply::Kind::kRefused, id.error());
    }
    ids[slot] = *id;
  }
  for (const auto& [slot, id] : ids) live_[id] = {.ticket = ticket, .index = slot};
  ids_[ticket] = std::move(ids);
  gate_.reply({.ticket = ticket, .kind = Reply::Kind::kAccepted});
}

void Reception::on_event(Event& event) {
  auto* token = std::get_if<TokenEvent>(&event);
  if (token == nullptr) return;
  const auto found = live_.find(token->chunk.request_id);
  if (found == live_.end()) return;
  Slot& slot = found->second;
  const bool last = token->chunk.finish != proto::Finish::kNone;
  slot.chunks++;
  gate_.reply({.ticket = slot.ticket, .slot = slot.index, .chunk = std::move(token->chunk)});
  if (!last) return;
  auto& ids = ids_[slot.ticket];
  ids.erase(slot.index);
  if (ids.empty()) ids_.erase(slot.ticket);
  live_.erase(found);
}

void Reception::lose_all(const base::Error& error) {
  for (const auto& [id, slot] : live_) {
    Reply reply{.ticket = slot.ticket, .slot = slot.index};
    reply.chunk.request_id = id;
    reply.chunk.index = slot.chunks;
    reply.chunk.finish = proto::Finish::kError;
    reply.chunk.error = error;
    gate_.reply(std::move(reply));
  }
  live_.clear();
  ids_.clear();
}

}  // namespace broker
