// What happened in a simulation: the last events as text, all of them as a hash.
//
// Two runs of one seed have the same hash, or the simulation is not determined by its seed. Text is
// made only when somebody asks. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace sim {

/// The broker is -1, workers are their ranks, clients -2.
struct TraceEntry {
  base::TimeNs at = 0;
  int who = 0;
  const char* what = "";    // lives for ever
  const char* detail = "";  // as `what`
  std::array<uint64_t, 3> numbers = {};
};

class Trace {
 public:
  void add(const TraceEntry& entry);
  /// Goes into the hash only.
  void mix(std::string_view bytes);

  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }
  /// The last events, oldest first, a line each.
  std::string text() const;

 private:
  static constexpr size_t kKept = 120;
  std::array<TraceEntry, kKept> entries_ = {};
  uint64_t count_ = 0;
  uint64_t hash_ = 0x6A09E667F3BCC908u;
};

}  // namespace sim
