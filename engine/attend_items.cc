#include "engine/attend_items.h"

#include <algorithm>

namespace engine {

namespace {

// So many items a thread, and whoever is done takes what others have not begun.
constexpr int64_t kItemsPerThread = 4;

}  // namespace

plan::Range AttendItems::heads_of(int64_t kv_head) const {
  const int64_t first = (work.kv_heads.begin + kv_head) * work.group - work.heads.begin;
  const int64_t begin = std::clamp<int64_t>(first, 0, work.heads.size());
  return {begin, std::clamp(first + work.group, begin, work.heads.size())};
}

AttendItems::Item AttendItems::at(int64_t index) const {
  Item item;
  item.part = index % parts;
  item.whole = index / parts;
  const int64_t tile = item.whole % column_tiles(), rest = item.whole / column_tiles();
  const int64_t head_tile = rest % head_tiles();
  item.kv_head = rest / head_tiles();
  item.columns = {tile * columns_together, std::min((tile + 1) * columns_together, work.columns)};
  const plan::Range own = heads_of(item.kv_head);
  const int64_t begin = std::min(own.begin + head_tile * heads_together, own.end);
  item.heads = {begin, std::min(begin + heads_together, own.end)};
  return item;
}

AttendItems share_attention(const AttendWork& work) {
  const int64_t wanted = work.threads == 1 ? 1 : kItemsPerThread * work.threads;
  AttendItems items{
      .work = work, .heads_max = 1, .columns_together = 1, .heads_together = 1, .parts = 1};
  for (int64_t kv_head = 0; kv_head < work.kv_heads.size(); kv_head++) {
    items.heads_max = std::max(items.heads_max, items.heads_of(kv_head).size());
  }
  items.heads_together = std::min<int64_t>(items.heads_max, kQueriesTogether);
  if (work.kv_heads.empty()) return items;
  if (work.has_neighbours) {
    items.columns_together =
        std::clamp<int64_t>(kQueriesTogether / items.heads_together, 1, work.columns);
  }
  while (items.wholes() < wanted && items.columns_together > 1) items.columns_together /= 2;
  if (items.wholes() < wanted && work.columns * work.heads.size() * work.segments <= work.slots) {
    items.parts = std::min((wanted - 1) / items.wholes() + 1, work.segments);
  }
  while (items.count() < wanted && items.heads_together > 1 && !work.whole_groups) {
    items.heads_together = (items.heads_together + 1) / 2;
  }
  return items;
}

}  // namespace engine
