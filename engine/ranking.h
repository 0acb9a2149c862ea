// The best of many scores in order, without sorting the rest.
//
//   scores:  | 64 | 64 | 64 | 64 | …      the largest of each block, all blocks in one pass
//   asked for the best n: the n-th of those is reached by n scores at least, and by few more, so
//   only what reaches it is picked out and sorted; the next time somebody asks for more, of more
//
// The order: greater score first, then lower id. Everything is allocated once.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/buffer.h"

namespace engine {

/// A finite score, and whose it is.
struct Ranked {
  float score;
  int32_t id;
};

class Ranking {
 public:
  /// In place of a score: it is in no ranking.
  static constexpr float kOut = -std::numeric_limits<float>::infinity();

  /// Of ids [0, size). REQUIRES: size >= 1.
  explicit Ranking(int64_t size);

  /// [size] to be written, finite or kOut; then begin() is called.
  std::span<float> scores() { return {scores_.data(), size_}; }
  std::span<const float> scores() const { return {scores_.data(), size_}; }
  /// Of the scores as they are now; `count` of them are in it, at least one.
  void begin(int64_t count);

  int64_t count() const { return static_cast<int64_t>(count_); }
  Ranked best() const { return best_; }
  /// The one at `place` < count(), 0 = best. Sorts only as far as anybody asks.
  const Ranked& at(int64_t place) {
    if (static_cast<size_t>(place) >= sorted_) sort_beyond(static_cast<size_t>(place));
    return picked_[static_cast<size_t>(place)];
  }

 private:
  static constexpr size_t kBlock = 64;

  static bool better(const Ranked& a, const Ranked& b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
  }
  void sort_beyond(size_t place);
  float reached_by(size_t wanted);

  const size_t size_;
  Buffer<float> scores_;        // [blocks * kBlock], kOut behind the last
  Buffer<float> block_best_;    // [blocks]
  Buffer<float> thresholds_;    // [blocks] the same in any order
  std::vector<Ranked> picked_;  // [size + 1] the first sorted_ are the best in order
  size_t count_ = 0;
  size_t sorted_ = 0;
  Ranked best_{};
};

}  // namespace engine
