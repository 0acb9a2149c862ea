// The connections of one rank to all others, and what has come through them: slices of gathers and
// step records. The exchange and the step feed over ZeroMQ are two faces of one mesh.
//
//   socket to rank r ──► receive ──► check_frame ──► next slice ─► slots of r   │ shown │ next │
//                                               ├──► record k   ─► records     │ even  │ odd  │
//                                               └──► abort, or anything wrong: the group ends
//
// Two ranks send each other a slice in every gather that has both as members, and nothing in
// others, so their numbers may jump, but a slice that is awaited has the number of the gather, and
// one that comes before its gather is the only one. Whatever is there is received whenever somebody
// waits, so an abort is never hidden behind data: a peer can be at most one slice and two records
// ahead. A wait sleeps in poll(2) on all sockets,
// their monitors and a descriptor that abort() makes readable. Buffers are made at the start; per
// message libzmq allocates one (its own, freed by its own thread), nothing else is allocated.
// Thread rule: any thread, under the mutex inside; gathers one after the other.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/exchange.h"
#include "proto/exchange_frame.h"
#include "proto/zmq_pair.h"

namespace proto {

struct ZmqWaitOptions {
  /// Of a thread that waits for the one of its rank that receives. That one sleeps at once: looking
  /// at a socket is a system call, and ZeroMQ's own thread needs a CPU.
  int spin_pauses = 4000;
  base::TimeNs timeout_ns = 120'000'000'000;  // backstop of one wait
};

struct ZmqMeshOptions {
  int rank = 0, ranks = 1;
  size_t slice_bytes_max = 0, record_bytes_max = 0;
  FrameNonce nonce;
  uint64_t first_sequence = 0;  // of gathers and records
  ZmqWaitOptions wait;
};

/// Bytes of the largest frame of such a mesh.
size_t frame_bytes_max(const ZmqMeshOptions& options);

class ZmqMesh {
 public:
  using Sockets = std::vector<std::unique_ptr<PairSocket>>;  // [ranks], of others; own: nullptr
  /// REQUIRES: every peer is connected. Errors: kSystem.
  static base::Result<std::unique_ptr<ZmqMesh>> create(const ZmqMeshOptions& options,
                                                       Sockets sockets);
  ~ZmqMesh();

  const ZmqMeshOptions& options() const { return options_; }
  /// kOk while the group goes on, else how it ended. One load.
  base::Wait state() const;
  std::string fault() const;
  /// Ends the group for all ranks.
  void abort();

  std::byte* outgoing(uint64_t sequence) { return own_[sequence & 1].data()->bytes + kHeader; }
  const std::byte* incoming(uint64_t sequence, int rank) const;

  /// Sends own slice and returns when those of all members are there. REQUIRES: the next gather of
  /// this rank, and nobody reads slices of the one before any more.
  base::Wait gather(const base::Gather& gather);
  // As in base/step_feed.h.
  base::Wait publish(uint64_t sequence, std::span<const std::byte> record);
  base::Wait read(uint64_t sequence, base::TimeNs slice_ns, std::vector<std::byte>& record);

  /// Twice the number after the last finished gather, and odd when the group ends: threads of this
  /// rank wait on it for the one that gathers. Release; acquire to see the slices.
  std::atomic<uint32_t>& turn() { return turn_; }

 private:
  static constexpr size_t kHeader = sizeof(FrameHeader);
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Lines = std::vector<Line>;
  struct Peer {
    int rank = 0;
    std::unique_ptr<PairSocket> socket;
    uint64_t next_slice = 0;  // after the last one that it has sent
    bool awaited = false;     // by the gather in progress
    bool is_ahead = false;    // its last slice is of a gather that we have not begun
    size_t shown = 0;         // the slot of its slice of the last gather it shared with us
    uint64_t next_read = 0;   // record that it has not read; kept by the leader
    bool down = false;
    Lines slots[2];  // what comes goes into the one that is not shown
  };

  ZmqMesh(const ZmqMeshOptions& options, Sockets sockets, int abort_descriptor);

  /// Receives until `needs(peer)` holds for no peer (kOk), the group ends, a peer that is needed is
  /// gone, or time is over (kTimeout, which does not end the group).
  template <class Needs>
  base::Wait wait_while(Needs needs, base::TimeNs timeout_ns);
  base::Wait receive_all();
  base::Wait take(Peer& peer, std::span<const std::byte> message);
  base::Wait take_slice(Peer& peer, const Frame& frame);
  base::Wait begin(const base::Gather& gather);
  base::Wait take_record(Peer& peer, const Frame& frame);
  void sleep(base::TimeNs ns);
  struct Outgoing {
    base::RankSet members;  // the peers among them get it
    std::span<std::byte> frame;
  };
  base::Wait send_frame(FrameKind kind, uint64_t sequence, const Outgoing& outgoing);
  base::RankSet everybody() const { return base::RankSet::range(0, options_.ranks); }
  base::Wait end(uint32_t reason);
  base::Wait end_broken(std::string what);
  void tell_abort();

  // Constant after construction.
  const ZmqMeshOptions options_;
  const int abort_descriptor_;  // an eventfd, readable once the group has ended here

  // Under the mutex.
  mutable std::mutex mutex_;
  std::vector<Peer> peers_;            // of the other ranks, ascending
  std::vector<PairSocket*> targets_;   // of the frame that is sent; has room for all
  std::vector<pollfd> polled_;         // abort, then a socket and a monitor of each peer
  Lines own_[2];                       // [header, slice] as it is sent
  Lines record_frame_;                 // [header, record]; of the leader
  std::vector<std::byte> records_[2];  // received and not read
  uint64_t open_ = 0;                  // the gather that is next or in progress
  uint64_t next_publish_ = 0, next_record_ = 0, next_own_read_ = 0;
  std::string fault_;
  bool abort_told_ = false;

  // Shared, atomic.
  std::atomic<uint32_t> state_{0};  // 0, or why the group ended; seq_cst, written once
  alignas(128) std::atomic<uint32_t> turn_;
};

}  // namespace proto
