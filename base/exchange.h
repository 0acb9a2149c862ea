// The all-gather between the ranks of a group: publish my slice, await the others', bounded.
//
// The one thing that crosses processes inside a step. `shm` implements it for ranks that map the
// same memory, `proto` with ZeroMQ for all others; the interface knows neither.
//
//   thread t of rank r, gather number n:
//     write my part into outgoing(n)  ->  arrive_and_wait(n)  ->  read incoming(n, 0 … ranks - 1)
//
// Slices are double-buffered: outgoing(n) may be written as soon as the rank's gather before n
// returned, and incoming(n, …) stays valid until the thread arrives at its next one.
//
// A gather has members; the other ranks leave its number out and go on. Two buffers suffice if
//   (1) a rank that has left numbers out publishes an empty slice next (checked), and
//   (2) whoever reads rank r's slice of a gather is a member of r's next gather.
// Say r takes part in a, then in b. If it has left numbers out in between, it writes nothing before
// arriving at b. Else b = a + 1, and what b overwrites was published in some c < a; r's next gather
// after c was at most a, so by (2) all who read slice c had arrived there, after their last look,
// before arrive_and_wait(a) returned to r. Gathers of all ranks, and those of the same members one
// after the other, satisfy (2) by themselves.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace base {

/// How a bounded wait ended.
enum class Wait {
  kOk,
  kAborted,   // somebody raised the group's abort word
  kPeerLost,  // a peer's lifeline or connection is gone
  kTimeout,   // the backstop
  kBroken,    // a peer sent what no rank of this group sends
};

/// "ok", "aborted", …
const char* wait_name(Wait wait);

/// Ranks as bits: rank r is bit r.
struct RankSet {
  uint64_t bits = 0;

  /// Ranks begin … end - 1, which are at most 64.
  static constexpr RankSet range(int begin, int end) {
    RankSet set;
    for (int rank = begin; rank < end; rank++) set.bits |= uint64_t{1} << rank;
    return set;
  }
  constexpr bool contains(int rank) const { return (bits >> rank & 1) != 0; }
  /// The lowest rank. REQUIRES: not empty.
  constexpr int first() const { return std::countr_zero(bits); }
  bool operator==(const RankSet&) const = default;
};

/// One gather, as every thread of every member says it.
struct Gather {
  uint64_t sequence = 0;
  size_t bytes = 0;  // of this rank's slice
  RankSet members;   // who takes part, the caller's rank among them
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int rank() const = 0;
  virtual int rank_count() const = 0;
  /// Largest slice in bytes.
  virtual size_t slice_bytes_max() const = 0;

  /// This rank's slice of gather `sequence`; 64-byte aligned. The threads of the rank write
  /// disjoint parts of it.
  virtual std::byte* outgoing(uint64_t sequence) = 0;
  /// Slice of `rank` in gather `sequence`. REQUIRES: the gather returned kOk and `rank` is a
  /// member of it.
  virtual const std::byte* incoming(uint64_t sequence, int rank) const = 0;

  /// So many threads of this rank arrive at the next gathers, at most as at the start. REQUIRES:
  /// none of them is in a gather; the next one sees this call's thread's writes.
  virtual void set_threads(int threads) = 0;

  /// Called once a gather by every compute thread of a member, with the same arguments. The last
  /// one to arrive publishes the first `bytes` bytes of outgoing(sequence). Returns when the slices
  /// of all members are there. Release on arrival, acquire on return. Allocates nothing.
  virtual Wait arrive_and_wait(const Gather& gather) = 0;
  /// A gather of all ranks.
  Wait arrive_and_wait(uint64_t sequence, size_t bytes) {
    return arrive_and_wait(
        {.sequence = sequence, .bytes = bytes, .members = RankSet::range(0, rank_count())});
  }

  /// Makes every present and future wait of the whole group return kAborted. Any thread, any rank.
  virtual void abort() = 0;

  /// What a peer did wrong, if kBroken was returned; for people. Any thread.
  virtual std::string fault() const { return {}; }
};

}  // namespace base
