// What `numoe bench` found, in the formats and field names of llama-bench, with what it adds.
//
// Pure functions; any thread. docs/performance.md explains the fields.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/bench_run.h"

namespace cli {

/// What all tests of a run have in common.
struct BenchSetting {
  std::string version, cpu;
  std::string model_path, model_type;  // "llama Q4_K"
  uint64_t model_bytes = 0, model_weights = 0, active_bytes = 0;
  int64_t chunk = 0;       // positions of a step
  int threads = 0;         // of all ranks
  int decode_threads = 0;  // of those, in tests that only generate
  int nodes = 1;           // ranks
  std::string isa, kv_type, strategy, exchange;
  std::string pages;  // of weights: "4 KiB", "huge"
  uint64_t seed = 0;
};

enum class BenchFormat { kMarkdown, kJson, kJsonLines, kCsv };
BenchFormat bench_format(const std::string& name);

/// What comes before the first result, between two, and after the last.
std::string bench_head(const BenchSetting& setting, BenchFormat format);
std::string bench_row(const BenchSetting& setting, const BenchResult& result, BenchFormat format);
std::string bench_separator(BenchFormat format);
std::string bench_tail(const BenchSetting& setting, BenchFormat format);

/// How a rank's time went in a test, a line for each rank.
std::string bench_phases(const BenchResult& result);

}  // namespace cli
