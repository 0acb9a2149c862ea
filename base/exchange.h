// The all-gather between the ranks of a group: publish my slice, await the others', bounded.
//
// The one thing that crosses processes inside a step. `shm` implements it for ranks that map the
// same memory, `proto` with ZeroMQ for all others; the interface knows neither.
//
//   thread t of rank r, gather number n:
//     write my part into outgoing(n)  ->  arrive_and_wait(n)  ->  read incoming(n, 0 … ranks - 1)
//
// Slices are double-buffered: outgoing(n) may be written as soon as arrive_and_wait(n - 1)
// returned, and incoming(n, …) stays valid until the thread calls arrive_and_wait(n + 1).
#pragma once

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
  /// Slice of `rank` in gather `sequence`. REQUIRES: arrive_and_wait(sequence) returned kOk.
  virtual const std::byte* incoming(uint64_t sequence, int rank) const = 0;

  /// Called once a gather by every compute thread of the rank, with the same arguments. The last
  /// one to arrive publishes the first `bytes` bytes of outgoing(sequence). Returns when the slices
  /// of all ranks are there. Release on arrival, acquire on return. Allocates nothing.
  virtual Wait arrive_and_wait(uint64_t sequence, size_t bytes) = 0;

  /// Makes every present and future wait of the whole group return kAborted. Any thread, any rank.
  virtual void abort() = 0;

  /// What a peer did wrong, if kBroken was returned; for people. Any thread.
  virtual std::string fault() const { return {}; }
};

}  // namespace base
