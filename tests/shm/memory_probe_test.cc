#include "shm/memory_probe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/shm/arena_fixture.h"

namespace shm {
namespace {

class MemoryProbeTest : public ArenaTest {};

TEST_F(MemoryProbeTest, IsSeenWhileItLivesAndLeavesNothing) {
  std::string offer;
  {
    auto probe = MemoryProbe::show(directory_, "one.probe");
    ASSERT_TRUE(probe.ok()) << probe.error().message;
    const MemoryProbe moved = std::move(*probe);
    offer = moved.offer();
    EXPECT_TRUE(MemoryProbe::sees(offer));
    EXPECT_EQ(MemoryProbe::directory_of(offer), directory_);
  }
  EXPECT_FALSE(MemoryProbe::sees(offer));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(MemoryProbeTest, AnotherNonceUnderTheSamePathIsAnotherMemory) {
  auto first = MemoryProbe::show(directory_, "one.probe");
  ASSERT_TRUE(first.ok());
  const std::string offer = first->offer();
  unlink((directory_ + "/one.probe").c_str());
  const auto second = MemoryProbe::show(directory_, "one.probe");
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(MemoryProbe::sees(offer));
  EXPECT_TRUE(MemoryProbe::sees(second->offer()));
}

TEST_F(MemoryProbeTest, OffersCanBeAnything) {
  const auto probe = MemoryProbe::show(directory_, "one.probe");
  ASSERT_TRUE(probe.ok());
  const std::string nonce = probe->offer().substr(0, 32);
  const std::string pipe = directory_ + "/pipe", empty = directory_ + "/empty",
                    link = directory_ + "/link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_TRUE(open_file(empty, O_RDWR | O_CREAT).ok());
  ASSERT_EQ(symlink((directory_ + "/one.probe").c_str(), link.c_str()), 0);
  for (const std::string& offer :
       {std::string(), nonce, nonce + "/", nonce + directory_, nonce + pipe, nonce + empty,
        nonce + link, nonce + "relative", nonce + "/dev/zero", std::string(200, '/'),
        nonce + directory_ + std::string("/one.probe\0x", 12), probe->offer().substr(1)}) {
    EXPECT_FALSE(MemoryProbe::sees(offer)) << offer;
  }
}

TEST_F(MemoryProbeTest, DirectoriesMustBeAbsoluteAndNamesFree) {
  EXPECT_FALSE(MemoryProbe::show("relative", "one.probe").ok());
  const auto probe = MemoryProbe::show(directory_, "one.probe");
  ASSERT_TRUE(probe.ok());
  const auto again = MemoryProbe::show(directory_, "one.probe");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, base::Code::kUnavailable);
}

}  // namespace
}  // namespace shm
