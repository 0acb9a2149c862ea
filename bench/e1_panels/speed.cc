// Decode (one column) and prefill (64 columns). Rounds are interleaved over all kernels; the median
// of each is shown, so that one lucky or disturbed round decides nothing.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "bench/e1_panels/experiment.h"

namespace e1 {

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Line {
  const Build* build;
  const Kernel* kernel;  // nullptr: read loop
  std::unique_ptr<Columns> columns;
  std::vector<double> times;
};

/// Fills `bytes` with copies of 128 rows.
void fill(Weights weights, std::byte* to, size_t bytes) {
  Random random(5);
  const auto rows = random_rows(weights, 128, random);
  std::vector<std::byte> packed(rows.size() + 4096);
  auto* aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
  const size_t used = pack(weights, rows, 128, aligned);
  for (size_t at = 0; at < bytes; at += used) {
    std::memcpy(to + at, aligned, std::min(used, bytes - at));
  }
}

void decode_type(Weights weights, size_t mib, int rounds, const std::vector<Build>& all) {
  const auto& info = kernels::type_info(tensor_type(weights));
  const int64_t row_bytes = kernels::row_bytes(tensor_type(weights), kLength);
  const bool from_memory = mib > 0;
  const size_t wanted = from_memory ? mib << 20 : size_t{640} << 10;
  const int64_t rows = static_cast<int64_t>(wanted) / row_bytes / 16 * 16;
  const size_t bytes = static_cast<size_t>(rows * row_bytes);
  const Memory memory(bytes);
  fill(weights, memory.data(), bytes);
  Random random(6);
  const auto x = heavy_columns(1, random);
  std::vector<float> y(static_cast<size_t>(rows));
  std::vector<Line> lines;
  for (const Build& build : all) {
    if (&build == &all.front()) continue;  // scalar says nothing about memory
    lines.push_back({&build, nullptr, nullptr, {}});
    for (const Kernel& kernel : build.kernels) {
      if (kernel.weights != weights || kernel.tile_columns != 1) continue;
      lines.push_back({&build, &kernel, std::make_unique<Columns>(x, kernel.kind, 1), {}});
    }
  }
  volatile int32_t sink = 0;
  const int repeats = from_memory ? 1 : 20;
  for (int round = 0; round < rounds; ++round) {
    for (Line& line : lines) {
      const double start = seconds();
      for (int i = 0; i < repeats; ++i) {
        if (line.kernel) {
          run(*line.kernel, memory.data(), rows, *line.columns, 1, y.data());
        } else {
          sink = sink + line.build->read(memory.data(), bytes);
        }
      }
      line.times.push_back((seconds() - start) / repeats);
    }
  }
  const double ghz = core_ghz();
  const double bits = 8.0 * info.block_bytes / info.block_weights;
  double ceiling = 0;
  for (const Line& line : lines) {
    if (!line.kernel) ceiling = std::max(ceiling, static_cast<double>(bytes) / median(line.times));
  }
  for (const Line& line : lines) {
    const double rate = static_cast<double>(bytes) / median(line.times);
    std::printf("%-6s %-7s %-12s %8.1f %9.0f %14.1f\n", from_memory ? "memory" : "L2",
                line.build->name, line.kernel ? line.kernel->name : "read loop", rate * 1e-9,
                100 * rate / ceiling, rate * 8 / bits / ghz * 1e-9);
  }
}

}  // namespace

void decode(size_t mib, int rounds) {
  const std::vector<Build> all = builds();
  std::printf("one column, k %d, median of %d rounds\n", static_cast<int>(kLength), rounds);
  std::printf("%-6s %-7s %-12s %8s %9s %14s\n", "from", "isa", "kernel", "GB/s", "% of read",
              "weights/cycle");
  for (const Weights weights : {Weights::kQ4_K, Weights::kQ8_0, Weights::kIQ3_S}) {
    decode_type(weights, 0, rounds, all);
    decode_type(weights, mib, rounds, all);
  }
}

void prefill(int rounds) {
  constexpr int64_t kRows = 256;
  constexpr int kColumnCount = 64;
  const std::vector<Build> all = builds();
  Random random(6);
  const auto x = heavy_columns(kColumnCount, random);
  std::vector<float> y(kRows * kColumnCount);
  std::printf("%d x %d, %d columns, weights warm, GMAC/s, median of %d rounds\n",
              static_cast<int>(kRows), static_cast<int>(kLength), kColumnCount, rounds);
  std::printf("%-7s %-12s %-14s %8s %10s\n", "isa", "kernel", "columns", "GMAC/s", "MAC/cycle");
  for (const Weights weights : {Weights::kQ4_K, Weights::kQ8_0, Weights::kIQ3_S}) {
    const Memory memory(size_t{4} << 20);
    Random rows_random(5);
    pack(weights, random_rows(weights, kRows, rows_random), kRows, memory.data());
    std::vector<Line> lines;
    for (const Build& build : all) {
      for (const Kernel& kernel : build.kernels) {
        const bool tiled = kernel.tile_columns == 4 || kernel.layout == Layout::kRows;
        if (kernel.weights != weights || !tiled) continue;
        lines.push_back({&build, &kernel, std::make_unique<Columns>(x, kernel.kind, 4), {}});
      }
    }
    for (int round = 0; round < rounds; ++round) {
      for (Line& line : lines) {
        if (line.build == &all.front() && round > 0) continue;
        const double start = seconds();
        run(*line.kernel, memory.data(), kRows, *line.columns, kColumnCount, y.data());
        line.times.push_back(seconds() - start);
      }
    }
    const double ghz = core_ghz();
    for (const Line& line : lines) {
      const double rate =
          static_cast<double>(kRows * kLength * kColumnCount) * 1e-9 / median(line.times);
      const Layout layout = line.kernel->layout;
      std::printf("%-7s %-12s %-14s %8.1f %10.1f\n", line.build->name, line.kernel->name,
                  layout == Layout::kSideBySide ? "side by side"
                  : layout == Layout::kPointers ? "pointers"
                                                : "rows",
                  rate, rate / ghz);
    }
  }
}

}  // namespace e1
