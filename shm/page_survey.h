// Where the pages of some memory are, added up by class: asked page by page with move_pages, or
// where the system forbids that, mapping by mapping in /proc/self/numa_maps.
//
// Counts are bytes, not pages: a page that two ranges share counts for each with its own part. Both
// sources know only pages that this process has mapped, so what is asked about is mapped before, as
// by reading it: pages that were reserved get their zeros, and swapped ones come back. REQUIRES:
// memory that is reserved; of other memory this would take pages. Any thread; the memory must stay
// mapped meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shm {

struct SurveyRange {
  std::span<const std::byte> memory = {};
  size_t class_index = 0;
};

struct SurveyCount {
  uint64_t bytes = 0;                        // of the ranges
  std::vector<uint64_t> bytes_on_node = {};  // [highest OS node seen + 1]
  uint64_t bytes_absent = 0;                 // cannot be mapped
  uint64_t bytes_asked = 0;                  // the two above; less than `bytes`: a sample
};

struct SurveyOptions {
  /// All pages of ranges that are no larger together; else every n-th page of each range, so that
  /// at most so many bytes are asked about, and always the first.
  uint64_t bytes_asked_max = uint64_t{16} << 30;
};

struct PageSurvey {
  bool permitted = false;                 // false: move_pages is forbidden, and there are no counts
  std::vector<SurveyCount> classes = {};  // by class_index
};

/// Asks with move_pages. `classes` is the number of classes. REQUIRES: class_index < classes.
PageSurvey survey_pages(std::span<const SurveyRange> ranges, size_t classes,
                        const SurveyOptions& options);

/// The same from numa_maps. A mapping is what it counts: each range must be one, or several with
/// nothing else between. `permitted` is false where there is no such file.
PageSurvey survey_mappings(std::span<const SurveyRange> ranges, size_t classes);

/// Of the lines of a numa_maps: the bytes by node of the mappings that begin in [begin, end), and
/// of the one that holds `begin`. For survey_mappings() and its tests.
std::vector<uint64_t> bytes_in_numa_maps(const std::string& text, uint64_t begin, uint64_t end);

}  // namespace shm
