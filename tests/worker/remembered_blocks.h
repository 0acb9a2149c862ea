// An index of sealed blocks that remembers whole token sequences: slow, plain, and strict about
// what it is told.
//
// It outlives leaders, as the real one outlives processes. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "worker/sealed_blocks.h"

namespace worker {

class RememberedBlocks final : public SealedBlocks {
 public:
  std::vector<int32_t> sealed() const override {
    std::vector<int32_t> ids;
    for (const auto& [id, tokens] : blocks_) ids.push_back(id);
    // Those deep in a sequence are worth least.
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return blocks_.at(a).size() > blocks_.at(b).size();
    });
    return ids;
  }

  std::vector<int32_t> find(std::span<const int32_t> tokens,
                            const std::function<bool(int32_t)>& usable) override {
    CHECK(tokens.size() % base::kKvBlockPositions == 0, "no whole blocks");
    std::vector<int32_t> ids;
    for (size_t end = base::kKvBlockPositions; end <= tokens.size();
         end += base::kKvBlockPositions) {
      const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& entry) {
        return usable(entry.first) && std::equal(entry.second.begin(), entry.second.end(),
                                                 tokens.begin(), tokens.begin() + long(end));
      });
      if (found == blocks_.end()) break;
      ids.push_back(found->first);
    }
    if (confused) confused(ids);
    found_ += static_cast<int64_t>(ids.size());
    return ids;
  }

  void seal(const Place& place, std::span<const int32_t> tokens) override {
    const auto [block, previous, near] = place;
    CHECK(tokens.size() == size_t{base::kKvBlockPositions}, "a block of ", tokens.size());
    CHECK(!blocks_.contains(block), "block ", block, " is sealed already");
    CHECK(previous < 0 || blocks_.contains(previous), "block ", previous, " is not sealed");
    std::vector<int32_t> all = previous < 0 ? std::vector<int32_t>() : blocks_[previous];
    all.insert(all.end(), tokens.begin(), tokens.end());
    blocks_[block] = std::move(all);
    if (near < 0) return;
    const auto same = [&](const auto& entry) { return entry.second == near; };
    CHECK(std::none_of(near_.begin(), near_.end(), same), "near block ", near, " is in use");
    near_[block] = near;
  }

  void forget(int32_t block) override {
    blocks_.erase(block);
    near_.erase(block);
  }

  int32_t near_of(int32_t block) const override {
    const auto found = near_.find(block);
    return found == near_.end() ? -1 : found->second;
  }
  std::vector<int32_t> sealed_near() const override {
    std::vector<int32_t> ids;
    for (const auto& [block, near] : near_) ids.push_back(near);
    return ids;
  }
  void forget_near(int32_t near) override {
    std::erase_if(near_, [&](const auto& entry) { return entry.second == near; });
  }

  /// A bug: what find() answers instead.
  std::function<void(std::vector<int32_t>&)> confused;
  /// That find() gave so far.
  int64_t found() const { return found_; }
  void clear() {
    blocks_.clear();
    near_.clear();
  }

 private:
  std::map<int32_t, std::vector<int32_t>> blocks_;  // all tokens up to its last position
  std::map<int32_t, int32_t> near_;                 // by block
  int64_t found_ = 0;
};

}  // namespace worker
