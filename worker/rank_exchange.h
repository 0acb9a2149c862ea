// How the ranks of a group meet and over what they exchange: shared memory if they prove that they
// map the same, else ZeroMQ.
//
//   meet()  hello over ZeroMQ ─► each shows a nonce in memory ─► all look ─► all vote
//           ─► all tell the stamps of the KV pools they found
//   open()  every rank has the same votes, so all take shared memory or none does
//
// Pools belong together only if they were made at one meeting: all ranks keep theirs, or none does.
// A single rank meets nobody. `shm` demands shared memory, `zmq` uses ZeroMQ without looking, all
// ranks must have been told the same. Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/exchange.h"
#include "base/result.h"
#include "base/step_feed.h"
#include "proto/zmq_group.h"
#include "shm/group.h"
#include "shm/memory_probe.h"

namespace worker {

struct RankExchangeOptions {
  int rank = 0, ranks = 1;
  std::vector<int> cpus = {-1};  // one for each thread; -1: pinned nowhere
  int os_node = -1;              // of this rank's regions
  std::string choice = "auto";   // auto, shm or zmq
  std::string group_id;          // the same for all ranks, never used twice
  std::string arena_directory;   // of this user, exists
  std::string broker_endpoint;   // the ranks' sockets lie beside the broker's
  size_t slice_bytes_max = 0;    // the same for all ranks, as the next
  size_t record_bytes_max = 0;
  bool oversubscribed = false;  // threads share CPUs: sleep soon instead of spinning
  uint64_t kv_stamp = 0;        // of the KV pool that this rank found; 0: none
  base::TimeNs timeout_ns = 60'000'000'000;
  std::function<base::Status()> keep_on = {};  // asked while ranks meet; an error ends it
};

/// Where ranks `low` < `high` of a group meet. The one place that chooses endpoints: inside a host
/// they are ipc sockets in the directory of the broker's. Errors: kInvalidArgument.
base::Result<std::string> peer_endpoint(const RankExchangeOptions& options, int low, int high);

/// The ranks that do not see each other's memory, for people: "ranks 0 and 1"; empty if all do.
/// `votes[r]` has a bit for each rank whose memory rank r sees.
std::string strangers(const std::vector<uint64_t>& votes);

class RankExchange {
 public:
  /// Meets the others and decides; nothing large is allocated yet. Errors: kTimeout, kPeerLost,
  /// kUnsupported with a sentence.
  static base::Result<std::unique_ptr<RankExchange>> meet(const RankExchangeOptions& options);
  ~RankExchange();

  /// The stamp of the group's KV pools from now on, never 0; of those that were found if all keep
  /// theirs, else a new one, never used before.
  uint64_t kv_stamp() const { return kv_stamp_; }
  bool keeps_kv() const { return keeps_kv_; }

  /// Makes what is shared or sent, on the node of the calling thread. Errors: as meet(), kNoSpace.
  base::Status open();

  // REQUIRES: open() succeeded.
  base::Exchange& exchange();
  base::StepFeed& feed();

  /// Shared memory that this rank writes for the others; empty if there is none.
  std::span<const std::byte> own_memory() const;
  /// "shm" or "zmq"; empty for a single rank.
  const std::string& kind() const { return kind_; }
  /// A warning for people, if ranks that could share memory do not; may be empty.
  const std::string& note() const { return note_; }

 private:
  explicit RankExchange(const RankExchangeOptions& options) : options_(options) {}
  base::Status meet_over_zmq();
  base::Status decide();
  base::Status agree_on_kv();

  const RankExchangeOptions options_;
  std::string kind_, note_;
  uint64_t kv_stamp_ = 0;
  bool keeps_kv_ = false;
  std::string directory_;  // where all ranks see shared memory
  std::unique_ptr<proto::ZmqGroup> zmq_;
  std::optional<shm::MemoryProbe> probe_;  // until everybody has looked
  std::unique_ptr<shm::Group> shm_;
};

}  // namespace worker
