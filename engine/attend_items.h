// How attention of one layer is dealt out to the threads of a rank.
//
//   (KV head, own heads of its group, neighbouring columns, part of the positions) = one item
//
// Queries that have the same keys are kept together, since they share the loads of them: own heads
// of a group, and neighbouring columns of a prompt. Where that leaves too few items for the
// threads, columns are separated first, then long contexts are cut into parts (whole segments,
// which are merged by whoever comes last), then heads. Bits do not depend on it: a query meets its
// segments one by one and they are merged in ascending order (kernels/attend.h).
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace engine {

/// Queries of an item at most: what they have got stays in L2 beside the keys.
inline constexpr int kQueriesTogether = 32;

/// How many wholes() have parts at most.
constexpr int64_t divided_max(int threads) {
  return 8 * int64_t{threads};
}

/// What there is to do in a layer.
struct AttendWork {
  int64_t columns = 1;
  plan::Range heads = {};     // own, of the model's; may be empty, as may their KV heads
  plan::Range kv_heads = {};  // own, of the model's
  int64_t group = 1;          // heads of a KV head, in the model
  int64_t segments = 1;       // that a column reaches, at most
  int threads = 1;
  bool has_neighbours = true;  // columns of one sequence lie beside each other
  bool whole_groups = false;   // a group's heads are not separated
  int64_t slots = 0;           // room for what (column, own head, segment) gave
};

struct AttendItems {
  AttendWork work;
  int64_t heads_max;  // own, of one KV head
  int64_t columns_together, heads_together, parts;

  struct Item {
    int64_t kv_head;      // counted from the rank's first one
    plan::Range heads;    // counted from the rank's first one; may be empty
    plan::Range columns;  // one, if there are parts
    int64_t part;         // of `parts`
    int64_t whole;        // the same of all parts, below wholes()
  };
  int64_t column_tiles() const { return (work.columns - 1) / columns_together + 1; }
  int64_t head_tiles() const { return (heads_max - 1) / heads_together + 1; }
  int64_t wholes() const { return work.kv_heads.size() * head_tiles() * column_tiles(); }
  int64_t count() const { return wholes() * parts; }
  /// Neighbours in this order have the same keys: a thread's share of them stays in its caches.
  Item at(int64_t index) const;
  /// Own heads of an own KV head's group, counted from the rank's first ones.
  plan::Range heads_of(int64_t kv_head) const;
};

AttendItems share_attention(const AttendWork& work);

}  // namespace engine
