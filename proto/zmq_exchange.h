// The all-gather (base/exchange.h) and the step feed (base/step_feed.h) over ZeroMQ.
//
// Threads of a rank arrive on a counter; the last one sends the rank's slice to all other members
// and receives theirs (proto/zmq_mesh.h), the others spin for a while, then sleep on the mesh's
// turn. Sockets pass from thread to thread that way, with the counter and the mesh's mutex as
// fences. A gather costs tens of microseconds, some twenty times what shared memory costs; the
// slices are the same, so the tokens are. The others learn of an abort by a message: a gather whose
// slices came before it still succeeds.
// Thread rule: arrive_and_wait() by exactly `threads` threads; everything else by any. Allocates
// nothing itself; libzmq allocates a message for each one sent and received.
#pragma once

#include <atomic>

#include "base/step_feed.h"
#include "proto/zmq_mesh.h"

namespace proto {

class ZmqExchange final : public base::Exchange {
 public:
  /// `mesh` must outlive the exchange; `threads` are those of this rank.
  ZmqExchange(ZmqMesh& mesh, int threads);

  int rank() const override { return mesh_.options().rank; }
  int rank_count() const override { return mesh_.options().ranks; }
  size_t slice_bytes_max() const override { return mesh_.options().slice_bytes_max; }
  std::byte* outgoing(uint64_t sequence) override { return mesh_.outgoing(sequence); }
  const std::byte* incoming(uint64_t sequence, int rank) const override {
    return mesh_.incoming(sequence, rank);
  }
  void set_threads(int threads) override { threads_ = threads; }
  using base::Exchange::arrive_and_wait;
  base::Wait arrive_and_wait(const base::Gather& gather) override;
  void abort() override { mesh_.abort(); }
  std::string fault() const override { return mesh_.fault(); }

 private:
  base::Wait await_turn(uint64_t sequence);

  ZmqMesh& mesh_;
  int threads_;  // written between gathers
  // Shared by the threads of this rank: seq_cst, since ZeroMQ asks for full fences.
  alignas(128) std::atomic<int> arrived_{0};
};

class ZmqStepFeed final : public base::StepFeed {
 public:
  /// `mesh` must outlive the feed.
  explicit ZmqStepFeed(ZmqMesh& mesh) : mesh_(mesh) {}

  size_t record_bytes_max() const override { return mesh_.options().record_bytes_max; }
  base::Wait publish(uint64_t sequence, std::span<const std::byte> record) override {
    return mesh_.publish(sequence, record);
  }
  base::Wait read(uint64_t sequence, base::TimeNs slice_ns,
                  std::vector<std::byte>& record) override {
    return mesh_.read(sequence, slice_ns, record);
  }
  void abort() override { mesh_.abort(); }

 private:
  ZmqMesh& mesh_;
};

}  // namespace proto
