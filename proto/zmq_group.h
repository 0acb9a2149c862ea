// The meeting of the ranks of one group over ZeroMQ: one connection for each pair, a hello, votes,
// then the exchange.
//
//   rank a < b:  a binds, b connects ─► hello both ways ─► vote both ways, as often as all want
//                                                      ─► start(): slices, records
//
// A hello says rank, shape, numerics and terms; whoever finds another's different from its own
// gives up with a sentence. The group's nonce is made of random bits of all ranks, and every later
// frame carries it. Names of sockets are removed as soon as both have met, so nothing is left
// behind, however the processes end.
// Thread rule: meet(), vote(), start() and the destructor by one thread; the rest as it says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "proto/zmq_exchange.h"

namespace proto {

inline constexpr size_t kHelloTextBytesMax = 256;  // of terms, and of an offer

struct ZmqGroupOptions {
  int rank = 0;
  int ranks = 1;
  std::vector<std::string> endpoints = {};  // [ranks] between this rank and each other
  size_t slice_bytes_max = 0;               // the same for all ranks
  size_t record_bytes_max = 0;              // the same for all ranks
  std::string terms = {};                   // ASCII, for people; the same for all ranks
  std::string offer = {};                   // any bytes, for the others to look at
  ZmqWaitOptions wait = {};
  std::vector<int> cpus = {};  // of this rank's threads; ZeroMQ's own runs there too
  uint64_t first_sequence = 0;
  base::TimeNs meet_timeout_ns = 30'000'000'000;
  std::function<base::Status()> keep_on = {};  // asked while it waits; an error ends the meeting
};

class ZmqGroup {
 public:
  /// Meets the others. Errors: kTimeout naming the rank that did not come; kPeerLost if one came
  /// and ended; kUnsupported naming what differs.
  static base::Result<std::unique_ptr<ZmqGroup>> meet(const ZmqGroupOptions& options);
  ~ZmqGroup();

  /// What the ranks offered in their hellos; own included.
  const std::string& offer(int rank) const { return offers_[static_cast<size_t>(rank)]; }

  /// All-gather of 64 bits; [ranks]. REQUIRES: before start(), by all ranks. Errors: as meet().
  base::Result<std::vector<uint64_t>> vote(uint64_t own);

  /// Makes the buffers, which lie on the node of the calling thread, and the two faces.
  base::Status start(int threads);
  // REQUIRES: start() succeeded.
  ZmqExchange& exchange() { return *exchange_; }
  ZmqStepFeed& feed() { return *feed_; }

 private:
  explicit ZmqGroup(const ZmqGroupOptions& options);
  base::Status open();
  base::Status greet();
  struct Hello;
  struct HelloFrame;
  base::Status take_hello(int rank, std::span<const std::byte> message, const Hello& own);
  /// Sends `frame` to all peers and hands the next message of each to `take`.
  template <class Take>
  base::Status trade(std::span<const std::byte> frame, Take take);
  void doze() const;
  base::Error lost(int rank) const;
  base::Error late(int rank) const;
  ZmqMeshOptions mesh_options() const;

  const ZmqGroupOptions options_;
  FrameNonce nonce_;
  std::vector<std::string> offers_;      // [ranks]
  std::unique_ptr<ZmqContext> context_;  // outlives the sockets
  ZmqMesh::Sockets sockets_;             // until start()
  std::unique_ptr<ZmqMesh> mesh_;
  std::unique_ptr<ZmqExchange> exchange_;
  std::unique_ptr<ZmqStepFeed> feed_;
};

}  // namespace proto
