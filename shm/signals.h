// The two ways a wait of a group ends early: somebody aborts it, or a peer's lifeline is gone.
//
// Both are one word in shared memory that is written once: the first reason stands, and every
// present and future wait of every rank ends with it. The word is the fast path; lifelines are
// system calls, so only waits that last long enough to sleep look at them.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/exchange.h"
#include "shm/lifeline.h"

namespace shm {

/// Why a group ended; lies in shared memory, zero at first, on its own cache lines because every
/// wait of every thread reads it.
struct alignas(128) AbortWord {
  std::atomic<uint32_t> value;  // stored and loaded seq_cst/acquire: GroupSignals on both sides
};

class GroupSignals {
 public:
  /// Both must outlive this object. `peers` may be nullptr: then nobody is watched.
  GroupSignals(AbortWord* word, const PeerWatch* peers) : word_(word), peers_(peers) {}

  /// kOk while the group goes on, else how it ended. Any thread; one load.
  base::Wait state() const;
  /// The same after looking at the lifelines; a lost peer is raised for the whole group.
  base::Wait examine() const;
  /// Raises kAborted for the whole group, unless it has ended already.
  void abort() const { raise(kAborted); }
  /// The rank whose loss ended the group, or -1.
  int lost_rank() const;

 private:
  static constexpr uint32_t kAborted = 1;
  static constexpr uint32_t kLost = 0x100;  // + rank
  void raise(uint32_t reason) const;

  AbortWord* word_;
  const PeerWatch* peers_;
};

}  // namespace shm
