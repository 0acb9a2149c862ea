// The leader against a scripted runner: whatever shares the batch, each request's tokens equal
// those of its solo run.
#include "worker/leader.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/worker/scripted_runner.h"

namespace worker {
namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;

/// What a client of the leader saw.
struct Seen {
  std::vector<int32_t> tokens;
  std::vector<float> log_probabilities, last_logits;
  std::vector<int32_t> top_ids;
  std::vector<int> position_counts;
  uint64_t chunks = 0;
  proto::Finish finish = proto::Finish::kNone;
  proto::Usage usage;
  base::Error error;
};

class Client {
 public:
  explicit Client(ScriptedOptions options, LeaderOptions leader_options = {.token_count = 90})
      : runner_(std::move(options)), leader_(runner_, leader_options) {}

  Leader& leader() { return leader_; }
  ScriptedRunner& runner() { return runner_; }
  std::map<uint64_t, Seen>& seen() { return seen_; }
  bool acknowledge = true;

  base::Status tick() {
    now_ += kSecond / 1000;
    const base::Status status = leader_.tick(now_);
    drain();
    return status;
  }
  void run() {
    while (leader_.has_work()) ASSERT_TRUE(tick().ok());
  }
  void generate(proto::GenerateRequest request) {
    leader_.on_generate(std::move(request), "trace", now_);
    drain();
  }
  void score(proto::ScoreRequest request) {
    leader_.on_score(std::move(request), "trace", now_);
    drain();
  }
  void cancel(uint64_t id) {
    leader_.on_cancel(id, now_);
    drain();
  }
  void drain() {
    for (const Traced& traced : leader_.take_outbox()) {
      EXPECT_EQ(traced.trace_id, "trace");
      if (const auto* chunk = std::get_if<proto::TokenChunk>(&traced.body)) {
        Seen& seen = note(*chunk);
        seen.tokens.insert(seen.tokens.end(), chunk->tokens.begin(), chunk->tokens.end());
        seen.usage = chunk->usage;
      } else if (const auto* score = std::get_if<proto::ScoreChunk>(&traced.body)) {
        Seen& seen = note(*score);
        seen.position_counts.push_back(score->position_count);
        seen.log_probabilities.insert(seen.log_probabilities.end(),
                                      score->log_probabilities.begin(),
                                      score->log_probabilities.end());
        seen.top_ids.insert(seen.top_ids.end(), score->top_ids.begin(), score->top_ids.end());
        if (!score->last_logits.empty()) seen.last_logits = score->last_logits;
      }
    }
  }

 private:
  template <class Chunk>
  Seen& note(const Chunk& chunk) {
    Seen& seen = seen_[chunk.request_id];
    EXPECT_EQ(seen.finish, proto::Finish::kNone) << "a chunk after the last one";
    EXPECT_EQ(chunk.index, seen.chunks++);
    seen.finish = chunk.finish;
    seen.error = chunk.error;
    if (acknowledge) leader_.on_ack({chunk.request_id, chunk.index + 1}, now_);
    return seen;
  }

  ScriptedRunner runner_;
  Leader leader_;
  std::map<uint64_t, Seen> seen_;
  base::TimeNs now_ = 0;
};

std::vector<int32_t> prompt(size_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(length);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 97);
  return tokens;
}

proto::GenerateRequest request(uint64_t id, size_t length, int64_t max_tokens) {
  proto::GenerateRequest request{.request_id = id,
                                 .prompt = prompt(length, static_cast<uint32_t>(id)),
                                 .max_tokens = max_tokens};
  request.sampling.temperature = id % 3 == 0 ? 0.0f : 0.9f;
  request.sampling.seed = 77;
  request.choice_index = static_cast<uint32_t>(id % 2);
  return request;
}

Seen solo(const proto::GenerateRequest& request, ScriptedOptions options = {}) {
  options.columns_max = 512;
  Client client(options);
  client.generate(request);
  client.run();
  return client.seen()[request.request_id];
}

/// The tokens of a request by a loop without leader, batcher and chunks.
std::vector<int32_t> oracle(const proto::GenerateRequest& request) {
  ScriptedRunner runner({});
  engine::Sampler sampler(90, 97);
  const engine::SamplingParams params{
      .temperature = request.sampling.temperature, .seed = request.sampling.seed, .logit_bias = {}};
  std::vector<int32_t> tokens = request.prompt, generated;
  std::vector<int32_t> blocks(64);
  for (size_t i = 0; i < blocks.size(); i++) blocks[i] = static_cast<int32_t>(i);
  for (size_t position = 0; static_cast<int64_t>(generated.size()) < request.max_tokens;
       position++) {
    const auto output = runner.run({.columns = {{.token = tokens[position],
                                                 .position = static_cast<int64_t>(position),
                                                 .wants_logits = true}},
                                    .block_tables = {blocks}});
    if (position + 1 < tokens.size()) continue;
    generated.push_back(sampler.sample(output->logits, params, tokens,
                                       {.seed = request.sampling.seed,
                                        .prompt_index = request.prompt_index,
                                        .choice_index = request.choice_index,
                                        .position = tokens.size()}));
    tokens.push_back(generated.back());
  }
  return generated;
}

TEST(Leader, ASoloRunEqualsThePlainLoop) {
  for (uint64_t id = 1; id <= 12; id++) {
    proto::GenerateRequest wanted = request(id, 1 + id * 13, 40);
    wanted.prompt_index = static_cast<uint32_t>(id % 3);
    EXPECT_EQ(solo(wanted).tokens, oracle(wanted)) << id;
  }
}

TEST(Leader, EveryRequestEqualsItsSoloRunInAnyBatch) {
  for (const int columns_max : {1, 7, 32, 200}) {
    Client client({.kv_block_count = 40,
                   .columns_max = columns_max,
                   .logit_columns_max = columns_max == 32 ? 2 : columns_max});
    std::vector<proto::GenerateRequest> requests;
    for (uint64_t id = 1; id <= 24; id++)
      requests.push_back(request(id, 1 + id * id % 150, static_cast<int64_t>(1 + id * 7 % 60)));
    // Half of them arrive while the others run.
    for (size_t i = 0; i < 12; i++) client.generate(requests[i]);
    for (size_t i = 12; i < 24; i++) {
      ASSERT_TRUE(client.tick().ok());
      client.generate(requests[i]);
    }
    client.run();
    for (const auto& request : requests) {
      const Seen& seen = client.seen()[request.request_id];
      EXPECT_EQ(seen.tokens, solo(request).tokens) << request.request_id;
      EXPECT_EQ(seen.finish, proto::Finish::kLength);
      EXPECT_EQ(seen.usage.generated_tokens, request.max_tokens);
      EXPECT_EQ(seen.usage.prompt_tokens, static_cast<int64_t>(request.prompt.size()));
    }
    EXPECT_EQ(client.leader().stats().kv_blocks_used, 0);
    EXPECT_LE(client.leader().stats().kv_blocks_peak, 40);
  }
}

TEST(Leader, TheDrawDependsOnSeedChoiceAndPositionOnly) {
  proto::GenerateRequest a = request(1, 20, 30), b = a;
  b.request_id = 2;
  proto::GenerateRequest other_choice = a, other_seed = a;
  other_choice.choice_index = 5;
  other_seed.sampling.seed = 78;
  EXPECT_EQ(solo(a).tokens, solo(b).tokens);
  EXPECT_NE(solo(a).tokens, solo(other_choice).tokens);
  EXPECT_NE(solo(a).tokens, solo(other_seed).tokens);
}

TEST(Leader, NeverProducesAnIdWithoutAPiece) {
  for (const int32_t token : solo(request(1, 5, 2000), {.kv_block_count = 64}).tokens)
    ASSERT_LT(token, 90);
}

TEST(Leader, OwnChunkSizeIsObeyedAndChangesNothing) {
  proto::GenerateRequest chunked = request(1, 100, 10);
  chunked.prefill_chunk = 9;
  size_t widest = 0;
  Client client({.columns_max = 64, .before_step = [&](const engine::Step& step) {
                   widest = std::max(widest, step.columns.size());
                 }});
  client.generate(chunked);
  client.run();
  EXPECT_EQ(widest, 9u);
  EXPECT_EQ(client.seen()[1].tokens, solo(request(1, 100, 10)).tokens);
}

TEST(Leader, StopsAtAStopTokenAlsoWhenItIsTheLastOne) {
  const Seen free = solo(request(3, 10, 20));
  // A token that did not occur before; stopping at it ends the answer there.
  size_t place = 10;
  const auto stops_earlier = [&](int32_t id) {
    const auto end = free.tokens.begin() + static_cast<int>(place);
    return std::find(free.tokens.begin(), end, id) != end;
  };
  while (stops_earlier(free.tokens[place])) place++;
  for (const int32_t id : {89, 0, 1, 2}) ASSERT_FALSE(stops_earlier(id));
  proto::GenerateRequest stopping = request(3, 10, static_cast<int64_t>(place + 1));
  // In any order.
  stopping.stop_tokens = {free.tokens[place], 89, 0, 1, 2};
  const Seen seen = solo(stopping);
  EXPECT_EQ(seen.finish, proto::Finish::kStop);
  EXPECT_EQ(seen.tokens, std::vector<int32_t>(free.tokens.begin(),
                                              free.tokens.begin() + static_cast<int>(place + 1)));
}

TEST(Leader, PromptLongerThanTheContextIsRefusedWithBothNumbers) {
  Client client({.context = 128, .kv_block_count = 2});
  client.generate(request(1, 129, 1));
  EXPECT_EQ(client.seen()[1].finish, proto::Finish::kError);
  EXPECT_EQ(client.seen()[1].error.code, base::Code::kInvalidArgument);
  EXPECT_NE(client.seen()[1].error.message.find("129 tokens, which exceeds the context of 128"),
            std::string::npos);
}

TEST(Leader, GeneratesUpToTheEndOfTheContextAndNotFurther) {
  Client client({.context = 128, .kv_block_count = 4});
  client.generate(request(1, 128, 0));
  client.generate(request(2, 127, 50));
  client.generate(request(3, 100, 0));
  client.run();
  EXPECT_EQ(client.seen()[1].tokens.size(), 1u);
  EXPECT_EQ(client.seen()[2].tokens.size(), 2u);
  EXPECT_EQ(client.seen()[3].tokens.size(), 29u);
  for (const auto& [id, seen] : client.seen()) EXPECT_EQ(seen.finish, proto::Finish::kLength);
}

TEST(Leader, RefusesWhatCannotBeServedByName) {
  const auto error_of = [](auto change) {
    Client client({.kv_block_count = 3});
    proto::GenerateRequest bad = request(1, 10, 5);
    change(bad);
    client.generate(bad);
    EXPECT_FALSE(client.leader().has_work());
    EXPECT_EQ(client.seen()[1].finish, proto::Finish::kError);
    return client.seen()[1].error.message;
  };
  EXPECT_NE(error_of([](auto& r) { r.prompt[3] = 97; }).find("id 97"), std::string::npos);
  EXPECT_NE(error_of([](auto& r) { r.prompt[3] = -1; }).find("id -1"), std::string::npos);
  EXPECT_NE(error_of([](auto& r) { r.stop_tokens = {500}; }).find("id 500"), std::string::npos);
  EXPECT_NE(error_of([](auto& r) { r.sampling.top_p = 2; }).find("top_p"), std::string::npos);
  EXPECT_NE(error_of([](auto& r) { r.max_tokens = 1000; }).find("needs 16 KV blocks"),
            std::string::npos);
  EXPECT_NE(error_of([](auto& r) { r.prompt.clear(); }).find("no tokens"), std::string::npos);
}

TEST(Leader, TooManyRequestsAreRefusedAndTheOthersServed) {
  Client client({}, {.token_count = 90, .requests_max = 3});
  for (uint64_t id = 1; id <= 5; id++) client.generate(request(id, 5, 4));
  client.run();
  for (uint64_t id = 1; id <= 3; id++) EXPECT_EQ(client.seen()[id].finish, proto::Finish::kLength);
  for (uint64_t id = 4; id <= 5; id++)
    EXPECT_EQ(client.seen()[id].error.code, base::Code::kUnavailable);
  // What has ended and been acknowledged is forgotten.
  for (uint64_t id = 6; id <= 30; id++) {
    client.generate(request(id, 5, 4));
    client.run();
    EXPECT_EQ(client.seen()[id].finish, proto::Finish::kLength) << id;
  }
}

TEST(Leader, KeepsNothingOfWhatItHasNoRoomFor) {
  Client client({}, {.token_count = 90, .requests_max = 3});
  client.acknowledge = false;
  for (uint64_t id = 1; id <= 100; id++) client.generate(request(id, 5, 4));
  for (uint64_t id = 101; id <= 200; id++) client.score({.request_id = id, .tokens = {1, 2}});
  EXPECT_EQ(client.leader().kept().requests, 3u);
  client.run();
  EXPECT_EQ(client.leader().kept().requests, 3u);
  EXPECT_EQ(client.leader().kept().unacknowledged_most, 4u);
  EXPECT_EQ(client.seen()[150].error.code, base::Code::kUnavailable);
  // Asked again when there is room, one that was refused is served.
  for (uint64_t id = 1; id <= 3; id++) client.leader().on_ack({id, 4}, 0);
  EXPECT_EQ(client.leader().kept().requests, 0u);
  client.seen().clear();
  client.generate(request(50, 5, 4));
  client.run();
  EXPECT_EQ(client.seen()[50].finish, proto::Finish::kLength);
}

TEST(Leader, CancelAtAnyPointEndsThatRequestOnly) {
  // Blocks for two of the three: one of them waits while the others run.
  const auto a = request(1, 90, 20), b = request(2, 40, 80), c = request(4, 100, 20);
  for (int when = 0; when < 120; when += 3) {
    for (const uint64_t victim : {1, 2, 4}) {
      Client client({.kv_block_count = 4, .columns_max = 16});
      for (const auto& r : {a, b, c}) client.generate(r);
      for (int tick = 0; tick < when; tick++) ASSERT_TRUE(client.tick().ok());
      const bool was_done = client.seen()[victim].finish != proto::Finish::kNone;
      client.cancel(victim);
      client.cancel(victim);
      client.run();
      for (const auto& r : {a, b, c}) {
        const Seen& seen = client.seen()[r.request_id];
        std::vector<int32_t> expected = solo(r).tokens;
        if (r.request_id == victim && !was_done) {
          EXPECT_EQ(seen.finish, proto::Finish::kCancelled);
          ASSERT_LE(seen.tokens.size(), expected.size());
          expected.resize(seen.tokens.size());
        } else {
          EXPECT_EQ(seen.finish, proto::Finish::kLength);
        }
        EXPECT_EQ(seen.tokens, expected);
      }
      EXPECT_EQ(client.leader().stats().kv_blocks_used, 0);
    }
  }
}

TEST(Leader, ARouterFaultEndsOneRequestNamingTheLayer) {
  ScriptedOptions options{.columns_max = 16, .poison = 96};
  Client client(options);
  auto healthy = request(1, 40, 30), sick = request(2, 40, 30);
  std::replace(healthy.prompt.begin(), healthy.prompt.end(), 96, 95);
  std::replace(sick.prompt.begin(), sick.prompt.end(), 96, 95);
  sick.prompt[33] = 96;
  client.generate(healthy);
  client.generate(sick);
  client.run();
  EXPECT_EQ(client.seen()[1].tokens, solo(healthy).tokens);
  EXPECT_EQ(client.seen()[1].finish, proto::Finish::kLength);
  EXPECT_EQ(client.seen()[2].finish, proto::Finish::kError);
  EXPECT_NE(client.seen()[2].error.message.find("layer 3"), std::string::npos);
  EXPECT_NE(client.seen()[2].error.message.find("position 33"), std::string::npos);
  EXPECT_TRUE(client.seen()[2].tokens.empty());
  // The next request on that worker is as good as ever.
  auto next = request(4, 40, 30);
  std::replace(next.prompt.begin(), next.prompt.end(), 96, 95);
  client.generate(next);
  client.run();
  EXPECT_EQ(client.seen()[4].tokens, solo(next).tokens);
}

TEST(Leader, ARunnerErrorIsForWhoeverRunsTheLeader) {
  Client client({.fail_at_step = 5});
  client.generate(request(1, 5, 50));
  client.generate(request(2, 5, 2));
  base::Status status;
  while (status.ok()) status = client.tick();
  EXPECT_EQ(status.error().code, base::Code::kPeerLost);
  EXPECT_EQ(status.error().message, "rank 1 stopped answering");
  EXPECT_EQ(client.seen()[1].finish, proto::Finish::kNone) << "it may go on in another group";
  EXPECT_EQ(client.seen()[1].tokens.size(), 5u);
  EXPECT_EQ(client.seen()[2].finish, proto::Finish::kLength) << "it was done before";
}

TEST(Leader, LargeRequestIsNotOvertaken) {
  Client client({.kv_block_count = 4});
  client.generate(request(1, 100, 28));  // 2 blocks
  client.generate(request(2, 200, 50));  // 4 blocks: waits for all of them
  client.generate(request(3, 10, 5));    // 1 block, free, but behind the large one
  while (client.leader().has_work()) {
    ASSERT_TRUE(client.tick().ok());
    if (client.seen()[2].tokens.empty()) {
      ASSERT_TRUE(client.seen()[3].tokens.empty());
    }
  }
  EXPECT_EQ(client.seen()[2].tokens.size(), 50u);
  EXPECT_EQ(client.seen()[3].tokens.size(), 5u);
}

TEST(Leader, ChunksAreSentAgainUntilAcknowledged) {
  Client client({});
  ScriptedRunner& runner = client.runner();
  Leader leader(runner, {.token_count = 90, .resend_after = kSecond});
  leader.on_generate(request(1, 5, 3), "", 0);
  for (int i = 0; i < 3; i++) ASSERT_TRUE(leader.tick(0).ok());
  EXPECT_EQ(leader.take_outbox().size(), 4u);  // accepted and three tokens
  ASSERT_TRUE(leader.tick(kSecond - 1).ok());
  EXPECT_TRUE(leader.take_outbox().empty());
  ASSERT_TRUE(leader.tick(kSecond).ok());
  EXPECT_EQ(leader.take_outbox().size(), 3u);
  ASSERT_TRUE(leader.tick(kSecond + 1).ok());
  EXPECT_TRUE(leader.take_outbox().empty()) << "again only after as long again";
  leader.on_ack({1, 2}, kSecond);
  leader.on_ack({1, 1}, kSecond);   // old
  leader.on_ack({1, 99}, kSecond);  // nonsense
  ASSERT_TRUE(leader.tick(2 * kSecond).ok());
  const auto again = leader.take_outbox();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(std::get<proto::TokenChunk>(again[0].body).index, 2u);
  leader.on_ack({1, 3}, 2 * kSecond);
  ASSERT_TRUE(leader.tick(9 * kSecond).ok());
  EXPECT_TRUE(leader.take_outbox().empty());
}

TEST(Leader, WithoutAcknowledgementsARequestPausesAndTheOthersGoOn) {
  ScriptedRunner runner({});
  Leader leader(runner, {.token_count = 90, .unacknowledged_max = 4});
  leader.on_generate(request(1, 5, 50), "", 0);
  leader.on_generate(request(2, 5, 50), "", 0);
  std::map<uint64_t, std::vector<int32_t>> tokens;
  const auto drain = [&](auto wanted) {
    for (const Traced& traced : leader.take_outbox())
      if (const auto* chunk = std::get_if<proto::TokenChunk>(&traced.body)) {
        tokens[chunk->request_id].push_back(chunk->tokens.at(0));
        if (wanted(chunk->request_id)) leader.on_ack({chunk->request_id, chunk->index + 1}, 0);
      }
  };
  while (leader.has_work()) {
    ASSERT_TRUE(leader.tick(0).ok());
    drain([](uint64_t id) { return id == 2; });
  }
  EXPECT_EQ(tokens[1].size(), 4u);
  EXPECT_EQ(tokens[2], solo(request(2, 5, 50)).tokens);
  leader.on_ack({1, 4}, 0);
  while (leader.has_work()) {
    ASSERT_TRUE(leader.tick(0).ok());
    drain([](uint64_t) { return true; });
  }
  EXPECT_EQ(tokens[1], solo(request(1, 5, 50)).tokens);
}

TEST(Leader, AskingTwiceStartsOnce) {
  Client client({});
  client.generate(request(1, 5, 6));
  client.generate(request(1, 5, 6));
  client.run();
  EXPECT_EQ(client.seen()[1].tokens, solo(request(1, 5, 6)).tokens);
}

TEST(Leader, ScoresDoNotDependOnChunksOrCompany) {
  const proto::ScoreRequest whole{.request_id = 1,
                                  .tokens = prompt(70, 5),
                                  .first_scored = 36,
                                  .want_top = true,
                                  .want_last = true};
  Client reference({.columns_max = 512, .logit_columns_max = 512});
  reference.score(whole);
  reference.run();
  const Seen expected = reference.seen()[1];
  EXPECT_EQ(expected.finish, proto::Finish::kStop);
  EXPECT_EQ(expected.log_probabilities.size(), 34u);
  EXPECT_EQ(expected.top_ids.size(), 70u * 8);
  EXPECT_EQ(expected.last_logits.size(), 97u);
  for (const int chunk : {1, 3, 17, 64}) {
    Client client({.columns_max = 24, .logit_columns_max = 10});
    proto::ScoreRequest part = whole;
    part.chunk = chunk;
    client.generate(request(2, 50, 60));
    client.score(part);
    client.generate(request(3, 50, 60));
    client.run();
    const Seen& seen = client.seen()[1];
    EXPECT_EQ(seen.log_probabilities, expected.log_probabilities);
    EXPECT_EQ(seen.top_ids, expected.top_ids);
    EXPECT_EQ(seen.last_logits, expected.last_logits);
    for (const int count : seen.position_counts) EXPECT_LE(count, chunk);
    EXPECT_EQ(client.seen()[2].tokens, solo(request(2, 50, 60)).tokens);
  }
}

TEST(Leader, ScoresOnlyWhatWasAskedFor) {
  Client client({});
  client.score({.request_id = 1, .tokens = prompt(70, 5), .first_scored = 69});
  client.score({.request_id = 2, .tokens = prompt(70, 5)});
  client.score({.request_id = 3, .tokens = {}});
  client.score({.request_id = 4, .tokens = {1, 2, 97}});
  client.run();
  EXPECT_EQ(client.seen()[1].log_probabilities.size(), 1u);
  EXPECT_TRUE(client.seen()[1].top_ids.empty());
  EXPECT_TRUE(client.seen()[1].last_logits.empty());
  EXPECT_TRUE(client.seen()[2].log_probabilities.empty());
  EXPECT_EQ(client.seen()[2].finish, proto::Finish::kStop);
  EXPECT_EQ(client.seen()[3].finish, proto::Finish::kError);
  EXPECT_EQ(client.seen()[4].finish, proto::Finish::kError);
}

}  // namespace
}  // namespace worker
