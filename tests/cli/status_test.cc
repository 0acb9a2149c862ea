// What `numoe status`, `numoe doctor` and the start of `serve` print, and how a server is named.
#include <gtest/gtest.h>

#include "base/cat.h"
#include "broker/http/report_pages.h"
#include "cli/doctor_report.h"
#include "cli/http_client.h"
#include "cli/placement_table.h"
#include "cli/status_report.h"
#include "cli/status_watch.h"

namespace cli {
namespace {

using proto::PlacementReply;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

PlacementReply rank_on(int rank, int node) {
  std::vector<uint64_t> nodes(static_cast<size_t>(std::max(node, 0)) + 1);
  nodes.back() = uint64_t{3} << 30;
  return {.rank = rank,
          .os_node = node,
          .page_bytes = 4096,
          .huge_bytes = uint64_t{3} << 30,
          .source = "move_pages",
          .classes = {{.name = "experts",
                       .bytes = uint64_t{3} << 30,
                       .bytes_on_node = nodes,
                       .bytes_asked = uint64_t{3} << 30}}};
}

TEST(PlacementTable, HasAColumnForEachRank) {
  const std::string text = placement_table({rank_on(0, 0), rank_on(1, 1)});
  EXPECT_EQ(text,
            "placement of memory by move_pages, every page\n"
            "             rank 0 on node 0  rank 1 on node 1\n"
            "  experts             3.0 GiB           3.0 GiB\n"
            "  lies on              node 0            node 1\n"
            "  pages                  huge              huge\n"
            "  misplaced               0 %               0 %\n");
  EXPECT_TRUE(placement_warnings({rank_on(0, 0), rank_on(1, 1)}).empty());
}

TEST(PlacementTable, TellsWhatIsOnAWrongNodeAndWhatHelps) {
  PlacementReply rank = rank_on(1, 1);
  rank.classes[0].bytes_on_node = {uint64_t{3} << 28, (uint64_t{3} << 30) - (uint64_t{3} << 28)};
  rank.huge_bytes = uint64_t{3} << 29;
  const std::string text = placement_table({rank_on(0, 0), rank});
  EXPECT_SAYS(text, "3.0 GiB (25.0 % elsewhere)");
  EXPECT_SAYS(text, "node 0 25.0 %, node 1 75.0 %");
  EXPECT_SAYS(text, "mixed, 50.0 % huge");
  const std::vector<std::string> lines = placement_warnings({rank_on(0, 0), rank});
  ASSERT_EQ(lines.size(), 1u) << "one line a rank";
  EXPECT_SAYS(lines[0], "rank 1 should lie on node 1, but 25.0 % of experts on node 0");
  EXPECT_SAYS(lines[0], "Free memory on node 1");
  rank.classes[0].bytes_on_node = {1, (uint64_t{3} << 30) - 1};
  EXPECT_SAYS(placement_table({rank}), "< 0.1 %") << "never shown as nothing";
}

TEST(PlacementTable, SaysOfSimulatedNodesThatNothingIsBound) {
  PlacementReply rank = rank_on(0, 0);
  rank.os_node = -1;
  rank.source = "numa_maps";
  rank.huge_bytes = 0;
  const std::string text = placement_table({rank});
  EXPECT_SAYS(text,
              "by numa_maps, whole mappings; the nodes are simulated, so it is bound nowhere");
  EXPECT_SAYS(text, "4.0 KiB");
  EXPECT_TRUE(text.ends_with("-\n")) << text;
  EXPECT_TRUE(placement_warnings({rank}).empty());
}

TEST(PlacementTable, IsTheSameFromJson) {
  std::vector<PlacementReply> ranks = {rank_on(0, 0), rank_on(1, 1)};
  ranks[1].classes.push_back({.name = "KV cache",
                              .bytes = 100,
                              .bytes_on_node = {},
                              .bytes_absent = 50,
                              .bytes_asked = 50});
  ranks.push_back(rank_on(2, -1));
  const auto read = placement_from_json(broker::placement_page({ranks}).body);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ(placement_table(read->front()), placement_table(ranks));
  const auto two = placement_from_json(broker::placement_page({{ranks[0]}, {}, ranks}).body);
  ASSERT_EQ(two->size(), 2u) << "who is not ready tells nothing";
  EXPECT_EQ(two->back().size(), 3u);
  for (const char* const text : {"", "[]", "{}", R"({"ranks":3})", "rubbish"})
    EXPECT_FALSE(placement_from_json(text).ok()) << text;
  const auto odd = placement_from_json(
      R"({"ranks":[null,{"classes":[7,{"bytes_on_node":{"x":1,"99999999":2,"0":-4}}]}]})");
  EXPECT_TRUE(odd.ok()) << "what is missing is nothing";
}

TEST(StatusText, TellsAReadyServer) {
  broker::ServerStatus server{.version = "1.2.3",
                              .pid = 77,
                              .now = 3'725'000'000'000,
                              .restarts = 1,
                              .answers_live = 2,
                              .answers_max = 68};
  server.ranks = {{.rank = 0, .os_node = 3, .pid = 4711, .cpus = "0-3"}};
  server.ranks[0].ready = {.arena_bytes = uint64_t{5} << 20, .memory_placement = "bound to node 3"};
  const broker::Response page =
      broker::status_page({.id = "tales", .size_bytes = 1 << 20, .architecture = "qwen3moe"},
                          {.state = broker::GroupStatus::State::kReady, .context = 4096}, server);
  const auto text = status_text("http://h:1", page.body);
  ASSERT_TRUE(text.ok()) << text.error().message;
  for (const char* const part :
       {"numoe 1.2.3 at http://h:1: ready\n", "tales, qwen3moe, 1.0 MiB, context 4096",
        "1 h 2 min, process 77, workers restarted 1 times", "2 under way or waiting, at most 68",
        "4711", "5.0 MiB", "bound to node 3"})
    EXPECT_SAYS(*text, part);
}

TEST(StatusText, TellsOneThatLoadsAndRefusesWhatIsNone) {
  const broker::Response page =
      broker::status_page({}, {.bytes_done = 512, .bytes_total = 2048}, {});
  const auto text = status_text("http://h:1", page.body);
  ASSERT_TRUE(text.ok());
  EXPECT_SAYS(*text, "Loading model");
  EXPECT_SAYS(*text, "0.5 KiB of 2.0 KiB");
  for (const char* const json : {"", "{}", "[1]", R"({"status":"ok"})"})
    EXPECT_FALSE(status_text("http://h:1", json).ok()) << json;
}

TEST(ServerAddress, IsReadFromAUrl) {
  const auto address = parse_address("http://127.0.0.1:8080/");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->url(), "http://127.0.0.1:8080");
  EXPECT_EQ(parse_address("http://gpu.example")->port, 80);
  EXPECT_EQ(parse_address("http://[::1]:9000")->host, "::1");
  EXPECT_EQ(parse_address("http://[::1]:9000")->url(), "http://[::1]:9000");
  for (const char* const bad :
       {"", "localhost:8080", "https://h", "http://", "http://:80", "http://h:", "http://h:0",
        "http://h:65536", "http://h:8x", "http://h/status", "http://[::1", "http://[::1]x",
        "http://u@h", "http://h:99999999999999999999"})
    EXPECT_FALSE(parse_address(bad).ok()) << bad;
  EXPECT_SAYS(parse_address("https://h").error().message, "https");
}

TEST(HttpGet, SaysWhenNobodyAnswers) {
  // Port 1 of this machine: nothing listens there.
  const auto reply = http_get({.address = {.host = "127.0.0.1", .port = 1}, .path = "/status"});
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, base::Code::kUnavailable);
  EXPECT_SAYS(reply.error().message, "no server answers at http://127.0.0.1:1");
}

TEST(DoctorText, PutsTheWorstFirstAndKeepsTheOrderInJson) {
  const std::vector<shm::Finding> findings = {{.id = "fine", .found = "a is 1"},
                                              {.id = "bad",
                                               .level = shm::Level::kWarning,
                                               .found = "b is \"2\"",
                                               .why = "slow",
                                               .cure = "c"}};
  EXPECT_EQ(findings_text(findings),
            "  warning  bad: b is \"2\"\n"
            "           why: slow\n"
            "           cure: c\n"
            "  ok       fine: a is 1\n");
  EXPECT_EQ(findings_json(findings),
            R"({"problems":0,"warnings":1,"notes":0,"findings":[)"
            R"({"id":"fine","level":"ok","found":"a is 1","why":"","cure":""},)"
            R"({"id":"bad","level":"warning","found":"b is \"2\"","why":"slow","cure":"c"}]})");
}

}  // namespace
}  // namespace cli
