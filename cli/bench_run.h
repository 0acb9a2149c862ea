// Runs the tests of `numoe bench` on a cluster of real worker processes and times them from
// outside, as whoever sends requests sees it. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench_ceiling.h"
#include "cli/bench_tests.h"
#include "cli/local_cluster.h"

namespace cli {

struct BenchResult {
  BenchTest test;
  std::string started_at;                  // UTC, "2025-01-31T12:00:00Z"
  std::vector<base::TimeNs> samples = {};  // of one repetition each
  double ceiling_gb_per_s = 0;             // mean of what was read before and after
  /// What a token of one sequence reads of the file, times the steps of a second, times how much
  /// more a step of all sequences reads; 0 where nothing is generated or it is not known.
  double gb_per_s = 0;
  double step_reads = 1;  // of a step of all sequences, as a multiple of one alone
  /// [ranks] of this test: all repetitions, and the prompts before them.
  std::vector<proto::StatsReply> stats = {};

  std::vector<double> tokens_per_second() const;
  double ceiling_share() const { return ceiling_gb_per_s > 0 ? gb_per_s / ceiling_gb_per_s : 0; }
};

struct BenchRunOptions {
  int repetitions = 5;
  uint64_t seed = 1;
  int64_t vocabulary = 0;     // tokens are drawn from it
  uint64_t active_bytes = 0;  // of the file, read for a token
};

/// Positions that every cluster must have room for.
inline constexpr int64_t kWarmUpPrompt = 64;

class BenchRunner {
 public:
  /// Everything must outlive the runner.
  BenchRunner(LocalCluster& cluster, const ReadCeiling& ceiling, BenchRunOptions options)
      : cluster_(cluster), ceiling_(ceiling), options_(options) {}

  /// Untimed: every kind of step once; and what a step of one sequence reads.
  base::Status warm_up();
  /// `on_sample` gets how many repetitions are done; may be empty.
  base::Result<BenchResult> run(const BenchTest& test, const std::function<void(int)>& on_sample);

 private:
  base::Result<base::TimeNs> sample(const BenchTest& test);
  base::Result<base::TimeNs> time_prompt(const BenchTest& test);
  base::Result<base::TimeNs> time_generation(const BenchTest& test);
  base::Result<base::TimeNs> time_pair(const BenchTest& test);
  std::vector<int32_t> draw_tokens(int64_t count);
  proto::GenerateRequest request(int64_t prompt, int64_t generated);

  LocalCluster& cluster_;
  const ReadCeiling& ceiling_;
  const BenchRunOptions options_;
  uint64_t drawn_ = 0;         // tokens so far
  double bytes_per_step_ = 0;  // packed, of all ranks, with one sequence
};

}  // namespace cli
