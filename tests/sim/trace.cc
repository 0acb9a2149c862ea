#include "tests/sim/trace.h"

#include <algorithm>

#include "base/cat.h"

namespace sim {

namespace {

uint64_t fold(uint64_t hash, uint64_t word) {
  uint64_t x = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

std::string name(int who) {
  if (who == -1) return "broker";
  if (who == -2) return "client";
  return base::cat("rank ", who);
}

}  // namespace

void Trace::mix(std::string_view bytes) {
  for (const char byte : bytes) hash_ = fold(hash_, static_cast<unsigned char>(byte));
}

void Trace::add(const TraceEntry& entry) {
  entries_[count_ % kKept] = entry;
  count_++;
  hash_ = fold(fold(hash_, static_cast<uint64_t>(entry.at)), static_cast<uint64_t>(entry.who));
  for (const uint64_t number : entry.numbers) hash_ = fold(hash_, number);
  mix(entry.what);
  mix(entry.detail);
}

std::string Trace::text() const {
  std::string text;
  const uint64_t kept = std::min<uint64_t>(count_, kKept);
  for (uint64_t i = count_ - kept; i < count_; i++) {
    const TraceEntry& entry = entries_[i % kKept];
    const int64_t us = entry.at / 1000;
    text += base::cat("  #", i, "  ", us / 1000, ".", us % 1000 / 100, " ms  ", name(entry.who),
                      "  ", entry.what, " ", entry.detail, "  ", entry.numbers[0], " ",
                      entry.numbers[1], " ", entry.numbers[2], "\n");
  }
  return text;
}

}  // namespace sim
