#include "proto/envelope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "base/limits.h"
#include "proto/codec.h"

namespace proto {
namespace {

Envelope envelope(Body body) {
  return {.header = {.node_id = "node-1",
                     .incarnation = 0xfedcba9876543210u,
                     .plan_epoch = 5,
                     .trace_id = "t-1",
                     .sequence = 99},
          .body = std::move(body)};
}

/// Encodes and parses again.
Body round_trip(Body body) {
  const auto parsed = parse(encode(envelope(std::move(body))));
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->header.node_id, "node-1");
  EXPECT_EQ(parsed->header.incarnation, 0xfedcba9876543210u);
  EXPECT_EQ(parsed->header.plan_epoch, 5u);
  EXPECT_EQ(parsed->header.trace_id, "t-1");
  EXPECT_EQ(parsed->header.sequence, 99u);
  return parsed->body;
}

std::string refusal(const Message& message) {
  const auto parsed = parse(message);
  EXPECT_FALSE(parsed.ok());
  return parsed.ok() ? "" : parsed.error().message;
}

/// A valid envelope of `body`, changed on the level of protobuf before it is parsed.
template <class Change>
std::string refusal_after(Body body, Change change) {
  Message message = encode(envelope(std::move(body)));
  wire::Envelope raw;
  EXPECT_TRUE(raw.ParseFromString(message.frames[0]));
  change(raw);
  EXPECT_TRUE(raw.SerializeToString(&message.frames[0]));
  return refusal(message);
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Envelope, MembershipMessagesComeBackEqual) {
  const auto hello = std::get<Hello>(round_trip(Hello{.rank = 2,
                                                      .rank_count = 4,
                                                      .numerics_version = 9,
                                                      .model_fingerprint = "f",
                                                      .program_version = "0.1",
                                                      .group_id = "g"}));
  EXPECT_EQ(hello.rank, 2);
  EXPECT_EQ(hello.rank_count, 4);
  EXPECT_EQ(hello.numerics_version, 9u);
  EXPECT_EQ(hello.model_fingerprint, "f");
  EXPECT_EQ(hello.program_version, "0.1");
  EXPECT_EQ(hello.group_id, "g");
  const auto reply = std::get<HelloReply>(
      round_trip(HelloReply{.accepted = true, .reason = "r", .plan_epoch = 3}));
  EXPECT_TRUE(reply.accepted);
  EXPECT_EQ(reply.reason, "r");
  EXPECT_EQ(reply.plan_epoch, 3u);
  const auto progress =
      std::get<LoadProgress>(round_trip(LoadProgress{1u << 31, uint64_t{1} << 40}));
  EXPECT_EQ(progress.bytes_done, 1u << 31);
  EXPECT_EQ(progress.bytes_total, uint64_t{1} << 40);
  const auto ready = std::get<Ready>(round_trip(Ready{.vocabulary = 150000,
                                                      .context = 4096,
                                                      .kv_block_count = 64,
                                                      .columns_max = 512,
                                                      .arena_bytes = uint64_t{1} << 40,
                                                      .kv_bytes = 7,
                                                      .huge_page_bytes = 8,
                                                      .memory_placement = "bound to node 1",
                                                      .binding_denied = true,
                                                      .exchange = "zmq",
                                                      .exchange_note = "slower",
                                                      .attached_bytes = 5,
                                                      .content_low = ~uint64_t{0},
                                                      .content_high = 7}));
  EXPECT_EQ(ready.vocabulary, 150000);
  EXPECT_EQ(ready.context, 4096);
  EXPECT_EQ(ready.kv_block_count, 64);
  EXPECT_EQ(ready.columns_max, 512);
  EXPECT_EQ(ready.arena_bytes, uint64_t{1} << 40);
  EXPECT_EQ(ready.kv_bytes, 7u);
  EXPECT_EQ(ready.huge_page_bytes, 8u);
  EXPECT_EQ(ready.memory_placement, "bound to node 1");
  EXPECT_TRUE(ready.binding_denied);
  EXPECT_EQ(ready.exchange, "zmq");
  EXPECT_EQ(ready.exchange_note, "slower");
  EXPECT_EQ(ready.attached_bytes, 5u);
  EXPECT_EQ(ready.content_low, ~uint64_t{0});
  EXPECT_EQ(ready.content_high, 7u);
  EXPECT_TRUE(std::holds_alternative<ReadyReply>(round_trip(ReadyReply{})));
  EXPECT_EQ(std::get<Shutdown>(round_trip(Shutdown{"done"})).reason, "done");
}

TEST(Envelope, ErrorsKeepCodeAndSentence) {
  for (int code = 0; code <= static_cast<int>(base::Code::kSystem); code++) {
    const auto failed = std::get<WorkerFailed>(
        round_trip(WorkerFailed{{static_cast<base::Code>(code), "it broke"}}));
    EXPECT_EQ(failed.error.code, static_cast<base::Code>(code));
    EXPECT_EQ(failed.error.message, "it broke");
  }
}

TEST(Envelope, TextThatIsNoUtf8ArrivesReadable) {
  const std::string odd = "file \xff\xc3 \xed\xa0\x80 \xc3\xa4 \xf0\x9f\x98\x80 \xe2\x82";
  const auto failed = std::get<WorkerFailed>(round_trip(WorkerFailed{{base::Code::kSystem, odd}}));
  EXPECT_EQ(failed.error.message, "file ?? ??? \xc3\xa4 \xf0\x9f\x98\x80 ??");
  const auto cut = std::get<Shutdown>(round_trip(Shutdown{std::string(3 * kTextBytesMax, 'x')}));
  EXPECT_LE(cut.reason.size(), kTextBytesMax);
  EXPECT_GT(cut.reason.size(), kTextBytesMax / 2);
}

TEST(Envelope, GenerateRequestComesBackEqual) {
  Sampling sampling{.temperature = 0.5f,
                    .top_k = 7,
                    .top_p = 0.25f,
                    .min_p = 0.125f,
                    .repeat_penalty = 1.5f,
                    .presence_penalty = -1,
                    .frequency_penalty = 2,
                    .penalty_window = -1,
                    .seed = 0xffffffffffffffffu,
                    .logit_bias = {{5, -100.0f}, {6, 1.5f}}};
  GenerateRequest request{.request_id = 77,
                          .prompt = {0, 5, 2147483647},
                          .sampling = sampling,
                          .max_tokens = 100,
                          .stop_tokens = {2, 3},
                          .prompt_index = 1,
                          .choice_index = 2,
                          .prefill_chunk = 16,
                          .generated = {5, 0},
                          .first_index = uint64_t{1} << 40};
  const auto back = std::get<GenerateRequest>(round_trip(request));
  EXPECT_EQ(back.request_id, 77u);
  EXPECT_EQ(back.prompt, request.prompt);
  EXPECT_EQ(back.max_tokens, 100);
  EXPECT_EQ(back.stop_tokens, request.stop_tokens);
  EXPECT_EQ(back.prompt_index, 1u);
  EXPECT_EQ(back.choice_index, 2u);
  EXPECT_EQ(back.prefill_chunk, 16);
  EXPECT_EQ(back.generated, (std::vector<int32_t>{5, 0}));
  EXPECT_EQ(back.first_index, uint64_t{1} << 40);
  EXPECT_EQ(back.sampling.temperature, 0.5f);
  EXPECT_EQ(back.sampling.top_k, 7);
  EXPECT_EQ(back.sampling.top_p, 0.25f);
  EXPECT_EQ(back.sampling.min_p, 0.125f);
  EXPECT_EQ(back.sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(back.sampling.presence_penalty, -1);
  EXPECT_EQ(back.sampling.frequency_penalty, 2);
  EXPECT_EQ(back.sampling.penalty_window, -1);
  EXPECT_EQ(back.sampling.seed, 0xffffffffffffffffu);
  EXPECT_EQ(back.sampling.logit_bias, request.sampling.logit_bias);
}

TEST(Envelope, RequestsAboutRequestsComeBackEqual) {
  const auto score = std::get<ScoreRequest>(round_trip(ScoreRequest{.request_id = 4,
                                                                    .tokens = {1, 2},
                                                                    .first_scored = 1,
                                                                    .want_top = true,
                                                                    .want_last = true,
                                                                    .chunk = 3}));
  EXPECT_EQ(score.tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(score.first_scored, 1);
  EXPECT_TRUE(score.want_top && score.want_last);
  EXPECT_EQ(score.chunk, 3);
  const auto plain =
      std::get<ScoreRequest>(round_trip(ScoreRequest{.request_id = 4, .tokens = {1}}));
  EXPECT_EQ(plain.first_scored, std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(plain.want_top || plain.want_last);
  EXPECT_EQ(std::get<Accepted>(round_trip(Accepted{8})).request_id, 8u);
  EXPECT_EQ(std::get<Cancel>(round_trip(Cancel{9})).request_id, 9u);
  const auto ack = std::get<Ack>(round_trip(Ack{9, 12}));
  EXPECT_EQ(ack.request_id, 9u);
  EXPECT_EQ(ack.next_index, 12u);
  EXPECT_TRUE(std::holds_alternative<StatsRequest>(round_trip(StatsRequest{})));
  const auto stats = std::get<StatsReply>(round_trip(
      StatsReply{1, 2, 3, 4, 5, 6, 7, 11, 5.5, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(stats.steps, 1u);
  EXPECT_EQ(stats.columns, 2u);
  EXPECT_EQ(stats.step_ns, 3u);
  EXPECT_EQ(stats.prefill_columns, 4u);
  EXPECT_EQ(stats.prefill_ns, 5u);
  EXPECT_EQ(stats.decode_columns, 6u);
  EXPECT_EQ(stats.decode_ns, 7u);
  EXPECT_EQ(stats.wait_ns, 11u);
  EXPECT_EQ(stats.waits_per_layer, 5.5);
  EXPECT_EQ(stats.kv_blocks_used, 8);
  EXPECT_EQ(stats.kv_blocks_peak, 9);
  EXPECT_EQ(stats.kv_block_count, 10);
  EXPECT_EQ(stats.kv_blocks_reused, 12u);
  EXPECT_EQ(stats.matmul_ns, 13u);
  EXPECT_EQ(stats.attention_ns, 14u);
  EXPECT_EQ(stats.exchange_ns, 15u);
  EXPECT_EQ(stats.barrier_ns, 16u);
  EXPECT_EQ(stats.sample_ns, 17u);
  EXPECT_EQ(stats.weight_bytes, 18u);
  EXPECT_EQ(stats.threads, 19);
  EXPECT_TRUE(stats.expert_use.empty());
  const std::vector<LayerUse> use = {
      {}, {.choices = {0, ~uint64_t{0}}}, {.choices = {3, 4}, .owners = {base::kRanksMax - 1, 0}}};
  EXPECT_EQ(std::get<StatsReply>(round_trip(StatsReply{.expert_use = use})).expert_use, use);
}

TEST(Envelope, ChunksComeBackEqual) {
  const auto chunk = std::get<TokenChunk>(round_trip(TokenChunk{
      .request_id = 3, .index = 5, .tokens = {9}, .finish = Finish::kLength, .usage = {7, 6}}));
  EXPECT_EQ(chunk.index, 5u);
  EXPECT_EQ(chunk.tokens, (std::vector<int32_t>{9}));
  EXPECT_EQ(chunk.finish, Finish::kLength);
  EXPECT_EQ(chunk.usage.prompt_tokens, 7);
  EXPECT_EQ(chunk.usage.generated_tokens, 6);
  const float tiny = std::numeric_limits<float>::denorm_min();
  ScoreChunk score{.request_id = 3,
                   .index = 1,
                   .first_position = 64,
                   .position_count = 2,
                   .log_probabilities = {-1.5f, -std::numeric_limits<float>::infinity()},
                   .top_count = 2,
                   .top_ids = {1, 2, 3, 4},
                   .top_logits = {4, 3, 2, tiny},
                   .last_logits = {1, -0.0f, tiny, std::nanf("")},
                   .finish = Finish::kStop};
  const Message message = encode(envelope(score));
  EXPECT_EQ(message.frames.size(), 2u) << "logits travel in a raw frame";
  const auto back = std::get<ScoreChunk>(round_trip(score));
  EXPECT_EQ(back.first_position, 64);
  EXPECT_EQ(back.position_count, 2);
  EXPECT_EQ(back.log_probabilities, score.log_probabilities);
  EXPECT_EQ(back.top_ids, score.top_ids);
  EXPECT_EQ(back.top_logits, score.top_logits);
  ASSERT_EQ(back.last_logits.size(), 4u);
  EXPECT_EQ(std::memcmp(back.last_logits.data(), score.last_logits.data(), 16), 0);
}

TEST(Envelope, PlacementComesBackEqual) {
  round_trip(PlacementRequest{});
  round_trip(Rejoin{});
  PlacementClass experts{.name = "experts", .bytes = 9, .bytes_on_node = {0, 8}};
  experts.bytes_absent = 1;
  experts.bytes_asked = 9;
  PlacementReply reply{.rank = 1, .os_node = 3, .page_bytes = 4096, .huge_bytes = 2};
  reply.source = "move_pages";
  reply.classes = {experts};
  const auto back = std::get<PlacementReply>(round_trip(reply));
  EXPECT_EQ(back.rank, 1);
  EXPECT_EQ(back.os_node, 3);
  EXPECT_EQ(back.page_bytes, 4096u);
  EXPECT_EQ(back.huge_bytes, 2u);
  EXPECT_EQ(back.source, "move_pages");
  ASSERT_EQ(back.classes.size(), 1u);
  EXPECT_EQ(back.classes[0].name, "experts");
  EXPECT_EQ(back.classes[0].bytes, 9u);
  EXPECT_EQ(back.classes[0].bytes_on_node, (std::vector<uint64_t>{0, 8}));
  EXPECT_EQ(back.classes[0].bytes_absent, 1u);
  EXPECT_EQ(back.classes[0].bytes_asked, 9u);
}

TEST(Envelope, AnotherMajorIsRefusedWithBothVersions) {
  for (const uint32_t major : {2u, 7u}) {
    const std::string sentence = refusal_after(Cancel{1}, [&](wire::Envelope& raw) {
      raw.set_wire_major(major);
      raw.set_wire_minor(4);
    });
    EXPECT_TRUE(contains(sentence, base::cat(major, ".4"))) << sentence;
    EXPECT_TRUE(contains(sentence, base::cat(kWireMajor, ".", kWireMinor))) << sentence;
  }
  // Also if the rest is something that this version cannot read at all.
  Message garbage = encode(envelope(Cancel{1}));
  garbage.frames[0] = std::string("\x08\x02\x10\x00\xff\xff\xff", 7);
  EXPECT_TRUE(contains(refusal(garbage), "version 2.0"));
}

TEST(Envelope, AnotherMinorIsUnderstood) {
  Message message = encode(envelope(Cancel{1}));
  wire::Envelope raw;
  ASSERT_TRUE(raw.ParseFromString(message.frames[0]));
  raw.set_wire_minor(kWireMinor + 3);
  ASSERT_TRUE(raw.SerializeToString(&message.frames[0]));
  EXPECT_TRUE(parse(message).ok());
}

TEST(Envelope, WhatAPeerCouldSendWronglyIsRefusedByName) {
  const GenerateRequest generate{.request_id = 1, .prompt = {1, 2}};
  EXPECT_TRUE(contains(
      refusal_after(generate, [](auto& raw) { raw.mutable_generate_request()->set_request_id(0); }),
      "request_id"));
  EXPECT_TRUE(contains(
      refusal_after(generate, [](auto& raw) { raw.mutable_generate_request()->clear_prompt(); }),
      "prompt"));
  EXPECT_TRUE(contains(
      refusal_after(generate,
                    [](auto& raw) { raw.mutable_generate_request()->set_prompt(1, 0x80000000u); }),
      "prompt"));
  EXPECT_TRUE(contains(refusal_after(generate,
                                     [](auto& raw) {
                                       for (size_t i = 0; i <= kStopTokensMax; i++)
                                         raw.mutable_generate_request()->add_stop_tokens(1);
                                     }),
                       "stop_tokens"));
  EXPECT_TRUE(contains(
      refusal_after(generate,
                    [](auto& raw) {
                      raw.mutable_generate_request()->mutable_sampling()->set_top_p(std::nanf(""));
                    }),
      "top_p"));
  EXPECT_TRUE(contains(
      refusal_after(
          generate,
          [](auto& raw) { raw.mutable_generate_request()->set_max_tokens(uint64_t{1} << 63); }),
      "max_tokens"));
  const Hello hello{.rank = 1, .rank_count = 2};
  EXPECT_TRUE(
      contains(refusal_after(hello, [](auto& raw) { raw.mutable_hello()->set_rank(2); }), "rank"));
  EXPECT_TRUE(contains(
      refusal_after(hello,
                    [](auto& raw) { raw.mutable_hello()->set_rank_count(base::kRanksMax + 1); }),
      "rank_count"));
  EXPECT_TRUE(contains(refusal_after(hello,
                                     [](auto& raw) {
                                       raw.mutable_hello()->set_model_fingerprint(
                                           std::string(kTextBytesMax + 1, 'x'));
                                     }),
                       "model_fingerprint"));
  EXPECT_TRUE(
      contains(refusal_after(LoadProgress{1, 2},
                             [](auto& raw) { raw.mutable_load_progress()->set_bytes_done(3); }),
               "bytes_done"));
  EXPECT_TRUE(contains(refusal_after(Ready{.vocabulary = 1, .context = 1, .columns_max = 1},
                                     [](auto& raw) { raw.mutable_ready()->set_columns_max(513); }),
                       "columns_max"));
  EXPECT_TRUE(contains(
      refusal_after(
          TokenChunk{.request_id = 1},
          [](auto& raw) { raw.mutable_token_chunk()->set_finish(static_cast<wire::Finish>(9)); }),
      "finish"));
  const ScoreChunk score{
      .request_id = 1, .position_count = 1, .top_count = 1, .top_ids = {1}, .top_logits = {1}};
  EXPECT_TRUE(contains(
      refusal_after(score, [](auto& raw) { raw.mutable_score_chunk()->set_position_count(2); }),
      "top_ids"));
  EXPECT_TRUE(contains(
      refusal_after(score, [](auto& raw) { raw.mutable_score_chunk()->add_top_logits(1); }),
      "top_logits"));
  EXPECT_TRUE(contains(
      refusal_after(score,
                    [](auto& raw) { raw.mutable_score_chunk()->set_position_count(0xffffffffu); }),
      "position_count"));
  EXPECT_TRUE(contains(refusal_after(score, [](auto& raw) { raw.clear_score_chunk(); }),
                       "without a message"));
}

TEST(Envelope, CountsOfExpertsHaveLimits) {
  const auto refused = [](auto change) {
    return refusal_after(StatsReply{.expert_use = {{.choices = {1, 2}, .owners = {0, 1}}}},
                         [&](auto& raw) { change(*raw.mutable_stats_reply()); });
  };
  const auto layers = [](int count) {
    return [count](wire::StatsReply& stats) {
      while (stats.expert_use_size() < count) stats.add_expert_use();
    };
  };
  const auto experts = [](int count) {
    return [count](wire::StatsReply& stats) {
      stats.mutable_expert_use(0)->clear_owners();
      while (stats.expert_use(0).choices_size() < count)
        stats.mutable_expert_use(0)->add_choices(1);
    };
  };
  EXPECT_TRUE(contains(refused(layers(base::kLayersMax + 1)), "expert_use of 1025 layers"));
  EXPECT_TRUE(contains(refused(experts(base::kExpertsMax + 1)), "1025 experts and 0 owners"));
  EXPECT_TRUE(
      contains(refused([](wire::StatsReply& stats) { stats.mutable_expert_use(0)->add_owners(1); }),
               "2 experts and 3 owners"));
  EXPECT_TRUE(contains(refused([](wire::StatsReply& stats) {
                         stats.mutable_expert_use(0)->set_owners(1, base::kRanksMax);
                       }),
                       "owners"));
  // As many as are allowed arrive.
  std::vector<LayerUse> most(base::kLayersMax);
  most[0].choices.assign(base::kExpertsMax, 1);
  EXPECT_EQ(std::get<StatsReply>(round_trip(StatsReply{.expert_use = most})).expert_use, most);
}

TEST(Envelope, NodeIdsHaveALimit) {
  EXPECT_TRUE(
      contains(refusal_after(Cancel{1}, [](auto& raw) { raw.clear_node_id(); }), "node id"));
  EXPECT_TRUE(contains(
      refusal_after(Cancel{1},
                    [](auto& raw) { raw.set_node_id(std::string(kNodeIdBytesMax + 1, 'n')); }),
      "node id"));
}

TEST(Envelope, RawFramesMustBeTheAnnouncedOnes) {
  const ScoreChunk score{.request_id = 1, .last_logits = {1, 2, 3}, .finish = Finish::kStop};
  const Message good = encode(envelope(score));
  ASSERT_EQ(good.frames.size(), 2u);
  Message missing = good, extra = good, shorter = good, many = good;
  missing.frames.pop_back();
  extra.frames.push_back("xxxx");
  shorter.frames[1].pop_back();
  many.frames.resize(kFramesMax + 1);
  Message one_float_less = good;
  one_float_less.frames[1].resize(8);
  EXPECT_TRUE(contains(refusal(one_float_less), "8 bytes, 12 were announced"));
  for (const Message& bad : {missing, extra, shorter, many, Message{}}) refusal(bad);
  Message cancel = encode(envelope(Cancel{1}));
  wire::Envelope raw;
  ASSERT_TRUE(raw.ParseFromString(cancel.frames[0]));
  raw.add_raw_bytes(4);
  ASSERT_TRUE(raw.SerializeToString(&cancel.frames[0]));
  cancel.frames.push_back("xxxx");
  EXPECT_TRUE(contains(refusal(cancel), "must not have"));
  Message ragged = good;
  ASSERT_TRUE(raw.ParseFromString(ragged.frames[0]));
  raw.set_raw_bytes(0, 11);
  ASSERT_TRUE(raw.SerializeToString(&ragged.frames[0]));
  ragged.frames[1].resize(11);
  EXPECT_TRUE(contains(refusal(ragged), "float32"));
}

TEST(Envelope, DamagedBytesNeverCrash) {
  std::mt19937 random(5);
  const Message good = encode(envelope(GenerateRequest{.request_id = 1, .prompt = {1, 2, 300, 4}}));
  int refused = 0;
  const int rounds = std::getenv("NUMOE_FULL") != nullptr ? 20 * 20000 : 20000;
  for (int i = 0; i < rounds; i++) {
    Message bad = good;
    std::string& bytes = bad.frames[0];
    for (unsigned damage = 0; damage <= random() % 3; damage++)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 2 == 0) bytes.resize(random() % (bytes.size() + 1));
    refused += parse(bad).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, rounds / 2);
}

}  // namespace
}  // namespace proto
