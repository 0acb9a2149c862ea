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

// What `numoe probe` measured on a core of an EPYC 9004 (Zen 4), both cores busy. Types without a
// row have no packed layout.
constexpr KernelRow kAvx512[] = {
    {TensorType::kF32, 17, 46, 48},      {TensorType::kF16, 22, 47, 52},
    {TensorType::kBF16, 22, 46, 50},     {TensorType::kQ4_0, 90, 154, 166},
    {TensorType::kQ4_1, 83, 138, 149},   {TensorType::kQ5_0, 55, 132, 152},
    {TensorType::kQ5_1, 52, 120, 141},   {TensorType::kQ8_0, 75, 151, 166},
    {TensorType::kQ2_K, 67, 118, 126},   {TensorType::kQ3_K, 60, 134, 136},
    {TensorType::kQ4_K, 75, 149, 167},   {TensorType::kQ5_K, 59, 140, 150},
    {TensorType::kQ6_K, 49, 103, 116},   {TensorType::kIQ4_NL, 75, 158, 163},
    {TensorType::kIQ4_XS, 70, 153, 171}, {TensorType::kMXFP4, 52, 114, 161},
};
constexpr KernelRow kAvx2[] = {
    {TensorType::kF32, 16, 33, 41},    {TensorType::kF16, 20, 45, 46},
    {TensorType::kBF16, 16, 40, 37},   {TensorType::kQ4_0, 70, 107, 104},
    {TensorType::kQ4_1, 64, 100, 103}, {TensorType::kQ5_0, 48, 81, 87},
    {TensorType::kQ5_1, 45, 77, 77},   {TensorType::kQ8_0, 44, 58, 57},
    {TensorType::kQ2_K, 59, 81, 85},   {TensorType::kQ3_K, 53, 74, 71},
    {TensorType::kQ4_K, 68, 99, 105},  {TensorType::kQ5_K, 46, 79, 86},
    {TensorType::kQ6_K, 41, 71, 74},   {TensorType::kIQ4_NL, 35, 55, 55},
    {TensorType::kIQ4_XS, 36, 53, 53}, {TensorType::kMXFP4, 21, 41, 40},
};
constexpr KernelRow kPlainRows = {TensorType::kF32, 0.8, 1.9, 3.9};  // of any type

// Of the read bandwidth that products with one column get: 0.79 to 0.93 were measured.
constexpr double kStreamShare = 0.85;

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
      speeds.push_back({row.type, {{1, row.single}, {4, row.four}, {64, row.many}}, kStreamShare});
  };
  if (is_wide(isa)) {
    add(kAvx512);
  } else {
    add(kAvx2);
  }
  for (uint32_t id = 0; id < 64; id++) {
    const kernels::TypeInfo* info = kernels::find_type(id);
    if (info != nullptr && std::ranges::count(speeds, info->type, &KernelSpeed::type) == 0)
      speeds.push_back(
          {info->type, {{1, kPlainRows.single}, {4, kPlainRows.four}, {64, kPlainRows.many}}});
  }
  return speeds;
}

ThreadSpeed assumed_thread(const std::string& isa) {
  if (is_wide(isa))
    return {.attend = 25, .attend_together = 47, .prepare = 1.46, .route = 0.15, .sample = 1.5};
  return {.attend = 24, .attend_together = 40, .prepare = 1.33, .route = 0.15, .sample = 1.5};
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
