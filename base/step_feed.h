// How the leader of a group tells its followers what to do next: byte records, one after the other.
//
//   leader:    publish(n, record)          follower:  read(n, slice) -> record, again and again
//
// Records mean nothing here. Two of them are kept for a slow follower: publish(n) waits until every
// follower has read n - 2. `shm` shows them in shared memory, `proto` sends them with ZeroMQ.
// Thread rule: publish() by one thread of the leader, read() by one thread of each follower;
// abort() by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/exchange.h"

namespace base {

class StepFeed {
 public:
  virtual ~StepFeed() = default;

  virtual size_t record_bytes_max() const = 0;

  /// Leader: shows record `sequence`, the next after the last. Waits for slow followers, bounded.
  /// REQUIRES: rank 0, record.size() <= record_bytes_max().
  virtual Wait publish(uint64_t sequence, std::span<const std::byte> record) = 0;

  /// Follower: copies record `sequence`, the next after the last, into `record`. kTimeout when none
  /// came within `slice_ns`: look at other things and call again. Allocates nothing if `record` has
  /// the capacity.
  virtual Wait read(uint64_t sequence, TimeNs slice_ns, std::vector<std::byte>& record) = 0;

  /// Makes all waits of the group return kAborted, also those of its exchange.
  virtual void abort() = 0;
};

}  // namespace base
