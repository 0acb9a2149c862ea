// Conversations: every form that clients send becomes the one that templates know.
#include <gtest/gtest.h>

#include "broker/api/request.h"
#include "tests/broker/api_support.h"

namespace broker {
namespace {

using api_test::accept;
using api_test::refuse;

constexpr Endpoint kChat = Endpoint::kChatCompletions;

/// What the template gets for these messages.
std::string normalised(std::string_view messages) {
  return accept(kChat, base::cat("{\"messages\":", messages, "}")).chat.messages_json;
}

TEST(ApiChat, TextsPassUnchanged) {
  EXPECT_EQ(normalised(R"([{"role":"user","content":"a"}])"), R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(normalised(R"([ {"content":"ü\u0000\"","role":"system","name":"n"} ])"),
            R"([{"content":"ü\u0000\"","role":"system","name":"n"}])");
  EXPECT_EQ(normalised(R"([{"role":"user","content":""},{"role":"tool","content":"",)"
                       R"("tool_call_id":"7"}])"),
            R"([{"role":"user","content":""},{"role":"tool","content":"","tool_call_id":"7"}])");
}

TEST(RowC2, NullAbsentAndEmptyContentAreTheSame) {
  const std::string calls =
      R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":)"
      R"("{\"a\": 1.50,\"b\":[]}"}}])";
  const std::string expected =
      R"([{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f",)"
      R"("arguments":{"a":1.5,"b":[]}}}],"content":""}])";
  EXPECT_EQ(normalised(base::cat(R"([{"role":"assistant",)", calls, "}]")), expected);
  EXPECT_EQ(normalised(base::cat(R"([{"role":"assistant",)", calls, R"(,"content":null}])")),
            expected);
  EXPECT_EQ(normalised(base::cat(R"([{"role":"assistant",)", calls, R"(,"content":""}])")),
            expected);
  EXPECT_EQ(normalised(base::cat(R"([{"role":"assistant",)", calls, R"(,"content":[]}])")),
            expected);
  // Nothing said and nothing called is an empty turn.
  EXPECT_EQ(normalised(R"([{"role":"assistant","content":null,"tool_calls":[],"refusal":null}])"),
            R"([{"role":"assistant","content":""}])");
  for (const char* const role : {"system", "developer", "user", "tool"})
    for (const char* const content : {"", R"(,"content":null)", R"(,"content":[])"}) {
      const ApiError error =
          refuse(kChat, base::cat(R"({"messages":[{"role":")", role, '"', content, "}]}"));
      EXPECT_EQ(error.param, "messages[0].content");
    }
}

TEST(ApiChat, ArgumentsOfCallsAreObjectsForTheTemplateIfTheyAreAny) {
  const auto request = [](std::string_view arguments) {
    return accept(kChat, base::cat(R"({"messages":[{"role":"assistant","content":"","tool_calls":)"
                                   R"([{"function":{"name":"f","arguments":)",
                                   arguments, "}}]}]}"));
  };
  const auto message = [](std::string_view arguments) {
    return base::cat(R"([{"role":"assistant","content":"","tool_calls":[{"function":)"
                     R"({"name":"f","arguments":)",
                     arguments, "}}]}]");
  };
  const std::pair<const char*, const char*> rows[] = {
      {R"("{\"a\": 1.0, \"b\":[\"ü\"]}")", R"({"a":1.0,"b":["ü"]})"},
      {R"("{}")", "{}"},
      {R"("")", "{}"},
      {R"(" \n")", "{}"}};
  for (const auto& [sent, object] : rows) {
    EXPECT_EQ(request(sent).chat.messages_json, message(object));
    EXPECT_EQ(request(sent).messages_with_text_arguments, message(sent));
  }
  for (const char* const kept :
       {R"("x")", R"("[1]")", R"("{")", R"("{\"a\":1,\"a\":2}")", R"({"a":1})"}) {
    EXPECT_EQ(request(kept).chat.messages_json, message(kept));
    EXPECT_EQ(request(kept).messages_with_text_arguments, "");
  }
}

TEST(RowC2, PartsAreJoinedToOneText) {
  for (const char* const role : {"system", "user", "assistant", "tool"})
    EXPECT_EQ(normalised(base::cat(R"([{"role":")", role,
                                   R"(","content":[{"type":"text","text":"a"},)"
                                   R"({"type":"text","text":"b","cache_control":{}}]}])")),
              base::cat(R"([{"role":")", role, R"(","content":"ab"}])"));
}

TEST(RowC2, OtherPartsAreNamed) {
  const auto part = [](std::string_view json) {
    return refuse(kChat, base::cat(R"({"messages":[{"role":"user","content":"x"},)"
                                   R"({"role":"user","content":[)",
                                   json, "]}]}"));
  };
  const ApiError image = part(R"({"type":"image_url","image_url":{"url":"x"}})");
  EXPECT_EQ(image.param, "messages[1].content[0].type");
  EXPECT_NE(image.message.find("\"image_url\"; only parts of type \"text\""), std::string::npos)
      << image.message;
  EXPECT_EQ(part(R"({"type":"text","text":"a"},{"type":"input_audio"})").param,
            "messages[1].content[1].type");
  EXPECT_EQ(part(R"({"text":"a"})").param, "messages[1].content[0].type");
  EXPECT_EQ(part(R"({"type":"text"})").param, "messages[1].content[0].text");
  EXPECT_EQ(part(R"({"type":"text","text":null})").param, "messages[1].content[0].text");
  EXPECT_EQ(part(R"({"type":"text","text":["a"]})").param, "messages[1].content[0].text");
  EXPECT_EQ(part(R"("a")").param, "messages[1].content[0]");
  EXPECT_EQ(part("null").param, "messages[1].content[0]");
}

TEST(RowC2, DeveloperIsSystemAndOtherRolesAreNamed) {
  EXPECT_EQ(normalised(R"([{"role":"developer","content":"a"}])"),
            R"([{"role":"system","content":"a"}])");
  for (const char* const role :
       {R"("im_end")", R"("function")", R"("User")", R"("")", "1", "null"}) {
    const ApiError error =
        refuse(kChat, base::cat(R"({"messages":[{"role":)", role, R"(,"content":"a"}]})"));
    EXPECT_EQ(error.param, "messages[0].role") << role;
  }
}

TEST(RowC2, WhatAnAnswerContainsIsAcceptedBack) {
  // As the openai package sends a message that it got, with all the fields that were null.
  EXPECT_EQ(normalised(R"([{"content":"hi","role":"assistant","refusal":null,"annotations":[],)"
                       R"("audio":null,"function_call":null,"tool_calls":null}])"),
            R"([{"content":"hi","role":"assistant","annotations":[]}])");
}

struct Bad {
  const char* messages;
  const char* param;
};

TEST(ApiChat, RefusesOtherShapesByName) {
  const Bad rows[] = {
      {R"("hi")", "messages"},
      {"{}", "messages"},
      {"null", "messages"},
      {"[]", "messages"},
      {"[1]", "messages[0]"},
      {R"(["hi"])", "messages[0]"},
      {R"([[]])", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"role":"user","content":1}])", "messages[0].content"},
      {R"([{"role":"user","content":{}}])", "messages[0].content"},
      {R"([{"role":"assistant","content":true}])", "messages[0].content"},
      {R"([{"role":"user","content":"x","tool_calls":[{}]}])", "messages[0].tool_calls"},
      {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls"},
      {R"([{"role":"assistant","tool_calls":["f"]}])", "messages[0].tool_calls[0]"},
      {R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])", "messages[0].tool_calls[0]"},
      {R"([{"role":"assistant","tool_calls":[{"function":"f"}]}])",
       "messages[0].tool_calls[0].function"},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
       "messages[0].tool_calls[0].function.name"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[1]}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role":"assistant","function_call":{"name":"f"}}])", "messages[0].function_call"},
  };
  for (const Bad& row : rows) {
    const ApiError error = refuse(kChat, base::cat("{\"messages\":", row.messages, "}"));
    EXPECT_EQ(error.param, row.param) << row.messages << ": " << error.message;
    EXPECT_TRUE(error.message.starts_with(row.param)) << error.message;
  }
}

TEST(ApiChat, ToolsReachTheTemplateUnlessTheyAreHidden) {
  const std::string_view tools =
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
      R"({"type":"object","properties":{"x":{"type":"number","minimum":1.0}}},"strict":true}}])";
  const auto tools_of = [&](std::string_view more) {
    return accept(kChat, api_test::body_with(kChat, base::cat("\"tools\":", tools, more)))
        .chat.tools_json;
  };
  EXPECT_EQ(tools_of(""), tools);
  EXPECT_EQ(tools_of(R"(,"tool_choice":"auto")"), tools);
  EXPECT_EQ(tools_of(R"(,"tool_choice":"none")"), "");
  EXPECT_EQ(accept(kChat, api_test::body_with(kChat, "\"tools\":[]")).chat.tools_json, "");
  const Bad rows[] = {
      {"{}", "tools"},
      {R"(["f"])", "tools[0]"},
      {R"([{"type":"custom"}])", "tools[0].type"},
      {R"([{"function":{"name":"f"}}])", "tools[0].type"},
      {R"([{"type":"function"}])", "tools[0].function"},
      {R"([{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"([{"type":"function","function":{"name":"f","parameters":"x"}}])",
       "tools[0].function.parameters"},
  };
  for (const Bad& row : rows)
    EXPECT_EQ(
        refuse(kChat, api_test::body_with(kChat, base::cat("\"tools\":", row.messages))).param,
        row.param);
}

TEST(ApiChat, VariablesOfTheTemplate) {
  const auto variables = [](std::string_view fields) {
    return accept(kChat, api_test::body_with(kChat, fields)).chat.variables_json;
  };
  EXPECT_EQ(variables(""), "");
  EXPECT_EQ(variables(R"("chat_template_kwargs":{})"), "");
  EXPECT_EQ(variables(R"("chat_template_kwargs":{"enable_thinking":false,"x":[1]})"),
            R"({"enable_thinking":false,"x":[1]})");
  EXPECT_EQ(variables(R"("reasoning_effort":"low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"("enable_thinking":false)"), R"({"enable_thinking":false})");
  EXPECT_EQ(variables(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})"),
            R"({"enable_thinking":false})");
  EXPECT_EQ(refuse(kChat, api_test::body_with(kChat, R"("chat_template_kwargs":"x")")).param,
            "chat_template_kwargs");
  EXPECT_EQ(refuse(kChat, api_test::body_with(kChat, R"("enable_thinking":"no")")).param,
            "enable_thinking");
  EXPECT_TRUE(accept(kChat, api_test::body_with(kChat, "")).chat.add_generation_prompt);
  EXPECT_FALSE(accept(kChat, api_test::body_with(kChat, R"("add_generation_prompt":false)"))
                   .chat.add_generation_prompt);
}

}  // namespace
}  // namespace broker
