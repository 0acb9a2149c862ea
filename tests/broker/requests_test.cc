// The half of Broker that follows requests (broker/requests.cc), by messages made by hand.
#include <gtest/gtest.h>

#include <optional>

#include "base/limits.h"
#include "tests/broker/alone.h"

namespace broker {
namespace {

TEST(Broker, ALeaderThatAnswersNonsenseIsDropped) {
  Broker broker({.rank_count = 1, .model_fingerprint = "model"});
  const proto::Hello hello{.numerics_version = base::kNumericsVersion,
                           .model_fingerprint = "model"};
  broker.on_message("a#1", Alone::from("a", 1, hello), 0);
  broker.on_message(
      "a#1", Alone::from("a", 1, proto::Ready{.vocabulary = 9, .context = 9, .columns_max = 9}, 1),
      0);
  ASSERT_TRUE(broker.ready());
  const uint64_t id = *broker.generate({.prompt = {1}}, 0);
  broker.on_message("a#1",
                    Alone::from("a", 1, proto::TokenChunk{.request_id = id, .tokens = {8}}, 1), 0);
  EXPECT_TRUE(broker.ready());
  broker.on_message(
      "a#1", Alone::from("a", 1, proto::TokenChunk{.request_id = id, .index = 1, .tokens = {9}}, 1),
      0);
  EXPECT_FALSE(broker.ready());
  EXPECT_EQ(broker.live_requests(), 0);
  // The chunk that was not believed takes no number.
  uint64_t next = 0;
  for (const Event& event : broker.take_events())
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      EXPECT_EQ(token->chunk.index, next++);
    }
  EXPECT_EQ(next, 2u);
}

TEST(Broker, RepeatedAndEarlyChunksAreAnsweredWithWhatIsHere) {
  Broker broker({.rank_count = 1, .model_fingerprint = "model"});
  const proto::Hello hello{.numerics_version = base::kNumericsVersion,
                           .model_fingerprint = "model"};
  broker.on_message("a#1", Alone::from("a", 1, hello), 0);
  broker.on_message(
      "a#1", Alone::from("a", 1, proto::Ready{.vocabulary = 9, .context = 9, .columns_max = 9}, 1),
      0);
  const uint64_t id = *broker.generate({.prompt = {1}}, 0);
  broker.take_outbox();
  broker.take_events();
  // The index sent, and the next one that an answer names; none if there is no answer.
  const std::pair<uint64_t, std::optional<uint64_t>> cases[] = {
      {0, std::nullopt}, {0, 1}, {5, 1}, {1, std::nullopt}, {0, 2}};
  for (const auto& [index, answer] : cases) {
    const proto::TokenChunk chunk{.request_id = id, .index = index, .tokens = {3}};
    broker.on_message("a#1", Alone::from("a", 1, chunk, 1), 0);
    const auto out = broker.take_outbox();
    ASSERT_EQ(out.size(), answer ? 1u : 0u) << index;
    if (answer) {
      EXPECT_EQ(std::get<proto::Ack>(proto::parse(out[0].message)->body).next_index, *answer);
    }
  }
  EXPECT_EQ(broker.take_events().size(), 2u);
  EXPECT_EQ(broker.tokens(id), (std::vector<int32_t>{1, 3, 3}));
}

TEST(Broker, AFewChunksAreAcknowledgedAfterAWhile) {
  Broker broker({.rank_count = 1, .model_fingerprint = "model", .acknowledge_after = 100});
  const proto::Hello hello{.numerics_version = base::kNumericsVersion,
                           .model_fingerprint = "model"};
  broker.on_message("a#1", Alone::from("a", 1, hello), 0);
  broker.on_message(
      "a#1", Alone::from("a", 1, proto::Ready{.vocabulary = 9, .context = 9, .columns_max = 9}, 1),
      0);
  const uint64_t id = *broker.generate({.prompt = {1}}, 0);
  const proto::TokenChunk chunk{.request_id = id, .tokens = {3}};
  broker.on_message("a#1", Alone::from("a", 1, chunk, 1), 1000);
  broker.take_outbox();
  broker.on_tick(1099);
  EXPECT_TRUE(broker.take_outbox().empty());
  broker.on_tick(1100);
  const auto out = broker.take_outbox();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(std::get<proto::Ack>(proto::parse(out[0].message)->body).next_index, 1u);
  broker.on_tick(5000);
  EXPECT_TRUE(broker.take_outbox().empty()) << "once";
}

TEST(Broker, ChunksOfNobodyAreAcknowledgedAndCancelled) {
  Broker broker({.rank_count = 1, .model_fingerprint = "model"});
  const proto::Hello hello{.numerics_version = base::kNumericsVersion,
                           .model_fingerprint = "model"};
  broker.on_message("a#1", Alone::from("a", 1, hello), 0);
  broker.on_message(
      "a#1", Alone::from("a", 1, proto::Ready{.vocabulary = 9, .context = 9, .columns_max = 9}, 1),
      0);
  broker.take_outbox();
  broker.on_message("a#1", Alone::from("a", 1, proto::TokenChunk{.request_id = 5, .index = 3}, 1),
                    0);
  const auto out = broker.take_outbox();
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(std::get<proto::Ack>(proto::parse(out[0].message)->body).next_index, 4u);
  EXPECT_EQ(std::get<proto::Cancel>(proto::parse(out[1].message)->body).request_id, 5u);
}

}  // namespace
}  // namespace broker
