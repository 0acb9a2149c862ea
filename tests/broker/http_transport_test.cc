// The server over a real socket: limits, times, expectations, and clients that leave.
#include <cstdlib>
#include <thread>

#include "base/cat.h"
#include "tests/broker/http_support.h"

namespace http_test {
namespace {

using broker::Submission;

/// Answers the next request with `text`.
void complete(Server& server, std::string_view text = " upon") {
  const Submission asked = server.next();
  server.accept(asked);
  server.say(asked, text);
  server.finish(asked, proto::Finish::kLength);
}

TEST(HttpTransport, RequestsMayBeCutAnywhere) {
  Server server;
  Client client = server.connect();
  const std::string request = completion();
  const size_t step = std::getenv("NUMOE_FULL") == nullptr ? 7 : 1;
  for (size_t cut = 1; cut < request.size(); cut += step) {
    client.send(request.substr(0, cut));
    client.send(request.substr(cut));
    complete(server);
    EXPECT_EQ(client.read_reply().status, 200) << cut;
  }
}

TEST(HttpTransport, PipelinedRequestsAreAnsweredInOrder) {
  Server server;
  Client client = server.connect();
  client.send(base::cat(get("/live"), "\r\n", completion(), get("/v1/models"), completion(),
                        get("/nothing"), get("/health")));
  EXPECT_EQ(client.read_reply().body, R"({"status":"ok"})");
  complete(server, " one");
  EXPECT_NE(client.read_reply().body.find(" one"), std::string::npos);
  EXPECT_NE(client.read_reply().body.find("tales"), std::string::npos);
  complete(server, " two");
  EXPECT_NE(client.read_reply().body.find(" two"), std::string::npos);
  EXPECT_EQ(client.read_reply().status, 404);
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(HttpTransport, ConnectionsEndAsTheirVersionSays) {
  Server server;
  const auto ends = [&](std::string_view request) {
    Client client = server.connect();
    client.send(request);
    EXPECT_EQ(client.read_reply().status, 200) << request;
    client.send(get("/live"));
    return client.read_all().empty();
  };
  EXPECT_TRUE(ends("GET /live HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(ends(get("/live", "Connection: close\r\n")));
  Client old = server.connect();
  for (int i = 0; i < 2; i++) {
    old.send("GET /live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(old.read_reply().field("Connection"), "keep-alive");
  }
}

TEST(HttpTransport, BadRequestsAreAnsweredOnceAndClosed) {
  Server server;
  const std::pair<int, std::string> cases[] = {
      {400, "nonsense\r\n\r\n"},
      {400, "GET /live HTTP/1.1\r\n\r\n"},
      {505, "GET /live HTTP/3.0\r\nHost: localhost\r\n\r\n"},
      {414, base::cat("GET /", std::string(9000, 'a'), " HTTP/1.1\r\nHost: localhost\r\n\r\n")},
      {431, base::cat("GET /live HTTP/1.1\r\nHost: localhost\r\nX: ", std::string(40'000, 'a'))},
      {413, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"},
      {403, "GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n"},
      {400,
       "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
       "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
  };
  for (const auto& [status, request] : cases) {
    Client client = server.connect();
    client.send(request);
    const HttpReply reply = client.read_reply();
    EXPECT_EQ(reply.status, status) << request.substr(0, 60);
    EXPECT_TRUE(reply.body.starts_with(R"({"error":{"message":)")) << reply.body;
    client.finish_sending();
    EXPECT_TRUE(status == 403 || client.is_at_end()) << request.substr(0, 60);
  }
}

TEST(HttpTransport, BodiesMayComeInChunksAndNotBeTooLarge) {
  Server::Options options;
  options.http.limits.body_bytes_max = 1000;
  Server server(options);
  Client client = server.connect();
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  client.send(base::cat(head, "8\r\n{\"prompt\r\n", "8\r\n\":\"Once\"\r\n", "1\r\n}\r\n0\r\n\r\n"));
  complete(server);
  EXPECT_EQ(client.read_reply().status, 200);
  client.send(head);
  for (int i = 0; i < 11; i++) client.send(base::cat("64\r\n", std::string(100, ' '), "\r\n"));
  EXPECT_EQ(client.read_reply().status, 413);
  EXPECT_EQ(server.ask(post("/v1/completions", std::string(1001, ' '))).status, 413);
}

TEST(HttpTransport, ContinueIsSaidAtOnceOrTheFinalStatus) {
  Server::Options options;
  options.keys = "secret";
  options.http.limits.body_bytes_max = 100'000;
  Server server(options);
  const std::string body = base::cat("{\"prompt\":\"Once\"", std::string(50'000, ' '), "}");
  const auto head = [&](std::string_view lines, size_t length) {
    return base::cat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ", length, "\r\n",
                     lines, "\r\n");
  };
  const std::string key = "Authorization: Bearer secret\r\n", expect = "Expect: 100-continue\r\n";
  Client client = server.connect();
  client.send(head(key + expect, body.size()));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(body);
  complete(server);
  EXPECT_EQ(client.read_reply().status, 200);
  client.send(head(key + "Expect: nonsense\r\n", 0));
  EXPECT_EQ(client.read_reply().status, 417);
  const std::pair<int, std::string> refused[] = {
      {401, head(expect, body.size())},
      {413, head(key + expect, 100'001)},
      {417, head(key + "Expect: nonsense\r\n", body.size())},
  };
  for (const auto& [status, request] : refused) {
    Client other = server.connect();
    other.send(request);
    const HttpReply reply = other.read_reply();
    EXPECT_EQ(reply.status, status) << "and no 100 before it: " << reply.head;
    EXPECT_EQ(reply.field("Connection"), "close");
  }
  Client old = server.connect();
  old.send(base::cat("POST /v1/completions HTTP/1.0\r\n", key, expect,
                     "Content-Length: 17\r\n\r\n{\"prompt\":\"Once\"}"));
  complete(server);
  EXPECT_EQ(old.read_reply().status, 200) << "HTTP/1.0 knows no expectations";
}

TEST(HttpTransport, AnswersReachClientsThatSendTheirBodyFirst) {
  Server::Options options;
  options.keys = "secret";
  Server server(options);
  Client client = server.connect();
  client.send(post("/v1/completions", std::string(4'000'000, ' ')));
  EXPECT_EQ(client.read_reply().status, 401);
}

TEST(HttpTransport, TimesAreBounded) {
  Server server;
  Client idle = server.connect(), used = server.connect(), slow_head = server.connect(),
         slow_body = server.connect(), lively = server.connect();
  used.send(get("/live"));
  used.read_reply();
  slow_head.send("GET /li");
  slow_body.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  lively.send(stream());
  const Submission asked = server.next();
  server.accept(asked);
  // Two that are being read or answered; slow_head is one as soon as its first byte is there.
  ASSERT_TRUE(Server::until([&] { return server.server->connections() == 5; }));
  // What has a deadline has it by now: each of these was served before.
  EXPECT_EQ(server.ask(get("/live")).status, 200);
  server.clock.advance(16 * kSecond);
  EXPECT_EQ(slow_head.read_reply().status, 408);
  server.clock.advance(15 * kSecond);
  EXPECT_EQ(slow_body.read_reply().status, 408);
  server.clock.advance(60 * kSecond);
  EXPECT_TRUE(idle.is_at_end()) << "without a word";
  EXPECT_TRUE(used.is_at_end());
  server.say(asked, " upon");
  server.finish(asked, proto::Finish::kLength);
  EXPECT_NE(lively.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
}

TEST(HttpTransport, ASlowHeaderDoesNotGetMoreTimeByDrippingBytes) {
  Server server;
  Client client = server.connect();
  client.send("GET /live HTTP/1.1\r\nX: ");
  ASSERT_TRUE(Server::until([&] { return server.server->connections() == 1; }));
  EXPECT_EQ(server.ask(get("/live")).status, 200);
  for (int i = 0; i < 14; i++) {
    server.clock.advance(kSecond);
    client.send("a");
    EXPECT_EQ(server.ask(get("/live")).status, 200);
  }
  server.clock.advance(2 * kSecond);
  EXPECT_EQ(client.read_reply().status, 408);
}

TEST(HttpTransport, ConnectionsAndBodiesAreCounted) {
  Server::Options options;
  options.http.connections_max = 2;
  options.http.limits.body_bytes_max = 1000;
  options.http.bodies_bytes_max = 1500;
  Server server(options);
  Client first = server.connect(), second = server.connect();
  const auto head = [](size_t length) {
    return base::cat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", length,
                     "\r\n\r\n");
  };
  first.send(head(1000));
  second.send(get("/live"));
  EXPECT_EQ(second.read_reply().status, 200);
  Client third = server.connect();
  EXPECT_EQ(third.read_reply().status, 503);
  second.send(head(1000));
  const HttpReply full = second.read_reply();
  EXPECT_EQ(full.status, 503);
  EXPECT_NE(full.body.find("bodies_full"), std::string::npos);
}

// A body of unknown length reserves the most there may be, but only until it was read.
TEST(HttpTransport, RequestsInProgressDoNotCountAsBodies) {
  Server::Options options;
  options.http.limits.body_bytes_max = 1000;
  options.http.bodies_bytes_max = 1500;
  Server server(options);
  const std::string request = base::cat(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
      "11\r\n{\"prompt\":\"Once\"}\r\n0\r\n\r\n");
  Client first = server.connect(), second = server.connect();
  first.send(request);
  const Submission one = server.next();
  second.send(request);
  const Submission two = server.next();
  for (const Submission& submission : {one, two}) {
    server.accept(submission);
    server.say(submission, " upon");
    server.finish(submission, proto::Finish::kLength);
  }
  EXPECT_EQ(first.read_reply().status, 200);
  EXPECT_EQ(second.read_reply().status, 200);
}

/// How a client may leave.
enum class Leaving { kClose, kReset, kHalfClose };

void leave(Client& client, Leaving how) {
  if (how == Leaving::kClose) client.close();
  if (how == Leaving::kReset) client.reset();
  if (how == Leaving::kHalfClose) client.finish_sending();
}

TEST(HttpTransport, WhoLeavesIsCancelledInEveryPhase) {
  Server server;
  Client neighbour = server.connect();
  neighbour.send(stream());
  const Submission other = server.next();
  server.accept(other);
  for (const Leaving how : {Leaving::kClose, Leaving::kReset, Leaving::kHalfClose})
    for (const bool streams : {true, false})
      for (const int phase : {0, 1, 2}) {
        Client client = server.connect();
        client.send(streams ? stream(R"("n":3)") : completion(R"("n":3)"));
        const Submission asked = server.next();
        if (phase >= 1) server.accept(asked);
        if (phase == 2) {
          server.say(asked, " upon", 1);
          if (streams) client.read_until(" upon");
        }
        leave(client, how);
        const broker::CancelSlots cancelled = server.next_cancel();
        EXPECT_EQ(cancelled.ticket, asked.ticket);
        EXPECT_FALSE(cancelled.slot.has_value()) << "all choices";
        // What still comes finds nobody.
        server.say(asked, " a time");
        server.finish(asked, proto::Finish::kCancelled);
      }
  server.say(other, " upon a time");
  server.finish(other, proto::Finish::kLength);
  const std::string all = neighbour.read_until("0\r\n\r\n");
  EXPECT_EQ(streamed_text(all), " upon a time");
  EXPECT_FALSE(server.has_cancel());
  EXPECT_TRUE(Server::until([&] { return server.server->connections() == 1; }));
}

TEST(HttpTransport, WhoLeavesAfterTheLastTokenCancelsNothing) {
  Server server;
  Client client = server.connect();
  client.send(stream());
  const Submission asked = server.next();
  server.accept(asked);
  server.finish(asked, proto::Finish::kLength);
  client.read_until("[DONE]");
  client.reset();
  EXPECT_TRUE(Server::until([&] { return server.server->connections() == 0; }));
  EXPECT_FALSE(server.has_cancel());
}

TEST(HttpTransport, OneRequestIdOfTwoClientsIsTwoRequests) {
  Server server;
  Client first = server.connect(), second = server.connect();
  first.send(completion({}, "X-Request-Id: same\r\n"));
  const Submission one = server.next();
  second.send(completion({}, "X-Request-Id: same\r\n"));
  const Submission two = server.next();
  server.accept(one);
  server.accept(two);
  first.close();
  EXPECT_EQ(server.next_cancel().ticket, one.ticket);
  server.say(two, " upon");
  server.finish(two, proto::Finish::kLength);
  EXPECT_EQ(second.read_reply().status, 200);
  EXPECT_FALSE(server.has_cancel());
}

TEST(HttpTransport, WhoDoesNotReadIsGivenUpAndOthersGoOn) {
  Server::Options options;
  options.http.events_bytes_max = 100'000;
  Server server(options);
  Client lazy(server.port(), {.receive_buffer_bytes = 4096});
  lazy.send(stream());
  const Submission unread = server.next();
  server.accept(unread);
  Client neighbour = server.connect();
  neighbour.send(stream());
  const Submission other = server.next();
  server.accept(other);
  std::string expected;
  int said = 0;
  while (!server.has_cancel() && said < 200'000) {
    server.say(unread, " upon");
    if (said++ % 1000 != 0) continue;
    server.say(other, " time");
    expected += " time";
    neighbour.read_until(" time");
  }
  EXPECT_EQ(server.next_cancel().ticket, unread.ticket) << "after " << said;
  server.finish(other, proto::Finish::kLength);
  EXPECT_NE(neighbour.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
  // One that begins to read again learns why it ends.
  const std::string all = lazy.read_all();
  EXPECT_NE(all.find("slow_reader"), std::string::npos);
  EXPECT_EQ(all.find("[DONE]"), std::string::npos);
}

TEST(HttpTransport, WhoReadsNothingForLongLosesTheConnection) {
  Server::Options options;
  options.http.events_bytes_max = 100'000;
  Server server(options);
  Client lazy(server.port(), {.receive_buffer_bytes = 4096});
  lazy.send(stream());
  const Submission unread = server.next();
  server.accept(unread);
  while (!server.has_cancel()) server.say(unread, " upon");
  EXPECT_EQ(server.server->connections(), 1);
  // What the kernel still takes is progress and begins the wait anew, so once may be too early.
  EXPECT_TRUE(Server::until([&] {
    server.clock.advance(31 * kSecond);
    return server.server->connections() == 0;
  }));
}

TEST(HttpTransport, BytesAheadOfTheirTurnAreBounded) {
  Server server;
  Client client = server.connect();
  client.send(stream());
  const Submission asked = server.next();
  server.accept(asked);
  // More than the server reads ahead; it stays in the client until its turn comes.
  std::string ahead;
  for (int i = 0; i < 3000; i++) ahead += get("/live");
  std::thread sender([&] { client.send(ahead); });
  server.say(asked, " upon");
  server.finish(asked, proto::Finish::kLength);
  EXPECT_NE(client.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
  for (int i = 0; i < 3000; i++) ASSERT_EQ(client.read_reply().status, 200) << i;
  sender.join();
}

}  // namespace
}  // namespace http_test
