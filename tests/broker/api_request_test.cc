// Every field of a body: what is read, what is refused and under which name.
#include "broker/api/request.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/broker/api_support.h"

namespace broker {
namespace {

using api_test::accept;
using api_test::body_with;
using api_test::kBoth;
using api_test::refuse;

CompletionRequest with(std::string_view fields) {
  return accept(Endpoint::kCompletions, body_with(Endpoint::kCompletions, fields));
}

TEST(ApiRequest, TheSmallestBodiesGiveTheDefaults) {
  for (const Endpoint endpoint : kBoth) {
    RequestDefaults defaults;
    defaults.sampling.temperature = 0.25f;
    defaults.sampling.top_k = 7;
    CompletionRequest request;
    ASSERT_FALSE(parse_request(endpoint, body_with(endpoint, ""), defaults, 5, request));
    EXPECT_EQ(request.endpoint, endpoint);
    EXPECT_EQ(request.model, "");
    EXPECT_EQ(request.sampling.temperature, 0.25f);
    EXPECT_EQ(request.sampling.top_k, 7);
    EXPECT_EQ(request.sampling.seed, 5u);
    EXPECT_EQ(request.max_tokens, std::nullopt);
    EXPECT_EQ(request.choice_count, 1);
    EXPECT_TRUE(request.stop.empty() && request.stop_tokens.empty());
    EXPECT_FALSE(request.ignore_eos || request.echo || request.stream || request.include_usage);
    EXPECT_TRUE(request.parse_special && request.add_special);
  }
}

TEST(ApiRequest, ReadsWhatIsSupported) {
  for (const Endpoint endpoint : kBoth) {
    const CompletionRequest request = accept(
        endpoint,
        body_with(endpoint, R"("model":"m","temperature":0,"top_p":0.5,"min_p":1,"top_k":3,)"
                            R"("presence_penalty":-2,"frequency_penalty":2,"repeat_penalty":1.1,)"
                            R"("repeat_last_n":-1,"logit_bias":{"0":-100,"7":2.5},"n":3,)"
                            R"("stop":["a","\u00e4"],"stop_token_ids":[4,5],"ignore_eos":true,)"
                            R"("stream":true,"stream_options":{"include_usage":true},"seed":7,)"
                            R"("max_tokens":9,"user":"u")"));
    EXPECT_EQ(request.model, "m");
    const proto::Sampling& sampling = request.sampling;
    EXPECT_EQ(sampling.temperature, 0.0f);
    EXPECT_EQ(sampling.top_p, 0.5f);
    EXPECT_EQ(sampling.min_p, 1.0f);
    EXPECT_EQ(sampling.top_k, 3);
    EXPECT_EQ(sampling.presence_penalty, -2.0f);
    EXPECT_EQ(sampling.frequency_penalty, 2.0f);
    EXPECT_EQ(sampling.repeat_penalty, 1.1f);
    EXPECT_EQ(sampling.penalty_window, -1);
    EXPECT_EQ(sampling.logit_bias,
              (std::vector<std::pair<int32_t, float>>{{0, -100.0f}, {7, 2.5f}}));
    EXPECT_EQ(sampling.seed, 7u);
    EXPECT_EQ(request.choice_count, 3);
    EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "\xC3\xA4"}));
    EXPECT_EQ(request.stop_tokens, (std::vector<int32_t>{4, 5}));
    EXPECT_TRUE(request.ignore_eos && request.stream && request.include_usage);
    EXPECT_EQ(request.max_tokens, 9);
  }
  EXPECT_EQ(with(R"("repetition_penalty":1.5)").sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(with(R"("top_k":-1)").sampling.top_k, 0);
  EXPECT_EQ(with(R"("top_k":1000000000)").sampling.top_k, 1'000'000'000);
  EXPECT_EQ(with(R"("temperature":1e-9)").sampling.temperature, 1e-9f);
  EXPECT_EQ(with(R"("stop":"x")").stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(with(R"("stop":[])").stop.empty());
  EXPECT_TRUE(with(R"("echo":true)").echo);
  EXPECT_FALSE(with(R"("parse_special":false)").parse_special);
  EXPECT_FALSE(with(R"("add_special_tokens":false)").add_special);
  EXPECT_FALSE(with(R"("add_special":false)").add_special);
  EXPECT_FALSE(with(R"("stream":true,"stream_options":{})").include_usage);
  EXPECT_EQ(with(R"("n":2,"best_of":2)").choice_count, 2);
}

struct Bad {
  const char* fields;
  const char* param;
  const char* says = "";  // in the message, beside the value
};

TEST(ApiRequest, RefusesBadValuesByName) {
  const Bad rows[] = {
      {R"("model":1)", "model", "1; it must be a string"},
      {R"("temperature":"hot")", "temperature", "\"hot\"; it must be a number from 0"},
      {R"("temperature":-0.1)", "temperature", "-0.1"},
      {R"("temperature":1e39)", "temperature"},
      {R"("temperature":true)", "temperature", "true"},
      {R"("temperature":[1])", "temperature", "an array"},
      {R"("top_p":1.01)", "top_p", "from 0 to 1"},
      {R"("top_p":-1)", "top_p"},
      {R"("min_p":2)", "min_p"},
      {R"("top_k":-2)", "top_k", "-2"},
      {R"("top_k":1.5)", "top_k", "an integer"},
      {R"("top_k":3000000000)", "top_k"},
      {R"("presence_penalty":2.1)", "presence_penalty", "from -2 to 2"},
      {R"("frequency_penalty":-2.1)", "frequency_penalty"},
      {R"("repeat_penalty":0)", "repeat_penalty"},
      {R"("repetition_penalty":-1)", "repetition_penalty"},
      {R"("repeat_last_n":-2)", "repeat_last_n"},
      {R"("n":0)", "n", "from 1 to 16"},
      {R"("n":17)", "n"},
      {R"("n":"2")", "n"},
      {R"("n":2,"best_of":3)", "best_of", "same as n (2)"},
      {R"("best_of":"1")", "best_of"},
      {R"("stream":1)", "stream", "true or false"},
      {R"("stream_options":true)", "stream_options", "an object"},
      {R"("stream_options":{"include_usage":"yes"})", "stream_options.include_usage", "\"yes\""},
      {R"("stop":1)", "stop"},
      {R"("stop":{})", "stop"},
      {R"("stop":["a","b",3])", "stop[2]", "3; it must be a string"},
      {R"("stop":["a",null])", "stop[1]", "null"},
      {R"("stop":[["a"]])", "stop[0]"},
      {R"("stop_token_ids":5)", "stop_token_ids", "an array"},
      {R"("stop_token_ids":[1,-1])", "stop_token_ids[1]", "-1"},
      {R"("stop_token_ids":["x"])", "stop_token_ids[0]"},
      {R"("stop_token_ids":[3000000000])", "stop_token_ids[0]"},
      {R"("ignore_eos":"no")", "ignore_eos"},
      {R"("user":"u","seed":true)", "seed"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("n_predict":0)", "n_predict"},
      {R"("n_predict":-2)", "n_predict"},
      {R"("response_format":{"type":"json_object"})", "response_format.type", "json_object"},
      {R"("response_format":{})", "response_format.type", "missing"},
      {R"("response_format":"text")", "response_format"},
      {R"("modalities":["text","audio"])", "modalities[1]", "audio"},
      {R"("audio":{"voice":"x"})", "audio", "text only"},
      {R"("suffix":"end")", "suffix", "not supported"},
      {R"("logprobs":true)", "logprobs", "log-probabilities"},
      {R"("logprobs":0)", "logprobs"},
      {R"("top_logprobs":5)", "top_logprobs"},
      {R"("functions":[{"name":"f"}])", "functions", "tools"},
      {R"("grammar":"root ::= x")", "grammar", "not constrained"},
      {R"("guided_json":{"type":"object"})", "guided_json"},
      {R"("typical_p":0.9)", "typical_p", "top_k, top_p, min_p and temperature"},
      {R"("mirostat":2)", "mirostat"},
      {R"("min_tokens":5)", "min_tokens"},
      {R"("skip_special_tokens":false)", "skip_special_tokens"},
      {R"("truncate_prompt_tokens":100)", "truncate_prompt_tokens", "never cut"},
  };
  for (const Endpoint endpoint : kBoth)
    for (const Bad& row : rows) {
      const ApiError error = refuse(endpoint, body_with(endpoint, row.fields));
      EXPECT_EQ(error.param, row.param) << row.fields;
      EXPECT_TRUE(error.message.starts_with(row.param)) << row.fields << ": " << error.message;
      EXPECT_NE(error.message.find(row.says), std::string::npos) << error.message;
    }
}

TEST(ApiRequest, RefusesWhatBelongsToTheOtherEndpoint) {
  for (const char* const fields : {R"("messages":[])", R"("tools":[{"type":"function"}])",
                                   R"("echo":1)", R"("parse_special":"x")", R"("add_special":0)"})
    refuse(Endpoint::kCompletions, body_with(Endpoint::kCompletions, fields));
  for (const char* const fields :
       {R"("prompt":"x")", R"("echo":true)", R"("parse_special":true)", R"("chat_template":"x")",
        R"("tool_choice":"required")", R"("tool_choice":{"type":"function"})",
        R"("function_call":{"name":"f"})"}) {
    const Endpoint chat = Endpoint::kChatCompletions;
    const ApiError error = refuse(chat, body_with(chat, fields));
    EXPECT_EQ(base::cat('"', error.param, '"'),
              std::string_view(fields).substr(0, error.param.size() + 2));
  }
}

TEST(ApiRequest, AcceptsFieldsThatAskForWhatHappensAnyway) {
  const std::string_view neutral =
      R"("logprobs":false,"top_logprobs":0,"suffix":"","functions":[],"response_format":)"
      R"({"type":"text"},"modalities":["text"],"typical_p":1.0,"xtc_probability":0,"mirostat":0,)"
      R"("top_n_sigma":-1.0,"skip_special_tokens":true,"min_tokens":0,"grammar":"","best_of":1,)"
      R"("use_beam_search":false,"echo":false,"tools":[],"guided_choice":[])";
  for (const Endpoint endpoint : kBoth) accept(endpoint, body_with(endpoint, neutral));
}

TEST(ApiRequest, IgnoresWhatCannotChangeTheAnswer) {
  const std::string_view ignored =
      R"("user":7,"metadata":{"a":[1]},"store":true,"service_tier":"auto","cache_prompt":true,)"
      R"("safety_identifier":"x","prompt_cache_key":"k","parallel_tool_calls":true,"xyz":[{}],)"
      R"("timings_per_token":true,"id_slot":-1,"stream_options":{"include_obfuscation":false})";
  for (const Endpoint endpoint : kBoth) accept(endpoint, body_with(endpoint, ignored));
}

TEST(ApiRequest, BodiesThatAreNoObject) {
  for (const Endpoint endpoint : kBoth) {
    for (const char* const body : {"[]", "null", "\"x\"", "1", "true", "[{\"prompt\":\"x\"}]"})
      EXPECT_NE(refuse(endpoint, body).message.find("must be a JSON object"), std::string::npos);
    for (const char* const body : {"", "{", "prompt=x", "{\"prompt\":\"\xFF\"}", "{\"a\":1}}"})
      refuse(endpoint, body);
    EXPECT_EQ(refuse(endpoint, "{\"stop\":\"\xED\xA0\x80\"}").param, "stop");
    EXPECT_EQ(refuse(endpoint, R"({"stop":["a","\udc00"]})").param, "stop[1]");
    std::string many = "{\"k\":0";
    for (int i = 0; i < 300; i++) many += base::cat(",\"k", i, "\":0");
    EXPECT_NE(refuse(endpoint, many + "}").message.find("301 fields"), std::string::npos);
  }
  EXPECT_EQ(refuse(Endpoint::kCompletions, "{}").param, "prompt");
  EXPECT_EQ(refuse(Endpoint::kChatCompletions, "{}").param, "messages");
}

TEST(ApiRequest, PromptsInAllFourForms) {
  const auto prompts = [](std::string_view prompt) {
    return accept(Endpoint::kCompletions, base::cat("{\"prompt\":", prompt, "}"));
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(prompts(R"("a")").prompts, std::vector<PromptInput>{"a"});
  EXPECT_FALSE(prompts(R"("a")").prompt_list);
  EXPECT_EQ(prompts(R"(["a","b"])").prompts, (std::vector<PromptInput>{"a", "b"}));
  EXPECT_TRUE(prompts(R"(["a"])").prompt_list);
  EXPECT_EQ(prompts("[1,2.0,3]").prompts, std::vector<PromptInput>{Ids({1, 2, 3})});
  EXPECT_FALSE(prompts("[1]").prompt_list);
  EXPECT_EQ(prompts("[[1,2],[3]]").prompts, (std::vector<PromptInput>{Ids{1, 2}, Ids{3}}));
}

TEST(ApiRequest, RefusesOtherPromptsByName) {
  const Bad rows[] = {
      {"null", "prompt", "missing"},
      {"1", "prompt", "it must be text"},
      {"{}", "prompt"},
      {"\"\"", "prompt", "empty"},
      {"[]", "prompt", "empty"},
      {"[[]]", "prompt[0]", "empty"},
      {"[\"a\",\"\"]", "prompt[1]", "empty"},
      {"[[1],[]]", "prompt[1]", "empty"},
      {"[\"a\",1]", "prompt[1]", "1, but prompt[0] is text"},
      {"[1,\"a\"]", "prompt[1]", "\"a\", but prompt[0] is a token id"},
      {"[1,[2]]", "prompt[1]", "an array"},
      {"[[1],2]", "prompt[1]", "2, but prompt[0] is an array"},
      {"[[1],\"a\"]", "prompt[1]"},
      {"[[1,\"a\"]]", "prompt[0][1]"},
      {"[null]", "prompt[0]", "null"},
      {"[true]", "prompt[0]"},
      {"[{}]", "prompt[0]"},
      {"[1,-1]", "prompt[1]", "-1"},
      {"[1.5]", "prompt[0]", "1.5"},
      {"[3000000000]", "prompt[0]"},
      {"[[0,18446744073709551615]]", "prompt[0][1]"},
      {"[[[1]]]", "prompt[0][0]"},
  };
  for (const Bad& row : rows) {
    const ApiError error =
        refuse(Endpoint::kCompletions, base::cat("{\"prompt\":", row.fields, "}"));
    EXPECT_EQ(error.param, row.param) << row.fields;
    EXPECT_NE(error.message.find(row.says), std::string::npos) << error.message;
  }
}

TEST(ApiRequest, LimitsAreNamedWithBothNumbers) {
  std::string stops = "\"stop\":[\"a\"", prompts = "{\"prompt\":[\"a\"";
  for (int i = 1; i < 17; i++) stops += ",\"a\"";
  for (int i = 1; i < 65; i++) prompts += ",\"a\"";
  const Endpoint endpoint = Endpoint::kCompletions;
  ApiError error = refuse(endpoint, body_with(endpoint, stops + "]"));
  EXPECT_EQ(error.param, "stop");
  EXPECT_NE(error.message.find("17 strings, at most 16"), std::string::npos) << error.message;
  error = refuse(endpoint, prompts + "]}");
  EXPECT_EQ(error.param, "prompt");
  EXPECT_NE(error.message.find("65 prompts, at most 64"), std::string::npos) << error.message;
  error = refuse(endpoint, R"({"n":16,"prompt":["1","2","3","4","5","6","7","8","9"]})");
  EXPECT_EQ(error.param, "n");
  EXPECT_NE(error.message.find("144 answers, at most 128"), std::string::npos) << error.message;
  const std::string longest(1024, 'x');
  EXPECT_EQ(with(base::cat("\"stop\":[\"", longest, "\"]")).stop[0], longest);
  error = refuse(endpoint, body_with(endpoint, base::cat("\"stop\":\"", longest, "x\"")));
  EXPECT_NE(error.message.find("1025 bytes"), std::string::npos) << error.message;
  // Five stops are more than OpenAI takes.
  EXPECT_EQ(with(R"("stop":["a","b","c","d","e"])").stop.size(), 5u);
}

TEST(ApiRequest, QuotesWhatItRefusesShortAndPrintable) {
  const std::string value = "a\\u0007\\n" + std::string(100'000, 'x');
  const ApiError error =
      refuse(Endpoint::kCompletions, base::cat("{\"prompt\":\"x\",\"n\":\"", value, "\"}"));
  EXPECT_LT(error.message.size(), 200u);
  for (const char c : error.message) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
}

TEST(RowF2, BiasesAreForTokensOfTheVocabularyAndInRange) {
  const Bad rows[] = {
      {R"({"-1":1})", "logit_bias", "\"-1\""},
      {R"({"1e3":1})", "logit_bias", "\"1e3\""},
      {R"({"abc":1})", "logit_bias", "\"abc\""},
      {R"({" 5":1})", "logit_bias", "\" 5\""},
      {R"({"05":1})", "logit_bias", "\"05\""},
      {R"({"":1})", "logit_bias", "\"\""},
      {R"({"+5":1})", "logit_bias"},
      {R"({"5.0":1})", "logit_bias"},
      {R"({"99999999999":1})", "logit_bias"},
      {R"({"additionalProp1":1})", "logit_bias"},
      {R"({"5":101})", "logit_bias.5", "101"},
      {R"({"5":-100.5})", "logit_bias.5"},
      {R"({"5":"5"})", "logit_bias.5", "\"5\""},
      {R"({"5":null})", "logit_bias.5", "null"},
      {R"({"5":true})", "logit_bias.5"},
      {R"([5])", "logit_bias", "an array"},
  };
  for (const Endpoint endpoint : kBoth)
    for (const Bad& row : rows) {
      const ApiError error =
          refuse(endpoint, body_with(endpoint, base::cat("\"logit_bias\":", row.fields)));
      EXPECT_EQ(error.param, row.param) << row.fields;
      EXPECT_NE(error.message.find(row.says), std::string::npos) << error.message;
    }
  // NaN is no JSON.
  refuse(Endpoint::kCompletions, R"({"prompt":"a","logit_bias":{"5":NaN}})");
  std::string most = "\"logit_bias\":{\"0\":1";
  for (int i = 1; i < 4096; i++) most += base::cat(",\"", i, "\":1");
  EXPECT_EQ(with(most + "}").sampling.logit_bias.size(), 4096u);
  refuse(Endpoint::kCompletions, body_with(Endpoint::kCompletions, most + ",\"4096\":1}"));
}

TEST(RowF2, TheExampleOfApiBrowsersAndExplicitNulls) {
  std::string fields = R"("logit_bias":{"additionalProp1":0,"additionalProp2":0.0})";
  for (const char* const key : {"model",
                                "temperature",
                                "top_p",
                                "min_p",
                                "top_k",
                                "n",
                                "best_of",
                                "max_tokens",
                                "seed",
                                "max_completion_tokens",
                                "stop",
                                "stream",
                                "stream_options",
                                "presence_penalty",
                                "frequency_penalty",
                                "repeat_penalty",
                                "repetition_penalty",
                                "stop_token_ids",
                                "ignore_eos",
                                "echo",
                                "suffix",
                                "logprobs",
                                "top_logprobs",
                                "user",
                                "tools",
                                "tool_choice",
                                "functions",
                                "function_call",
                                "response_format",
                                "modalities",
                                "audio",
                                "chat_template_kwargs",
                                "add_generation_prompt",
                                "reasoning_effort",
                                "parallel_tool_calls",
                                "n_predict"})
    fields += base::cat(",\"", key, "\":null");
  for (const Endpoint endpoint : kBoth) {
    const CompletionRequest silent = accept(endpoint, body_with(endpoint, ""));
    const CompletionRequest nulls = accept(endpoint, body_with(endpoint, fields));
    EXPECT_TRUE(nulls.sampling.logit_bias.empty());
    EXPECT_EQ(nulls.sampling.temperature, silent.sampling.temperature);
    EXPECT_EQ(nulls.sampling.seed, silent.sampling.seed);
    EXPECT_EQ(nulls.max_tokens, std::nullopt);
    EXPECT_EQ(nulls.choice_count, 1);
    EXPECT_EQ(nulls.chat.messages_json, silent.chat.messages_json);
    EXPECT_EQ(nulls.chat.variables_json, "");
  }
}

TEST(RowF4, EveryIntegerIsASeed) {
  const auto seed = [](std::string_view text) {
    return with(base::cat("\"seed\":", text)).sampling.seed;
  };
  EXPECT_EQ(seed("0"), 0u);
  EXPECT_EQ(seed("7"), 7u);
  EXPECT_EQ(seed("-1"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(seed("-5"), std::numeric_limits<uint64_t>::max() - 4);
  EXPECT_EQ(seed("9223372036854775808"), uint64_t{1} << 63);
  EXPECT_EQ(seed("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(seed("-9223372036854775808"), uint64_t{1} << 63);
  for (const char* const text :
       {"1.5", "\"7\"", "true", "[]", "1e300", "18446744073709551616", "-9223372036854775809"}) {
    const ApiError error = refuse(Endpoint::kCompletions,
                                  body_with(Endpoint::kCompletions, base::cat("\"seed\":", text)));
    EXPECT_EQ(error.param, "seed") << text;
  }
  // A random one can be repeated by every reader of JSON numbers.
  CompletionRequest request;
  const std::string body = body_with(Endpoint::kCompletions, "\"seed\":null");
  ASSERT_FALSE(parse_request(Endpoint::kCompletions, body, {}, ~uint64_t{0}, request));
  EXPECT_EQ(request.sampling.seed, (uint64_t{1} << 53) - 1);
}

TEST(RowF6, LimitsOfTokensByAnyName) {
  const auto limit = [](std::string_view fields) { return with(fields).max_tokens; };
  EXPECT_EQ(limit(R"("max_completion_tokens":5)"), 5);
  EXPECT_EQ(limit(R"("max_tokens":9,"max_completion_tokens":5)"), 5);
  EXPECT_EQ(limit(R"("max_completion_tokens":5,"max_tokens":5)"), 5);
  EXPECT_EQ(limit(R"("max_tokens":9,"max_completion_tokens":null)"), 9);
  EXPECT_EQ(limit(R"("max_tokens":1)"), 1);
  EXPECT_EQ(limit(R"("max_tokens":null)"), std::nullopt);
  EXPECT_EQ(limit(R"("max_tokens":10.0)"), 10);
  EXPECT_EQ(limit(R"("max_tokens":2147483648)"), int64_t{1} << 31);
  EXPECT_EQ(limit(R"("n_predict":4)"), 4);
  EXPECT_EQ(limit(R"("n_predict":-1)"), std::nullopt);
  EXPECT_EQ(limit(R"("n_predict":4,"max_tokens":3)"), 3);
  for (const Endpoint endpoint : kBoth)
    for (const char* const value : {"0", "-1", "10.5", "\"10\"", "true", "1e30"})
      for (const char* const key : {"max_tokens", "max_completion_tokens"})
        EXPECT_EQ(refuse(endpoint, body_with(endpoint, base::cat('"', key, "\":", value))).param,
                  key);
}

TEST(ApiRequest, ModelsThatAreNotServed) {
  const std::vector<std::string> served = {"tales", "alias"};
  for (const char* const name : {"tales", "alias", ""}) {
    const CompletionRequest request = with(base::cat("\"model\":\"", name, "\""));
    EXPECT_FALSE(check_model(request, served)) << name;
  }
  EXPECT_FALSE(check_model(with(""), served));
  const auto error = check_model(with("\"model\":\"gpt-4\""), served);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 404);
  EXPECT_EQ(error->code, "model_not_found");
  EXPECT_EQ(error->param, "model");
  EXPECT_EQ(error->message,
            "the model \"gpt-4\" does not exist here; this server has tales, alias");
}

TEST(ApiRequest, DamagedBodiesGiveARequestOrAnError) {
  const std::string bodies[] = {
      body_with(Endpoint::kChatCompletions,
                R"("messages":[{"role":"system","content":"Be brief."},{"role":"assistant",)"
                R"("content":null,"tool_calls":[{"id":"1","type":"function","function":)"
                R"({"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","content":)"
                R"([{"type":"text","text":"\u00fc"}]}],"tools":[{"type":"function","function":)"
                R"({"name":"f","parameters":{"type":"object"}}}],"stop":["a"],"n":2,"seed":-1)"),
      body_with(Endpoint::kCompletions,
                R"("stop":"x","logit_bias":{"5":-100},"stream_options":{"include_usage":true})"),
      R"({"prompt":[[1,2],[3]],"max_tokens":10.0,"temperature":0.5,"echo":true})"};
  api_test::Random random(7);
  const std::string_view pieces[] = {"null", "[]", "{}", "\"", "-1", "1e9", ",", ":", "\xFF", "]"};
  int accepted = 0;
  for (int round = 0; round < 30'000; round++) {
    std::string body = random.pick(bodies);
    for (size_t edits = 1 + random.below(3); edits > 0; edits--) {
      const size_t place = random.below(body.size());
      switch (random.below(4)) {
        case 0: body.erase(place, 1 + random.below(8)); break;
        case 1: body.insert(place, random.pick(pieces)); break;
        case 2: body[place] = static_cast<char>(random.below(256)); break;
        case 3: body.insert(place, body.substr(random.below(body.size()), random.below(20))); break;
      }
      if (body.empty()) body = "{";
    }
    const Endpoint endpoint = random.pick(kBoth);
    CompletionRequest request;
    const auto error = parse_request(endpoint, body, {}, 1, request);
    if (error) {
      EXPECT_EQ(error->status, 400);
      EXPECT_GT(error->message.size(), 10u);
      api_test::parse(error_json(*error));
    } else {
      accepted++;
    }
  }
  EXPECT_GT(accepted, 300);
}

}  // namespace
}  // namespace broker
