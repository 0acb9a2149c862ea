#include "broker/http/ongoing.h"

#include <utility>

#include "base/cat.h"

namespace broker {

void Tickets::deliver(Reply reply) {
  const auto found = waiting.find(reply.ticket);
  if (found != waiting.end()) found->second->on_reply(std::move(reply));
}

Ongoing::Ongoing(Gate& gate, Tickets& tickets, Answer answer, OngoingOptions options)
    : gate_(gate),
      tickets_(tickets),
      options_(std::move(options)),
      answer_(std::move(answer)),
      ticket_(++tickets.last) {
  tickets_.waiting[ticket_] = this;
}

Ongoing::~Ongoing() {
  tickets_.waiting.erase(ticket_);
  if (live_slots_ > 0) gate_.cancel({.ticket = ticket_});
}

void Ongoing::submit() {
  const base::Status taken =
      gate_.submit({.ticket = ticket_, .slots = answer_.generate_requests()});
  if (!taken.ok()) return on_reply({.kind = Reply::Kind::kBusy, .error = taken.error()});
  live_slots_ = answer_.slot_count();
}

void Ongoing::on_reply(Reply reply) {
  switch (reply.kind) {
    case Reply::Kind::kAccepted: accepted_ = true; break;
    case Reply::Kind::kRefused:
      live_slots_ = 0;
      fail({.error = api_error(reply.error)});
      break;
    case Reply::Kind::kBusy:
      live_slots_ = 0;
      fail({.error = {.status = 429,
                      .message = reply.error.message,
                      .type = "rate_limit_error",
                      .code = "queue_full"}});
      break;
    case Reply::Kind::kChunk: {
      if (reply.chunk.finish != proto::Finish::kNone) {
        live_slots_--;
        usage_.prompt_tokens += reply.chunk.usage.prompt_tokens;
        usage_.generated_tokens += reply.chunk.usage.generated_tokens;
      }
      if (finished()) break;
      Answer::Progress progress = answer_.on_chunk(reply.slot, reply.chunk);
      events_ += progress.events;
      if (answer_.error()) {
        fail({.error = *answer_.error()});
      } else if (writing_ && events_.size() > options_.events_bytes_max) {
        fail({.error = {.status = 500,
                        .message = "the answer was not read fast enough and was given up",
                        .type = "server_error",
                        .code = "slow_reader"}});
      } else if (progress.cancel) {
        gate_.cancel({.ticket = ticket_, .slot = reply.slot});
      }
    }
  }
  if (options_.wake) options_.wake();
}

void Ongoing::fail(Refusal failure) {
  failure_ = std::move(failure);
  if (live_slots_ > 0) gate_.cancel({.ticket = ticket_});
}

}  // namespace broker
