#include "worker/worker.h"

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/limits.h"
#include "tests/worker/scripted_runner.h"

namespace worker {
namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;

WorkerOptions options(int rank = 0) {
  return {
      .node_id = "w", .incarnation = 7, .rank = rank, .rank_count = 2, .model_fingerprint = "f"};
}

proto::Message from_broker(proto::Body body, uint64_t epoch = 3) {
  return proto::encode({{.node_id = "broker", .plan_epoch = epoch}, std::move(body)});
}

std::vector<proto::Envelope> sent(Worker& worker) {
  std::vector<proto::Envelope> envelopes;
  for (const proto::Message& message : worker.take_outbox()) {
    auto parsed = proto::parse(message);
    EXPECT_TRUE(parsed.ok());
    envelopes.push_back(*parsed);
  }
  return envelopes;
}

TEST(Worker, TellsWhereItsMemoryLiesOnceItIsLoaded) {
  class Source final : public PlacementSource {
   public:
    proto::PlacementReply placement() const override { return {.rank = 1, .source = "looked"}; }
  };
  const Source source;
  Worker worker(options(1));
  worker.on_message(from_broker(proto::HelloReply{.accepted = true, .plan_epoch = 3}), 0);
  worker.on_message(from_broker(proto::PlacementRequest{}), 0);
  EXPECT_TRUE(sent(worker).empty()) << "there is nothing to look at yet";
  worker.show_placement(source);
  worker.loaded({.vocabulary = 1, .context = 1, .columns_max = 1});
  sent(worker);
  worker.on_message(from_broker(proto::PlacementRequest{}, 2), 0);
  EXPECT_TRUE(sent(worker).empty()) << "of another epoch";
  worker.on_message(from_broker(proto::PlacementRequest{}), 0);
  const auto answers = sent(worker);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(std::get<proto::PlacementReply>(answers[0].body).source, "looked");
}

TEST(Worker, SaysHelloUntilAnswered) {
  Worker worker(options());
  worker.on_tick(0);
  auto first = sent(worker);
  ASSERT_EQ(first.size(), 1u);
  const auto& hello = std::get<proto::Hello>(first[0].body);
  EXPECT_EQ(hello.rank_count, 2);
  EXPECT_EQ(hello.model_fingerprint, "f");
  EXPECT_EQ(hello.numerics_version, base::kNumericsVersion);
  EXPECT_EQ(first[0].header.incarnation, 7u);
  worker.on_tick(1);
  EXPECT_TRUE(sent(worker).empty());
  worker.on_tick(kSecond);
  EXPECT_EQ(sent(worker).size(), 1u);
  worker.on_message(from_broker(proto::HelloReply{.accepted = true, .plan_epoch = 3}), kSecond);
  EXPECT_EQ(worker.state(), Worker::State::kLoading);
  worker.on_tick(9 * kSecond);
  EXPECT_TRUE(sent(worker).empty());
}

TEST(Worker, ARefusalEndsIt) {
  Worker worker(options());
  worker.on_message(from_broker(proto::HelloReply{.accepted = false, .reason = "no"}, 0), 0);
  EXPECT_EQ(worker.state(), Worker::State::kFailed);
  EXPECT_NE(worker.reason().message.find("no"), std::string::npos);
}

TEST(Worker, AFollowerIsReadyUntilAnsweredAndStops) {
  Worker worker(options(1));
  worker.on_message(from_broker(proto::HelloReply{.accepted = true, .plan_epoch = 3}), 0);
  worker.load_progress(5, 10);
  auto progress = sent(worker);
  ASSERT_EQ(progress.size(), 1u);
  EXPECT_EQ(std::get<proto::LoadProgress>(progress[0].body).bytes_done, 5u);
  EXPECT_EQ(progress[0].header.plan_epoch, 3u);
  worker.loaded({.vocabulary = 97, .context = 100, .columns_max = 8, .arena_bytes = 1234});
  worker.on_tick(0);
  worker.on_tick(kSecond);
  auto ready = sent(worker);
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(std::get<proto::Ready>(ready[1].body).arena_bytes, 1234u);
  worker.on_message(from_broker(proto::ReadyReply{}), kSecond);
  worker.on_tick(2 * kSecond - 1);
  EXPECT_TRUE(sent(worker).empty());
  worker.on_message(from_broker(proto::Shutdown{"bye"}), 2 * kSecond);
  EXPECT_EQ(worker.state(), Worker::State::kStopped);
}

TEST(Worker, SaysNowAndThenThatItIsThere) {
  // So that it hears of a shutdown it has missed, even if it has nothing else to say.
  Worker worker(options(1));
  worker.on_message(from_broker(proto::HelloReply{.accepted = true, .plan_epoch = 3}), 0);
  worker.loaded({.vocabulary = 97, .context = 100, .columns_max = 8});
  worker.on_tick(0);
  worker.on_message(from_broker(proto::ReadyReply{}), 0);
  sent(worker);
  int said = 0;
  for (base::TimeNs now = 0; now <= 20 * kSecond; now += kSecond / 10) {
    worker.on_tick(now);
    for (const proto::Envelope& envelope : sent(worker)) {
      EXPECT_TRUE(std::holds_alternative<proto::Ready>(envelope.body));
      said++;
    }
  }
  EXPECT_EQ(said, 20);
}

struct Leading {
  ScriptedRunner runner;
  Worker worker{options()};

  explicit Leading(ScriptedOptions scripted = {}) : runner(std::move(scripted)) {
    worker.on_message(from_broker(proto::HelloReply{.accepted = true, .plan_epoch = 3}), 0);
    worker.lead({}, runner, {.token_count = 97}, nullptr);
    worker.on_message(from_broker(proto::ReadyReply{}), 0);
    worker.on_tick(0);
    sent(worker);
  }
};

TEST(Worker, TheLeaderServesRequestsOfItsEpochOnly) {
  Leading leading;
  Worker& worker = leading.worker;
  const proto::GenerateRequest request{.request_id = 1, .prompt = {1, 2, 3}, .max_tokens = 2};
  worker.on_message(from_broker(request, 2), 0);
  worker.on_message(from_broker(request, 4), 0);
  EXPECT_FALSE(worker.has_work());
  worker.on_message(from_broker(request), 0);
  EXPECT_TRUE(worker.has_work());
  worker.on_tick(0);
  worker.on_tick(0);
  EXPECT_FALSE(worker.has_work());
  EXPECT_EQ(sent(worker).size(), 3u);
  worker.on_message(from_broker(proto::StatsRequest{}), 0);
  const auto stats = std::get<proto::StatsReply>(sent(worker).at(0).body);
  EXPECT_EQ(stats.steps, 2u);
  EXPECT_EQ(stats.columns, 4u);
}

TEST(Worker, ARunnerErrorIsToldAndEndsNoRequest) {
  Leading leading({.fail_at_step = 0});
  leading.worker.on_message(from_broker(proto::GenerateRequest{.request_id = 1, .prompt = {1}}), 0);
  leading.worker.on_tick(0);
  const auto envelopes = sent(leading.worker);
  ASSERT_EQ(envelopes.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<proto::Accepted>(envelopes[0].body));
  EXPECT_EQ(std::get<proto::WorkerFailed>(envelopes[1].body).error.code, base::Code::kPeerLost);
  EXPECT_EQ(leading.worker.state(), Worker::State::kFailed);
  leading.worker.on_tick(9 * kSecond);
  EXPECT_TRUE(sent(leading.worker).empty());
}

TEST(Worker, ARequestThatCannotBeReadIsAnsweredWithWhy) {
  Leading leading;
  const auto answer = [&](proto::Body request, uint64_t epoch = 3) {
    leading.worker.on_message(from_broker(std::move(request), epoch), 0);
    return sent(leading.worker);
  };
  const auto tokens = answer(proto::GenerateRequest{.request_id = 4, .prompt = {1, -2}});
  ASSERT_EQ(tokens.size(), 1u);
  const auto& chunk = std::get<proto::TokenChunk>(tokens[0].body);
  EXPECT_EQ(chunk.request_id, 4u);
  EXPECT_EQ(chunk.index, 0u);
  EXPECT_EQ(chunk.finish, proto::Finish::kError);
  EXPECT_NE(chunk.error.message.find("prompt"), std::string::npos) << chunk.error.message;
  const auto scores = answer(proto::ScoreRequest{.request_id = 5, .tokens = {}});
  ASSERT_EQ(scores.size(), 1u);
  EXPECT_EQ(std::get<proto::ScoreChunk>(scores[0].body).request_id, 5u);
  EXPECT_EQ(std::get<proto::ScoreChunk>(scores[0].body).finish, proto::Finish::kError);
  EXPECT_TRUE(answer(proto::GenerateRequest{.request_id = 6, .prompt = {-1}}, 2).empty());
  EXPECT_TRUE(answer(proto::GenerateRequest{.request_id = 0, .prompt = {1}}).empty());
  EXPECT_FALSE(leading.worker.has_work());
}

TEST(Worker, NoiseIsDroppedAndForeignVersionsEndIt) {
  Leading leading;
  leading.worker.on_message({{"noise"}}, 0);
  leading.worker.on_message({}, 0);
  EXPECT_EQ(leading.worker.state(), Worker::State::kReady);
  leading.worker.on_message({{std::string("\x08\x09\x10\x02", 4)}}, 0);  // wire version 9.2
  EXPECT_EQ(leading.worker.state(), Worker::State::kFailed);
  EXPECT_NE(leading.worker.reason().message.find("9.2"), std::string::npos);
  EXPECT_NE(
      leading.worker.reason().message.find(base::cat(proto::kWireMajor, ".", proto::kWireMinor)),
      std::string::npos);
}

}  // namespace
}  // namespace worker
