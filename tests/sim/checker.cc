#include "tests/sim/checker.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"

namespace sim {

Checker::Checker(const Scenario& scenario, Sees sees)
    : scenario_(scenario),
      sees_(sees),
      model_{scenario.runner, scenario.leader.token_count},
      groups_break_(scenario.groups_break()) {}

void Checker::fail(std::string sentence) {
  if (!failure_) failure_ = std::move(sentence);
}

void Checker::on_accepted(uint64_t id, proto::GenerateRequest request) {
  expect(!open_.contains(id) && !ended_.contains(id), "a request id was given twice");
  counts.accepted++;
  Open& open = open_[id];
  open.doomed = doomed(model_, request);
  open.generate = std::make_unique<GenerateOracle>(model_, std::move(request));
}

void Checker::on_accepted(uint64_t id, proto::ScoreRequest request) {
  expect(!open_.contains(id) && !ended_.contains(id), "a request id was given twice");
  counts.accepted++;
  Open& open = open_[id];
  open.doomed = doomed(model_, request);
  open.score = std::make_unique<proto::ScoreRequest>(std::move(request));
}

void Checker::on_cancel(uint64_t id) {
  if (const auto found = open_.find(id); found != open_.end()) found->second.cancelled = true;
}

void Checker::on_broker_lost() {
  for (const auto& [id, open] : open_)
    if (open.score) check_scores(open, false);
  counts.orphaned += open_.size();
  open_.clear();
  ended_.clear();
}

void Checker::on_event(const broker::Event& event, const broker::Broker& broker) {
  if (const auto* token = std::get_if<broker::TokenEvent>(&event)) {
    on_tokens(token->chunk);
  } else if (const auto* score = std::get_if<broker::ScoreEvent>(&event)) {
    on_score(score->chunk);
  } else if (std::holds_alternative<broker::GroupReadyEvent>(event)) {
    counts.groups_ready++;
    if (loaded_.size() == static_cast<size_t>(scenario_.ranks)) counts.adopted++;
    // Those who said so may be gone by now; that it was said in this epoch is what counts.
    if (broker.ready())
      expect(ready_said_[broker.plan_epoch()].size() == static_cast<size_t>(scenario_.ranks),
             "the group is ready before all ranks are");
  } else if (const auto* stats = std::get_if<broker::StatsEvent>(&event)) {
    counts.stats++;
    const proto::StatsReply& reply = stats->stats;
    expect(reply.kv_blocks_used <= reply.kv_blocks_peak &&
               reply.kv_blocks_peak <= scenario_.runner.kv_block_count,
           "more KV blocks are in use than there are");
  } else if (const auto* lost = std::get_if<broker::GroupLostEvent>(&event)) {
    on_group_lost(lost->error);
  }
}

void Checker::on_group_lost(const base::Error& error) {
  counts.groups_lost++;
  if (!groups_break_ && !stopping_)
    fail(base::cat("a group was lost although nothing broke it: ", error.message));
  for (auto& [id, open] : open_) {
    expect(scenario_.broker.replay && open.generate, "a request outlived its group");
    expect(!open.cancelled, "a cancelled request waits for the next group");
    counts.replayed++;
    open.suspicion.on_crash(open.tokens);
    if (open.suspicion.in_row(open.tokens) >= 3)
      fail(base::cat("request ", id, " lives through its third crash in a row"));
  }
}

void Checker::on_request_sent(uint64_t id, uint64_t epoch) {
  const auto found = open_.find(id);
  if (found == open_.end() || epoch != epoch_) return;
  if (std::exchange(found->second.sent_in, epoch) == epoch) return;  // a repeat
  found->second.suspicion.on_sent();
  for (const auto& [other, open] : open_) {
    if (open.suspicion.in_row(open.tokens) < 2) continue;
    counts.alone++;
    if (other == id) return;
    return fail(base::cat("request ", id, " was sent beside ", other, ", which must run alone"));
  }
}

Checker::Open* Checker::expect_chunk(uint64_t id, uint64_t index) {
  const auto found = open_.find(id);
  if (found == open_.end()) {
    fail(base::cat("an event of request ", id,
                   ended_.contains(id) ? ", which has ended" : ", which was never accepted"));
    return nullptr;
  }
  if (index != found->second.next_index) {
    fail(base::cat("chunk ", index, " of request ", id, " came where ", found->second.next_index,
                   " is next"));
    return nullptr;
  }
  found->second.next_index++;
  return &found->second;
}

void Checker::on_tokens(const proto::TokenChunk& chunk) {
  Open* open = expect_chunk(chunk.request_id, chunk.index);
  if (open == nullptr) return;
  if (!open->generate) return fail("a score request was answered with tokens");
  proto::Finish due = proto::Finish::kNone;
  for (const int32_t token : chunk.tokens) {
    if (open->generate->ended() || open->doomed)
      return fail(base::cat("request ", chunk.request_id, " got a token too many"));
    const GenerateOracle::Next next = open->generate->next();
    if (next.token != token)
      return fail(base::cat("request ", chunk.request_id, " got token ", token, " in chunk ",
                            chunk.index, ", the plain loop gives ", next.token));
    due = next.finish;
    open->tokens++;
    counts.tokens++;
  }
  const bool natural =
      chunk.finish == proto::Finish::kStop || chunk.finish == proto::Finish::kLength;
  if (due != proto::Finish::kNone || natural) {
    if (due != chunk.finish)
      return fail(base::cat("request ", chunk.request_id, " ended with ",
                            proto::finish_name(chunk.finish), ", the plain loop with ",
                            proto::finish_name(due)));
  }
  if (chunk.finish == proto::Finish::kNone) return;
  check_usage(*open, chunk);
  end(chunk.request_id, chunk.finish, chunk.error);
}

void Checker::check_usage(const Open& open, const proto::TokenChunk& chunk) {
  if (chunk.finish == proto::Finish::kError) return;
  const auto prompt = static_cast<int64_t>(open.generate->tokens().size() - open.tokens);
  expect(chunk.usage.prompt_tokens == prompt &&
             chunk.usage.generated_tokens == static_cast<int64_t>(open.tokens),
         "the usage of a request is not what its client got");
}

void Checker::on_score(const proto::ScoreChunk& chunk) {
  Open* open = expect_chunk(chunk.request_id, chunk.index);
  if (open == nullptr) return;
  if (!open->score) return fail("a generate request was answered with scores");
  if (chunk.position_count > 0 && chunk.first_position != open->positions)
    return fail(base::cat("scores of request ", chunk.request_id, " jump to position ",
                          chunk.first_position, " from ", open->positions));
  open->positions += chunk.position_count;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(open->scored.log_probabilities, chunk.log_probabilities);
  append(open->scored.top_ids, chunk.top_ids);
  append(open->scored.top_logits, chunk.top_logits);
  append(open->scored.last_logits, chunk.last_logits);
  if (chunk.finish == proto::Finish::kNone) return;
  check_scores(*open, chunk.finish == proto::Finish::kStop);
  if (chunk.finish == proto::Finish::kLength) fail("a score request ended with length");
  end(chunk.request_id, chunk.finish, chunk.error);
}

void Checker::check_scores(const Open& open, bool complete) {
  const ScoreAnswer right = score_oracle(model_, *open.score);
  const auto is_prefix = [&](const auto& a, const auto& of) {
    return a.size() <= of.size() && std::equal(a.begin(), a.end(), of.begin()) &&
           (!complete || a.size() == of.size());
  };
  expect(is_prefix(open.scored.log_probabilities, right.log_probabilities) &&
             is_prefix(open.scored.top_ids, right.top_ids) &&
             is_prefix(open.scored.top_logits, right.top_logits) &&
             is_prefix(open.scored.last_logits, right.last_logits),
         "scores differ from the plain loop");
  if (complete)
    expect(open.positions == static_cast<int64_t>(open.score->tokens.size()),
           "a score request ended before its last position");
}

void Checker::check_error(const Open& open, const base::Error& error) {
  if (error.code == open.doomed) return;
  // The leader has room for fewer requests than the broker thinks.
  if (error.code == base::Code::kUnavailable) return;
  if (!stopping_ && scenario_.broker.replay && open.generate && sees_ == Sees::kBoth) {
    counts.given_up++;
    if (!open.suspicion.may_be_given_up(open.tokens))
      fail(base::cat("a request that may go on was ended: ", error.message));
  }
  if (!stopping_ && !groups_break_)
    fail(base::cat("a request ended with an error although nothing broke: ", error.message));
  // A wrong request is told what is wrong; the loss of a group is something else.
  if (error.code == base::Code::kInvalidArgument || error.code == base::Code::kBrokenFile)
    fail(base::cat("a request ended with an error of its own that it has not: ", error.message));
}

void Checker::end(uint64_t id, proto::Finish finish, const base::Error& error) {
  const Open& open = open_.at(id);
  if (finish == proto::Finish::kError) {
    counts.broken++;
    check_error(open, error);
  } else if (finish == proto::Finish::kCancelled) {
    counts.cancelled++;
    expect(open.cancelled, "a request was cancelled by nobody");
  } else {
    counts.finished++;
    expect(!open.doomed.has_value(), "a request that must fail was served");
  }
  open_.erase(id);
  ended_.insert(id);
}

void Checker::on_sent(const proto::Envelope& envelope) {
  const proto::Header& header = envelope.header;
  uint64_t& last = sequences_[{header.node_id, header.incarnation}];
  if (header.sequence != last + 1)
    fail(base::cat(header.node_id, "#", header.incarnation, " sent message ", header.sequence,
                   " after ", last));
  last = header.sequence;
  if (std::holds_alternative<proto::Ready>(envelope.body))
    ready_said_[header.plan_epoch].insert(header.node_id);
  if (const auto* hello = std::get_if<proto::Hello>(&envelope.body)) {
    if (hello->group_id.empty()) {
      loaded_.erase(header.node_id);
    } else {
      loaded_.insert(header.node_id);
    }
  }
  if (const auto* generate = std::get_if<proto::GenerateRequest>(&envelope.body))
    on_request_sent(generate->request_id, header.plan_epoch);
  if (const auto* score = std::get_if<proto::ScoreRequest>(&envelope.body))
    on_request_sent(score->request_id, header.plan_epoch);
}

void Checker::on_leader(const worker::Leader& leader) {
  const worker::Kept kept = leader.kept();
  if (kept.requests > static_cast<size_t>(scenario_.leader.requests_max))
    fail(base::cat("the leader keeps ", kept.requests, " requests, at most ",
                   scenario_.leader.requests_max, " are allowed"));
  // The last chunk of a request may come on top.
  if (kept.unacknowledged_most > scenario_.leader.unacknowledged_max + 1)
    fail(base::cat("the leader keeps ", kept.unacknowledged_most,
                   " chunks of one request, at most ", scenario_.leader.unacknowledged_max,
                   " are allowed"));
  if (kept.requests == 0)
    expect(leader.stats().kv_blocks_used == 0, "KV blocks are in use without a request");
}

void Checker::on_broker(const broker::Broker& broker) {
  if (broker.live_requests() > scenario_.broker.requests_max)
    fail(base::cat("the broker has ", broker.live_requests(), " requests, at most ",
                   scenario_.broker.requests_max, " are allowed"));
  if (sees_ != Sees::kBoth) return;
  if (static_cast<size_t>(broker.live_requests()) != open_.size())
    fail(base::cat("the broker has ", broker.live_requests(), " requests, its clients ",
                   open_.size()));
  for (const auto& [id, open] : open_) {
    if (!open.generate) continue;
    expect(broker.tokens(id) == open.generate->tokens(),
           "the broker's tokens of a request are not those that its client has");
    break;  // one of them is enough
  }
}

}  // namespace sim
