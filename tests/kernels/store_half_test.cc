// Floats become halves in the KV cache: rounded and clamped to the bit, in every table.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/half.h"
#include "tests/kernels/tables.h"

namespace kernels::testing {
namespace {

TEST(StoreHalf, AllTablesRoundAndClampAlike) {
  // Every half, its neighbours half a step up and down (ties), and what floats have beyond.
  std::vector<float> values;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float value = f16_to_f32(static_cast<uint16_t>(h));
    for (const uint32_t step : {0u, 1u, ~0u, 0x1000u, 0xfffu, 0x1001u}) {
      values.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(value) + step));
    }
  }
  for (const float value : {65504.0f, 65519.9f, 65520.0f, 1e30f, INFINITY, 0x1p-24f, 0x1p-25f,
                            0x1.8p-25f, 0x1p-26f, 1e-40f}) {
    values.push_back(value);
    values.push_back(-value);
  }
  const int n = static_cast<int>(values.size());
  std::vector<uint16_t> expected(values.size());
  for (size_t i = 0; i < values.size(); ++i) expected[i] = f32_to_f16_clamped(values[i]);
  for (const Ops* ops : equal_tables()) {
    std::vector<uint16_t> halves(values.size());
    ops->store_v(KvType::kF16, values.data(), n, 0, reinterpret_cast<std::byte*>(halves.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(halves[i], expected[i]) << ops->name << ' ' << values[i];
    }
  }
}

TEST(StoreHalf, EveryHalfComesBack) {
  std::vector<float> values;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    if ((h & 0x7c00) != 0x7c00) values.push_back(f16_to_f32(static_cast<uint16_t>(h)));
  }
  const int n = static_cast<int>(values.size());
  for (const Ops* ops : equal_tables()) {
    std::vector<uint16_t> halves(values.size());
    ops->store_v(KvType::kF16, values.data(), n, 0, reinterpret_cast<std::byte*>(halves.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(f16_to_f32(halves[i])), std::bit_cast<uint32_t>(values[i]));
    }
  }
}

}  // namespace
}  // namespace kernels::testing
