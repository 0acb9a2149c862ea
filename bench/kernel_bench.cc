// How fast are the kernels on this core? Per instruction set and layout: one column (decode) from
// weights larger than the caches, against a plain read of the same memory, and 64 columns
// (prefill); packing; then quantising and attention. A result that differs from the scalar one ends
// the run.
//
//   kernel_bench [--isa NAME] [--mib 512] [--rounds 5]
//
// One thread; pin it (taskset -c N). Rounds are interleaved and the best one is reported.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/limits.h"
#include "kernels/ops.h"

namespace {

using kernels::Layout;
using kernels::Ops;
using kernels::TensorType;

constexpr TensorType kTypes[] = {
    TensorType::kF32,  TensorType::kF16,   TensorType::kBF16,   TensorType::kQ8_0,
    TensorType::kQ4_0, TensorType::kQ4_1,  TensorType::kQ5_0,   TensorType::kQ5_1,
    TensorType::kQ2_K, TensorType::kQ3_K,  TensorType::kQ4_K,   TensorType::kQ5_K,
    TensorType::kQ6_K, TensorType::kMXFP4, TensorType::kIQ4_NL, TensorType::kIQ4_XS};
constexpr int64_t kLength = 2048;  // k
constexpr int kColumns = 64;
constexpr int64_t kGemmRows = 512;

/// Processor time of this thread: what others run on the core in between does not count.
double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Options {
  std::string isa;
  size_t mib = 512;
  int rounds = 5;
};

/// Zeroed memory with huge pages where the system grants them.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_((bytes + kHuge - 1) / kHuge * kHuge) {
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      std::fprintf(stderr, "kernel_bench: cannot map %zu bytes; pass a smaller --mib\n", bytes_);
      std::exit(1);
    }
    madvise(p, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(p);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  size_t bytes_;
  std::byte* data_;
};

std::vector<float> normals(size_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

/// Rows of one panel.
std::vector<std::byte> random_rows(TensorType type) {
  std::mt19937_64 random(3);
  std::vector<std::byte> rows(static_cast<size_t>(kernels::row_bytes(type, kLength)) * 16);
  // Bytes below 0x30 make finite, moderate scales whatever field they land in.
  for (std::byte& b : rows) b = static_cast<std::byte>(random() % 0x30);
  // Of MXFP4 it is an exponent, which would make subnormal ones.
  const auto block = static_cast<size_t>(kernels::type_info(type).block_bytes);
  for (size_t i = 0; type == TensorType::kMXFP4 && i < rows.size(); i += block) {
    rows[i] = std::byte{120};
  }
  return rows;
}

/// They packed.
std::vector<std::byte> random_panel(Layout layout, TensorType type) {
  const std::vector<std::byte> rows = random_rows(type);
  const size_t bytes = kernels::panel_bytes(layout, type, kLength);
  auto aligned = std::make_unique<std::byte[]>(bytes + 64);
  std::byte* panel = aligned.get() + (64 - reinterpret_cast<uintptr_t>(aligned.get()) % 64) % 64;
  kernels::pack_panel(layout, type, rows.data(), 16, kLength, panel);
  return {panel, panel + bytes};
}

/// Packed columns of one activation format.
struct Columns {
  Columns(const Ops& ops, Layout layout)
      : format(kernels::activation_format(layout)),
        stride(kernels::activation_bytes(format, kLength)),
        memory(stride * kColumns) {
    const std::vector<float> values = normals(kLength * kColumns, 1);
    for (int c = 0; c < kColumns; ++c) {
      std::byte* to = memory.data() + static_cast<size_t>(c) * stride;
      const float* from = values.data() + c * kLength;
      if (format == kernels::ActivationFormat::kQ8) {
        ops.quantise(from, kLength, to);
      } else if (format == kernels::ActivationFormat::kQ8_32) {
        ops.quantise_32(from, kLength, to);
      } else {
        std::memcpy(to, from, kLength * sizeof(float));
      }
      pointers.push_back(to);
    }
  }
  kernels::ActivationFormat format;
  size_t stride;
  Memory memory;
  std::vector<const std::byte*> pointers;
};

struct Outputs {
  Outputs(int64_t rows, int columns) : values(static_cast<size_t>(rows * columns)) {
    for (int c = 0; c < columns; ++c) pointers.push_back(values.data() + c * rows);
  }
  std::vector<float> values;
  std::vector<float*> pointers;
};

/// Sums a buffer as fast as plain code can: the ceiling for reading weights.
double read_seconds(const std::byte* data, size_t bytes, uint64_t& sink) {
  const double start = seconds();
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= bytes / 8; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  for (const uint64_t sum : sums) sink += sum;
  return seconds() - start;
}

struct Row {
  const Ops* ops;
  double gemv = 1e30;  // seconds, best
  double gemm = 1e30;
};

[[noreturn]] void refuse(const Ops& ops, TensorType type) {
  std::fprintf(stderr, "kernel_bench: %s differs from scalar for %s; no speed of a wrong result\n",
               ops.name, std::string(kernels::type_info(type).name).c_str());
  std::exit(1);
}

void bench_type(TensorType type, const std::vector<const Ops*>& tables, const Ops& scalar,
                const Options& options, uint64_t& sink) {
  const Layout layout = kernels::layout_for(type, scalar);
  const std::vector<std::byte> panel = random_panel(layout, type);
  const int64_t panels = std::max(kGemmRows / kernels::kPanelRows,
                                  static_cast<int64_t>((options.mib << 20) / panel.size()));
  const size_t bytes = static_cast<size_t>(panels) * panel.size();
  const Memory weights(bytes);
  for (int64_t p = 0; p < panels; ++p) {
    std::memcpy(weights.data() + static_cast<size_t>(p) * panel.size(), panel.data(), panel.size());
  }
  const Columns columns(scalar, layout);
  kernels::MatmulArgs args{.panels = weights.data(),
                           .row_count = kGemmRows,
                           .k = kLength,
                           .type = type,
                           .x = columns.pointers.data(),
                           .y = nullptr,
                           .columns = kColumns};
  const auto multiply = [&](const Ops& ops, Outputs& out) {
    args.y = out.pointers.data();
    const double start = seconds();
    ops.matmul[static_cast<size_t>(layout)](args);
    return seconds() - start;
  };
  Outputs expected(kGemmRows, kColumns);
  const double scalar_seconds = multiply(scalar, expected);
  std::vector<Row> rows;
  for (const Ops* ops : tables) rows.push_back({ops});
  double read = 1e30;
  for (int round = 0; round < options.rounds; ++round) {
    read = std::min(read, read_seconds(weights.data(), bytes, sink));
    for (Row& row : rows) {
      args.row_count = kGemmRows;
      args.columns = kColumns;
      Outputs out(kGemmRows, kColumns);
      if (row.ops == &scalar) {
        row.gemm = scalar_seconds;  // slow and already done
        continue;
      }
      row.gemm = std::min(row.gemm, multiply(*row.ops, out));
      if (std::memcmp(out.values.data(), expected.values.data(), out.values.size() * 4) != 0) {
        refuse(*row.ops, type);
      }
      args.row_count = panels * kernels::kPanelRows;
      args.columns = 1;
      Outputs column(args.row_count, 1);
      row.gemv = std::min(row.gemv, multiply(*row.ops, column));
      if (std::memcmp(column.values.data(), expected.values.data(), kGemmRows * 4) != 0) {
        refuse(*row.ops, type);
      }
    }
  }
  const double gmac = static_cast<double>(kGemmRows * kLength * kColumns) * 1e-9;
  for (const Row& row : rows) {
    std::printf("%-6s %-8s %10.1f", kernels::layout_name(layout), row.ops->name, gmac / row.gemm);
    if (row.ops != &scalar) {
      std::printf(" %10.2f %10.2f %8.0f", static_cast<double>(bytes) * 1e-9 / row.gemv,
                  static_cast<double>(bytes) * 1e-9 / read, 100 * read / row.gemv);
    }
    std::printf("\n");
  }
}

/// Bytes of the file per second, from and to L2: what a loader can at best do.
void bench_pack(TensorType type, const Ops& scalar, const Options& options) {
  const Layout layout = kernels::layout_for(type, scalar);
  const std::vector<std::byte> rows = random_rows(type);
  const Memory panel(kernels::panel_bytes(layout, type, kLength));
  double best = 1e30;
  for (int round = 0; round < 20 * options.rounds; ++round) {
    const double start = seconds();
    for (int i = 0; i < 8; ++i) {
      kernels::pack_panel(layout, type, rows.data(), kernels::kPanelRows, kLength, panel.data());
    }
    best = std::min(best, (seconds() - start) / 8);
  }
  std::printf("pack     %-8s %6.2f GB/s\n", kernels::layout_name(layout),
              static_cast<double>(rows.size()) * 1e-9 / best);
}

void bench_quantise(const Ops& ops, const Ops& scalar, const Options& options) {
  const std::vector<float> x = normals(kLength * kColumns, 2);
  const size_t stride = kernels::activation_bytes(kernels::ActivationFormat::kQ8, kLength);
  const Memory expected(stride * kColumns), out(stride * kColumns);
  const auto quantise = [&](const Ops& table, std::byte* to) {
    const double start = seconds();
    for (int c = 0; c < kColumns; ++c) {
      table.quantise(x.data() + c * kLength, kLength, to + static_cast<size_t>(c) * stride);
    }
    return seconds() - start;
  };
  quantise(scalar, expected.data());
  double best = 1e30;
  for (int round = 0; round < 10 * options.rounds; ++round) {
    best = std::min(best, quantise(ops, out.data()));
  }
  if (std::memcmp(out.data(), expected.data(), stride * kColumns) != 0) {
    std::fprintf(stderr, "kernel_bench: %s quantises differently from scalar\n", ops.name);
    std::exit(1);
  }
  std::printf("quantise %-8s %6.2f elements/ns\n", ops.name,
              static_cast<double>(kLength * kColumns) * 1e-9 / best);
}

/// One segment in the cache, by queries that share it.
void bench_attend(const Ops& ops, const Ops& scalar, kernels::KvType type, const Options& options) {
  constexpr int kDim = 128, kQueries = 16;
  constexpr size_t kQueryBytes = kDim * sizeof(float);
  const size_t block_bytes = base::kKvBlockPositions * kernels::kv_row_bytes(type, kDim);
  const Memory k(block_bytes * kernels::kSegmentBlocks), v(block_bytes * kernels::kSegmentBlocks);
  const std::vector<float> values = normals(kDim * kernels::kSegmentPositions, 4);
  std::vector<const std::byte*> k_blocks, v_blocks;
  for (int b = 0; b < kernels::kSegmentBlocks; ++b) {
    k_blocks.push_back(k.data() + static_cast<size_t>(b) * block_bytes);
    v_blocks.push_back(v.data() + static_cast<size_t>(b) * block_bytes);
  }
  for (int64_t p = 0; p < kernels::kSegmentPositions; ++p) {
    const size_t b = static_cast<size_t>(p / base::kKvBlockPositions) * block_bytes;
    const int slot = static_cast<int>(p % base::kKvBlockPositions);
    ops.store_k(type, values.data() + p * kDim, kDim, slot, k.data() + b);
    ops.store_v(type, values.data() + p * kDim, kDim, slot, v.data() + b);
  }
  std::vector<float> out(kQueries * kDim), expected(kQueries * kDim);
  std::vector<kernels::Attended> attended(kQueries);
  std::vector<kernels::AttendQuery> queries;
  for (size_t i = 0; i < kQueries; ++i) {
    queries.push_back({.q = values.data() + i * kDim,
                       .scale = 0.05f,
                       .begin = 0,
                       .end = kernels::kSegmentPositions,
                       .out = &attended[i]});
  }
  const auto attend = [&](const Ops& by, int count, std::vector<float>& to) {
    for (size_t i = 0; i < kQueries; ++i) attended[i].values = to.data() + i * kDim;
    by.attend({.queries = queries.data(),
               .count = count,
               .k_blocks = k_blocks.data(),
               .v_blocks = v_blocks.data(),
               .head_dim = kDim,
               .value_dim = kDim,
               .kv_type = type});
  };
  attend(scalar, kQueries, expected);
  std::printf("attend   %-8s %-4s GMAC/s by queries together:", ops.name,
              kernels::kv_type_name(type));
  for (const int count : {1, 2, 4, 8, 16}) {
    double best = 1e30;
    for (int round = 0; round < 10 * options.rounds; ++round) {
      const double start = seconds();
      attend(ops, count, out);
      best = std::min(best, seconds() - start);
    }
    if (std::memcmp(out.data(), expected.data(), static_cast<size_t>(count) * kQueryBytes) != 0) {
      std::fprintf(stderr, "kernel_bench: %s attends differently from scalar\n", ops.name);
      std::exit(1);
    }
    std::printf("  %d: %.1f", count,
                2e-9 * kDim * static_cast<double>(kernels::kSegmentPositions) * count / best);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--isa") options.isa = argv[i + 1];
    if (name == "--mib") options.mib = static_cast<size_t>(std::max(1, std::atoi(argv[i + 1])));
    if (name == "--rounds") options.rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  const Ops& scalar = **kernels::find_ops("scalar");
  std::vector<const Ops*> tables;
  for (const Ops* ops : kernels::all_ops()) {
    const bool wanted = options.isa.empty() || options.isa == ops->name;
    if (!ops->is_reference && kernels::can_run(*ops) && wanted) tables.push_back(ops);
  }
  if (tables.empty()) {
    std::fprintf(stderr, "kernel_bench: no such instruction set here: %s\n", options.isa.c_str());
    return 1;
  }
  std::printf("k %d, 1 column over %zu MiB, %d columns x %d rows, best of %d\n",
              static_cast<int>(kLength), options.mib, kColumns, static_cast<int>(kGemmRows),
              options.rounds);
  std::printf("%-6s %-8s %10s %10s %10s %8s\n", "layout", "isa", "GMAC/s", "GB/s", "read GB/s",
              "% read");
  uint64_t sink = 0;
  for (const TensorType type : kTypes) bench_type(type, tables, scalar, options, sink);
  for (const TensorType type : kTypes) bench_pack(type, scalar, options);
  for (const Ops* ops : tables) bench_quantise(*ops, scalar, options);
  for (const kernels::KvType type : {kernels::KvType::kF16, kernels::KvType::kQ8_0})
    for (const Ops* ops : tables) bench_attend(*ops, scalar, type, options);
  return sink == 1 ? 2 : 0;  // the sums of the read loop must be wanted by somebody
}
