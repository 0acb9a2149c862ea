// Bodies, requests and events for the tests of broker/api.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "broker/api/json.h"
#include "broker/api/request.h"

namespace api_test {

using broker::ApiError;
using broker::CompletionRequest;
using broker::Endpoint;
using broker::Json;

inline constexpr Endpoint kBoth[] = {Endpoint::kCompletions, Endpoint::kChatCompletions};
inline constexpr uint64_t kRandomSeed = 987654321;

/// Repeatable choices.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  size_t below(size_t n) { return static_cast<size_t>(engine_() % n); }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::mt19937_64 engine_;
};

/// The smallest good body with further fields: `"n":2` or nothing.
inline std::string body_with(Endpoint endpoint, std::string_view fields) {
  const std::string_view least = endpoint == Endpoint::kCompletions
                                     ? R"("prompt":"Hi")"
                                     : R"("messages":[{"role":"user","content":"Hi"}])";
  return base::cat('{', least, fields.empty() ? "" : ",", fields, '}');
}

/// The request; a test failure if it is refused.
inline CompletionRequest accept(Endpoint endpoint, std::string_view body) {
  CompletionRequest request;
  const auto error = broker::parse_request(endpoint, body, {}, kRandomSeed, request);
  EXPECT_FALSE(error.has_value()) << body << ": " << error->message;
  return request;
}

/// Why it is refused; a test failure if it is not, or not as a bad request.
inline ApiError refuse(Endpoint endpoint, std::string_view body) {
  CompletionRequest request;
  const auto error = broker::parse_request(endpoint, body, {}, kRandomSeed, request);
  EXPECT_TRUE(error.has_value()) << body << " is accepted";
  if (!error) return {};
  EXPECT_EQ(error->status, 400) << body;
  EXPECT_EQ(error->type, "invalid_request_error") << body;
  EXPECT_EQ(error->code, "") << body;
  return *error;
}

inline Json parse(std::string_view text) {
  Json json;
  const auto error = broker::parse_json(text, {}, json);
  EXPECT_FALSE(error.has_value()) << text << ": " << error->message;
  return json;
}

/// The data of each event. Every event is checked to be one line and a blank one.
inline std::vector<std::string> events_of(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << stream;
    if (end == std::string_view::npos) break;
    const std::string_view event = stream.substr(0, end);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find('\n'), std::string_view::npos) << event;
    events.emplace_back(event.substr(std::min<size_t>(6, event.size())));
    stream.remove_prefix(end + 2);
  }
  return events;
}

/// What a path of keys and "[index]" leads to; a test failure and null if there is nothing.
inline Json get(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* at = &json;
  for (const std::string_view step : path) {
    const Json* next = at->find(step);
    if (step[0] == '[' && at->array() != nullptr) {
      const size_t index = static_cast<size_t>(step[1] - '0');
      next = index < at->array()->size() ? &(*at->array())[index] : nullptr;
    }
    EXPECT_NE(next, nullptr) << "no " << step << " in " << broker::to_text(json);
    if (next == nullptr) return {};
    at = next;
  }
  return *at;
}

inline std::string text_at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json found = get(json, path);
  EXPECT_NE(found.string(), nullptr) << broker::to_text(json);
  return found.string() == nullptr ? "" : *found.string();
}

}  // namespace api_test
