// The server over a real socket: what clients get for their requests.
#include <unistd.h>

#include "base/cat.h"
#include "tests/broker/http_support.h"

namespace http_test {
namespace {

using broker::Reply;
using broker::Submission;
using State = broker::GroupStatus::State;

TEST(HttpServer, AnswersFromTheFirstMomentAndSaysHowFarItIs) {
  Server server({.ready = false});
  EXPECT_EQ(server.ask(get("/live")).status, 200);
  const HttpReply loading = server.ask(get("/ready"));
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.field("Retry-After"), "2");
  EXPECT_NE(loading.body.find(R"("status":"loading")"), std::string::npos) << loading.body;
  EXPECT_NE(loading.body.find(R"("bytes_done":25,"bytes_total":100,"percent":25)"),
            std::string::npos);
  EXPECT_EQ(server.ask(get("/health")).status, 503);
  const HttpReply refused = server.ask(completion());
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.field("Retry-After"), "2");
  EXPECT_NE(refused.body.find("model_not_ready"), std::string::npos);
  server.set_state(State::kReady);
  EXPECT_EQ(server.ask(get("/ready")).status, 200);
  EXPECT_EQ(server.ask(get("/health")).body, R"({"status":"ok"})");
  server.set_state(State::kRestarting);
  EXPECT_EQ(server.ask(get("/ready")).status, 503);
  EXPECT_EQ(server.ask(get("/live")).status, 200);
}

TEST(HttpServer, HeadIsGetWithoutABody) {
  Server server;
  Client client = server.connect();
  for (const char* path : {"/live", "/ready", "/health", "/v1/models"}) {
    client.send(get(path));
    const HttpReply whole = client.read_reply();
    client.send(base::cat("HEAD ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    const HttpReply head = client.read_reply(false);
    EXPECT_EQ(head.status, whole.status);
    EXPECT_EQ(head.field("Content-Length"), base::cat(whole.body.size()));
  }
  client.send(get("/live"));
  EXPECT_EQ(client.read_reply().status, 200) << "no byte of a body came in between";
}

TEST(HttpServer, TellsItsModel) {
  Server server;
  const HttpReply list = server.ask(get("/v1/models"));
  EXPECT_EQ(list.body,
            R"({"object":"list","data":[{"id":"tales","object":"model","created":7,)"
            R"("owned_by":"numoe","meta":{"architecture":"","vocab_size":100,"size_bytes":0,)"
            R"("context_length":4096}}]})");
  EXPECT_EQ(server.ask(get("/v1/models/tales")).status, 200);
  const HttpReply other = server.ask(get("/v1/models/other"));
  EXPECT_EQ(other.status, 404);
  EXPECT_NE(other.body.find("model_not_found"), std::string::npos);
}

TEST(HttpServer, UnknownRoutesAndWrongMethodsAreErrorObjects) {
  Server server;
  const HttpReply nothing = server.ask(post("/v1/embeddings", R"({"input":""})"));
  EXPECT_EQ(nothing.status, 404);
  EXPECT_EQ(nothing.field("Content-Type"), "application/json");
  EXPECT_NE(nothing.body.find("/v1/embeddings"), std::string::npos);
  EXPECT_TRUE(nothing.body.starts_with(R"({"error":{"message":)"));
  const HttpReply method = server.ask(get("/v1/completions"));
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.field("Allow"), "POST");
  EXPECT_EQ(server.ask(post("/live", "")).field("Allow"), "GET, HEAD");
  const HttpReply preflight = server.ask(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:1\r\n\r\n");
  EXPECT_EQ(preflight.status, 405);
  EXPECT_EQ(preflight.field("Access-Control-Allow-Origin"), "");
}

TEST(HttpServer, CompletesAtOnce) {
  Server server;
  Client client = server.connect();
  client.send(completion(R"("max_tokens":5,"seed":9)", "X-Request-Id: mine-1\r\n"));
  const Submission asked = server.next();
  ASSERT_EQ(asked.slots.size(), 1u);
  EXPECT_EQ(asked.slots[0].prompt, tokenizer().encode("Once", {.add_bos = tokenizer().adds_bos()}));
  EXPECT_EQ(asked.slots[0].max_tokens, 5);
  EXPECT_EQ(asked.slots[0].sampling.seed, 9u);
  server.accept(asked);
  server.say(asked, " upon a");
  server.say(asked, " time");
  server.finish(asked, proto::Finish::kLength);
  const HttpReply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.field("X-Request-Id"), "mine-1");
  EXPECT_NE(reply.body.find(R"("text":" upon a time")"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_FALSE(server.has_cancel());
}

TEST(HttpServer, StreamsEvents) {
  Server server;
  Client client = server.connect();
  client.send(stream());
  const Submission asked = server.next();
  server.accept(asked);
  server.say(asked, " upon");
  const std::string begin = client.read_until(" upon");
  EXPECT_TRUE(begin.starts_with("HTTP/1.1 200 OK\r\n"));
  for (const char* line : {"Content-Type: text/event-stream", "Cache-Control: no-cache\r\n",
                           "X-Accel-Buffering: no\r\n", "Transfer-Encoding: chunked\r\n"})
    EXPECT_NE(begin.find(line), std::string::npos) << line;
  server.say(asked, " a time");
  client.read_until(" a time");
  server.finish(asked, proto::Finish::kLength);
  EXPECT_NE(client.read_until("0\r\n\r\n").find("data: [DONE]\n\n"), std::string::npos);
  client.send(get("/live"));
  EXPECT_EQ(client.read_reply().status, 200) << "the connection is good for more";
}

TEST(HttpServer, ToOldClientsAStreamEndsWithTheConnection) {
  Server server;
  Client client = server.connect();
  const std::string body = R"({"prompt":"Once","stream":true})";
  client.send(base::cat(
      "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: ", body.size(),
      "\r\n\r\n", body));
  const Submission asked = server.next();
  server.accept(asked);
  server.say(asked, " upon a time");
  server.finish(asked, proto::Finish::kLength);
  const std::string all = client.read_all();
  EXPECT_EQ(all.find("chunked"), std::string::npos);
  EXPECT_EQ(streamed_text(all), " upon a time");
  EXPECT_TRUE(all.ends_with("\n\ndata: [DONE]\n\n")) << all;
}

TEST(HttpServer, WhatIsKnownBeforeTheFirstEventIsAnHttpError) {
  Server server;
  for (const std::string& request : {stream(), completion()}) {
    Client client = server.connect();
    client.send(request);
    server.refuse(server.next(), Reply::Kind::kBusy,
                  {base::Code::kUnavailable, "the queue is full"});
    const HttpReply busy = client.read_reply();
    EXPECT_EQ(busy.status, 429);
    EXPECT_NE(busy.field("Retry-After"), "");
    EXPECT_NE(busy.body.find("queue_full"), std::string::npos);
    client.send(request);
    server.refuse(server.next(), Reply::Kind::kRefused, {base::Code::kInvalidArgument, "no"});
    EXPECT_EQ(client.read_reply().status, 400);
    client.send(request);
    const Submission asked = server.next();
    server.accept(asked);
    server.finish(asked, proto::Finish::kError, {base::Code::kPeerLost, "worker 1 was killed"});
    const HttpReply lost = client.read_reply();
    EXPECT_EQ(lost.status, 500);
    EXPECT_NE(lost.body.find("worker 1 was killed"), std::string::npos);
  }
  EXPECT_FALSE(server.has_cancel());
}

TEST(HttpServer, AFailureLaterIsTheLastEvent) {
  Server server;
  Client client = server.connect();
  client.send(stream(R"("n":2)"));
  const Submission asked = server.next();
  ASSERT_EQ(asked.slots.size(), 2u);
  server.accept(asked);
  server.say(asked, " upon");
  client.read_until(" upon");
  server.finish(asked, proto::Finish::kError, {base::Code::kPeerLost, "worker 1 was killed"});
  const std::string rest = client.read_all();
  EXPECT_NE(rest.find(R"(data: {"error":{"message":"worker 1 was killed")"), std::string::npos);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(rest.ends_with("0\r\n\r\n")) << "the body is complete all the same";
  EXPECT_EQ(server.next_cancel().ticket, asked.ticket) << "nobody wants the other choice any more";
}

TEST(HttpServer, PingsWhileThePromptIsComputed) {
  Server server;
  Client client = server.connect();
  client.send(stream());
  const Submission asked = server.next();
  server.accept(asked);
  // The server's thread has come so far that it waits, since it answers another one.
  server.ask(get("/live"));
  server.clock.advance(11 * kSecond);
  const std::string first = client.read_until(": ping\n\n");
  EXPECT_TRUE(first.starts_with("HTTP/1.1 200 OK\r\n")) << "the head comes with the first ping";
  server.ask(get("/live"));
  server.clock.advance(11 * kSecond);
  EXPECT_EQ(client.read_until(": ping\n\n").find("data:"), std::string::npos);
  // From here on an error is an event.
  server.finish(asked, proto::Finish::kError, {base::Code::kPeerLost, "worker 1 was killed"});
  const std::string rest = client.read_all();
  EXPECT_NE(rest.find(R"(data: {"error")"), std::string::npos);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
}

TEST(HttpServer, BadBodiesAreRefusedWithTheirField) {
  Server server;
  Client client = server.connect();
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt":"x","temperature":"hot"})", R"("param":"temperature")"},
      {R"({"prompt":""})", R"("param":"prompt")"},
      {R"({"prompt":[1,99999999]})", R"("param":"prompt)"},
      {R"({"prompt":"x","n":0})", R"("param":"n")"},
      {R"({"prompt":"x","model":7})", R"("param":"model")"},
      {"{\"prompt\":\"\xff\"}", R"("type":"invalid_request_error")"},
      {"", R"("type":"invalid_request_error")"},
      {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", R"("type":"invalid_request_error")"},
  };
  for (const auto& [body, expected] : cases) {
    client.send(post("/v1/completions", body));
    const HttpReply reply = client.read_reply();
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_NE(reply.body.find(expected), std::string::npos) << reply.body;
  }
  client.send(completion(R"("model":"gpt-4")"));
  const HttpReply unknown = client.read_reply();
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("model_not_found"), std::string::npos);
  client.send(completion(R"("n":16,"prompt":["a","b","c","d","e"])"));
  EXPECT_EQ(client.read_reply().status, 400);
}

TEST(HttpServer, KeysAreAskedForBeforeAnythingElse) {
  Server server({.keys = "secret\n"});
  const HttpReply refused = server.ask(completion());
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.field("WWW-Authenticate"), "Bearer");
  EXPECT_NE(refused.body.find("invalid_api_key"), std::string::npos);
  EXPECT_EQ(server.ask(get("/v1/models", "Authorization: Bearer secret\r\n")).status, 200);
  EXPECT_EQ(server.ask(get("/ready")).status, 200);
}

TEST(HttpServer, MakesRequestIdsAndLogsRequests) {
  Server server({.http = {.log_requests = true}});
  EXPECT_EQ(server.ask(get("/live", "X-Request-Id: bad id\r\n")).field("X-Request-Id"),
            "req-a200000000000000");
  Client client = server.connect();
  client.send(completion({}, "X-Request-Id: mine\r\n"));
  const Submission asked = server.next();
  server.accept(asked);
  server.finish(asked, proto::Finish::kLength);
  client.read_reply();
  EXPECT_TRUE(Server::until([&] {
    return server.log.text().find("mine POST /v1/completions 200 3+5 tokens 0 ms\n") !=
           std::string::npos;
  })) << server.log.text();
}

TEST(HttpServer, DrainsAndClosesWhatIsIdle) {
  Server server;
  Client idle = server.connect(), busy = server.connect();
  idle.send(get("/live"));
  idle.read_reply();
  busy.send(stream());
  const Submission asked = server.next();
  server.accept(asked);
  server.say(asked, " upon");
  busy.read_until(" upon");
  EXPECT_EQ(server.server->busy(), 1);
  server.server->drain();
  EXPECT_TRUE(idle.is_at_end());
  EXPECT_TRUE(Server::until([&] { return !server.connect().connected(); }));
  server.say(asked, " a time");
  server.finish(asked, proto::Finish::kLength);
  const std::string rest = busy.read_all();
  EXPECT_NE(rest.find(" a time"), std::string::npos);
  EXPECT_NE(rest.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(Server::until([&] { return server.server->busy() == 0; }));
}

TEST(HttpServer, EndsWithRequestsInEveryState) {
  auto server = std::make_unique<Server>();
  Client half = server->connect(), queued = server->connect(), running = server->connect();
  half.send("POST /v1/comp");
  queued.send(completion());
  server->next();
  running.send(stream());
  const Submission asked = server->next();
  server->accept(asked);
  server->say(asked, " upon");
  running.read_until(" upon");
  server->server.reset();
  EXPECT_TRUE(half.is_at_end());
  EXPECT_TRUE(queued.is_at_end());
  EXPECT_EQ(running.read_all().find("[DONE]"), std::string::npos);
}

TEST(HttpServer, ListensOnIpv6) {
  if (access("/proc/net/if_inet6", F_OK) != 0) GTEST_SKIP() << "this machine has no IPv6";
  Server::Options options;
  options.http.host = "[::1]";
  Server server(options);
  EXPECT_EQ(server.server->url(), base::cat("http://[::1]:", server.port()));
  Client client(server.port(), {.host = "::1"});
  client.send("GET /live HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(HttpServer, SaysWhyItCannotListen) {
  Server server;
  const auto refusal = [&](broker::HttpOptions options) {
    broker::HttpParts parts{.gate = *server.gate,
                            .tokenizer = tokenizer(),
                            .prompts = server.prompts,
                            .keys = server.keys,
                            .log = server.log,
                            .clock = server.clock};
    const auto started = broker::HttpServer::start(options, parts);
    return started.ok() ? std::string("it listens") : started.error().message;
  };
  EXPECT_NE(refusal({.port = server.port()}).find(base::cat("port ", server.port())),
            std::string::npos);
  EXPECT_NE(refusal({.host = "0.0.0.0"}).find("--api-key-file"), std::string::npos);
  EXPECT_NE(refusal({.host = "::"}).find("--api-key-file"), std::string::npos);
  EXPECT_NE(refusal({.host = "nowhere.example"}).find("--host"), std::string::npos);
}

}  // namespace
}  // namespace http_test
