// Requests that go on in another leader: from their tokens alone, or from sealed KV blocks.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/worker/remembered_blocks.h"
#include "tests/worker/scripted_runner.h"
#include "worker/leader.h"

namespace worker {
namespace {

struct Seen {
  std::vector<int32_t> tokens;
  uint64_t next_index = 0;
  proto::Finish finish = proto::Finish::kNone;
  proto::Usage usage;
  base::Error error;
};

/// What outlives leaders: answers, the KV pool, what is sealed in it.
struct Group {
  ScriptedRunner runner;
  RememberedBlocks sealed;
  bool keeps_blocks = false;
  std::map<uint64_t, Seen> seen;
  std::map<uint64_t, proto::GenerateRequest> requests;
  std::optional<Leader> leader;

  explicit Group(ScriptedOptions options) : runner(std::move(options)) { restart(); }
  void restart() {
    leader.emplace(runner, LeaderOptions{.token_count = 90,
                                         .sealed_blocks = keeps_blocks ? &sealed : nullptr});
    for (const auto& [id, request] : requests) send(id);
  }
  void generate(const proto::GenerateRequest& request) {
    requests[request.request_id] = request;
    send(request.request_id);
  }
  void send(uint64_t id) {
    if (seen[id].finish != proto::Finish::kNone) return;
    proto::GenerateRequest request = requests.at(id);
    request.generated = seen[id].tokens;
    request.first_index = seen[id].next_index;
    leader->on_generate(request, "", 0);
    drain();
  }
  void drain() {
    for (const Traced& traced : leader->take_outbox()) {
      const auto* chunk = std::get_if<proto::TokenChunk>(&traced.body);
      if (chunk == nullptr) continue;
      Seen& one = seen[chunk->request_id];
      ASSERT_EQ(one.finish, proto::Finish::kNone);
      ASSERT_EQ(chunk->index, one.next_index++);
      one.tokens.insert(one.tokens.end(), chunk->tokens.begin(), chunk->tokens.end());
      one.finish = chunk->finish;
      one.usage = chunk->usage;
      one.error = chunk->error;
      leader->on_ack({chunk->request_id, chunk->index + 1}, 0);
    }
  }
  void tick() {
    ASSERT_TRUE(leader->tick(0).ok());
    drain();
  }
  void run() {
    while (leader->has_work()) tick();
  }
};

proto::GenerateRequest request(uint64_t id, size_t length, int64_t max_tokens) {
  std::mt19937 random(static_cast<uint32_t>(id));
  proto::GenerateRequest request{
      .request_id = id, .prompt = std::vector<int32_t>(length), .max_tokens = max_tokens};
  for (int32_t& token : request.prompt) token = static_cast<int32_t>(random() % 90);
  request.sampling.seed = 7;
  request.sampling.repeat_penalty = id % 2 == 0 ? 1.2f : 1.0f;
  request.sampling.penalty_window = 30;
  return request;
}

Seen solo(const proto::GenerateRequest& request) {
  Group group({.columns_max = 512});
  group.generate(request);
  group.run();
  return group.seen[request.request_id];
}

TEST(Resume, ARequestGoesOnAtAnyTokenAsIfNothingHadBeen) {
  const proto::GenerateRequest wanted = request(2, 70, 40);
  const Seen right = solo(wanted);
  for (size_t tokens = 0; tokens < right.tokens.size(); tokens++) {
    Group group({.columns_max = 16});
    group.generate(wanted);
    while (group.seen[2].tokens.size() < tokens) group.tick();
    group.restart();
    group.run();
    EXPECT_EQ(group.seen[2].tokens, right.tokens) << tokens;
    EXPECT_EQ(group.seen[2].finish, proto::Finish::kLength);
    EXPECT_EQ(group.seen[2].usage.prompt_tokens, 70);
    EXPECT_EQ(group.seen[2].usage.generated_tokens, 40);
    EXPECT_EQ(group.leader->stats().kv_blocks_used, 0);
  }
}

TEST(Resume, WhatHasEndedAlreadyEndsAtOnceWithTheRightFinish) {
  const auto resumed = [](std::vector<int32_t> generated, std::vector<int32_t> stops,
                          int64_t max_tokens) {
    ScriptedRunner runner({.context = 64});
    Leader leader(runner, {.token_count = 90});
    leader.on_generate({.request_id = 1,
                        .prompt = std::vector<int32_t>(60, 3),
                        .max_tokens = max_tokens,
                        .stop_tokens = std::move(stops),
                        .generated = std::move(generated),
                        .first_index = 4},
                       "", 0);
    EXPECT_FALSE(leader.has_work());
    const auto out = leader.take_outbox();
    EXPECT_EQ(out.size(), 2u);
    EXPECT_EQ(leader.stats().kv_blocks_used, 0);
    return std::get<proto::TokenChunk>(out.back().body);
  };
  const auto stopped = resumed({5, 6, 7}, {9, 7, 2}, 10);
  EXPECT_EQ(stopped.finish, proto::Finish::kStop);
  EXPECT_EQ(stopped.index, 4u);
  EXPECT_TRUE(stopped.tokens.empty());
  EXPECT_EQ(stopped.usage.prompt_tokens, 60);
  EXPECT_EQ(stopped.usage.generated_tokens, 3);
  EXPECT_EQ(resumed({5, 6, 7}, {}, 3).finish, proto::Finish::kLength);
  EXPECT_EQ(resumed({5, 6, 7}, {7}, 3).finish, proto::Finish::kStop) << "also at the limit";
  EXPECT_EQ(resumed({5, 6, 7, 8, 9}, {}, 0).finish, proto::Finish::kLength) << "of the context";
  EXPECT_EQ(resumed({5, 90 + 7}, {}, 0).error.code, base::Code::kInvalidArgument);
  EXPECT_EQ(resumed({5, 90 + 7}, {}, 0).index, 4u);
}

TEST(Resume, ARefusalHasTheNextNumber) {
  ScriptedRunner runner({});
  Leader leader(runner, {.token_count = 90, .requests_max = 0});
  leader.on_generate({.request_id = 1, .prompt = {1}, .generated = {2, 3}, .first_index = 2}, "",
                     0);
  const auto out = leader.take_outbox();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(std::get<proto::TokenChunk>(out[0].body).index, 2u);
}

TEST(Resume, SealedBlocksAreNotComputedAgain) {
  std::vector<std::pair<int64_t, int32_t>> computed;  // position and token
  Group group({.columns_max = 50, .before_step = [&](const engine::Step& step) {
                 for (const engine::Column& column : step.columns)
                   computed.emplace_back(column.position, column.token);
               }});
  group.keeps_blocks = true;
  group.restart();
  const proto::GenerateRequest wanted = request(2, 150, 80);
  group.generate(wanted);
  while (group.seen[2].tokens.size() < 60) group.tick();
  computed.clear();
  group.restart();
  group.run();
  EXPECT_EQ(group.seen[2].tokens, solo(wanted).tokens);
  // 150 + 60 tokens were known: three blocks hold 192 of them.
  EXPECT_EQ(group.sealed.found(), 3);
  ASSERT_EQ(computed.size(), 150u + 80 - 1 - 192);
  for (size_t i = 0; i < computed.size(); i++)
    EXPECT_EQ(computed[i].first, static_cast<int64_t>(192 + i));
  // In the middle of a prompt, too.
  const proto::GenerateRequest longer = request(4, 400, 5);
  group.generate(longer);
  for (int tick = 0; tick < 5; tick++) group.tick();
  computed.clear();
  group.restart();
  group.run();
  EXPECT_EQ(computed.front().first, 192);
  EXPECT_EQ(group.seen[4].tokens, solo(longer).tokens);
}

TEST(Resume, TheLastKnownTokenIsAlwaysComputed) {
  // 128 tokens fill two blocks; only one may be taken, or there would be no logits to draw from.
  Group group({});
  group.keeps_blocks = true;
  group.restart();
  const proto::GenerateRequest wanted = request(1, 100, 60);
  group.generate(wanted);
  while (group.seen[1].tokens.size() < 28) group.tick();
  group.tick();  // the 128th position is computed: its block is sealed
  group.seen[1].tokens.resize(28);
  group.seen[1].next_index = 28;
  group.restart();
  EXPECT_EQ(group.sealed.sealed().size(), 2u);
  group.run();
  EXPECT_EQ(group.sealed.found(), 1);
  EXPECT_EQ(group.seen[1].tokens, solo(wanted).tokens);
}

TEST(Resume, ScoresComputeEveryPosition) {
  Group group({.columns_max = 64});
  group.keeps_blocks = true;
  group.restart();
  const auto tokens = request(1, 200, 1).prompt;
  const auto score = [&](uint64_t id, int64_t first_scored) {
    group.leader->on_score({.request_id = id, .tokens = tokens, .first_scored = first_scored}, "",
                           0);
    std::vector<float> all;
    int64_t positions = 0;
    while (group.leader->has_work()) {
      EXPECT_TRUE(group.leader->tick(0).ok());
      for (const Traced& traced : group.leader->take_outbox()) {
        const auto* chunk = std::get_if<proto::ScoreChunk>(&traced.body);
        if (chunk == nullptr) continue;
        EXPECT_EQ(chunk->first_position, positions);
        positions += chunk->position_count;
        all.insert(all.end(), chunk->log_probabilities.begin(), chunk->log_probabilities.end());
      }
    }
    EXPECT_EQ(positions, 200);
    return all;
  };
  const auto first = score(1, 1);
  EXPECT_EQ(first.size(), 199u);
  EXPECT_EQ(score(2, 1), first);
  EXPECT_EQ(score(3, 190), std::vector<float>(first.end() - 10, first.end()));
}

TEST(Resume, AFaultSealsNothingOfItsStep) {
  Group group({.columns_max = 512, .poison = 96});
  group.keeps_blocks = true;
  group.restart();
  proto::GenerateRequest sick = request(1, 200, 5);
  sick.prompt[190] = 96;
  group.generate(sick);
  group.run();
  EXPECT_EQ(group.seen[1].finish, proto::Finish::kError);
  EXPECT_TRUE(group.sealed.sealed().empty());
}

// Blocks are scarce, so what is sealed is overwritten all the time; crashes come at any moment.
TEST(Resume, ManyRequestsCrashesAndFewBlocks) {
  int64_t found = 0;
  for (uint32_t seed = 1; seed <= 20; seed++) {
    std::mt19937 random(seed);
    Group group({.kv_block_count = 8 + static_cast<int32_t>(seed % 9),
                 .columns_max = 1 + static_cast<int>(random() % 64)});
    group.keeps_blocks = true;
    group.restart();
    for (uint64_t id = 1; id <= 8; id++)
      group.generate(request(id, 1 + random() % 300, 1 + static_cast<int64_t>(random() % 120)));
    for (int crashes = 0; crashes < 6; crashes++) {
      for (auto ticks = random() % 60; ticks > 0 && group.leader->has_work(); ticks--) group.tick();
      group.restart();
    }
    group.run();
    for (const auto& [id, wanted] : group.requests)
      ASSERT_EQ(group.seen[id].tokens, solo(wanted).tokens) << "seed " << seed << " request " << id;
    EXPECT_EQ(group.leader->stats().kv_blocks_used, 0);
    found += group.sealed.found();
  }
  EXPECT_GT(found, 100);
}

TEST(Resume, ForgettingAllFreesEverything) {
  Group group({.kv_block_count = 12});
  for (uint64_t id = 1; id <= 6; id++) group.generate(request(id, 100, 100));
  for (int tick = 0; tick < 20; tick++) group.tick();
  EXPECT_GT(group.leader->stats().kv_blocks_used, 0);
  group.leader->forget_all();
  EXPECT_EQ(group.leader->stats().kv_blocks_used, 0);
  EXPECT_EQ(group.leader->kept().requests, 0u);
  EXPECT_FALSE(group.leader->has_work());
  EXPECT_TRUE(group.leader->take_outbox().empty());
  // Ids are free again, and the whole pool is.
  group.requests.clear();
  group.seen.clear();
  const auto wanted = request(3, 400, 300);
  group.generate(wanted);
  group.run();
  EXPECT_EQ(group.seen[3].tokens, solo(wanted).tokens);
}

}  // namespace
}  // namespace worker
