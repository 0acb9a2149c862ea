#include "shm/page_survey.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "shm/file.h"
#include "shm/numa.h"

namespace shm {

namespace {

constexpr size_t kBatch = 512;  // pages in one call
constexpr size_t kNodesMax = 1024;

size_t page_bytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void add_on_node(SurveyCount& count, size_t node, uint64_t bytes) {
  if (count.bytes_on_node.size() <= node) count.bytes_on_node.resize(node + 1);
  count.bytes_on_node[node] += bytes;
  count.bytes_asked += bytes;
}

void add_absent(SurveyCount& count, uint64_t bytes) {
  count.bytes_absent += bytes;
  count.bytes_asked += bytes;
}

/// Maps whole pages into this process: both sources know only what is mapped. An error is no matter
/// here, what is not mapped will be told as absent.
void map_pages(const std::byte* begin, const std::byte* end) {
  const auto bytes = static_cast<size_t>(end - begin);
  // Unlike reading, this cannot end in SIGBUS.
  if (madvise(const_cast<std::byte*>(begin), bytes, MADV_POPULATE_READ) == 0) return;
  if (errno != EINVAL) return;
  // A kernel before 5.14.
  for (const std::byte* page = begin; page < end; page += page_bytes())
    [[maybe_unused]] const std::byte seen = *static_cast<const volatile std::byte*>(page);
}

/// Pages of several ranges, asked about together.
class Batch {
 public:
  explicit Batch(PageSurvey& survey) : survey_(survey) {}

  /// `bytes` of the page belong to the class. False once asking is forbidden.
  bool add(const std::byte* page, uint64_t bytes, size_t class_index) {
    pages_[count_] = page;
    parts_[count_] = {bytes, class_index};
    return ++count_ < kBatch || flush();
  }

  bool flush() {
    const size_t count = std::exchange(count_, 0);
    int nodes[kBatch];
    if (!nodes_of_pages({pages_, count}, nodes)) return false;
    for (size_t i = 0; i < count; ++i) {
      SurveyCount& own = survey_.classes[parts_[i].class_index];
      if (nodes[i] < 0)
        add_absent(own, parts_[i].bytes);
      else
        add_on_node(own, static_cast<size_t>(nodes[i]), parts_[i].bytes);
    }
    return true;
  }

 private:
  struct Part {
    uint64_t bytes;
    size_t class_index;
  };

  PageSurvey& survey_;
  size_t count_ = 0;
  const std::byte* pages_[kBatch];
  Part parts_[kBatch];
};

bool ask_about(const SurveyRange& range, uint64_t stride, Batch& batch) {
  const size_t page = page_bytes();
  const std::byte* const begin = range.memory.data();
  const std::byte* const end = begin + range.memory.size();
  const std::byte* next = begin - reinterpret_cast<uintptr_t>(begin) % page;
  const std::byte* mapped = next;  // so far
  for (uint64_t index = 0; next < end; ++index, next += page) {
    if (index % stride != 0) continue;
    if (next >= mapped) {
      const auto left = static_cast<size_t>(end - next + static_cast<ptrdiff_t>(page) - 1) / page;
      mapped = next + page * (stride == 1 ? std::min(left, kBatch) : 1);
      map_pages(next, mapped);
    }
    const auto bytes = static_cast<uint64_t>(std::min(next + page, end) - std::max(next, begin));
    if (!batch.add(next, bytes, range.class_index)) return false;
  }
  return true;
}

PageSurvey empty_survey(std::span<const SurveyRange> ranges, size_t classes) {
  PageSurvey survey;
  survey.classes.resize(classes);
  for (const SurveyRange& range : ranges) {
    CHECK(range.class_index < classes, "class ", range.class_index, " of ", classes);
    survey.classes[range.class_index].bytes += range.memory.size();
  }
  return survey;
}

}  // namespace

PageSurvey survey_pages(std::span<const SurveyRange> ranges, size_t classes,
                        const SurveyOptions& options) {
  PageSurvey survey = empty_survey(ranges, classes);
  uint64_t total = 0;
  for (const SurveyCount& count : survey.classes) total += count.bytes;
  const uint64_t most = std::max<uint64_t>(options.bytes_asked_max, 1);
  const uint64_t stride = std::max<uint64_t>((total + most - 1) / most, 1);
  Batch batch(survey);
  for (const SurveyRange& range : ranges)
    if (!ask_about(range, stride, batch)) return empty_survey(ranges, classes);
  if (!batch.flush()) return empty_survey(ranges, classes);
  survey.permitted = true;
  return survey;
}

// A line is "7f0000000000 bind:1 file=… dirty=… N0=12 N1=4 kernelpagesize_kB=4": the start of a
// mapping and its pages by node, in pages of the size at its end. Lines are in order of addresses.
std::vector<uint64_t> bytes_in_numa_maps(const std::string& text, uint64_t begin, uint64_t end) {
  std::vector<std::string_view> lines;  // of the mappings looked for
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const uint64_t start = std::strtoull(std::string(line.substr(0, 20)).c_str(), nullptr, 16);
    if (start >= end) break;
    if (start <= begin) lines.clear();  // the last one of these holds `begin`
    lines.push_back(line);
  }
  std::vector<uint64_t> bytes;
  for (const std::string_view line : lines) {
    std::vector<uint64_t> pages;
    uint64_t page_kilobytes = 4;
    std::istringstream words{std::string(line)};
    for (std::string word; words >> word;) {
      unsigned node;
      unsigned long count;
      if (std::sscanf(word.c_str(), "kernelpagesize_kB=%lu", &count) == 1) page_kilobytes = count;
      if (std::sscanf(word.c_str(), "N%u=%lu", &node, &count) != 2 || node >= kNodesMax) continue;
      if (pages.size() <= node) pages.resize(node + 1);
      pages[node] += count;
    }
    if (bytes.size() < pages.size()) bytes.resize(pages.size());
    for (size_t node = 0; node < pages.size(); ++node)
      bytes[node] += pages[node] * page_kilobytes * 1024;
  }
  return bytes;
}

PageSurvey survey_mappings(std::span<const SurveyRange> ranges, size_t classes) {
  PageSurvey survey = empty_survey(ranges, classes);
  const size_t page = page_bytes();
  for (const SurveyRange& range : ranges) {
    const std::byte* const begin = range.memory.data();
    const size_t before = reinterpret_cast<uintptr_t>(begin) % page;
    const size_t pages = (before + range.memory.size() + page - 1) / page;
    map_pages(begin - before, begin - before + pages * page);
  }
  const auto text = read_text("/proc/self/numa_maps");
  if (!text.ok()) return survey;
  survey.permitted = true;
  for (const SurveyRange& range : ranges) {
    const auto begin = reinterpret_cast<uintptr_t>(range.memory.data());
    const std::vector<uint64_t> bytes =
        bytes_in_numa_maps(*text, begin, begin + range.memory.size());
    SurveyCount& count = survey.classes[range.class_index];
    uint64_t present = 0;
    for (size_t node = 0; node < bytes.size(); ++node) {
      if (bytes[node] > 0) add_on_node(count, node, bytes[node]);
      present += bytes[node];
    }
    if (present < range.memory.size()) add_absent(count, range.memory.size() - present);
  }
  return survey;
}

}  // namespace shm
