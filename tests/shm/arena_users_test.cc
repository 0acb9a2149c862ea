// Who maps what, by scripted /proc and by this one.
#include "shm/arena_users.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/cat.h"
#include "tests/shm/arena_fixture.h"

namespace shm {
namespace {

namespace fs = std::filesystem;

TEST(MappedFilesTest, AddsUpMapsOfAllProcesses) {
  char name[] = "/tmp/numoe-users-test-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string proc = name;
  const auto write = [&](const std::string& pid, const std::string& maps) {
    fs::create_directories(proc + "/" + pid);
    std::ofstream(proc + "/" + pid + "/maps") << maps;
    std::ofstream(proc + "/" + pid + "/cmdline")
        << std::string("numoe\0worker\0/m.gguf\0--rank=0\0", 31);
  };
  write("12",
        "7f0000000000-7f0000001000 r--s 00000000 00:19 4711                 /shm/own/a.arena\n"
        "7f0000001000-7f0000003000 rw-s 00001000 00:19 4711                 /shm/own/a.arena\n"
        "7f0000004000-7f0000005000 r--s 00000000 00:19 4712   /shm/own/b c.arena (deleted)\n"
        "7f0000006000-7f0000007000 r--s 00000000 00:19 4713   /shm/owner/x.arena\n"
        "7f0000008000-7f0000009000 rw-p 00000000 00:00 0 \n"
        "7f000000a000-7f000000b000 rw-p 00000000 00:00 0      [heap]\n");
  write("7", "7f0000000000-7f0000008000 r--s 00000000 00:19 4711   /shm/own/a.arena\n");
  write("self", "7f0000000000-7f0000009000 r--s 00000000 00:19 4711   /shm/own/a.arena\n");
  write("9", "rubbish\n\n-\n7f00-7e00 r--s 0 00:19 1 /shm/own/z\n");
  fs::create_directories(proc + "/13");  // ended meanwhile
  const auto files = mapped_files("/shm/own", proc);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "/shm/own/a.arena");
  EXPECT_FALSE(files[0].deleted);
  EXPECT_EQ(files[0].inode, 4711u);
  EXPECT_EQ(files[0].mapped_bytes, 0x8000u);
  EXPECT_EQ(files[0].pids, (std::vector<pid_t>{7, 12}));
  EXPECT_EQ(files[1].path, "/shm/own/b c.arena");
  EXPECT_TRUE(files[1].deleted);
  EXPECT_EQ(files[1].pids, std::vector<pid_t>{12});
  EXPECT_EQ(name_processes({7, 13}, proc),
            "process 7 (numoe worker), process 13 (ended meanwhile)");
  fs::remove_all(proc);
}

using ArenaUsersTest = ArenaTest;

TEST_F(ArenaUsersTest, FindsThisProcessAlsoBehindRemovedNames) {
  auto arena = make("x");
  ASSERT_TRUE(arena.ok());
  auto files = mapped_files(directory_);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, path("x"));
  EXPECT_EQ(files[0].pids, std::vector<pid_t>{getpid()});
  EXPECT_EQ(files[0].mapped_bytes, arena->region().bytes());
  fs::remove(path("x"));  // as logind does
  files = mapped_files(directory_);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_TRUE(files[0].deleted);
  EXPECT_EQ(files[0].path, path("x"));
  EXPECT_TRUE(arena->verify().ok());
}

}  // namespace
}  // namespace shm
