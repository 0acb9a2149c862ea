#include "cli/kernel_probe.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "base/limits.h"
#include "engine/router.h"
#include "shm/probe_team.h"

namespace cli {

namespace {

using kernels::Ops;
using kernels::TensorType;

constexpr int64_t kLength = 2048;   // weights a row: a whole number of blocks of every type
constexpr int64_t kPanels = 16;     // of each type; they stay in the second-level cache
constexpr int64_t kCallPanels = 4;  // that the engine multiplies in one call
constexpr std::array<int, 4> kColumnCounts = {1, 4, 16, 64};
constexpr int kHead = 128;  // of attention
constexpr int64_t kPositions = 512;
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

/// Rows of one type with everything that a product of them needs.
class Product {
 public:
  Product(TensorType type, const Ops& ops)
      : type_(type),
        layout_(kernels::layout_for(type, ops)),
        panel_count_(layout_ == kernels::Layout::kRows ? kCallPanels : kPanels),
        panel_bytes_(kernels::panel_bytes(layout_, type, kLength)),
        panels_(panel_bytes_ * kPanels),
        format_(kernels::activation_format(layout_)),
        column_bytes_(kernels::activation_bytes(format_, kLength)),
        columns_(column_bytes_ * kColumnCounts.back()),
        out_(static_cast<size_t>(kCallPanels * kernels::kPanelRows * kColumnCounts.back())) {
    std::mt19937_64 random(3);
    const auto row = static_cast<size_t>(kernels::row_bytes(type, kLength));
    std::vector<std::byte> rows(row * kernels::kPanelRows);
    // Bytes below 0x30 make finite, moderate scales whatever field they land in.
    for (std::byte& b : rows) b = static_cast<std::byte>(random() % 0x30);
    for (int64_t p = 0; p < panel_count_; p++)
      kernels::pack_panel(layout_, type, rows.data(), kernels::kPanelRows, kLength,
                          panels_.data() + static_cast<size_t>(p) * panel_bytes_);
    const std::vector<float> x = values(kLength);
    for (int c = 0; c < kColumnCounts.back(); c++) {
      std::byte* to = columns_.data() + static_cast<size_t>(c) * column_bytes_;
      switch (format_) {
        case kernels::ActivationFormat::kQ8: ops.quantise(x.data(), kLength, to); break;
        case kernels::ActivationFormat::kQ8_32: ops.quantise_32(x.data(), kLength, to); break;
        case kernels::ActivationFormat::kF32:
          std::copy(x.begin(), x.end(), reinterpret_cast<float*>(to));
          break;
      }
      x_.push_back(to);
      y_.push_back(out_.data() + c * kCallPanels * kernels::kPanelRows);
    }
  }

  /// All panels with so many columns.
  void run(const Ops& ops, int columns) {
    for (int64_t p = 0; p < panel_count_; p += kCallPanels)
      ops.matmul[static_cast<size_t>(layout_)](
          {.panels = panels_.data() + static_cast<size_t>(p) * panel_bytes_,
           .row_count = kCallPanels * kernels::kPanelRows,
           .k = kLength,
           .type = type_,
           .x = x_.data(),
           .y = y_.data(),
           .columns = columns});
  }
  double gmac(int columns) const {
    return 1e-9 * static_cast<double>(panel_count_ * kernels::kPanelRows * kLength * columns);
  }

 private:
  TensorType type_;
  kernels::Layout layout_;
  int64_t panel_count_;  // few of those that are slow
  size_t panel_bytes_;
  Aligned panels_;
  kernels::ActivationFormat format_;
  size_t column_bytes_;
  Aligned columns_;
  std::vector<float> out_;
  std::vector<const std::byte*> x_;
  std::vector<float*> y_;
};

double attend_rate(const Ops& ops, double least_seconds) {
  constexpr int64_t kBlocks = kPositions / base::kKvBlockPositions;
  constexpr size_t kBlockBytes = size_t{kHead} * base::kKvBlockPositions * 2;
  Aligned k(kBlockBytes * kBlocks), v(kBlockBytes * kBlocks);
  std::vector<const std::byte*> k_blocks, v_blocks;
  for (size_t b = 0; b < kBlocks; b++) {
    k_blocks.push_back(k.data() + b * kBlockBytes);
    v_blocks.push_back(v.data() + b * kBlockBytes);
  }
  const std::vector<float> q = values(kHead);
  std::array<float, kHead> out;
  const kernels::AttendArgs args{.q = q.data(),
                                 .k_blocks = k_blocks.data(),
                                 .v_blocks = v_blocks.data(),
                                 .positions = kPositions,
                                 .head_dim = kHead,
                                 .value_dim = kHead,
                                 .scale = 0.1f,
                                 .kv_type = kernels::KvType::kF16,
                                 .out = out.data()};
  return rate_of(1e-9 * 2 * kHead * kPositions, least_seconds, [&] { ops.attend(args); });
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

struct Work {
  std::string name;
  int columns = 1;
  std::function<double(double)> rate;  // of so many seconds at least
};

/// What one thread measures, in memory of its own.
class Bench {
 public:
  explicit Bench(const Ops& ops) {
    for (uint32_t id = 0; id < 64; id++) {
      const kernels::TypeInfo* type = kernels::find_type(id);
      if (type == nullptr) continue;
      Product& product = *products_.emplace_back(std::make_unique<Product>(type->type, ops));
      for (const int columns : kColumnCounts)
        works_.push_back(
            {std::string(type->name), columns, [&product, &ops, columns](double least) {
               return rate_of(product.gmac(columns), least, [&] { product.run(ops, columns); });
             }});
    }
    works_.push_back({"attend", 1, [&](double least) { return attend_rate(ops, least); }});
    works_.push_back({"prepare", 1, [&](double least) { return prepare_rate(ops, least); }});
    works_.push_back({"route", 1, [&](double least) { return route_rate(ops, least); }});
  }
  const std::vector<Work>& works() const { return works_; }

 private:
  std::vector<std::unique_ptr<Product>> products_;
  std::vector<Work> works_;
};

}  // namespace

base::Result<std::vector<shm::KernelFigure>> probe_kernels(const KernelProbeOptions& options) {
  const bool quick = options.depth == shm::ProbeDepth::kQuick;
  const double least = quick ? 0.001 : 0.003;
  const int rounds = quick ? 3 : 5;
  std::vector<std::vector<std::vector<double>>> samples(options.cpus.size());  // [cpus][works]
  RETURN_IF_ERROR(shm::run_pinned(options.cpus, [&](size_t i) {
    const Bench bench(options.ops);
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
  const Bench bench(options.ops);
  std::vector<shm::KernelFigure> figures;
  for (size_t w = 0; w < bench.works().size(); w++) {
    std::vector<double> all;
    for (const auto& of_thread : samples)
      all.insert(all.end(), of_thread[w].begin(), of_thread[w].end());
    figures.push_back({.isa = options.ops.name,
                       .work = bench.works()[w].name,
                       .columns = bench.works()[w].columns,
                       .g_per_s = shm::spread_of(std::move(all))});
  }
  return figures;
}

}  // namespace cli
