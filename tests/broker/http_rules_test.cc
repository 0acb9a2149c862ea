// Requests as bytes and what they may do: no sockets.
#include <gtest/gtest.h>

#include <random>

#include "base/cat.h"
#include "broker/http/api_keys.h"
#include "broker/http/message_reader.h"
#include "broker/http/response.h"
#include "broker/http/rules.h"
#include "broker/http/status_pages.h"

namespace broker {
namespace {

constexpr MessageLimits kSmall{
    .head_bytes_max = 512, .fields_max = 5, .target_bytes_max = 64, .body_bytes_max = 100};

struct Read {
  MessageReader::State state;
  RequestHead head = {};
  std::string body = {};
  int status = 0;
  std::string left = {};  // of the bytes
};

/// Gives `bytes` in parts of `part`, as a connection does: what was not used comes again.
Read read(std::string_view bytes, size_t part = SIZE_MAX, MessageLimits limits = kSmall) {
  MessageReader reader(limits);
  std::string buffer;
  const auto open = [&] {
    return reader.state() == MessageReader::State::kHead ||
           reader.state() == MessageReader::State::kBody;
  };
  const auto put = [&] {
    for (size_t used = 1; used > 0 && open() && !buffer.empty();) {
      used = reader.put(buffer);
      buffer.erase(0, used);
    }
  };
  while (!bytes.empty() && open()) {
    const std::string_view now = bytes.substr(0, part);
    bytes.remove_prefix(now.size());
    buffer += now;
    put();
  }
  Read result{.state = reader.state(), .head = reader.head()};
  if (result.state == MessageReader::State::kDone) result.body = reader.take_body();
  if (result.state == MessageReader::State::kFailed) result.status = reader.error().status;
  result.left = buffer + std::string(bytes);
  return result;
}

TEST(MessageReader, ReadsTheSameHoweverTheBytesAreCut) {
  const std::string messages[] = {
      "POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nhello",
      "POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n2;why=not\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"};
  for (const std::string& message : messages)
    for (size_t part = 1; part <= message.size(); part++) {
      const Read got = read(message + "NEXT", part);
      ASSERT_EQ(got.state, MessageReader::State::kDone) << part << got.status;
      EXPECT_EQ(got.head.method, "POST");
      EXPECT_EQ(got.head.target, "/v1/completions?a=b");
      EXPECT_EQ(got.head.field("x-one"), "1");
      EXPECT_EQ(got.body, "hello");
      EXPECT_EQ(got.left, "NEXT") << part;
    }
}

TEST(MessageReader, StopsAfterTheHead) {
  MessageReader reader(kSmall);
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
  EXPECT_EQ(reader.put(head + "abc"), head.size());
  EXPECT_EQ(reader.state(), MessageReader::State::kBody);
  EXPECT_EQ(reader.put("abc"), 3u);
  EXPECT_EQ(reader.state(), MessageReader::State::kDone);
}

TEST(MessageReader, EveryLimitHasItsStatus) {
  const std::string host = "Host: x\r\n";
  std::string many;
  for (int i = 0; i < 6; i++) many += base::cat("X-", i, ": 1\r\n");
  const std::pair<int, std::string> cases[] = {
      {431, base::cat("GET / HTTP/1.1\r\nX: ", std::string(600, 'a'))},
      {431, base::cat("GET / HTTP/1.1\r\n", host, many, "\r\n")},
      {414, base::cat("GET /", std::string(100, 'a'), " HTTP/1.1\r\n", host, "\r\n")},
      {413, base::cat("POST / HTTP/1.1\r\n", host, "Content-Length: 101\r\n\r\n")},
      {413, base::cat("POST / HTTP/1.1\r\n", host, "Transfer-Encoding: chunked\r\n\r\n", "50\r\n",
                      std::string(0x50, 'a'), "\r\n50\r\n", std::string(0x50, 'a'))},
      {400, base::cat("POST / HTTP/1.1\r\n", host, "Transfer-Encoding: chunked\r\n\r\n2;",
                      std::string(600, 'x'))},
      {505, "GET / HTTP/2.0\r\nHost: x\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"},
      {400,
       base::cat("POST / HTTP/1.1\r\n", host, "Content-Length: 5\r\nContent-Length: 6\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.1\r\n", host,
                      "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.1\r\n", host,
                      "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.1\r\n", host, "Transfer-Encoding: gzip\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.1\r\n", host, "Transfer-Encoding: gzip, chunked\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.0\r\n", host, "Transfer-Encoding: chunked\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.1\r\n", host, "Content-Length: -1\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.1\r\n", host, "Content-Length: 99999999999999999999\r\n\r\n")},
      {400, base::cat("POST / HTTP/1.1\r\n", host, "Transfer-Encoding: chunked\r\n\r\nzz\r\n")},
      {400, "GET  / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {505, "GET / HTTP/1.1\nHost: x\n\n\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost : x\r\n\r\n"},
      {400, base::cat("G", '\0', "T / HTTP/1.1\r\nHost: x\r\n\r\n")},
      {400, "\x16\x03\x01\x02\x01\xfc\x03\x03 a client that speaks TLS\r\n\r\n"},
  };
  for (const auto& [status, bytes] : cases) {
    const Read got = read(bytes);
    EXPECT_EQ(got.state, MessageReader::State::kFailed) << testing::PrintToString(bytes);
    EXPECT_EQ(got.status, status) << testing::PrintToString(bytes);
  }
}

TEST(MessageReader, AnyBytesLeadToARequestOrAnError) {
  std::mt19937 random(20261129);
  const std::string good =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
      "0\r\n\r\n";
  for (int round = 0; round < 20'000; round++) {
    std::string bytes = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; edits--) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 3); break;
        default: bytes.insert(at, 1, static_cast<char>(random())); break;
      }
      if (bytes.empty()) bytes = "x";
    }
    const Read whole = read(bytes), cut = read(bytes, 1 + random() % 7);
    // In parts the parser may wait for the end of a head whose first lines are wrong already.
    if (cut.state == MessageReader::State::kHead && whole.status != 0) continue;
    // And so may what could become the last chunk.
    if (cut.state == MessageReader::State::kBody && cut.left.size() < 5 && whole.status == 400)
      continue;
    EXPECT_EQ(whole.state, cut.state) << testing::PrintToString(bytes);
    EXPECT_EQ(whole.status, cut.status) << testing::PrintToString(bytes);
    EXPECT_EQ(whole.body, cut.body) << testing::PrintToString(bytes);
    EXPECT_EQ(whole.state == MessageReader::State::kFailed, whole.status >= 400)
        << testing::PrintToString(bytes);
  }
}

RequestHead head_of(std::string method, std::string target,
                    std::vector<std::pair<std::string, std::string>> fields = {}) {
  RequestHead head{.method = std::move(method), .target = std::move(target)};
  head.fields = std::move(fields);
  if (head.count("host") == 0) head.fields.emplace_back("host", "localhost");
  return head;
}

int status_of(const RequestHead& head, const ApiKeys& keys = {}) {
  Destination destination;
  const auto refusal = check_request(head, keys, {}, destination);
  return refusal ? refusal->error.status : 200;
}

TEST(Rules, RoutesMethodsAndTypes) {
  for (const char* path : {"/live", "/ready", "/health", "/v1/models", "/v1/models/a", "/live?x=1",
                           "http://localhost:80/live"}) {
    EXPECT_EQ(status_of(head_of("GET", path)), 200) << path;
    EXPECT_EQ(status_of(head_of("HEAD", path)), 200) << path;
    EXPECT_EQ(status_of(head_of("POST", path)), 405) << path;
    EXPECT_EQ(status_of(head_of("OPTIONS", path)), 405) << path;
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    EXPECT_EQ(status_of(head_of("POST", path)), 200);
    EXPECT_EQ(status_of(head_of("GET", path)), 405);
    for (const char* type : {"application/json", "Application/JSON ; charset=utf-8"})
      EXPECT_EQ(status_of(head_of("POST", path, {{"content-type", type}})), 200) << type;
    for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "json"})
      EXPECT_EQ(status_of(head_of("POST", path, {{"content-type", type}})), 415) << type;
    EXPECT_EQ(status_of(head_of("POST", path, {{"content-encoding", "gzip"}})), 415);
  }
  for (const char* path : {"/", "/v1", "/v1/embeddings", "/v1/models/", "/LIVE", "*", "/live/"})
    EXPECT_EQ(status_of(head_of("GET", path)), 404) << path;
  Destination destination;
  const auto refusal = check_request(head_of("POST", "/v1/embeddings"), {}, {}, destination);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_NE(refusal->error.message.find("/v1/embeddings"), std::string::npos);
  EXPECT_FALSE(check_request(head_of("GET", "/v1/models/a%2Fb%zz"), {}, {}, destination));
  EXPECT_EQ(destination.model, "a/b%zz");
}

TEST(Rules, OnlyThisMachineIsServedWithoutAKey) {
  for (const char* host :
       {"localhost", "LocalHost:8080", "127.0.0.1:1", "127.8.9.1", "[::1]", "[::1]:8080"})
    EXPECT_TRUE(names_loopback(host)) << host;
  for (const char* host :
       {"", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example",
        "10.0.0.1", "[::2]", "[::1", "127.0.0.1:80@evil.example", "0.0.0.0"})
    EXPECT_FALSE(names_loopback(host)) << host;
  EXPECT_EQ(status_of(head_of("GET", "/live", {{"host", "evil.example"}})), 403);
  EXPECT_EQ(status_of(head_of("GET", "/live", {{"origin", "https://evil.example"}})), 403);
  EXPECT_EQ(status_of(head_of("GET", "/live", {{"origin", "null"}})), 403);
  EXPECT_EQ(status_of(head_of("GET", "/live", {{"origin", "http://localhost:3000"}})), 200);
  const auto keys = ApiKeys::from_text("k");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(status_of(head_of("GET", "/live", {{"host", "gpu.example"}}), *keys), 200);
}

TEST(Rules, WithoutAKeyOnlyTheStatusRoutesAnswer) {
  const auto keys = ApiKeys::from_text("# comment\r\n\n  secret-1 \nsecret-22\n");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  const auto status = [&](const char* path, const char* method, const char* authorization) {
    return status_of(head_of(method, path, {{"authorization", authorization}}), *keys);
  };
  for (const char* path : {"/live", "/ready", "/health"}) EXPECT_EQ(status(path, "GET", ""), 200);
  for (const char* path :
       {"/v1/models", "/v1/models/x", "/nothing", "/v1/completions", "/status", "/placement"})
    EXPECT_EQ(status(path, "GET", ""), 401) << path;
  for (const char* good : {"Bearer secret-1", "bearer secret-22", "Bearer   secret-1  "})
    EXPECT_EQ(status("/v1/models", "GET", good), 200) << good;
  for (const char* bad : {"secret-1", "Bearer", "Bearer ", "Bearer secret-", "Bearer secret-11",
                          "Bearer secret-2", "Basic secret-1", "Bearer # comment"})
    EXPECT_EQ(status("/v1/models", "GET", bad), 401) << bad;
  const std::string longest(ApiKeys::kKeyBytesMax, 'k');
  const auto long_key = ApiKeys::from_text(longest);
  ASSERT_TRUE(long_key.ok());
  EXPECT_TRUE(long_key->allow(base::cat("Bearer ", longest)));
  EXPECT_FALSE(long_key->allow(base::cat("Bearer ", longest, "k")));
  for (const std::string& text : {std::string(), std::string("\n# x\n"), longest + "k",
                                  std::string("two words"), std::string("\xc3\xa9")})
    EXPECT_FALSE(ApiKeys::from_text(text).ok()) << text;
}

TEST(Rules, ExpectationsAndRequestIds) {
  const auto expectation = [](const char* value, int minor) {
    RequestHead head = head_of("POST", "/", {{"expect", value}});
    head.minor_version = minor;
    return expectation_of(head);
  };
  EXPECT_EQ(expectation("100-Continue", 1), Expectation::kContinue);
  EXPECT_EQ(expectation("nonsense", 1), Expectation::kUnknown);
  EXPECT_EQ(expectation("100-continue", 0), Expectation::kNone);
  EXPECT_EQ(expectation_of(head_of("POST", "/")), Expectation::kNone);
  const auto id = [](std::string value) {
    return request_id_of(head_of("GET", "/", {{"x-request-id", std::move(value)}}));
  };
  EXPECT_EQ(id("a-Z_0.9:/+=@"), "a-Z_0.9:/+=@");
  EXPECT_EQ(id(std::string(129, 'a')), "");
  EXPECT_EQ(id("a b"), "");
  EXPECT_EQ(id("<script>"), "");
}

TEST(Responses, AreWholeMessages) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  const Manner manner{.request_id = "r", .now = 784111777};
  EXPECT_EQ(serialise(Response{.body = "{}"}, manner),
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Request-Id: r\r\n"
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(stream_part("data: x\n\n", manner), "9\r\ndata: x\n\n\r\n");
  EXPECT_EQ(stream_end(manner), "0\r\n\r\n");
  const Manner old{.minor_version = 0, .keep_alive = false, .request_id = "r"};
  EXPECT_EQ(stream_part("data: x\n\n", old), "data: x\n\n");
  EXPECT_EQ(stream_head(old).find("chunked"), std::string::npos);
  EXPECT_NE(stream_head(old).find("Connection: close"), std::string::npos);
  const std::string busy =
      serialise(Refusal{.error = {.status = 429, .message = "later"}}, 3, manner);
  EXPECT_NE(busy.find("\r\nRetry-After: 3\r\n"), std::string::npos);
}

TEST(StatusPages, SayHowFarLoadingHasCome) {
  GroupStatus status{.bytes_done = 1, .bytes_total = 8};
  EXPECT_EQ(ready_page(status).status, 503);
  EXPECT_NE(ready_page(status).body.find(R"("percent":12)"), std::string::npos);
  EXPECT_NE(health_page(status).body.find("Loading model"), std::string::npos);
  status.bytes_total = 0;
  EXPECT_NE(ready_page(status).body.find(R"("percent":null)"), std::string::npos);
  status.state = GroupStatus::State::kReady;
  EXPECT_EQ(ready_page(status).status, 200);
  EXPECT_EQ(health_page(status).body, R"({"status":"ok"})");
  EXPECT_FALSE(not_ready(status));
  status.state = GroupStatus::State::kRestarting;
  status.reason = "worker 1 was \"killed\"";
  EXPECT_NE(ready_page(status).body.find(R"(worker 1 was \"killed\")"), std::string::npos);
  EXPECT_EQ(not_ready(status)->error.status, 503);
}

}  // namespace
}  // namespace broker
