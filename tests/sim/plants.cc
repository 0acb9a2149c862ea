#include "tests/sim/plants.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/limits.h"

namespace sim {

namespace {

using proto::Envelope;
using Envelopes = std::vector<Envelope>;

/// One in so many of the occasions.
constexpr double kShare = 0.05;

/// A plant that draws; the state lives in the function.
template <class Change>
auto with_random(uint64_t seed, Change change) {
  return [random = Random(seed, Stream::kPlant), change](auto&& subject) mutable {
    return change(random, std::forward<decltype(subject)>(subject));
  };
}

/// Changes some token chunks that are not the last.
template <class Change>
Plant chunk_plant(const char* name, uint64_t seed, Change change) {
  return {.name = name, .wire = with_random(seed, [change](Random& random, Envelope envelope) {
                          Envelopes out{envelope};
                          auto* chunk = std::get_if<proto::TokenChunk>(&out[0].body);
                          if (chunk != nullptr && !chunk->tokens.empty() && random.chance(kShare))
                            change(out, *chunk);
                          return out;
                        })};
}

template <class Body>
Plant losing_plant(const char* name, bool (*lost)(const Body&)) {
  return {.name = name, .wire = [lost](Envelope envelope) {
            const auto* body = std::get_if<Body>(&envelope.body);
            return body != nullptr && lost(*body) ? Envelopes{} : Envelopes{std::move(envelope)};
          }};
}

Plant forged_ready() {
  return {.name = "a follower is ready when it says hello", .wire = [](Envelope envelope) {
            Envelopes out{envelope};
            if (std::holds_alternative<proto::LoadProgress>(envelope.body) &&
                envelope.header.node_id == "node-1") {
              out.push_back(envelope);
              out[1].body = proto::Ready{.vocabulary = 1, .context = 1, .columns_max = 1};
            }
            return out;
          }};
}

Plant swapped_requests() {
  return {.name = "two requests get each other's tokens",
          .wire = [held = std::optional<proto::TokenChunk>()](Envelope envelope) mutable {
            auto* chunk = std::get_if<proto::TokenChunk>(&envelope.body);
            if (chunk != nullptr && !chunk->tokens.empty()) {
              if (held && held->request_id != chunk->request_id)
                std::swap(held->tokens, chunk->tokens);
              held = *chunk;
            }
            return Envelopes{std::move(envelope)};
          }};
}

Plant sequence_gap(uint64_t seed) {
  return {.name = "a message never leaves its sender",
          .outbox = with_random(seed, [](Random& random, std::vector<proto::Message>& messages) {
            if (!messages.empty() && random.chance(kShare)) messages.erase(messages.begin());
          })};
}

Plant double_end() {
  return {.name = "the last event comes twice", .events = [](std::vector<broker::Event>& events) {
            for (size_t i = 0; i < events.size(); i++) {
              const auto* token = std::get_if<broker::TokenEvent>(&events[i]);
              if (token == nullptr || token->chunk.finish == proto::Finish::kNone) continue;
              events.push_back(events[i]);
              return;
            }
          }};
}

Plant lost_event(uint64_t seed) {
  return {.name = "an event is lost",
          .events = with_random(seed, [](Random& random, std::vector<broker::Event>& events) {
            std::erase_if(events, [&](const broker::Event& event) {
              return std::holds_alternative<broker::TokenEvent>(event) && random.chance(kShare);
            });
          })};
}

Plant swapped_blocks(uint64_t seed) {
  return {.name = "two sequences share a KV block",
          .step = with_random(seed, [](Random& random, engine::Step& step) {
            if (step.block_tables.size() >= 2 && random.chance(kShare))
              step.block_tables[0][0] = step.block_tables[1][0];
          })};
}

Plant wrong_position(uint64_t seed) {
  return {.name = "a position is read one too early",
          .step = with_random(seed, [](Random& random, engine::Step& step) {
            if (step.columns[0].position > 0 && random.chance(kShare)) step.columns[0].position--;
          })};
}

}  // namespace

std::vector<Plant> planted_bugs(uint64_t seed) {
  std::vector<Plant> plants;
  plants.push_back(chunk_plant("a token is lost", seed, [](Envelopes&, proto::TokenChunk& chunk) {
    chunk.tokens.pop_back();
  }));
  plants.push_back(chunk_plant(
      "a token is doubled", seed,
      [](Envelopes&, proto::TokenChunk& chunk) { chunk.tokens.push_back(chunk.tokens.back()); }));
  plants.push_back(chunk_plant(
      "a token becomes another", seed,
      [](Envelopes&, proto::TokenChunk& chunk) { chunk.tokens[0] = (chunk.tokens[0] + 1) % 90; }));
  plants.push_back(chunk_plant("a chunk comes again under the next number", seed,
                               [](Envelopes& out, proto::TokenChunk&) {
                                 out.push_back(out[0]);
                                 std::get<proto::TokenChunk>(out[1].body).index++;
                               }));
  plants.push_back(
      chunk_plant("an answer ends early", seed, [](Envelopes&, proto::TokenChunk& chunk) {
        if (chunk.finish == proto::Finish::kNone) chunk.finish = proto::Finish::kLength;
      }));
  plants.push_back(losing_plant<proto::TokenChunk>(
      "the last chunk never comes",
      [](const proto::TokenChunk& chunk) { return chunk.finish == proto::Finish::kLength; }));
  plants.push_back(losing_plant<proto::Ack>("nothing is ever acknowledged",
                                            [](const proto::Ack&) { return true; }));
  plants.push_back(losing_plant<proto::Cancel>("nothing is ever cancelled",
                                               [](const proto::Cancel&) { return true; }));
  plants.push_back(losing_plant<proto::Shutdown>("nobody is ever told to stop",
                                                 [](const proto::Shutdown&) { return true; }));
  plants.push_back(forged_ready());
  plants.push_back(swapped_requests());
  plants.push_back(sequence_gap(seed));
  plants.push_back(double_end());
  plants.push_back(lost_event(seed));
  plants.push_back(swapped_blocks(seed));
  plants.push_back(wrong_position(seed));
  for (Plant& plant : planted_outliving_bugs()) plants.push_back(std::move(plant));
  return plants;
}

}  // namespace sim
