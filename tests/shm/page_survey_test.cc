#include "shm/page_survey.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "shm/numa.h"
#include "shm/region.h"

namespace shm {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

uint64_t sum_of(const std::vector<uint64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
}

/// A file in memory of which only the first pages are there: the others cannot be mapped.
class ShortFile {
 public:
  ShortFile(size_t pages, size_t pages_there) : bytes_(pages * kPage) {
    const int file = memfd_create("short", MFD_CLOEXEC);
    // Reserved like an arena, but never written.
    EXPECT_EQ(fallocate(file, 0, 0, static_cast<off_t>(pages_there * kPage)), 0);
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(memory, MAP_FAILED);
    data_ = static_cast<std::byte*>(memory);
    close(file);
  }
  ~ShortFile() { munmap(data_, bytes_); }
  std::byte* page(size_t index) const { return data_ + index * kPage; }
  std::span<const std::byte> all() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

TEST(PageSurvey, CountsReservedPagesThatNobodyWroteAndTellsWhatIsNotThere) {
  const ShortFile memory(1030, 1027);
  const SurveyRange range{.memory = memory.all()};
  const PageSurvey survey = survey_pages({&range, 1}, 1, {});
  if (!survey.permitted) GTEST_SKIP() << "move_pages is denied here";
  const SurveyCount& count = survey.classes[0];
  EXPECT_EQ(count.bytes, 1030 * kPage);
  EXPECT_EQ(count.bytes_asked, 1030 * kPage);
  EXPECT_EQ(sum_of(count.bytes_on_node), 1027 * kPage);
  EXPECT_EQ(count.bytes_absent, 3 * kPage);
}

TEST(PageSurvey, KnowsPagesThatOnlyAnotherProcessHasTouched) {
  const ShortFile memory(16, 16);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::memset(memory.page(0), 1, 16 * kPage);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const SurveyRange range{.memory = memory.all()};
  const PageSurvey survey = survey_pages({&range, 1}, 1, {});
  if (!survey.permitted) GTEST_SKIP() << "move_pages is denied here";
  EXPECT_EQ(sum_of(survey.classes[0].bytes_on_node), 16 * kPage);
}

TEST(PageSurvey, GivesEachRangeItsPartOfASharedPage) {
  auto region = Region::anonymous(4 * kPage);
  ASSERT_TRUE(region.ok());
  std::memset(region->data(), 1, region->bytes());
  const std::span<const std::byte> all(region->data(), region->bytes());
  const SurveyRange ranges[] = {{.memory = all.subspan(0, 100), .class_index = 0},
                                {.memory = all.subspan(100, kPage), .class_index = 1},
                                {.memory = all.subspan(100 + kPage, 11), .class_index = 0}};
  const PageSurvey survey = survey_pages(ranges, 2, {});
  if (!survey.permitted) GTEST_SKIP() << "move_pages is denied here";
  EXPECT_EQ(survey.classes[0].bytes, 111u);
  EXPECT_EQ(sum_of(survey.classes[0].bytes_on_node), 111u);
  EXPECT_EQ(survey.classes[1].bytes, kPage);
  EXPECT_EQ(sum_of(survey.classes[1].bytes_on_node), kPage);
}

TEST(PageSurvey, TakesASampleOfWhatIsTooLargeAndSaysSo) {
  auto region = Region::anonymous(1200 * kPage);
  ASSERT_TRUE(region.ok());
  std::memset(region->data(), 1, region->bytes());
  const std::span<const std::byte> all(region->data(), region->bytes());
  const SurveyRange ranges[] = {{.memory = all.subspan(0, 2 * kPage), .class_index = 0},
                                {.memory = all.subspan(2 * kPage), .class_index = 1}};
  const PageSurvey survey = survey_pages(ranges, 2, {.bytes_asked_max = 100 * kPage});
  if (!survey.permitted) GTEST_SKIP() << "move_pages is denied here";
  EXPECT_EQ(survey.classes[0].bytes, 2 * kPage);
  EXPECT_EQ(survey.classes[0].bytes_asked, kPage) << "the first of every range, however small";
  EXPECT_EQ(survey.classes[1].bytes, 1198 * kPage);
  EXPECT_EQ(survey.classes[1].bytes_asked, 100 * kPage);
  EXPECT_EQ(sum_of(survey.classes[1].bytes_on_node), 100 * kPage);
}

TEST(PageSurvey, CountsWholeMappingsByNumaMaps) {
  const ShortFile memory(64, 40);
  const SurveyRange range{.memory = memory.all()};
  const PageSurvey survey = survey_mappings({&range, 1}, 1);
  if (!survey.permitted) GTEST_SKIP() << "this kernel has no numa_maps";
  EXPECT_EQ(sum_of(survey.classes[0].bytes_on_node), 40 * kPage);
  EXPECT_EQ(survey.classes[0].bytes_absent, 24 * kPage);
  EXPECT_EQ(survey.classes[0].bytes_asked, 64 * kPage);
}

// As a kernel wrote them.
constexpr char kMaps[] =
    "55d0a0000000 default file=/usr/bin/numoe mapped=24 N0=24 kernelpagesize_kB=4\n"
    "7f1000000000 bind:1 file=/run/numoe/w.arena dirty=512 N0=2 N1=510 kernelpagesize_kB=4\n"
    "7f1000200000 bind:1 file=/run/numoe/w.arena huge dirty=3 N1=3 kernelpagesize_kB=2048\n"
    "7f2000000000 default anon=1 dirty=1 N3=1 kernelpagesize_kB=4\n"
    "7f3000000000 default\n";

TEST(NumaMaps, AddsUpTheMappingsOfARangeInTheirOwnPages) {
  EXPECT_EQ(bytes_in_numa_maps(kMaps, 0x7f1000000000, 0x7f1000200000),
            (std::vector<uint64_t>{2 * 4096, 510 * 4096}));
  EXPECT_EQ(bytes_in_numa_maps(kMaps, 0x7f1000000000, 0x7f1000800000),
            (std::vector<uint64_t>{2 * 4096, 510 * 4096 + (3 << 21)}));
  EXPECT_EQ(bytes_in_numa_maps(kMaps, 0x7f2000000000, 0x7f2000001000),
            (std::vector<uint64_t>{0, 0, 0, 4096}));
  EXPECT_EQ(bytes_in_numa_maps(kMaps, 0x7f3000000000, 0x7f3000001000), std::vector<uint64_t>());
  EXPECT_EQ(bytes_in_numa_maps("", 0x7f3000000000, 0x7f3000001000), std::vector<uint64_t>());
}

TEST(NumaMaps, SurvivesLinesThatNobodyWrote) {
  EXPECT_EQ(bytes_in_numa_maps("7f1000000000 N99999999=5 N1= N=3 N2=x\n\nrubbish\n", 0x7f1000000000,
                               0x7f1000001000),
            std::vector<uint64_t>());
}

TEST(CallRights, AreAllThereOrNamed) {
  const CallRights rights = try_calls();
  // A bind that is permitted must work, and one that is not must be told so by bind_to_node too.
  auto region = Region::anonymous(kPage);
  ASSERT_TRUE(region.ok());
  const auto bound = bind_to_node(region->data(), kPage, 0);
  if (bound.ok()) {
    EXPECT_EQ(*bound == Bind::kDenied, rights.mbind != Right::kAllowed);
  }
  int node = -1;
  const std::byte* page = region->data();
  EXPECT_EQ(nodes_of_pages({&page, 1}, &node), rights.move_pages == Right::kAllowed);
}

}  // namespace
}  // namespace shm
