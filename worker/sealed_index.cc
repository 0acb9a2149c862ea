#include "worker/sealed_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/limits.h"

namespace worker {

namespace {

constexpr size_t kPositions = base::kKvBlockPositions;

}  // namespace

SealedIndex::SealedIndex(std::span<shm::KvBlockEntry> table, const shm::Hash128& root,
                         int32_t near_count)
    : table_(table),
      root_(root),
      heads_(std::bit_ceil(std::max<size_t>(table.size(), 1)), -1),
      next_(table.size(), -1),
      near_owner_(static_cast<size_t>(near_count), -1) {
  for (int32_t block = 0; block < count(); block++) {
    shm::KvBlockEntry& found = table_[static_cast<size_t>(block)];
    if (!shm::is_valid(found, root_)) {
      shm::drop_entry(found);
      continue;
    }
    link(block);
    const int32_t near = found.near;
    if (shm::near_is_valid(found) && near < near_count &&
        near_owner_[static_cast<size_t>(near)] < 0) {
      near_owner_[static_cast<size_t>(near)] = block;
    } else {
      shm::drop_near(found);
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

void SealedIndex::seal(const Place& place, std::span<const int32_t> tokens) {
  const auto [block, previous, near] = place;
  CHECK(previous < 0 || is_sealed(previous), "block ", block, " after ", previous,
        ", which is not sealed");
  const bool first = previous < 0;
  shm::seal_entry(
      table_[static_cast<size_t>(block)],
      {.previous = first ? root_ : entry(previous).chain,
       .first_position = first ? 0 : entry(previous).first_position + base::kKvBlockPositions,
       .near = near},
      tokens);
  link(block);
  if (near < 0) return;
  CHECK(static_cast<size_t>(near) < near_owner_.size(), "near block ", near);
  int32_t& owner = near_owner_[static_cast<size_t>(near)];
  CHECK(owner < 0, "near block ", near, " goes with ", owner, " and with ", block);
  owner = block;
}

std::vector<int32_t> SealedIndex::sealed_near() const {
  std::vector<int32_t> ids;
  for (const int32_t block : sealed())
    if (near_of(block) >= 0) ids.push_back(near_of(block));
  return ids;
}

void SealedIndex::forget_near(int32_t near) {
  int32_t& owner = near_owner_[static_cast<size_t>(near)];
  if (owner >= 0) shm::drop_near(table_[static_cast<size_t>(owner)]);
  owner = -1;
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
  if (entry(block).near >= 0) near_owner_[static_cast<size_t>(entry(block).near)] = -1;
  shm::drop_entry(table_[static_cast<size_t>(block)]);
}

}  // namespace worker
