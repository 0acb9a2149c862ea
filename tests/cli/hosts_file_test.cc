// Hosts of a plan as text.
#include "cli/hosts_file.h"

#include <gtest/gtest.h>

namespace cli {
namespace {

TEST(HostsFile, ReadsEveryKey) {
  const auto hosts = parse_hosts(
      "# a comment\n\n"
      "[host left]\r\n"
      "topology = package:2 [numa] core:48 pu:2\n"
      "memory = 384, 256\n"
      "  bandwidth=300\n"
      "link = 100\n"
      "round-trip = 15.5\n"
      "isa = avx2\n"
      "[host small]\n"
      "count = 3\n"
      "topology = package:1 core:8 pu:1");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  ASSERT_EQ(hosts->size(), 4u);
  const HostEntry& left = hosts->front();
  EXPECT_EQ(left.name, "left");
  EXPECT_EQ(left.topology, "package:2 [numa] core:48 pu:2");
  EXPECT_EQ(left.memory_gib, (std::vector<double>{384, 256}));
  EXPECT_EQ(left.gb_per_s, std::vector<double>{300});
  EXPECT_EQ(left.link_gbit_per_s, 100);
  EXPECT_EQ(left.round_trip_us, 15.5);
  EXPECT_EQ(left.isa, "avx2");
  EXPECT_EQ((*hosts)[1].name, "small-1");
  EXPECT_EQ((*hosts)[3].name, "small-3");
  EXPECT_EQ((*hosts)[3].topology, "package:1 core:8 pu:1");
  EXPECT_EQ((*hosts)[3].link_gbit_per_s, 0);
}

TEST(HostsFile, SaysWhatIsWrongAndWhere) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "names no host"},
      {"topology = x", "line 1: a host begins with [host NAME]"},
      {"[host a\n", "line 1: '[host a' is not [host NAME]"},
      {"[host ]\n", "needs a name"},
      {"[host a]\nmemory = 3\n[host b]\ntopology = x\n", "line 1: host a has no topology"},
      {"[host a]\ntopology = x\nspeed = 3\n", "line 3: 'speed' is none of topology"},
      {"[host a]\ntopology = x\nmemory = 3,,4\n", "line 3: memory: '' is not a number above 0"},
      {"[host a]\ntopology = x\nlink = -3\n", "line 3: link: '-3'"},
      {"[host a]\ntopology = x\nlink = nan\n", "line 3: link: 'nan'"},
      {"[host a]\ntopology = x\nlink = 1,2\n", "line 3: link takes one number"},
      {"[host a]\ntopology = x\ncount = 2.5\n", "line 3: count is a whole number"},
      {"[host a]\ntopology = x\ncount = 65\n", "line 3: count is a whole number up to 64"},
      {"[host a]\nwords\n", "line 2: 'words' is neither"},
      {"[host a]\ntopology = x\ncount = 40\n[host b]\ntopology = x\ncount = 40\n", "at most 64"}};
  for (const auto& [text, message] : cases) {
    const auto hosts = parse_hosts(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_NE(hosts.error().message.find(message), std::string::npos) << hosts.error().message;
  }
}

}  // namespace
}  // namespace cli
