#include "model/synth_blocks.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace model {

namespace {

using kernels::TensorType;

static_assert(std::endian::native == std::endian::little, "GGUF files are written in place");

// Deviation of the sum of bytes that are uniform: sqrt(n (256^2 - 1) / 12).
constexpr double kTwoBytesDeviation = 104.511, kFourBytesDeviation = 147.801;
constexpr int kTwoBytesMean = 255, kFourBytesMean = 510;

// How blocks of a type get their scale.
enum class Minimum { kNone, kAdded, kSubtracted };
struct BlockRule {
  TensorType type;
  int scale_at;  // byte of the f16 scale
  // Root mean square of the values of a block with scale 1: of random codes times the sub-scales
  // that set_scales() makes. For codebooks it was measured, for the others it is a sum of squares.
  double unit;
  Minimum minimum = Minimum::kNone;
  int minimum_at = 0;
  double middle = 0;  // the minimum that puts the mean of the codes at zero, in steps
};
constexpr BlockRule kRules[] = {
    {TensorType::kQ4_0, 0, 4.6368},
    {TensorType::kQ4_1, 0, 4.6098, Minimum::kAdded, 2, 7.5},
    {TensorType::kQ5_0, 0, 9.2466},
    {TensorType::kQ5_1, 0, 9.2331, Minimum::kAdded, 2, 15.5},
    {TensorType::kQ8_0, 0, 73.8952},
    {TensorType::kQ2_K, 80, 13.1101, Minimum::kSubtracted, 82, 1.5},
    {TensorType::kQ3_K, 108, 43.3388},
    {TensorType::kQ4_K, 0, 223.0625, Minimum::kSubtracted, 2, 7.5},
    {TensorType::kQ5_K, 0, 446.7806, Minimum::kSubtracted, 2, 15.5},
    {TensorType::kQ6_K, 208, 1222.1089},
    {TensorType::kIQ2_XXS, 0, 53.366},
    {TensorType::kIQ2_XS, 0, 55.902},
    {TensorType::kIQ2_S, 0, 56.387},
    {TensorType::kIQ3_XXS, 0, 142.493},
    {TensorType::kIQ3_S, 0, 140.216},
    {TensorType::kIQ1_S, 0, 7.197},
    {TensorType::kIQ1_M, 48, 7.199},
    {TensorType::kIQ4_NL, 0, 67.4389},
    {TensorType::kIQ4_XS, 0, 1246.2512},
    {TensorType::kMXFP4, 0, 2.9262},
};

/// nullptr for plain floats.
const BlockRule* find_rule(TensorType type) {
  for (const BlockRule& rule : kRules)
    if (rule.type == type) return &rule;
  return nullptr;
}

/// The nearest half of a number that is neither negative nor beyond the largest one.
uint16_t half_bits(double value) {
  if (value < 0x1p-14) return static_cast<uint16_t>(std::lrint(value * 0x1p24));
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // [0.5, 1)
  // The leading bit of the 11 raises the exponent by one, as does a fraction that rounds up to 1.
  return static_cast<uint16_t>(((exponent + 13) << 10) + std::lrint(fraction * 2048));
}

double half_value(uint16_t bits) {
  const int exponent = bits >> 10;
  if (exponent == 0) return bits * 0x1p-24;
  return std::ldexp((bits & 1023) + 1024, exponent - 25);
}

uint16_t signed_half(double value) {
  return value < 0 ? static_cast<uint16_t>(half_bits(-value) | 0x8000) : half_bits(value);
}

uint16_t bfloat_bits(double value) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t load(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

void store(uint8_t* at, uint16_t bits) {
  std::memcpy(at, &bits, sizeof bits);
}

/// Sub-scales of Q4_K and Q5_K, 32 … 63 each, and minima equal to them (the packing is pictured in
/// kernels/dequantise_k.cc): bits 5 and 7 are the highest of sub-blocks j and j + 4.
void set_sub_scales_k(uint8_t* packed) {
  for (int j = 0; j < 4; j++) {
    packed[j] |= 0xa0;
    packed[4 + j] = packed[j];
    packed[8 + j] = static_cast<uint8_t>((packed[8 + j] & 15) * 17);
  }
}

/// Random bits of the block's own sub-scales, made sane. What is not mentioned takes any bits.
void set_sub_scales(TensorType type, uint8_t* block) {
  switch (type) {
    case TensorType::kQ2_K:  // 8 … 15, minima equal
      for (int j = 0; j < 16; j++) block[j] = static_cast<uint8_t>(((block[j] & 7) | 8) * 17);
      return;
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: set_sub_scales_k(block + 4); return;
    case TensorType::kQ6_K:  // ±(32 … 95)
      for (int j = 192; j < 208; j++) {
        const int magnitude = 32 + (block[j] & 63);
        block[j] = static_cast<uint8_t>(block[j] & 0x80 ? -magnitude : magnitude);
      }
      return;
    case TensorType::kQ8_0:  // no -128, as quantisers write none
      for (int j = 2; j < 34; j++)
        if (block[j] == 0x80) block[j] = 0x81;
      return;
    default: return;
  }
}

/// The f16 scale of IQ1_M lies in the highest four bits of four words.
void set_scale_iq1_m(uint8_t* scales, uint16_t half) {
  for (int j = 0; j < 4; j++) {
    const int bits = half >> (4 * j) & 15;
    scales[2 * j + 1] = static_cast<uint8_t>((scales[2 * j + 1] & 15) | bits << 4);
  }
}

/// A power of two, and of how many blocks in 256 the scale is twice that.
struct PowerOfTwo {
  int exponent = 0, raised = 0;
};

/// Powers of two that together have the mean square of `scale`.
PowerOfTwo powers_for(double scale) {
  int exponent = 0;
  const double low = 2 * std::frexp(scale, &exponent);  // scale = low * 2^(exponent - 1)
  return {exponent - 1, static_cast<int>(std::lrint((low * low - 1) / 3 * 256))};
}

}  // namespace

SynthBlocks::SynthBlocks(TensorType type, double deviation) : type_(type) {
  CHECK(deviation > 0 && deviation < 1000, "no deviation for weights: ", deviation);
  const BlockRule* rule = find_rule(type);
  if (rule == nullptr) {
    unit_ = deviation / (type == TensorType::kF32 ? kFourBytesDeviation : kTwoBytesDeviation);
    return;
  }
  if (type == TensorType::kMXFP4) {
    const PowerOfTwo powers = powers_for(deviation / rule->unit);
    exponent_ = powers.exponent + 127;
    raised_ = powers.raised;
    return;
  }
  // From 0.75 to 1.25, whose root mean square is 1.0117.
  for (size_t i = 0; i < kVariants; i++) {
    const double share = (0.75 + static_cast<double>(i) / 30) / 1.0117;
    scales_[i] = half_bits(share * deviation / rule->unit);
    // From the scale as it was rounded, so that the mean is zero.
    const double minimum = half_value(scales_[i]) * rule->middle;
    if (rule->minimum == Minimum::kAdded) minima_[i] = signed_half(-minimum);
    if (rule->minimum == Minimum::kSubtracted) minima_[i] = half_bits(minimum);
  }
}

int64_t SynthBlocks::group_bytes() const {
  return int64_t{8} * kernels::type_info(type_).block_bytes;
}

void SynthBlocks::set_scales(uint8_t* block) const {
  const BlockRule& rule = *find_rule(type_);
  set_sub_scales(type_, block);
  uint8_t* at = block + rule.scale_at;
  if (type_ == TensorType::kMXFP4) {
    *at = static_cast<uint8_t>(exponent_ + (*at < raised_ ? 1 : 0));
    return;
  }
  const uint16_t random = type_ == TensorType::kIQ1_M ? block[0] : load(at);
  const size_t variant = random % kVariants;
  if (type_ == TensorType::kIQ1_M) return set_scale_iq1_m(at, scales_[variant]);
  if (rule.minimum == Minimum::kNone) {
    // Codes are not quite symmetric, so signs of scales put the mean at zero.
    store(at, static_cast<uint16_t>(scales_[variant] | (random & 0x8000)));
    return;
  }
  store(at, scales_[variant]);
  store(block + rule.minimum_at, minima_[variant]);
}

void SynthBlocks::fill_floats(std::span<std::byte> out) const {
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  if (type_ == TensorType::kF32) {
    const auto unit = static_cast<float>(unit_);
    for (size_t i = 0; i < out.size(); i += 4) {
      const int sum = bytes[i] + bytes[i + 1] + bytes[i + 2] + bytes[i + 3];
      const float value = unit * static_cast<float>(sum - kFourBytesMean);
      std::memcpy(bytes + i, &value, sizeof value);
    }
    return;
  }
  std::array<uint16_t, 2 * kTwoBytesMean + 1> values;
  for (size_t i = 0; i < values.size(); i++) {
    const double value = unit_ * (static_cast<int>(i) - kTwoBytesMean);
    values[i] = type_ == TensorType::kF16 ? signed_half(value) : bfloat_bits(value);
  }
  for (size_t i = 0; i < out.size(); i += 2)
    store(bytes + i, values[static_cast<size_t>(bytes[i] + bytes[i + 1])]);
}

void SynthBlocks::fill(const SynthBits& bits, uint64_t offset, std::span<std::byte> out) const {
  CHECK(offset % static_cast<uint64_t>(group_bytes()) == 0, "not a group's first byte: ", offset);
  size_t done = 0;
  for (uint64_t index = offset / sizeof(uint64_t); done < out.size(); index++) {
    const uint64_t word = bits.word(index);
    const size_t count = std::min(sizeof word, out.size() - done);
    std::memcpy(out.data() + done, &word, count);
    done += count;
  }
  if (find_rule(type_) == nullptr) return fill_floats(out);
  const auto block_bytes = static_cast<size_t>(kernels::type_info(type_).block_bytes);
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  for (size_t at = 0; at < out.size(); at += block_bytes) set_scales(bytes + at);
}

void fill_norm(const SynthBits& bits, uint64_t first, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i++) {
    const auto random = static_cast<int>(bits.word(first + i) >> 48);  // 16 bits
    out[i] = 1 + 0.1F * static_cast<float>(random - 32768) / 32768;
  }
}

}  // namespace model
