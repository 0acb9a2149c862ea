#include "cli/kernel_probe.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>

#include "base/limits.h"
#include "engine/router.h"
#include "engine/sampler.h"
#include "shm/probe_memory.h"
#include "shm/probe_team.h"

namespace cli {

namespace {

using kernels::Ops;
using kernels::TensorType;

constexpr int64_t kLength = 2048;    // weights a row: a whole number of blocks of every type
constexpr int64_t kPanels = 16;      // of each type; they stay in the second-level cache
constexpr int64_t kCallPanels = 4;   // that the engine multiplies in one call
constexpr size_t kColumns = 256;     // of a step
constexpr int64_t kColumnsMax = 64;  // that share weights
constexpr uint64_t kRegionLeast = 16 << 20;
constexpr int kHead = 128;  // of attention
constexpr int kExperts = 128, kExpertsUsed = 8;

/// Processor time of this thread: what others run on the core in between does not count.
double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Bytes at a multiple of the kernels' alignment.
class Aligned {
 public:
  explicit Aligned(size_t bytes) : memory_(bytes + kernels::kAlignment) {}
  std::byte* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (kernels::kAlignment - at % kernels::kAlignment) % kernels::kAlignment;
  }

 private:
  std::vector<std::byte> memory_;
};

std::vector<float> values(size_t count) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> out(count);
  for (float& value : out) value = draw(random);
  return out;
}

/// Calls `once`, which does 1e9 * `size` of something, for a while; 1e9 a second.
double rate_of(double size, double least_seconds, const std::function<void()>& once) {
  double began = seconds();
  once();
  double used = seconds() - began;
  if (used >= least_seconds) return size / used;  // too long for its first call to matter
  began = seconds();
  int calls = 0;
  do {
    once();
    calls++;
    used = seconds() - began;
  } while (used < least_seconds);
  return size * calls / used;
}

/// Memory of one thread that is larger than its part of the caches, and whose panels are in it.
struct Region {
  std::span<std::byte> bytes;
  const void* owner = nullptr;
};

/// Rows of one type with everything that a product of them needs.
class Product {
 public:
  Product(TensorType type, const Ops& ops)
      : type_(type),
        layout_(kernels::layout_for(type, ops)),
        panel_bytes_(kernels::panel_bytes(layout_, type, kLength)),
        panels_(panel_bytes_ * kPanels),
        format_(kernels::activation_format(layout_)),
        column_bytes_(kernels::activation_bytes(format_, kLength)),
        columns_(column_bytes_ * kColumns),
        out_(static_cast<size_t>(kCallPanels * kernels::kPanelRows * kColumnsMax)) {
    pack();
    const std::vector<float> x = values(kLength);
    for (size_t c = 0; c < kColumns; c++) {
      std::byte* to = columns_.data() + c * column_bytes_;
      switch (format_) {
        case kernels::ActivationFormat::kQ8: ops.quantise(x.data(), kLength, to); break;
        case kernels::ActivationFormat::kQ8_32: ops.quantise_32(x.data(), kLength, to); break;
        case kernels::ActivationFormat::kF32:
          std::copy(x.begin(), x.end(), reinterpret_cast<float*>(to));
          break;
      }
    }
    // Columns of a step in the order in which some expert's tokens lie: anywhere.
    for (size_t i = 0; i < kColumns + kColumnsMax; i++)
      x_.push_back(columns_.data() + i * 37 % kColumns * column_bytes_);
    for (int64_t c = 0; c < kColumnsMax; c++)
      y_.push_back(out_.data() + c * kCallPanels * kernels::kPanelRows);
  }

  bool is_fast() const { return layout_ != kernels::Layout::kRows; }

  /// 1e9 products a second with weights that stay in a cache.
  double cached_rate(const Ops& ops, int columns, double least) {
    const int64_t count = is_fast() ? kPanels : kCallPanels;  // few of those that are slow
    return rate_of(gmac(count, columns), least, [&] {
      for (int64_t p = 0; p < count; p += kCallPanels)
        multiply(ops, panels_.data() + static_cast<size_t>(p) * panel_bytes_, columns);
    });
  }

  /// The same with weights from memory, as gate and up of experts are read: some panels here, some
  /// there.
  double memory_rate(const Ops& ops, int columns, double least, Region& region) {
    const size_t step = kCallPanels * panel_bytes_, half = region.bytes.size() / 2 / step * step;
    if (region.owner != this) {
      for (size_t at = 0; at + panel_bytes_ <= region.bytes.size(); at += panel_bytes_)
        std::copy_n(panels_.data(), panel_bytes_, region.bytes.data() + at);
      region.owner = this;
    }
    return rate_of(gmac(2 * kCallPanels, columns), least, [&] {
      multiply(ops, region.bytes.data() + at_, columns);
      multiply(ops, region.bytes.data() + half + at_, columns);
      at_ = at_ + 2 * step <= half ? at_ + step : 0;
    });
  }

 private:
  void pack() {
    std::mt19937_64 random(3);
    const auto row = static_cast<size_t>(kernels::row_bytes(type_, kLength));
    std::vector<std::byte> rows(row * kernels::kPanelRows);
    // Bytes below 0x30 make finite, moderate scales whatever field they land in.
    for (std::byte& b : rows) b = static_cast<std::byte>(random() % 0x30);
    for (int64_t p = 0; p < kPanels; p++)
      kernels::pack_panel(layout_, type_, rows.data(), kernels::kPanelRows, kLength,
                          panels_.data() + static_cast<size_t>(p) * panel_bytes_);
  }

  static double gmac(int64_t panels, int columns) {
    return 1e-9 * static_cast<double>(panels * kernels::kPanelRows * kLength * columns);
  }

  void multiply(const Ops& ops, const std::byte* panels, int columns) {
    const size_t first = columns == 1 ? 0 : (called_++ * 16) % kColumns;
    ops.matmul[static_cast<size_t>(layout_)]({.panels = panels,
                                              .row_count = kCallPanels * kernels::kPanelRows,
                                              .k = kLength,
                                              .type = type_,
                                              .x = x_.data() + first,
                                              .y = y_.data(),
                                              .columns = columns});
  }

  TensorType type_;
  kernels::Layout layout_;
  size_t panel_bytes_;
  Aligned panels_;
  kernels::ActivationFormat format_;
  size_t column_bytes_;
  Aligned columns_;
  std::vector<float> out_;
  std::vector<const std::byte*> x_;
  std::vector<float*> y_;
  size_t at_ = 0, called_ = 0;
};

/// Of queries that have the same keys.
double attend_rate(const Ops& ops, int queries, double least_seconds) {
  constexpr size_t kBlockBytes = size_t{kHead} * base::kKvBlockPositions * 2;
  Aligned k(kBlockBytes * kernels::kSegmentBlocks), v(kBlockBytes * kernels::kSegmentBlocks);
  std::vector<const std::byte*> k_blocks, v_blocks;
  for (size_t b = 0; b < kernels::kSegmentBlocks; b++) {
    k_blocks.push_back(k.data() + b * kBlockBytes);
    v_blocks.push_back(v.data() + b * kBlockBytes);
  }
  const std::vector<float> q = values(kHead);
  std::vector<float> out(static_cast<size_t>(queries) * kHead);
  std::vector<kernels::Attended> attended(static_cast<size_t>(queries));
  std::vector<kernels::AttendQuery> all;
  for (size_t i = 0; i < attended.size(); i++) {
    attended[i].values = out.data() + i * kHead;
    all.push_back({.q = q.data(),
                   .scale = 0.1f,
                   .begin = 0,
                   .end = kernels::kSegmentPositions,
                   .out = &attended[i]});
  }
  const kernels::AttendArgs args{.queries = all.data(),
                                 .count = queries,
                                 .k_blocks = k_blocks.data(),
                                 .v_blocks = v_blocks.data(),
                                 .head_dim = kHead,
                                 .value_dim = kHead,
                                 .kv_type = kernels::KvType::kF16};
  return rate_of(1e-9 * 2 * kHead * kernels::kSegmentPositions * queries, least_seconds,
                 [&] { ops.attend(args); });
}

double prepare_rate(const Ops& ops, double least_seconds) {
  const std::vector<float> x = values(kLength), weight = values(kLength);
  std::vector<float> normed(kLength);
  Aligned packed(kernels::activation_bytes(kernels::ActivationFormat::kQ8, kLength));
  return rate_of(1e-9 * kLength, least_seconds, [&] {
    ops.rms_norm(x.data(), weight.data(), kLength, 1e-6f, normed.data());
    ops.quantise(normed.data(), kLength, packed.data());
  });
}

double route_rate(const Ops& ops, double least_seconds) {
  const model::Experts experts{.count = kExperts, .used = kExpertsUsed, .normalise_weights = true};
  const std::vector<float> logits = values(kExperts);
  std::vector<float> work(kExperts), keys(2 * kExperts), weights(kExpertsUsed);
  std::vector<int32_t> chosen(kExpertsUsed);
  return rate_of(1e-9 * kExperts, least_seconds, [&] {
    std::copy(logits.begin(), logits.end(), work.begin());
    engine::route({.experts = experts,
                   .ops = ops,
                   .logits = work.data(),
                   .keys = keys.data(),
                   .chosen = chosen.data(),
                   .weights = weights.data()});
  });
}

double sample_rate(double least_seconds) {
  constexpr int64_t kVocabulary = 65536;
  engine::Sampler sampler(kVocabulary, kVocabulary);
  const std::vector<float> logits = values(kVocabulary);
  const std::vector<int32_t> history(64, 1);
  engine::SamplingParams params;
  params.temperature = 0;  // as benchmarks do; a draw takes longer
  uint64_t position = 0;
  return rate_of(1e-9 * kVocabulary, least_seconds, [&] {
    sampler.sample(logits, params, history, {.seed = 1, .position = position++});
  });
}

struct Work {
  std::string name;
  int columns = 1;
  bool in_memory = false;
  std::function<double(double)> rate;  // of so many seconds at least
};

/// What one thread measures.
class Bench {
 public:
  Bench(const Ops& ops, std::span<std::byte> memory) : region_{memory} {
    for (uint32_t id = 0; id < 64; id++) {
      const kernels::TypeInfo* type = kernels::find_type(id);
      if (type == nullptr) continue;
      Product& product = *products_.emplace_back(std::make_unique<Product>(type->type, ops));
      const auto add = [&](int columns, bool in_memory) {
        works_.push_back({std::string(type->name), columns, in_memory,
                          [&product, &ops, columns, in_memory, this](double least) {
                            return in_memory ? product.memory_rate(ops, columns, least, region_)
                                             : product.cached_rate(ops, columns, least);
                          }});
      };
      for (const int columns : {1, 4, 16, 64}) add(columns, false);
      if (!product.is_fast()) continue;
      // As many tokens as choose an expert: seldom a number that suits the kernels.
      for (const int columns : {1, 13, 61}) add(columns, true);
    }
    for (const int queries : {1, 4, 16}) {
      works_.push_back({"attend", queries, false, [&ops, queries](double least) {
                          return attend_rate(ops, queries, least);
                        }});
    }
    const auto add = [&](const char* name, auto rate) {
      works_.push_back({name, 1, false, std::move(rate)});
    };
    add("prepare", [&](double least) { return prepare_rate(ops, least); });
    add("route", [&](double least) { return route_rate(ops, least); });
    add("sample", [](double least) { return sample_rate(least); });
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  const std::vector<Work>& works() const { return works_; }

 private:
  Region region_;
  std::vector<std::unique_ptr<Product>> products_;
  std::vector<Work> works_;
};

}  // namespace

base::Result<std::vector<shm::KernelFigure>> probe_kernels(const KernelProbeOptions& options) {
  const bool quick = options.depth == shm::ProbeDepth::kQuick;
  const double least = quick ? 0.001 : 0.003;
  const int rounds = quick ? 3 : 5;
  const auto count = options.cpus.size();
  // Beyond what the caches of these cores hold, all together.
  ASSIGN_OR_RETURN(
      const shm::ProbeMemory memory,
      shm::ProbeMemory::create({.bytes = std::max(kRegionLeast * count, 3 * options.cache_bytes),
                                .os_node = options.os_node,
                                .pages = shm::PageKind::kHuge,
                                .cpus = options.cpus},
                               options.stop));
  std::vector<std::vector<std::vector<double>>> samples(count);  // [cpus][works]
  RETURN_IF_ERROR(shm::run_pinned(options.cpus, [&](size_t i) {
    const Bench bench(options.ops, memory.part(i, count));
    samples[i].resize(bench.works().size());
    for (int round = 0; round < rounds; round++) {
      for (size_t w = 0; w < bench.works().size(); w++) {
        if (options.stop.load(std::memory_order_relaxed)) return;
        samples[i][w].push_back(bench.works()[w].rate(least));
      }
    }
  }));
  if (options.stop.load(std::memory_order_relaxed))
    return base::Error{base::Code::kCancelled, "measuring was stopped"};
  const Bench bench(options.ops, memory.part(0, count));
  std::vector<shm::KernelFigure> figures;
  for (size_t w = 0; w < bench.works().size(); w++) {
    std::vector<double> all;
    for (const auto& of_thread : samples)
      all.insert(all.end(), of_thread[w].begin(), of_thread[w].end());
    figures.push_back({.isa = options.ops.name,
                       .work = bench.works()[w].name,
                       .columns = bench.works()[w].columns,
                       .in_memory = bench.works()[w].in_memory,
                       .g_per_s = shm::spread_of(std::move(all))});
  }
  return figures;
}

}  // namespace cli
