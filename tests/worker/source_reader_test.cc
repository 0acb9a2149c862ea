// What reading a file does to the page cache, and what it gives where a file system refuses.
#include "worker/source_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/worker/loading.h"
#include "worker/loader.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFileBytes = (size_t{3} << 20) + 777;

class CacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cold_files(folder_.path())) {
      GTEST_SKIP() << "the file system of " << folder_.path()
                   << " has no O_DIRECT or keeps its pages; set TMPDIR to one of a disk";
    }
    path_ = folder_.file("data");
    for (size_t i = 0; i < kFileBytes; i++)
      data_.push_back(static_cast<std::byte>(i * 2654435761 >> 13));
    write_file(path_, data_);
    evict(path_);
    ASSERT_EQ(count(cached_pages(path_)), 0u);
    struct stat status = {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    directory_.files.push_back(
        {.path = path_,
         .bytes = kFileBytes,
         .device = status.st_dev,
         .inode = status.st_ino,
         .mtime_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
         .ctime_ns = 0});
  }

  // Reads the file in pieces of odd size, as the loader does; true if all bytes were right.
  bool read_all(FileSource& source, size_t piece) {
    const ReadBuffer buffer = ReadBuffer::for_extents_of(piece);
    for (size_t at = 0; at < kFileBytes; at += piece) {
      const Extent extent{.file = 0, .offset = at, .bytes = std::min(piece, kFileBytes - at)};
      const auto from =
          source.is_cached(extent) ? ModelSource::From::kCache : ModelSource::From::kDevice;
      const auto bytes = source.read(extent, from, buffer.bytes());
      if (!bytes.ok() || bytes->size() != extent.bytes) return false;
      if (std::memcmp(bytes->data(), data_.data() + at, extent.bytes) != 0) return false;
    }
    return true;
  }

  std::unique_ptr<FileSource> open(ReadMode mode) {
    auto source = FileSource::open(directory_, mode);
    EXPECT_TRUE(source.ok()) << source.error().message;
    return std::move(*source);
  }

  Folder folder_;
  std::string path_;
  Bytes data_;
  model::Directory directory_;
};

TEST_F(CacheTest, AColdFileLeavesNothingBehind) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kDirect, ReadMode::kBuffered}) {
    const auto source = open(mode);
    EXPECT_EQ(source->reads_direct(0), mode != ReadMode::kBuffered);
    for (const size_t piece : {size_t{1000}, size_t{65'537}, kFileBytes}) {
      ASSERT_TRUE(read_all(*source, piece));
      EXPECT_EQ(count(cached_pages(path_)), 0u) << static_cast<int>(mode) << ' ' << piece;
    }
  }
}

TEST_F(CacheTest, ACachedFileStaysCached) {
  ASSERT_EQ(read_file(path_), data_);
  const auto before = cached_pages(path_);
  ASSERT_EQ(count(before), before.size());
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kDirect, ReadMode::kBuffered}) {
    const auto source = open(mode);
    EXPECT_EQ(source->is_cached({.file = 0, .offset = 5, .bytes = kFileBytes - 5}),
              mode != ReadMode::kDirect);
    ASSERT_TRUE(read_all(*source, 65'537));
    EXPECT_EQ(cached_pages(path_), before) << static_cast<int>(mode);
  }
}

TEST_F(CacheTest, AHalfCachedFileStaysAsItIs) {
  // Pages 100 to 299, put there without reading ahead.
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  Bytes some(200 * 4096);
  ASSERT_EQ(pread(fd, some.data(), some.size(), 100 * 4096), static_cast<ssize_t>(some.size()));
  close(fd);
  const auto before = cached_pages(path_);
  ASSERT_EQ(count(before), 200u);
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kBuffered}) {
    const auto source = open(mode);
    // Whole pages: a page that a cached and a missing piece share may go.
    ASSERT_TRUE(read_all(*source, 50 * 4096));
    EXPECT_EQ(cached_pages(path_), before) << static_cast<int>(mode);
  }
}

// Without the right to ask what is cached, as a service has it for other people's files.
TEST_F(CacheTest, StrangersLeaveNothingBehindEither) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  const auto as_stranger = [&](bool expect_cached) {
    const pid_t child = fork();
    if (child == 0) {
      if (setgid(65534) != 0 || setuid(65534) != 0) _exit(3);
      auto source = FileSource::open(directory_, ReadMode::kAuto);
      if (!source.ok()) _exit(4);
      const bool cached = (*source)->is_cached({.file = 0, .offset = 5, .bytes = kFileBytes - 5});
      if (cached != expect_cached) _exit(5);
      _exit(read_all(**source, 65'537) ? 0 : 6);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(as_stranger(false), 0);
  EXPECT_LE(count(cached_pages(path_)), 1u);  // the page that the child asked about outside a read
  ASSERT_EQ(read_file(path_), data_);
  const auto before = cached_pages(path_);
  EXPECT_EQ(as_stranger(true), 0);
  EXPECT_EQ(cached_pages(path_), before);
}

TEST_F(CacheTest, ARefusedDirectReadGoesThroughTheCacheAndOut) {
  const auto source = open(ReadMode::kAuto);
  ASSERT_TRUE(source->reads_direct(0));
  // No device reads directly to an odd address.
  const ReadBuffer buffer = ReadBuffer::for_extents_of(100'001);
  const Extent extent{.file = 0, .offset = 4097, .bytes = 100'000};
  const auto bytes = source->read(extent, ModelSource::From::kDevice, buffer.bytes().subspan(1));
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(std::memcmp(bytes->data(), data_.data() + 4097, extent.bytes), 0);
  EXPECT_FALSE(source->reads_direct(0));
  EXPECT_EQ(count(cached_pages(path_)), 0u);
}

TEST_F(CacheTest, AnExtentBehindTheEndIsAnErrorInEveryMode) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kBuffered}) {
    const auto source = open(mode);
    const ReadBuffer buffer = ReadBuffer::for_extents_of(9000);
    for (const size_t bytes : {size_t{779}, size_t{9000}}) {
      const Extent extent{.file = 0, .offset = size_t{3} << 20, .bytes = bytes};
      for (const auto from : {ModelSource::From::kDevice, ModelSource::From::kCache}) {
        const auto read = source->read(extent, from, buffer.bytes());
        ASSERT_FALSE(read.ok());
        EXPECT_EQ(read.error().code, base::Code::kBrokenFile);
      }
    }
  }
}

// The whole of loading, with everything that it opens.
TEST(Loading, LeavesNoSecondCopyOfTheModel) {
  const Folder folder;
  if (!has_cold_files(folder.path())) {
    GTEST_SKIP() << "the file system of " << folder.path() << " has no O_DIRECT";
  }
  const std::string path = folder.file("model.gguf");
  fs::copy_file(golden_path("olmoe-f32"), path);
  const model::Model model = load_good(path);
  const plan::Plan plan = plan_of(model, {1});
  const engine::WeightMap map = map_of(model, plan, 0);
  const auto team = engine::ThreadTeam::start({-1, -1});
  ASSERT_TRUE(team.ok());
  Bytes memory(map.bytes);
  evict(path);
  ASSERT_TRUE(
      load_weights({model, plan, 0, map}, memory.data(), {.team = team->get(), .on_progress = {}})
          .ok());
  EXPECT_EQ(count(cached_pages(path)), 0u);
}

}  // namespace
}  // namespace worker
