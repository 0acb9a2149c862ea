#include "engine/attend_items.h"

#include <algorithm>

namespace engine {

namespace {

// So many items a thread, and whoever is done takes what others have not begun.
constexpr int64_t kItemsPerThread = 4;

}  // namespace

AttendItems::Item AttendItems::at(int64_t index) const {
  Item item;
  item.part = index % parts;
  item.whole = index / parts;
  const int64_t tile = item.whole % column_tiles(), rest = item.whole / column_tiles();
  const int64_t head_tile = rest % head_tiles();
  item.kv_head = rest / head_tiles();
  item.columns = {tile * columns_together, std::min((tile + 1) * columns_together, columns)};
  item.heads = {head_tile * heads_together, std::min((head_tile + 1) * heads_together, group)};
  return item;
}

AttendItems share_attention(const AttendWork& work) {
  const int64_t wanted = work.threads == 1 ? 1 : kItemsPerThread * work.threads;
  AttendItems items{.columns = work.columns,
                    .kv_heads = work.kv_heads,
                    .group = work.group,
                    .columns_together = 1,
                    .heads_together = std::min<int64_t>(work.group, kQueriesTogether),
                    .parts = 1};
  if (work.kv_heads == 0) return items;
  if (work.has_neighbours) {
    items.columns_together =
        std::clamp<int64_t>(kQueriesTogether / items.heads_together, 1, work.columns);
  }
  while (items.wholes() < wanted && items.columns_together > 1) items.columns_together /= 2;
  const int64_t room = work.columns * work.kv_heads * work.group * work.segments;
  if (items.wholes() < wanted && room <= work.slots) {
    items.parts = std::min((wanted - 1) / items.wholes() + 1, work.segments);
  }
  while (items.count() < wanted && items.heads_together > 1 && !work.whole_groups) {
    items.heads_together = (items.heads_together + 1) / 2;
  }
  return items;
}

}  // namespace engine
