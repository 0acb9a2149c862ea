// Sixteen float lanes in as many registers as an instruction set needs: the unit of vector_ops.h.
//
// A sum over n elements is always: lane i adds up the elements i, i + 16, … in order; then lane i
// and i + 8, i and i + 4, i and i + 2, and the last two. So sums are equal in every instruction
// set. Partial loads and stores touch `count` elements only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/exp_polynomial.h"
#include "kernels/ops.h"
#include "kernels/vocabulary.h"

namespace kernels {

template <class V>
struct Lanes16 {
  static constexpr int kCount = 16;
  static constexpr int kRegisters = kCount / V::kLanes;
  typename V::F32 part[kRegisters];

  static Lanes16 set(float a) {
    Lanes16 r;
    for (auto& p : r.part) p = V::set_f32(a);
    return r;
  }
  static Lanes16 load(const float* from) {
    Lanes16 r;
    for (int i = 0; i < kRegisters; ++i) r.part[i] = V::load_f32(from + i * V::kLanes);
    return r;
  }
  /// The lanes from `count` on are `fill`.
  static Lanes16 load(const float* from, int64_t count, float fill) {
    if (count >= kCount) return load(from);
    float buffer[kCount];
    for (float& b : buffer) b = fill;
    std::memcpy(buffer, from, static_cast<size_t>(count) * sizeof(float));
    return load(buffer);
  }
  void store(float* to) const {
    for (int i = 0; i < kRegisters; ++i) V::store_f32(to + i * V::kLanes, part[i]);
  }
  void store(float* to, int64_t count) const {
    if (count >= kCount) return store(to);
    float buffer[kCount];
    store(buffer);
    std::memcpy(to, buffer, static_cast<size_t>(count) * sizeof(float));
  }

  /// What load_kv() reads of each element: a half, a float, or the code of a q8_0 group.
  template <KvType type>
  static constexpr int kKvBytes = type == KvType::kF16   ? 2
                                  : type == KvType::kF32 ? 4
                                                         : 1;
  template <KvType type>
  static Lanes16 load_kv(const std::byte* from) {
    Lanes16 r;
    for (int i = 0; i < kRegisters; ++i) {
      if constexpr (type == KvType::kF16) {
        r.part[i] = V::load_f16(from + i * V::kLanes * 2);
      } else if constexpr (type == KvType::kF32) {
        r.part[i] = V::load_f32(from + i * V::kLanes * 4);
      } else {
        r.part[i] = V::to_f32(V::load_i8(from + i * V::kLanes));
      }
    }
    return r;
  }
  template <KvType type>
  static Lanes16 load_kv(const std::byte* from, int64_t count) {
    constexpr size_t kBytes = kKvBytes<type>;
    if (count >= kCount) return load_kv<type>(from);
    std::byte buffer[kCount * kBytes] = {};
    std::memcpy(buffer, from, static_cast<size_t>(count) * kBytes);
    return load_kv<type>(buffer);
  }
  void store_f16_clamped(uint16_t* to) const {
    for (int i = 0; i < kRegisters; ++i) V::store_f16_clamped(to + i * V::kLanes, part[i]);
  }

  /// Rounded to nearest even. REQUIRES: within ±127.
  void store_i8(int8_t* to) const {
    for (int i = 0; i < kRegisters; ++i) V::store_i8(to + i * V::kLanes, V::round_i32(part[i]));
  }
  /// The bits of max |a|. Integers are in the order of magnitudes, and NaN is the largest.
  int32_t largest_bits() const {
    auto largest = V::set_i32(0);
    for (int i = 0; i < kRegisters; ++i) {
      largest = V::max_i32(largest, V::and_i32(V::bits(part[i]), V::set_i32(0x7fffffff)));
    }
    return V::reduce_max(largest);
  }

  float sum() const {
    return V::reduce_add_f32(fold([](auto a, auto b) { return V::add_f32(a, b); }));
  }
  float max() const {
    return V::reduce_max_f32(fold([](auto a, auto b) { return V::max_f32(a, b); }));
  }

  friend Lanes16 operator+(const Lanes16& a, const Lanes16& b) {
    return each([&](int i) { return V::add_f32(a.part[i], b.part[i]); });
  }
  friend Lanes16 operator-(const Lanes16& a, const Lanes16& b) {
    return each([&](int i) { return V::sub_f32(a.part[i], b.part[i]); });
  }
  friend Lanes16 operator*(const Lanes16& a, const Lanes16& b) {
    return each([&](int i) { return V::mul(a.part[i], b.part[i]); });
  }
  friend Lanes16 operator/(const Lanes16& a, const Lanes16& b) {
    return each([&](int i) { return V::div(a.part[i], b.part[i]); });
  }
  friend Lanes16 max(const Lanes16& a, const Lanes16& b) {
    return each([&](int i) { return V::max_f32(a.part[i], b.part[i]); });
  }
  friend Lanes16 min(const Lanes16& a, const Lanes16& b) {
    return each([&](int i) { return V::min_f32(a.part[i], b.part[i]); });
  }
  /// a * b + c
  friend Lanes16 fma(const Lanes16& a, const Lanes16& b, const Lanes16& c) {
    return each([&](int i) { return V::fma(a.part[i], b.part[i], c.part[i]); });
  }
  /// c - a * b
  friend Lanes16 fnma(const Lanes16& a, const Lanes16& b, const Lanes16& c) {
    return each([&](int i) { return V::fnma(a.part[i], b.part[i], c.part[i]); });
  }
  friend Lanes16 exp(const Lanes16& a) {
    return each([&](int i) { return kernels::exp<V>(a.part[i]); });
  }

 private:
  template <class F>
  [[gnu::always_inline]] static Lanes16 each(F f) {
    Lanes16 r;
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) r.part[i] = f(i);
    return r;
  }
  template <class F>
  [[gnu::always_inline]] typename V::F32 fold(F f) const {
    Lanes16 r = *this;
    for (int n = kRegisters / 2; n > 0; n /= 2) {
      for (int i = 0; i < n; ++i) r.part[i] = f(r.part[i], r.part[i + n]);
    }
    return r.part[0];
  }
};

}  // namespace kernels
