// The quantised rows under tests/golden/quant-rows, and index.json beside them.
//
// <TYPE>.bin is 8 rows of 512 weights, quantised by ggml; <TYPE>-codes.bin has random codes with
// sane scales. The .f32 beside each is what ggml and the gguf Python package both make of it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "kernels/formats.h"

namespace kernels_test {

inline constexpr int64_t kGoldenColumns = 512;

inline std::string golden_path(const std::string& file) {
  return std::string(NUMOE_SOURCE_DIR) + "/tests/golden/quant-rows/" + file;
}

/// The bytes of a file; empty if it is not there, which every test checks.
inline std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::vector<float> read_floats(const std::string& path) {
  const std::vector<std::byte> bytes = read_bytes(path);
  std::vector<float> floats(bytes.size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

/// index.json: an object of flat objects whose integers are what tests ask for, by type name.
inline std::map<std::string, std::map<std::string, int64_t>> read_index() {
  std::ifstream file(golden_path("index.json"));
  std::map<std::string, std::map<std::string, int64_t>> index;
  std::string type;
  for (std::string line; std::getline(file, line);) {
    const size_t open = line.find('"');
    const size_t close = line.find('"', open + 1);
    if (open == std::string::npos || close == std::string::npos) continue;
    const std::string key = line.substr(open + 1, close - open - 1);
    const size_t start = line.find_first_not_of(": ", close + 1);
    if (start == std::string::npos) continue;
    if (line[start] == '{') {
      type = key;
      index[type];
      continue;
    }
    int64_t value = 0;
    if (std::from_chars(line.data() + start, line.data() + line.size(), value).ec == std::errc()) {
      index[type][key] = value;
    }
  }
  return index;
}

}  // namespace kernels_test
