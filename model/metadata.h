// The key-value part of a GGUF file, with typed access that accepts what published files contain.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace model {

/// One value. Integers of any width are widened to int64_t or (u64 only) uint64_t, f32 to double;
/// arrays of strings, integers, floats and booleans are kept flat.
using Value = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>,
                           std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

class Metadata {
 public:
  void set(std::string key, Value value) { values_[std::move(key)] = std::move(value); }
  const std::map<std::string, Value, std::less<>>& values() const { return values_; }
  /// nullptr if absent.
  const Value* find(std::string_view key) const;

  // Typed access. Errors name the key: absent, wrong type, negative, or out of [min, max].
  base::Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  base::Result<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t min,
                                   int64_t max) const;
  base::Result<double> number(std::string_view key) const;  // finite
  base::Result<double> number_or(std::string_view key, double fallback) const;
  base::Result<bool> boolean_or(std::string_view key, bool fallback) const;
  base::Result<std::string> string(std::string_view key) const;
  base::Result<std::string> string_or(std::string_view key, std::string_view fallback) const;
  /// One entry per layer; a scalar counts for all of them. Errors also: wrong length.
  base::Result<std::vector<int64_t>> per_layer(std::string_view key, int64_t layer_count,
                                               int64_t min, int64_t max) const;
  /// nullptr if absent or not such an array.
  const std::vector<std::string>* strings(std::string_view key) const;
  const std::vector<int64_t>* integers(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace model
