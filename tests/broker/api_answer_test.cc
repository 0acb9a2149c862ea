// Answers: the JSON of both endpoints, plain and streamed, and texts that end where they must.
#include "broker/api/answer.h"

#include <gtest/gtest.h>

#include "tests/broker/api_support.h"
#include "tests/model/tokenizer_support.h"

namespace broker {
namespace {

using api_test::events_of;
using api_test::get;
using api_test::text_at;
using Ids = std::vector<int32_t>;
using proto::Finish;

// Token b is byte b; then these.
constexpr int32_t kEnd = 256, kBanana = 259;

model::Metadata metadata() {
  return model_test::byte_pair_vocabulary(
      {.merges = {},
       .extra = {{"<|im_end|>", 3}, {"<|im_start|>", 3}, {"<think>", 4}, {"banana", 4}}});
}

Ids bytes(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

proto::TokenChunk chunk(Ids tokens, Finish finish = Finish::kNone) {
  return {.tokens = std::move(tokens), .finish = finish};
}

class ApiAnswer : public testing::Test {
 protected:
  Answer answer(Endpoint endpoint, std::string_view fields,
                std::vector<Ids> prompts = {{1, 2, 3}}) {
    return answer_to(api_test::accept(endpoint, api_test::body_with(endpoint, fields)),
                     std::move(prompts));
  }
  Answer answer_to(CompletionRequest request, std::vector<Ids> prompts) {
    const bool chat = request.endpoint == Endpoint::kChatCompletions;
    return Answer(std::move(request), std::move(prompts), tokenizer_,
                  {.id = chat ? "chatcmpl-1" : "cmpl-1",
                   .created = 1700000000,
                   .model = "tales",
                   .end_tokens = {kEnd}});
  }

  const model::Tokenizer tokenizer_ = model_test::make_tokenizer(metadata());
};
using RowG1 = ApiAnswer;
using RowG2 = ApiAnswer;
using RowF4 = ApiAnswer;
using RowF6 = ApiAnswer;

constexpr Endpoint kText = Endpoint::kCompletions;
constexpr Endpoint kChat = Endpoint::kChatCompletions;

TEST_F(ApiAnswer, PlainChat) {
  Answer answer = this->answer(kChat, R"("seed":7)");
  EXPECT_FALSE(answer.finished());
  EXPECT_EQ(answer.opening(), R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk",)"
                              R"("created":1700000000,"model":"tales","choices":[{"index":0,)"
                              R"("delta":{"role":"assistant","content":""},"logprobs":null,)"
                              "\"finish_reason\":null}]}\n\n");
  EXPECT_EQ(answer.on_chunk(0, chunk(bytes("a\"\n"))).events, "");
  answer.on_chunk(0, chunk(bytes("\xC3")));
  const Answer::Progress last = answer.on_chunk(0, chunk({0xBC, kEnd}, Finish::kStop));
  EXPECT_FALSE(last.cancel);
  ASSERT_TRUE(answer.finished());
  EXPECT_EQ(answer.json(),
            R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"tales",)"
            R"("choices":[{"index":0,"message":{"role":"assistant","content":"a\"\nü"},)"
            R"("logprobs":null,"finish_reason":"stop"}],)"
            R"("usage":{"prompt_tokens":3,"completion_tokens":6,"total_tokens":9},"seed":7})");
}

TEST_F(ApiAnswer, StreamedChat) {
  Answer answer =
      this->answer(kChat, R"("seed":7,"stream":true,"stream_options":{"include_usage":true})");
  std::string stream = answer.opening();
  stream += answer.on_chunk(0, chunk(bytes("On"))).events;
  stream += answer.on_chunk(0, chunk(bytes("\xC3"))).events;
  stream += answer.on_chunk(0, chunk({0xBC}, Finish::kLength)).events;
  ASSERT_TRUE(answer.finished());
  stream += answer.closing();
  const std::string head =
      R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"tales",)"
      R"("choices":[)";
  const auto choice = [&](std::string_view delta, std::string_view reason, std::string_view seed) {
    return base::cat(head, R"({"index":0,"delta":)", delta, R"(,"logprobs":null,"finish_reason":)",
                     reason, "}]", seed, R"(,"usage":null})");
  };
  EXPECT_EQ(events_of(stream),
            (std::vector<std::string>{
                choice(R"({"role":"assistant","content":""})", "null", ""),
                choice(R"({"content":"On"})", "null", ""), choice(R"({"content":"ü"})", "null", ""),
                choice("{}", "\"length\"", ",\"seed\":7"),
                head + R"(],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}})",
                "[DONE]"}));
}

TEST_F(ApiAnswer, StreamedTextWithoutUsage) {
  Answer answer = this->answer(kText, R"("seed":-1,"stream":true,"stream_options":{})");
  std::string stream = answer.opening();
  EXPECT_EQ(stream, "");
  stream += answer.on_chunk(0, chunk(bytes("Hi"))).events;
  stream += answer.on_chunk(0, chunk({kEnd}, Finish::kStop)).events;
  stream += answer.closing();
  const std::string head =
      R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"tales","choices":)"
      R"([{"index":0,"text":)";
  EXPECT_EQ(
      events_of(stream),
      (std::vector<std::string>{
          head + R"("Hi","logprobs":null,"finish_reason":null}]})",
          head + R"("","logprobs":null,"finish_reason":"stop"}],"seed":18446744073709551615})",
          "[DONE]"}));
}

TEST_F(ApiAnswer, ChoicesOfPromptsAreNumberedThroughAndPromptsCountOnce) {
  CompletionRequest request = api_test::accept(
      kText, R"({"prompt":["abc","de"],"n":2,"stream":true,"seed":1,"max_tokens":4})");
  Answer answer = answer_to(request, {bytes("abc"), bytes("de")});
  ASSERT_EQ(answer.slot_count(), 4u);
  const auto requests = answer.generate_requests();
  ASSERT_EQ(requests.size(), 4u);
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(requests[i].prompt, bytes(i < 2 ? "abc" : "de"));
    EXPECT_EQ(requests[i].prompt_index, i / 2);
    EXPECT_EQ(requests[i].choice_index, i % 2);
    EXPECT_EQ(requests[i].sampling.seed, 1u);
    EXPECT_EQ(requests[i].max_tokens, 4);
    EXPECT_EQ(requests[i].stop_tokens, Ids{kEnd});
    const std::string event = answer.on_chunk(i, chunk(bytes("x"), Finish::kLength)).events;
    const Json json = api_test::parse(events_of(event).at(0));
    EXPECT_EQ(get(json, {"choices", "[0]", "index"}).integer(), i);
  }
  ASSERT_TRUE(answer.finished());
  const Json json = api_test::parse(answer.json());
  EXPECT_EQ(get(json, {"choices"}).array()->size(), 4u);
  EXPECT_EQ(get(json, {"choices", "[3]", "index"}).integer(), 3);
  EXPECT_EQ(get(json, {"usage", "prompt_tokens"}).integer(), 5);
  EXPECT_EQ(get(json, {"usage", "completion_tokens"}).integer(), 4);
  EXPECT_EQ(get(json, {"usage", "total_tokens"}).integer(), 9);
}

TEST_F(RowF4, ChoicesDifferByTheirIndexAndTheFirstIsTheOnlyOne) {
  const auto one = answer(kChat, R"("seed":7)").generate_requests();
  const auto four = answer(kChat, R"("seed":7,"n":4)").generate_requests();
  ASSERT_EQ(four.size(), 4u);
  for (uint32_t i = 0; i < 4; i++) {
    EXPECT_EQ(four[i].choice_index, i);
    EXPECT_EQ(four[i].prompt_index, one[0].prompt_index);
    EXPECT_EQ(four[i].prompt, one[0].prompt);
    EXPECT_EQ(four[i].sampling.seed, one[0].sampling.seed);
  }
  EXPECT_EQ(one[0].choice_index, 0u);
}

TEST_F(RowF4, TheSeedThatWasUsedIsTold) {
  Answer answer = this->answer(kChat, "");
  answer.on_chunk(0, chunk({kEnd}, Finish::kStop));
  EXPECT_EQ(get(api_test::parse(answer.json()), {"seed"}).integer(),
            static_cast<int64_t>(api_test::kRandomSeed));
}

TEST_F(RowF6, TheReasonIsStopAtTheEndTokenAndLengthAtTheLimit) {
  for (const bool at_end : {true, false}) {
    Answer answer = this->answer(kText, R"("max_tokens":3)");
    answer.on_chunk(0, at_end ? chunk({'a', 'b', kEnd}, Finish::kStop)
                              : chunk({'a', 'b', 'c'}, Finish::kLength));
    const Json json = api_test::parse(answer.json());
    EXPECT_EQ(text_at(json, {"choices", "[0]", "text"}), at_end ? "ab" : "abc");
    EXPECT_EQ(text_at(json, {"choices", "[0]", "finish_reason"}), at_end ? "stop" : "length");
    EXPECT_EQ(get(json, {"usage", "completion_tokens"}).integer(), 3);
  }
}

TEST_F(ApiAnswer, EndTokensStopUnlessIgnored) {
  const auto stops = [&](std::string_view fields) {
    return answer(kText, fields).generate_requests()[0].stop_tokens;
  };
  EXPECT_EQ(stops(R"("stop_token_ids":[5,7,5])"), (Ids{5, 7, kEnd}));
  EXPECT_EQ(stops(R"("stop_token_ids":[5],"ignore_eos":true)"), Ids{5});
  EXPECT_EQ(stops(R"("ignore_eos":true)"), Ids{});
  // A stop that spells a control token never appears as text.
  EXPECT_EQ(stops(R"("stop":["<|im_start|>","<think>","x"])"), (Ids{kEnd, kEnd + 1}));
  EXPECT_EQ(answer(kText, "").generate_requests()[0].max_tokens, 0);
}

TEST_F(ApiAnswer, TheStopTokenIsNoTextButCounts) {
  Answer answer = this->answer(kText, R"("stop_token_ids":[46])");
  answer.on_chunk(0, chunk(bytes("a.b")));  // not a stop in the middle of what a worker sends
  answer.on_chunk(0, chunk(bytes("c."), Finish::kStop));
  const Json json = api_test::parse(answer.json());
  EXPECT_EQ(text_at(json, {"choices", "[0]", "text"}), "a.bc");
  EXPECT_EQ(get(json, {"usage", "completion_tokens"}).integer(), 5);
}

TEST_F(ApiAnswer, ALongAnswerIsNoWorkOfItsSquare) {
  // Would take minutes if each chunk looked at the text so far.
  Answer answer = this->answer(kChat, R"("stream":true,"stop":["\n\nUser:","</s>"])");
  const size_t bytes_of_first = answer.on_chunk(0, chunk({'x'})).events.size();
  for (int i = 0; i < 300'000; i++)
    ASSERT_EQ(answer.on_chunk(0, chunk({'a'})).events.size(), bytes_of_first);
  answer.on_chunk(0, chunk({}, Finish::kLength));
  EXPECT_GT(answer.json().size(), 300'000u);
}

TEST_F(ApiAnswer, EchoPutsThePromptInFront) {
  CompletionRequest request = api_test::accept(
      kText, R"({"prompt":["ab<|im_end|>","c"],"echo":true,"n":2,"stream":true,"stop":"b"})");
  Answer answer = answer_to(request, {bytes("ab"), bytes("c")});
  std::string joined[4];
  std::string stream = answer.opening();
  for (size_t i = 0; i < 4; i++) stream += answer.on_chunk(i, chunk({'z'}, Finish::kLength)).events;
  for (const std::string& event : events_of(stream)) {
    const Json json = api_test::parse(event);
    joined[static_cast<size_t>(*get(json, {"choices", "[0]", "index"}).integer())] +=
        text_at(json, {"choices", "[0]", "text"});
  }
  const Json plain = api_test::parse(answer.json());
  const std::string expected[] = {"ab<|im_end|>z", "ab<|im_end|>z", "cz", "cz"};
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(joined[i], expected[i]);
    EXPECT_EQ(text_at(plain, {"choices", base::cat('[', i, ']'), "text"}), expected[i]);
  }
  Answer of_ids = answer_to(api_test::accept(kText, R"({"prompt":[104,256,105],"echo":true})"),
                            {{104, 256, 105}});
  of_ids.on_chunk(0, chunk({'!'}, Finish::kLength));
  EXPECT_EQ(text_at(api_test::parse(of_ids.json()), {"choices", "[0]", "text"}), "hi!");
}

TEST_F(RowG1, AStopAcrossTokensCancelsAndNeverShows) {
  Answer answer = this->answer(kChat, R"("stream":true,"stop":["xyz"])");
  std::string stream = answer.on_chunk(0, chunk({'a', 'x'})).events;
  EXPECT_EQ(
      text_at(api_test::parse(events_of(stream).at(0)), {"choices", "[0]", "delta", "content"}),
      "a");
  EXPECT_EQ(answer.on_chunk(0, chunk({'y'})).events, "");
  const Answer::Progress last = answer.on_chunk(0, chunk({'z', 'q', 'q'}));
  EXPECT_TRUE(last.cancel);
  ASSERT_TRUE(answer.finished());
  // What arrives before the cancel does, and the cancel's own answer, change nothing.
  EXPECT_EQ(answer.on_chunk(0, chunk({'m'})).events, "");
  EXPECT_EQ(answer.on_chunk(0, chunk({}, Finish::kCancelled)).events, "");
  EXPECT_FALSE(answer.error());
  const Json json = api_test::parse(answer.json());
  EXPECT_EQ(text_at(json, {"choices", "[0]", "message", "content"}), "a");
  EXPECT_EQ(text_at(json, {"choices", "[0]", "finish_reason"}), "stop");
  EXPECT_EQ(get(json, {"usage", "completion_tokens"}).integer(), 4);
}

TEST_F(RowG1, WhatWasHeldComesAtTheEnd) {
  for (const bool at_end : {true, false}) {
    Answer answer = this->answer(kText, R"("stream":true,"stop":["end."])");
    EXPECT_EQ(answer.on_chunk(0, chunk(bytes("en"))).events, "");
    const Answer::Progress last = answer.on_chunk(
        0, at_end ? chunk({'d', kEnd}, Finish::kStop) : chunk({'d'}, Finish::kLength));
    EXPECT_FALSE(last.cancel);
    const auto events = events_of(last.events);
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(text_at(api_test::parse(events[0]), {"choices", "[0]", "text"}), "end");
    EXPECT_EQ(text_at(api_test::parse(events[1]), {"choices", "[0]", "finish_reason"}),
              at_end ? "stop" : "length");
  }
}

TEST_F(RowG1, AStopInsideATokenAndOneThatIsCompleteAtTheLimit) {
  Answer inside = answer(kText, R"("stop":["nan"])");
  EXPECT_TRUE(inside.on_chunk(0, chunk({'a', kBanana, 'b'})).cancel);
  EXPECT_EQ(text_at(api_test::parse(inside.json()), {"choices", "[0]", "text"}), "aba");
  Answer at_limit = answer(kText, R"("stop":["bc","abcd"])");
  EXPECT_FALSE(at_limit.on_chunk(0, chunk(bytes("abc"), Finish::kLength)).cancel);
  const Json json = api_test::parse(at_limit.json());
  EXPECT_EQ(text_at(json, {"choices", "[0]", "text"}), "a");
  EXPECT_EQ(text_at(json, {"choices", "[0]", "finish_reason"}), "stop");
}

TEST_F(RowG2, BrokenCharactersAreReplacedAlikeInBothForms) {
  const struct {
    const char* bytes;
    const char* text;
  } rows[] = {{"\xF0\x9F\x98", "\xEF\xBF\xBD"},
              {"\xF0\x9F\x98\x8A", "\xF0\x9F\x98\x8A"},
              {"\xE0\x80\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
              {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
              {"\x80\xC3\xBC", "\xEF\xBF\xBD\xC3\xBC"}};
  for (const auto& row : rows) {
    Answer answer = this->answer(kChat, R"("stream":true)");
    std::string stream;
    for (const int32_t id : bytes(row.bytes)) stream += answer.on_chunk(0, chunk({id})).events;
    stream += answer.on_chunk(0, chunk({}, Finish::kLength)).events;
    std::string joined;
    for (const std::string& event : events_of(stream)) {
      const Json delta = get(api_test::parse(event), {"choices", "[0]", "delta"});
      if (delta.find("content") != nullptr) joined += *delta.find("content")->string();
    }
    EXPECT_EQ(joined, row.text);
    const Json json = api_test::parse(answer.json());
    EXPECT_EQ(text_at(json, {"choices", "[0]", "message", "content"}), row.text);
    EXPECT_EQ(get(json, {"usage", "completion_tokens"}).integer(),
              static_cast<int64_t>(std::string_view(row.bytes).size()));
  }
}

TEST_F(ApiAnswer, AnErrorOfOneSlotEndsTheAnswer) {
  Answer answer = this->answer(kChat, R"("stream":true,"n":2)");
  answer.on_chunk(0, chunk(bytes("a")));
  proto::TokenChunk failed = chunk({}, Finish::kError);
  failed.error = {base::Code::kPeerLost, "worker 1 \"died\"\n"};
  EXPECT_EQ(answer.on_chunk(1, failed).events, "");
  ASSERT_TRUE(answer.finished());
  ASSERT_TRUE(answer.error());
  EXPECT_EQ(answer.error()->status, 500);
  EXPECT_EQ(answer.on_chunk(0, chunk(bytes("b"), Finish::kLength)).events, "");
  EXPECT_EQ(answer.closing(),
            "data: {\"error\":{\"message\":\"worker 1 \\\"died\\\"\\n\",\"type\":"
            "\"server_error\",\"param\":null,\"code\":null}}\n\n");
}

TEST_F(ApiAnswer, CancelledBySomebodyElseIsAnError) {
  Answer answer = this->answer(kChat, "");
  answer.on_chunk(0, chunk({}, Finish::kCancelled));
  ASSERT_TRUE(answer.error());
  EXPECT_EQ(answer.error()->status, 503);
}

TEST(ApiError, CodesBecomeStatuses) {
  const std::pair<base::Code, int> rows[] = {
      {base::Code::kInvalidArgument, 400}, {base::Code::kNotFound, 404},
      {base::Code::kUnavailable, 503},     {base::Code::kTimeout, 504},
      {base::Code::kSystem, 500},          {base::Code::kBrokenFile, 500}};
  for (const auto& [code, status] : rows) {
    const ApiError error = api_error({code, "words"});
    EXPECT_EQ(error.status, status);
    EXPECT_EQ(error.message, "words");
    EXPECT_EQ(error.type, status < 500 ? "invalid_request_error" : "server_error");
  }
  EXPECT_EQ(error_json({.message = "a\xFF\"", .param = "stop[2]", .code = "c"}),
            "{\"error\":{\"message\":\"a\xEF\xBF\xBD\\\"\",\"type\":\"invalid_request_error\","
            "\"param\":\"stop[2]\",\"code\":\"c\"}}");
}

/// Joined texts and the reason of a stream's only choice.
struct Streamed {
  std::string text, reason;
};
Streamed read_stream(const std::string& stream, bool chat) {
  Streamed out;
  for (const std::string& event : events_of(stream)) {
    const Json choice = get(api_test::parse(event), {"choices", "[0]"});
    const Json content = chat ? get(choice, {"delta"}) : choice;
    const Json* const text = content.find(chat ? "content" : "text");
    if (text != nullptr) out.text += *text->string();
    if (choice.find("finish_reason")->string() != nullptr)
      out.reason += *choice.find("finish_reason")->string();
  }
  return out;
}

TEST_F(RowG1, StreamedIsPlainIsTheTextBeforeTheEarliestStop) {
  api_test::Random random(3);
  // Few letters, so that stops occur; whole and broken characters of several bytes.
  const std::vector<Ids> pool = {{'a'},        {'b'},        {'a'},
                                 {'c'},        {kBanana},    {0xC3},
                                 {0xBC},       {0xC3, 0xBC}, {0xF0, 0x9F, 0x98, 0x8A},
                                 {0xF0, 0x9F}, {257},        {258}};
  const std::string texts[] = {"a", "b", "c", "ü", "😊", "na", "\xEF\xBF\xBD", "<think>"};
  int stopped = 0;
  for (int round = 0; round < 4000; round++) {
    Ids ids;
    for (size_t n = random.below(30); n > 0; n--) {
      const Ids& next = random.pick(pool);
      ids.insert(ids.end(), next.begin(), next.end());
    }
    CompletionRequest request;
    request.stream = true;
    request.prompts = {"x"};
    request.endpoint = random.pick(api_test::kBoth);
    for (size_t n = random.below(4); n > 0; n--) {
      std::string stop;
      for (size_t m = 1 + random.below(3); m > 0; m--) stop += random.pick(texts);
      request.stop.push_back(stop);
    }
    const std::string whole = model::detokenize(tokenizer_, ids, {});
    size_t end = std::string::npos;
    for (const std::string& stop : request.stop) end = std::min(end, whole.find(stop));
    const bool by_token = random.below(2) == 0;
    const bool chat = request.endpoint == kChat;

    Answer answer = answer_to(request, {{1}});
    std::string stream;
    Ids all = ids;
    if (by_token) all.push_back(kEnd);
    bool cancelled = false;
    for (size_t at = 0; at < all.size() || at == 0;) {
      const size_t length = std::min(all.size() - at, random.below(6));
      const auto begin = all.begin() + static_cast<ptrdiff_t>(at);
      at += length;
      const bool last = at == all.size();
      const Finish finish = !last ? Finish::kNone : by_token ? Finish::kStop : Finish::kLength;
      const auto progress =
          answer.on_chunk(0, chunk(Ids(begin, begin + static_cast<ptrdiff_t>(length)), finish));
      stream += progress.events;
      cancelled |= progress.cancel;
      if (last) break;
    }
    ASSERT_TRUE(answer.finished());
    const Streamed streamed = read_stream(stream, chat);
    EXPECT_EQ(streamed.text, whole.substr(0, end));
    EXPECT_EQ(streamed.reason, end != std::string::npos || by_token ? "stop" : "length");
    const Json json = api_test::parse(answer.json());
    const Json choice = get(json, {"choices", "[0]"});
    EXPECT_EQ(chat ? text_at(choice, {"message", "content"}) : text_at(choice, {"text"}),
              streamed.text);
    EXPECT_EQ(text_at(choice, {"finish_reason"}), streamed.reason);
    const auto counted = get(json, {"usage", "completion_tokens"}).integer();
    EXPECT_LE(counted, static_cast<int64_t>(all.size()));
    if (end == std::string::npos) {
      EXPECT_EQ(counted, static_cast<int64_t>(all.size()));
      EXPECT_FALSE(cancelled);
    }
    stopped += end != std::string::npos;
  }
  EXPECT_GT(stopped, 1000);
}

}  // namespace
}  // namespace broker
