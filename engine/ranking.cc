#include "engine/ranking.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace engine {

namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
// So many are sorted at first, then each time a few times more.
constexpr size_t kFirstSorted = 64;
constexpr size_t kGrowth = 4;

// Of 64, side by side in 16 lanes: the compiler keeps the order of comparisons of floats, so in one
// lane it would have to take one after the other.
float largest_of_block(const float* x) {
  constexpr size_t kLanes = 16, kCount = 64;
  float top[kLanes];
  std::copy_n(x, kLanes, top);
  for (size_t i = kLanes; i < kCount; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; lane++) {
      top[lane] = x[i + lane] > top[lane] ? x[i + lane] : top[lane];
    }
  }
  for (size_t n = kLanes / 2; n > 0; n /= 2) {
    for (size_t lane = 0; lane < n; lane++) top[lane] = std::max(top[lane], top[lane + n]);
  }
  return top[0];
}

}  // namespace

Ranking::Ranking(int64_t size)
    : size_(static_cast<size_t>(size)),
      scores_(round_up(size_, kBlock)),
      block_best_(scores_.size() / kBlock),
      thresholds_(block_best_.size()),
      picked_(size_ + 1) {
  CHECK(size >= 1 && size <= std::numeric_limits<int32_t>::max(), "size ", size);
  std::fill_n(scores_.data(), scores_.size(), kOut);
}

void Ranking::begin(int64_t count) {
  count_ = static_cast<size_t>(count);
  sorted_ = 0;
  const float* scores = scores_.data();
  for (size_t b = 0; b < block_best_.size(); b++) {
    block_best_[b] = largest_of_block(scores + b * kBlock);
  }
  const float* best = std::max_element(block_best_.data(), block_best_.data() + block_best_.size());
  const float* block = scores + static_cast<size_t>(best - block_best_.data()) * kBlock;
  best_ = {*best, static_cast<int32_t>(std::find(block, block + kBlock, *best) - scores)};
  CHECK(best_.score >= kLowest, "nothing to rank");
}

// A score that `wanted` of them reach at least.
float Ranking::reached_by(size_t wanted) {
  const size_t blocks = block_best_.size();
  if (wanted > blocks) return kLowest;
  std::copy_n(block_best_.data(), blocks, thresholds_.data());
  float* nth = thresholds_.data() + wanted - 1;
  std::nth_element(thresholds_.data(), nth, thresholds_.data() + blocks, std::greater<>());
  return std::max(*nth, kLowest);
}

void Ranking::sort_beyond(size_t place) {
  CHECK(place < count_, "place ", place, " of ", count_);
  const size_t wanted = std::min(count_, std::max({place + 1, kFirstSorted, sorted_ * kGrowth}));
  const float least = reached_by(wanted);
  size_t picked = 0;
  for (size_t b = 0; b < block_best_.size(); b++) {
    if (block_best_[b] < least) continue;
    for (size_t i = b * kBlock; i < (b + 1) * kBlock; i++) {
      // Written in any case and kept if it counts: which one does cannot be foretold.
      picked_[picked] = {scores_[i], static_cast<int32_t>(i)};
      picked += scores_[i] >= least ? 1 : 0;
    }
  }
  CHECK(picked >= wanted, picked, " scores of ", wanted);
  const auto begin = picked_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(wanted);
  std::nth_element(begin, end, begin + static_cast<std::ptrdiff_t>(picked), better);
  std::sort(begin, end, better);
  sorted_ = wanted;
}

}  // namespace engine
