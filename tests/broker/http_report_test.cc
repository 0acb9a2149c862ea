// GET /status and GET /placement over a real socket.
#include "tests/broker/http_support.h"

namespace http_test {
namespace {

using State = broker::GroupStatus::State;

TEST(HttpReport, StatusIsToldInEveryState) {
  Server server({.ready = false});
  const HttpReply loading = server.ask(get("/status"));
  EXPECT_EQ(loading.status, 200);
  EXPECT_NE(loading.body.find(R"("status":"loading")"), std::string::npos) << loading.body;
  EXPECT_NE(loading.body.find(R"("bytes_done":25)"), std::string::npos);
  server.gate->set_server({.version = "9.9", .restarts = 4});
  server.set_state(State::kReady);
  const HttpReply ready = server.ask(get("/status"));
  EXPECT_NE(ready.body.find(R"("restarts":4)"), std::string::npos) << ready.body;
}

TEST(HttpReport, PlacementWaitsForTheAnswerToItsOwnQuestion) {
  Server server;
  server.gate->answer_placement({.round = 0, .groups = {{{.rank = 0, .source = "old"}}}});
  Client client = server.connect();
  client.send(get("/placement"));
  ASSERT_TRUE(Server::until([&] { return server.gate->placement_asked() == 1; }));
  server.gate->answer_placement({.round = 1, .groups = {{{.rank = 0, .source = "new"}}}});
  const HttpReply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find(R"("source":"new")"), std::string::npos) << reply.body;
}

TEST(HttpReport, PlacementIsRefusedWithoutWorkersAndGivenUpInTime) {
  Server server({.ready = false});
  EXPECT_EQ(server.ask(get("/placement")).status, 503);
  server.set_state(State::kReady);
  Client client = server.connect();
  client.send(get("/placement"));
  ASSERT_TRUE(Server::until([&] { return server.gate->placement_asked() == 2; }));
  server.clock.advance(61 * kSecond);
  EXPECT_EQ(client.read_reply().status, 504);
  client.send(get("/placement"));
  ASSERT_TRUE(Server::until([&] { return server.gate->placement_asked() == 3; }));
  server.set_state(State::kRestarting);
  EXPECT_EQ(client.read_reply().status, 503) << "the workers that were asked are gone";
}

TEST(HttpReport, BothAreBehindTheKey) {
  Server server({.keys = "secret"});
  for (const char* const path : {"/status", "/placement"}) {
    EXPECT_EQ(server.ask(get(path)).status, 401) << path;
    EXPECT_EQ(server.ask(get(path, "Authorization: Bearer wrong\r\n")).status, 401) << path;
  }
  EXPECT_EQ(server.ask(get("/status", "Authorization: Bearer secret\r\n")).status, 200);
}

TEST(HttpReport, AClientThatLeavesWhileItWaitsCostsNothing) {
  Server server;
  {
    Client client = server.connect();
    client.send(get("/placement"));
    ASSERT_TRUE(Server::until([&] { return server.gate->placement_asked() == 1; }));
  }
  EXPECT_TRUE(Server::until([&] { return server.server->connections() == 0; }));
  EXPECT_EQ(server.server->busy(), 0);
}

}  // namespace
}  // namespace http_test
