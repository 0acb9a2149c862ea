#include "plan/assumed.h"

#include <algorithm>
#include <cmath>

namespace plan {

namespace {

using kernels::TensorType;

struct MemoryRow {
  int cores;  // of a socket, up to
  AssumedMemory memory;
};

// 80 % of the peak of all channels, as `numoe probe` and others measure on such machines.
constexpr MemoryRow kMemory[] = {
    {12, {2, "DDR5-5600", 72, 28}},     // desktop
    {24, {6, "DDR4-2933", 112, 12}},    // 2017 to 2021
    {40, {8, "DDR4-3200", 164, 12}},    // 2019 to 2022
    {64, {8, "DDR5-4800", 246, 14}},    // 2023
    {100, {12, "DDR5-4800", 369, 20}},  // 2023, Genoa
    {1 << 20, {12, "DDR5-6400", 492, 20}},
};

struct KernelRow {
  TensorType type;
  double single, four, many;  // GMAC/s with 1, 4 and 64 columns
};

// Measured by `numoe probe` on a core of an EPYC 9004 at about 3.7 GHz. Types without a row are
// products over plain rows.
constexpr KernelRow kAvx512[] = {
    {TensorType::kF32, 8, 20, 40},      {TensorType::kF16, 10, 20, 38},
    {TensorType::kBF16, 10, 20, 38},    {TensorType::kQ8_0, 60, 120, 150},
    {TensorType::kQ4_K, 70, 140, 180},  {TensorType::kQ6_K, 45, 110, 150},
    {TensorType::kMXFP4, 60, 120, 150},
};
constexpr KernelRow kAvx2[] = {
    {TensorType::kF32, 8, 16, 20},    {TensorType::kF16, 9, 16, 20},
    {TensorType::kBF16, 9, 16, 20},   {TensorType::kQ8_0, 35, 45, 50},
    {TensorType::kQ4_K, 40, 55, 60},  {TensorType::kQ6_K, 28, 42, 50},
    {TensorType::kMXFP4, 35, 45, 50},
};
constexpr double kPlainRows = 0.6;  // GMAC/s, any type and instruction set

bool is_wide(const std::string& isa) {
  return isa.starts_with("avx512");
}

}  // namespace

AssumedMemory assumed_memory(int cores_of_socket) {
  for (const MemoryRow& row : kMemory)
    if (cores_of_socket <= row.cores) return row.memory;
  return std::end(kMemory)[-1].memory;
}

std::vector<ReadPoint> assumed_read(double gb_per_s, double gb_per_s_core, int threads) {
  const double core = std::min(gb_per_s, gb_per_s_core);
  const int enough = static_cast<int>(std::ceil(gb_per_s / core));
  std::vector<ReadPoint> points = {{1, core}};
  if (enough > 1) points.push_back({enough, gb_per_s});
  if (threads > enough) points.push_back({threads, gb_per_s});
  return points;
}

std::vector<KernelSpeed> assumed_kernels(const std::string& isa) {
  std::vector<KernelSpeed> speeds;
  const auto add = [&](const auto& rows) {
    for (const KernelRow& row : rows)
      speeds.push_back({row.type, {{1, row.single}, {4, row.four}, {64, row.many}}});
  };
  if (is_wide(isa)) {
    add(kAvx512);
  } else {
    add(kAvx2);
  }
  for (uint32_t id = 0; id < 64; id++) {
    const kernels::TypeInfo* info = kernels::find_type(id);
    if (info != nullptr && std::ranges::count(speeds, info->type, &KernelSpeed::type) == 0)
      speeds.push_back({info->type, {{1, kPlainRows}}});
  }
  return speeds;
}

ThreadSpeed assumed_thread(const std::string& isa) {
  if (is_wide(isa)) return {.attend = 12, .prepare = 2.0, .route = 0.2};
  return {.attend = 10, .prepare = 1.5, .route = 0.2};
}

MeetingSpeed assumed_meeting(int threads, int packages) {
  // Every thread of a rank adds its arrival to one line; that line, and one of each other rank,
  // travel between cores.
  constexpr double kArrivalNs = 12, kLineNs = 100, kFarLineNs = 400;
  const double barrier = kLineNs + kArrivalNs * threads;
  return {.barrier_ns = barrier,
          .gather_ns = barrier + (packages > 1 ? kFarLineNs : kLineNs),
          .gather_gb_per_s = 5,
          .remote_gb_per_s = packages > 1 ? 80.0 : 150.0};
}

}  // namespace plan
