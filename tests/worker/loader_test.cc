// Loading gives the bytes of the simple path however it reads, and an error for whatever a file can
// do meanwhile.
#include "worker/loader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include "tests/worker/loading.h"
#include "worker/source_reader.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<engine::ThreadTeam> team_of(int threads) {
  auto team = engine::ThreadTeam::start(std::vector<int>(static_cast<size_t>(threads), -1));
  EXPECT_TRUE(team.ok());
  return std::move(*team);
}

struct Way {
  ReadMode mode;
  bool cold;
  int threads;
  size_t span_bytes;
  int reads_ahead;
};

constexpr Way kWays[] = {
    {ReadMode::kAuto, false, 1, size_t{1} << 20, 8}, {ReadMode::kAuto, true, 3, 70'001, 4},
    {ReadMode::kDirect, false, 2, 9'999, 2},         {ReadMode::kDirect, true, 1, 1, 1},
    {ReadMode::kBuffered, true, 2, 33'333, 3},       {ReadMode::kBuffered, false, 3, 1, 0},
    {ReadMode::kAuto, true, 1, size_t{1} << 20, 0},
};

// Loads rank `rank` and compares everything with what it must be; adds its share to `content`.
void check(const model::Model& model, const plan::Plan& plan, int rank, const Way& way,
           shm::Hash128& content) {
  const engine::WeightMap map = map_of(model, plan, rank);
  const RankSlices slices{model, plan, rank, map};
  if (way.cold) {
    for (const model::SourceFile& file : model.directory->files) evict(file.path);
  }
  auto source = FileSource::open(*model.directory, way.mode);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto team = team_of(way.threads);
  uint64_t progress = 0;
  const LoadOptions options{.team = team.get(),
                            .on_progress =
                                [&](uint64_t done) {
                                  EXPECT_GE(done, progress);
                                  progress = done;
                                  return base::Status();
                                },
                            .source = source->get(),
                            .span_bytes = way.span_bytes,
                            .reads_ahead = way.reads_ahead};
  Bytes memory(map.bytes);
  const auto loaded = load_weights(slices, memory.data(), options);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(memory, simple_path(model, map));
  EXPECT_LE(progress, map.bytes);
  ASSERT_EQ(loaded->checksums.size(), map.slices.size());
  for (size_t i = 0; i < map.slices.size(); i++) {
    const engine::WeightSlice& slice = map.slices[i];
    const shm::Hash128 expected = slice.bytes() > 0
                                      ? shm::hash128({memory.data() + slice.offset, slice.bytes()})
                                      : shm::Hash128{};
    EXPECT_EQ(loaded->checksums[i], expected) << slice.tensor->name;
  }
  progress = 0;
  const auto hashed = hash_weights(slices, options);
  ASSERT_TRUE(hashed.ok()) << hashed.error().message;
  EXPECT_EQ(*hashed, loaded->content);
  add(content, loaded->content);
}

TEST(LoadWeights, GivesTheBytesOfTheSimplePathHoweverItReads) {
  const Folder folder;
  size_t number = 0;
  for (const std::string& path : golden_paths()) {
    SCOPED_TRACE(path);
    // A copy, so that whatever is done to the page cache is done to a file of ours.
    std::string copy = path;
    if (path.find("-of-") == std::string::npos) {
      copy = folder.file("model.gguf");
      fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
    }
    const model::Model model = load_good(copy);
    const shm::Hash128 whole = content_of_files(model);
    for (const std::vector<double>& shares :
         {std::vector<double>{1}, std::vector<double>{1, 2.7, 0.6}}) {
      const plan::Plan plan = plan_of(model, shares);
      // Each model two of the ways, all ways over all models; one more is always the default.
      for (const size_t way : {size_t{0}, ++number % std::size(kWays)}) {
        shm::Hash128 content;
        for (int rank = 0; rank < plan.rank_count(); rank++) {
          check(model, plan, rank, kWays[way], content);
        }
        EXPECT_EQ(content, whole) << "way " << way;
      }
    }
  }
  EXPECT_GE(number, 2 * std::size(kWays));
}

TEST(LoadWeights, ReadsFilesOfATmpfs) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "/dev/shm is not there";
  const Folder folder("/dev/shm");
  fs::copy_file(golden_path("qwen3moe-q4_k"), folder.file("model.gguf"));
  const model::Model model = load_good(folder.file("model.gguf"));
  const plan::Plan plan = plan_of(model, {1, 1});
  for (const Way& way : kWays) {
    shm::Hash128 content;
    for (const int rank : {0, 1}) check(model, plan, rank, way, content);
    EXPECT_EQ(content, content_of_files(model));
  }
}

// A model of our own to be spoilt, and one rank that loads it.
class Faults : public ::testing::Test {
 protected:
  void use(const std::string& name) {
    path_ = folder_.file("model.gguf");
    fs::copy_file(golden_path(name), path_, fs::copy_options::overwrite_existing);
    model_ = load_good(path_);
    plan_ = plan_of(model_, {1});
    map_ = map_of(model_, plan_, 0);
  }

  base::Result<LoadResult> load(ModelSource* source = nullptr, int threads = 2,
                                size_t span_bytes = 4096) {
    const auto team = team_of(threads);
    Bytes memory(map_.bytes);
    return load_weights({model_, plan_, 0, map_}, memory.data(),
                        {.team = team.get(),
                         .on_progress = {},
                         .source = source,
                         .span_bytes = span_bytes,
                         .reads_ahead = 3});
  }

  void expect_error(const base::Result<LoadResult>& loaded, base::Code code,
                    const std::string& words) {
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(words), std::string::npos) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(path_), std::string::npos) << loaded.error().message;
  }

  Folder folder_;
  std::string path_;
  model::Model model_;
  plan::Plan plan_;
  engine::WeightMap map_;
};

TEST_F(Faults, NamesAFileThatIsGoneOrAnother) {
  use("qwen3moe-q4_k");
  const Bytes good = read_file(path_);
  fs::remove(path_);
  expect_error(load(), base::Code::kNotFound, "cannot open");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_error(load(), base::Code::kBrokenFile, "was changed");
  fs::remove(path_);
  write_file(path_, good);
  expect_error(load(), base::Code::kBrokenFile, "was changed");
}

TEST_F(Faults, NamesAChangeOfTheSameSize) {
  use("qwen3moe-q4_k");
  ASSERT_TRUE(load().ok());
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 1}};
  ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  expect_error(load(), base::Code::kBrokenFile, "was changed");
}

TEST_F(Faults, NamesTheTensorWithAWeightThatIsNotANumber) {
  use("olmoe-f32");
  const std::string name = "blk.1.ffn_down_exps.weight";
  const model::TensorInfo* tensor = model_.directory->find(name);
  ASSERT_NE(tensor, nullptr);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Bytes bytes = read_file(path_);
    std::memcpy(bytes.data() + tensor->offset + tensor->bytes - sizeof bad, &bad, sizeof bad);
    write_file(path_, bytes);
    model_ = load_good(path_);
    map_ = map_of(model_, plan_, 0);
    tensor = model_.directory->find(name);
    const auto loaded = load();
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, base::Code::kBrokenFile);
    EXPECT_NE(loaded.error().message.find(name), std::string::npos) << loaded.error().message;
  }
}

// Reads from the files, but does something else at the read number `when`.
class FaultySource : public ModelSource {
 public:
  FaultySource(FileSource& files, int when, std::function<base::Status()> fault)
      : files_(files), when_(when), fault_(std::move(fault)) {}

  bool is_cached(const Extent& extent) override {
    return (extent.offset / 4096) % 2 == 0 && files_.is_cached(extent);
  }
  base::Result<std::span<const std::byte>> read(const Extent& extent, From from,
                                                std::span<std::byte> buffer) override {
    if (reads_.fetch_add(1) == when_) RETURN_IF_ERROR(fault_());
    return files_.read(extent, from, buffer);
  }
  base::Status check_unchanged() override { return files_.check_unchanged(); }
  int reads() const { return reads_.load(); }

 private:
  FileSource& files_;
  const int when_;
  const std::function<base::Status()> fault_;
  std::atomic<int> reads_{0};
};

// The same with nothing in the cache, so that only reader threads read.
class FaultyDevice final : public FaultySource {
 public:
  using FaultySource::FaultySource;
  bool is_cached(const Extent&) override { return false; }
};

TEST_F(Faults, EndsAtAReadErrorWhereverItComes) {
  use("qwen3moe-q4_k");
  auto files = FileSource::open(*model_.directory);
  ASSERT_TRUE(files.ok());
  FaultySource none(**files, -1, {});
  ASSERT_TRUE(load(&none).ok());
  const int reads = none.reads();
  ASSERT_GT(reads, 100);
  for (const int when : {0, 1, 7, reads / 2, reads - 1}) {
    FaultySource faulty(**files, when, [] {
      return base::Status(base::Error{base::Code::kSystem, "Input/output error"});
    });
    const auto loaded = load(&faulty, 1 + when % 3);
    expect_error(loaded, base::Code::kBrokenFile, "Input/output error");
    EXPECT_NE(loaded.error().message.find("cannot read tensor "), std::string::npos);
    EXPECT_LE(faulty.reads(), when + 16) << "others went on";
  }
}

TEST_F(Faults, EndsWhenItIsNotWantedAnyMore) {
  use("qwen3moe-q4_k");
  auto files = FileSource::open(*model_.directory);
  ASSERT_TRUE(files.ok());
  const auto team = team_of(2);
  Bytes memory(map_.bytes);
  const auto load_until = [&](ModelSource& source, std::function<base::Status(uint64_t)> told) {
    const auto loaded = load_weights({model_, plan_, 0, map_}, memory.data(),
                                     {.team = team.get(),
                                      .on_progress = std::move(told),
                                      .source = &source,
                                      .span_bytes = 4096,
                                      .reads_ahead = 1});
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, base::Code::kCancelled);
  };
  const base::Error not_wanted{base::Code::kCancelled, "nobody wants it"};
  // At once, and in the middle.
  for (const int calls : {1, 2}) {
    int left = calls;
    load_until(**files, [&](uint64_t) -> base::Status {
      if (--left == 0) return not_wanted;
      return {};
    });
  }
  // While a device gives nothing: the read ends only when somebody has asked.
  std::atomic<bool> asked{false};
  FaultyDevice stuck(**files, 5, [&]() -> base::Status {
    while (!asked.load()) std::this_thread::yield();
    return {};
  });
  load_until(stuck, [&](uint64_t) -> base::Status {
    if (stuck.reads() <= 5) return {};
    asked.store(true);
    return not_wanted;
  });
}

TEST_F(Faults, EndsWhenTheFileIsCutOrWrittenMeanwhile) {
  for (const bool cut : {true, false}) {
    for (const int when : {0, 40}) {
      use("qwen3moe-q4_k");
      auto files = FileSource::open(*model_.directory);
      ASSERT_TRUE(files.ok());
      FaultySource faulty(**files, when, [&]() -> base::Status {
        if (cut) {
          EXPECT_EQ(truncate(path_.c_str(), 8192), 0);
        } else {
          const timespec later[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                                    {.tv_sec = 9, .tv_nsec = 9}};
          EXPECT_EQ(utimensat(AT_FDCWD, path_.c_str(), later, 0), 0);
        }
        return {};
      });
      expect_error(load(&faulty), base::Code::kBrokenFile,
                   cut ? "the file became shorter" : "was changed while it was being loaded");
    }
  }
}

}  // namespace
}  // namespace worker
