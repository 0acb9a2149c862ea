// Machine profiles as JSON, in files, and as a report.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>

#include "base/cat.h"
#include "cli/probe_report.h"
#include "cli/profile_json.h"
#include "cli/profile_store.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using shm::MachineProfile;

/// Every field has a value of its own, so that none can stand for another.
MachineProfile full_profile() {
  MachineProfile profile;
  profile.fingerprint = "0123456789abcdef";
  profile.measured_at = "2025-01-31T12:00:00Z";
  profile.quick = true;
  profile.seconds = 12.5;
  profile.cpu_share = 0.75;
  shm::MachineFacts& facts = profile.facts;
  facts.cpu_model = "A \"quoted\" processor";
  facts.microcode = "0xa1";
  facts.hypervisor = "yes";
  facts.board = "vendor product";
  facts.bios = "1.2";
  facts.kernel = "6.1.0";
  facts.governor = "performance";
  facts.transparent_huge_pages = "madvise";
  facts.shmem_huge_pages = "never";
  facts.numa_balancing = "0";
  facts.arena_file_system = "tmpfs huge=within_size";
  facts.packages = 2;
  facts.cpu_quota = 1.5;
  facts.available_bytes = std::numeric_limits<uint64_t>::max();
  facts.memory_limit_bytes = 77;
  facts.nodes = {{0, 111, 11, 2, 0, "0-1", {10, 21}}, {1, 222, 22, 3, 1, "2-4", {21, 10}}};
  facts.last_caches = {{333, "0-1"}, {444, "2-4"}};
  profile.memory = {{0, shm::PageKind::kHuge, 1000, 900, 4096, true, "move_pages", 0.5},
                    {1, shm::PageKind::kSmall, 2000, 0, 4096, false, "", 0}};
  profile.bandwidth = {{shm::Traffic::kRead, shm::PageKind::kSmall, 0, 0, 2, {10.25, 9, 11, 5}},
                       {shm::Traffic::kRead, shm::PageKind::kHuge, 0, 0, 2, {20.25, 19, 21, 5}},
                       {shm::Traffic::kRead, shm::PageKind::kHuge, 0, 1, 2, {5.25, 5, 6, 5}},
                       {shm::Traffic::kCopy, shm::PageKind::kHuge, 0, 0, 2, {7, 6, 8, 5}},
                       {shm::Traffic::kWrite, shm::PageKind::kHuge, 0, 0, 2, {3, 2, 4, 5}},
                       {shm::Traffic::kRead,
                        shm::PageKind::kHuge,
                        shm::kAllNodes,
                        shm::kAllNodes,
                        5,
                        {40, 39, 41, 5}}};
  profile.latency = {{0, 1, shm::PageKind::kHuge, {101, 100, 102, 4}}};
  profile.lines = {{0, 2, 0, 1, shm::Nearness::kOtherPackage, {201, 200, 202, 3}}};
  profile.exchanges = {{1, 3, false, 0, {900, 800, 1000, 2}},
                       {2, 3, true, 256, {1500, 1400, 1600, 2}}};
  profile.kernels = {{"avx2", "Q4_K", 16, true, {120.5, 119, 122, 5}}};
  profile.notes = {"a sentence"};
  return profile;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(ProfileJson, ComesBackWithEveryField) {
  const std::string text = profile_to_json(full_profile());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto back = profile_from_json(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  // Equal texts mean equal fields only because every field is in the text with a value of its own.
  EXPECT_EQ(profile_to_json(*back), text);
  EXPECT_EQ(back->facts.available_bytes, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(back->cpu_share, 0.75);
  EXPECT_EQ(back->facts.cpu_model, "A \"quoted\" processor");
  EXPECT_EQ(back->facts.nodes[1].distances, (std::vector<int>{21, 10}));
  EXPECT_EQ(back->memory[0].asked, shm::PageKind::kHuge);
  EXPECT_EQ(back->memory[0].share_on_node, 0.5);
  EXPECT_EQ(back->bandwidth[5].reader_node, shm::kAllNodes);
  EXPECT_EQ(back->bandwidth[3].traffic, shm::Traffic::kCopy);
  EXPECT_EQ(back->bandwidth[0].gb_per_s.median, 10.25);
  EXPECT_EQ(back->lines[0].nearness, shm::Nearness::kOtherPackage);
  EXPECT_TRUE(back->exchanges[1].simulated);
  EXPECT_EQ(back->exchanges[1].gather_bytes, 256u);
  EXPECT_EQ(back->notes, std::vector<std::string>{"a sentence"});
}

TEST(ProfileJson, IsDocumentedFieldByField) {
  std::ifstream page(NUMOE_SOURCE_DIR "/docs/probe.md");
  const std::string documented((std::istreambuf_iterator<char>(page)), {});
  ASSERT_FALSE(documented.empty());
  const std::string text = profile_to_json(full_profile());
  const std::regex key("\"([a-z_]+)\":");
  for (std::sregex_iterator it(text.begin(), text.end(), key); it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[1];
    const bool found =
        std::regex_search(documented, std::regex(base::cat("[`.\"]", name, "(\\[\\])?[`\",.]")));
    EXPECT_TRUE(found) << name << " is not on the page";
  }
}

TEST(ProfileJson, PassesOverUnknownFields) {
  const std::string text = profile_to_json(full_profile());
  EXPECT_TRUE(profile_from_json(replaced(text, "{", "{\"later\":[1],")).ok());
}

TEST(ProfileJson, RefusesEveryTruncation) {
  const std::string text = profile_to_json(full_profile());
  for (size_t length = 0; length < text.size(); ++length) {
    const auto back = profile_from_json(text.substr(0, length));
    ASSERT_FALSE(back.ok()) << length;
    EXPECT_EQ(back.error().code, base::Code::kBrokenFile);
  }
}

TEST(ProfileJson, NamesTheFieldThatIsWrong) {
  const std::string text = profile_to_json(full_profile());
  const struct {
    const char *from, *to, *named;
  } cases[] = {
      {"\"packages\":2", "\"packages\":\"2\"", "facts.packages"},
      {"\"packages\":2", "\"packages\":2.5", "facts.packages"},
      {"\"packages\":2", "\"packages\":99999999999", "facts.packages"},
      {"\"packages\":2", "\"packages\":-2", "facts.packages"},
      {"\"packages\":2,", "", "facts.packages is missing"},
      {"\"cpu_quota\":", "\"cpu_quota\":-", "facts.cpu_quota"},
      {"\"memory_limit_bytes\":77", "\"memory_limit_bytes\":-1", "facts.memory_limit_bytes"},
      {"\"distances\":[10,21]", "\"distances\":[10,[21]]", "facts.nodes[0].distances[1]"},
      {"\"distances\":[10,21]", "\"distances\":10", "facts.nodes[0].distances is not an array"},
      {"\"asked\":\"small\"", "\"asked\":\"medium\"", "memory[1].asked"},
      {"\"bound\":true", "\"bound\":1", "memory[0].bound"},
      {"\"cpu_model\":\"A", "\"cpu_model\":7,\"x\":\"A", "facts.cpu_model"},
      {"\"notes\":[\"a sentence\"]", "\"notes\":[null]", "notes[0]"},
      {"\"samples\":5", "\"samples\":5e300", "bandwidth[0].gb_per_s.samples"},
      {"\"min\":9E0", "\"min\":99", "bandwidth[0] has an impossible spread"},
      {"\"min\":1E2", "\"min\":0", "latency[0] has an impossible spread"},
      {"numoe-machine-profile", "something", "format"},
  };
  for (const auto& one : cases) {
    const auto back = profile_from_json(replaced(text, one.from, one.to));
    ASSERT_FALSE(back.ok()) << one.to;
    EXPECT_EQ(back.error().code, base::Code::kBrokenFile);
    EXPECT_NE(back.error().message.find(one.named), std::string::npos)
        << one.named << " is not in: " << back.error().message;
  }
}

TEST(ProfileJson, RefusesOtherVersionsWithBothNumbers) {
  const auto back = profile_from_json(
      replaced(profile_to_json(full_profile()), "\"version\":2", "\"version\":3"));
  ASSERT_FALSE(back.ok());
  EXPECT_EQ(back.error().code, base::Code::kUnsupported);
  EXPECT_NE(back.error().message.find("version 2"), std::string::npos) << back.error().message;
  EXPECT_NE(back.error().message.find("version 3"), std::string::npos) << back.error().message;
}

TEST(ProfileJson, RefusesWhatIsNoProfile) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("7"), std::string("{}"),
        std::string(10'000, '['), std::string("{\"format\":\"numoe-machine-profile\"}")}) {
    const auto back = profile_from_json(text);
    ASSERT_FALSE(back.ok());
    EXPECT_EQ(back.error().code, base::Code::kBrokenFile);
  }
}

class ProfileStore : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / base::cat("numoe-profiles-", getpid());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string directory() const { return (root_ / "a" / "b").string(); }
  fs::path root_;
};

TEST_F(ProfileStore, KeepsOneFileAMachine) {
  ASSERT_TRUE(make_state_directory(directory()).ok());
  ASSERT_TRUE(make_state_directory(directory()).ok()) << "it may be there";
  MachineProfile profile = full_profile();
  profile.seconds = 1;
  ASSERT_TRUE(save_profile(directory(), profile).ok());
  profile.seconds = 2;
  const auto path = save_profile(directory(), profile);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, directory() + "/probe-0123456789abcdef.json");
  const auto back = load_profile(directory(), profile.fingerprint);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->seconds, 2);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(directory())) files += entry.is_regular_file();
  EXPECT_EQ(files, 1u) << "a temporary file stayed";
  struct stat status;
  ASSERT_EQ(stat(path->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(ProfileStore, TellsWhatIsNotThereForeignOrBroken) {
  ASSERT_TRUE(make_state_directory(directory()).ok());
  const std::string mine = "1111111111111111";
  auto loaded = load_profile(directory(), mine);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, base::Code::kNotFound);
  EXPECT_NE(loaded.error().message.find("numoe probe --save"), std::string::npos);

  // Somebody copied the file of another machine over ours.
  std::ofstream(profile_path(directory(), mine)) << profile_to_json(full_profile());
  loaded = load_profile(directory(), mine);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, base::Code::kInvalidArgument);
  EXPECT_NE(loaded.error().message.find("another machine"), std::string::npos);

  std::ofstream(profile_path(directory(), mine)) << "{\"format\":";
  loaded = load_profile(directory(), mine);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, base::Code::kBrokenFile);
  EXPECT_NE(loaded.error().message.find(profile_path(directory(), mine)), std::string::npos);
}

TEST_F(ProfileStore, NamesTheDirectoryItCannotUse) {
  const std::string file = (root_ / "file").string();
  std::ofstream(file) << "x";
  for (const std::string& path : {file, file + "/below"}) {
    const base::Status made = make_state_directory(path);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find(file), std::string::npos) << made.error().message;
  }
  const auto saved = save_profile((root_ / "missing").string(), full_profile());
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.error().message.find("missing/probe-"), std::string::npos);
}

TEST_F(ProfileStore, FollowsTheXdgRules) {
  const char* const home_before = std::getenv("HOME");
  const std::string home = home_before == nullptr ? "" : home_before;
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(*state_directory(), "/state/numoe");
  setenv("XDG_STATE_HOME", "relative", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(*state_directory(), "/home/me/.local/state/numoe");
  unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(*state_directory(), "/home/me/.local/state/numoe");
  unsetenv("HOME");
  EXPECT_FALSE(state_directory().ok());
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

TEST(TextTable, AlignsColumns) {
  EXPECT_EQ(text_table({{"a", "bb"}, {"ccc", "d"}, {"e"}}), "  a    bb\n  ccc   d\n  e\n");
}

/// The line that begins so, with blanks squeezed.
std::string line_of(const std::string& report, const std::string& begin) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string squeezed;
    for (std::string word; words >> word;) squeezed += (squeezed.empty() ? "" : " ") + word;
    if (squeezed.starts_with(begin)) return squeezed;
  }
  return "no line begins with " + begin;
}

TEST(ProbeReport, ShowsFiguresWhereTheyBelong) {
  const std::string report = probe_report(full_profile());
  EXPECT_EQ(line_of(report, "processor"), "processor A \"quoted\" processor");
  EXPECT_EQ(line_of(report, "1 1 3"), "1 1 3 2-4 222 B 22 B 21 10");
  EXPECT_EQ(line_of(report, "0 huge pages"),
            "0 huge pages 1000 B 90.0 % yes 50.0 %, verified by move_pages");
  EXPECT_EQ(line_of(report, "1 4 KiB pages"), "1 4 KiB pages 1 KiB 0.0 % refused not known");
  EXPECT_EQ(line_of(report, "node 0 2 10"), "node 0 2 10.2 (9.00-11.0) 20.2 (19.0-21.0)");
  EXPECT_EQ(line_of(report, "all nodes"), "all nodes 5 not had 40.0 (39.0-41.0)");
  EXPECT_EQ(line_of(report, "node 0 2 3.00"), "node 0 2 3.00 (2.00-4.00) 7.00 (6.00-8.00)");
  EXPECT_EQ(line_of(report, "node 0 20.2"), "node 0 20.2 5.25");
  EXPECT_EQ(line_of(report, "node 0 -"), "node 0 - 101 (100-102)");
  EXPECT_EQ(line_of(report, "CPU 0"), "CPU 0 CPU 2 0, 1 other socket 201 (200-202)");
  EXPECT_EQ(line_of(report, "barrier"), "barrier 1 x 3 0.90 (0.80-1.00)");
  EXPECT_EQ(line_of(report, "gather of 256"), "gather of 256 B 2 x 3 simulated 1.50 (1.40-1.60)");
  EXPECT_EQ(line_of(report, "- a"), "- a sentence");
}

}  // namespace
}  // namespace cli
