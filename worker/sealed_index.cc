#include "worker/sealed_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/limits.h"

namespace worker {

namespace {

constexpr size_t kPositions = base::kKvBlockPositions;

}  // namespace

SealedIndex::SealedIndex(std::span<shm::KvBlockEntry> table, const shm::Hash128& root)
    : table_(table),
      root_(root),
      heads_(std::bit_ceil(std::max<size_t>(table.size(), 1)), -1),
      next_(table.size(), -1) {
  for (int32_t block = 0; block < count(); block++) {
    shm::KvBlockEntry& found = table_[static_cast<size_t>(block)];
    if (shm::is_valid(found, root_)) {
      link(block);
    } else {
      shm::drop_entry(found);
    }
  }
}

void SealedIndex::link(int32_t block) {
  int32_t& head = heads_[bucket(entry(block).chain)];
  next_[static_cast<size_t>(block)] = head;
  head = block;
  sealed_count_++;
}

// Nobody knows which were used last, but a block is of no use without those before it.
std::vector<int32_t> SealedIndex::sealed() const {
  std::vector<int32_t> blocks;
  for (int32_t block = 0; block < count(); block++)
    if (is_sealed(block)) blocks.push_back(block);
  std::stable_sort(blocks.begin(), blocks.end(), [&](int32_t a, int32_t b) {
    return entry(a).first_position > entry(b).first_position;
  });
  return blocks;
}

std::vector<int32_t> SealedIndex::find(std::span<const int32_t> tokens,
                                       const std::function<bool(int32_t)>& usable) {
  std::vector<int32_t> found;
  shm::Hash128 previous = root_;
  for (size_t first = 0; first + kPositions <= tokens.size(); first += kPositions) {
    const auto own = tokens.subspan(first, kPositions);
    const shm::Hash128 chain = shm::kv_chain(previous, own);
    const auto holds = [&](const shm::KvBlockEntry& entry) {
      return entry.chain == chain && entry.previous == previous &&
             entry.first_position == static_cast<int64_t>(first) &&
             std::equal(own.begin(), own.end(), entry.tokens);
    };
    int32_t block = heads_[bucket(chain)];
    while (block >= 0 && !(holds(entry(block)) && usable(block)))
      block = next_[static_cast<size_t>(block)];
    if (block < 0) break;
    found.push_back(block);
    previous = chain;
  }
  return found;
}

void SealedIndex::seal(int32_t block, int32_t previous, std::span<const int32_t> tokens) {
  CHECK(previous < 0 || is_sealed(previous), "block ", block, " after ", previous,
        ", which is not sealed");
  const bool first = previous < 0;
  shm::seal_entry(table_[static_cast<size_t>(block)], first ? root_ : entry(previous).chain,
                  first ? 0 : entry(previous).first_position + base::kKvBlockPositions, tokens);
  link(block);
}

void SealedIndex::forget(int32_t block) {
  if (!is_sealed(block)) return;
  int32_t* place = &heads_[bucket(entry(block).chain)];
  while (*place != block) {
    CHECK(*place >= 0, "block ", block, " is sealed and not in the index");
    place = &next_[static_cast<size_t>(*place)];
  }
  *place = next_[static_cast<size_t>(block)];
  sealed_count_--;
  shm::drop_entry(table_[static_cast<size_t>(block)]);
}

}  // namespace worker
