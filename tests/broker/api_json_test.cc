// JSON in and out: exactly the standard, bounded, with errors that say where.
#include "broker/api/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "broker/api/json_writer.h"
#include "tests/broker/api_support.h"

namespace broker {
namespace {

ApiError refused(std::string_view text, JsonLimits limits = {}) {
  Json json;
  const auto error = parse_json(text, limits, json);
  EXPECT_TRUE(error.has_value()) << text;
  return error.value_or(ApiError{});
}

TEST(ApiJson, ReadsEveryKindOfValue) {
  const Json json = api_test::parse(
      R"( {"null":null,"yes":true,"no":false,"int":-7,"large":18446744073709551615,)"
      R"("real":2.5e-3,"text":"\u00fc\ud83d\ude00\n\u0000","list":[1,[],{}],"":0} )");
  EXPECT_TRUE(json.find("null")->is_null());
  EXPECT_TRUE(*json.find("yes")->boolean());
  EXPECT_FALSE(*json.find("no")->boolean());
  EXPECT_EQ(json.find("int")->integer(), -7);
  EXPECT_EQ(json.find("large")->integer(), std::nullopt);
  EXPECT_EQ(json.find("large")->large_integer(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(json.find("real")->number(), 0.0025);
  EXPECT_EQ(json.find("real")->integer(), std::nullopt);
  EXPECT_EQ(*json.find("text")->string(), std::string("\xC3\xBC\xF0\x9F\x98\x80\n\0", 8));
  EXPECT_EQ(json.find("list")->array()->size(), 3u);
  EXPECT_EQ(json.find("")->integer(), 0);
  EXPECT_EQ(json.find("absent"), nullptr);
  EXPECT_EQ(json.find("int")->find("x"), nullptr);
}

TEST(ApiJson, NumbersAreTheNearestOnes) {
  // The last two are hard cases of correct rounding.
  for (const char* const text : {"0.1", "0.7", "1e23", "123456.789e-10", "4.9e-324", "-0.0",
                                 "2.2250738585072011e-308", "9007199254740993.5"}) {
    EXPECT_EQ(api_test::parse(text).number(), std::strtod(text, nullptr)) << text;
  }
  EXPECT_EQ(api_test::parse("1e-999").number(), 0.0);
  EXPECT_EQ(api_test::parse("10.0").integer(), 10);
  EXPECT_EQ(api_test::parse("1e1").integer(), 10);
  EXPECT_EQ(api_test::parse("10.5").integer(), std::nullopt);
  EXPECT_EQ(api_test::parse("1e300").integer(), std::nullopt);
  EXPECT_EQ(api_test::parse("-9223372036854775808").integer(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(api_test::parse("9223372036854775808").large_integer(), uint64_t{1} << 63);
  for (const char* const text : {"1e999", "-1e999", "[1e400]"})
    EXPECT_NE(refused(text).message.find("too large"), std::string::npos) << text;
}

TEST(ApiJson, RefusesWhatIsNoJson) {
  const std::string_view texts[] = {"",
                                    " ",
                                    "nul",
                                    "{",
                                    "[1,]",
                                    "{\"a\":1,}",
                                    "{'a':1}",
                                    "{a:1}",
                                    "[1 2]",
                                    "// x\n1",
                                    "1 1",
                                    "{} {}",
                                    "NaN",
                                    "Infinity",
                                    "+1",
                                    "01",
                                    ".5",
                                    "\"\\x\"",
                                    "\"\n\"",
                                    "\"abc",
                                    "\xEF\xBB\xBF{}",
                                    "[\"\\ud800\"]",
                                    "\"\\udc00\"",
                                    "\"\\ud800x\"",
                                    "\"\x80\"",
                                    "\"\xED\xA0\x80\"",
                                    "\"\xC0\xAF\"",
                                    "\"\xF5\x80\x80\x80\"",
                                    "\"\xE4\xBD\"",
                                    "{\"\xFF\":1}"};
  for (const std::string_view text : texts) {
    const ApiError error = refused(text);
    EXPECT_EQ(error.status, 400);
    EXPECT_NE(error.message.find("line 1, column "), std::string::npos) << error.message;
  }
}

TEST(ApiJson, SaysWhereItBreaks) {
  const ApiError error = refused("{\"messages\": [\n  {\"role\": \"user\"},\n  {\"role\": oops}]}");
  EXPECT_NE(error.message.find("line 3, column 12"), std::string::npos) << error.message;
  EXPECT_EQ(error.param, "messages[1].role");
  EXPECT_EQ(refused("{\"stop\":[\"a\",\"b\",\"\xFF\"]}").param, "stop[2]");
  EXPECT_EQ(refused("[0,[1,2,x").param, "[1][2]");
}

TEST(ApiJson, RefusesAKeyThatComesTwice) {
  const ApiError error =
      refused(R"({"model":"a","messages":[{"role":"x","content":1,"role":"y"}]})");
  EXPECT_NE(error.message.find("\"role\" twice"), std::string::npos) << error.message;
  EXPECT_EQ(error.param, "messages[0].role");
  std::string many = "{\"k0\":0";
  for (int i = 1; i < 1000; i++) many += base::cat(",\"k", i, "\":0");
  api_test::parse(many + "}");
  EXPECT_NE(refused(many + ",\"k500\":0}").message.find("\"k500\""), std::string::npos);
}

TEST(ApiJson, BoundsDepthAndCount) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  api_test::parse(nested(32));
  EXPECT_NE(refused(nested(33)).message.find("deeper than 32"), std::string::npos);
  EXPECT_NE(refused(std::string(1'000'000, '[')).message.find("deeper"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 40; i++) objects += "{\"a\":";
  EXPECT_NE(refused(objects).message.find("deeper"), std::string::npos);
  Json json;
  EXPECT_FALSE(parse_json("[1,2,3]", {.values_max = 4}, json));
  EXPECT_NE(refused("[1,2,3,4]", {.values_max = 4}).message.find("more than 4"), std::string::npos);
}

TEST(ApiJson, WritesWhatItReads) {
  const std::string_view texts[] = {
      R"({"a":[1,-2.5,1e+300,18446744073709551615,true,null,"x\"\\\n"],"b":{},"c":[[]]})",
      R"([1.0,0,-0.0,0.1,"\u0000","ü😀","<|im_end|>","/"])"};
  for (const std::string_view text : texts) {
    const std::string again = to_text(api_test::parse(text));
    EXPECT_EQ(again, to_text(api_test::parse(again)));
    EXPECT_EQ(again, text);
  }
}

TEST(ApiJson, WriterMakesValidTextOfAnyBytes) {
  JsonWriter json;
  json.begin_object().field("a\xFF\"", "\x80 \x01\t\\").key("list").begin_array();
  json.value(1).value(0.5).value(true).value(NAN).null().raw("{}").value("x").end_array();
  json.field("n", size_t{3}).end_object();
  const std::string text = json.take();
  EXPECT_EQ(
      text,
      "{\"a\xEF\xBF\xBD\\\"\":\"\xEF\xBF\xBD \\u0001\\u0009\\\\\",\"list\":[1,0.5,true,null,null,"
      "{},\"x\"],\"n\":3}");
  api_test::parse(text);
  EXPECT_EQ(json.begin_array().end_array().take(), "[]");
}

TEST(ApiJson, AnyBytesGiveAValueOrAnError) {
  api_test::Random random(20);
  const std::string_view alphabet = "{}[]\",:\\u0123eE+-.truefalsn \n\xC3\xBC\xFF\xED\xA0";
  int good = 0;
  for (int round = 0; round < 20'000; round++) {
    std::string text;
    const size_t length = random.below(24);
    for (size_t i = 0; i < length; i++) text += random.pick(alphabet);
    Json json;
    if (parse_json(text, {}, json)) continue;
    good++;
    Json again;
    EXPECT_FALSE(parse_json(to_text(json), {}, again)) << text;
    EXPECT_EQ(to_text(again), to_text(json));
  }
  EXPECT_GT(good, 50);
}

}  // namespace
}  // namespace broker
