// The meeting of the ranks of one group on one host: who is there, what they share, and its end.
//
//   DIR/group-<id>/          locked (shared) by every member while it lives
//     control                rank 0: shape, nonce, abort word, step board
//     x.<rank>               exchange region of that rank, on its node
//     life.<rank>            its lifeline
//
// Every rank calls join() with the same id; it returns when all ranks have mapped everything and
// proved by a nonce that it is the same memory. By then rank 0 has removed all names: from here on
// the memory goes with the last process, however it ends. What a rank that died earlier left is
// removed by the next remove_dead_groups().
// Thread rule: join() and the destructor by one thread; exchange() and board() as they say.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "shm/lifeline.h"
#include "shm/region.h"
#include "shm/shm_exchange.h"
#include "shm/step_board.h"

namespace shm {

struct GroupOptions {
  std::string directory;  // an arena directory of this user
  std::string id;         // the same for all ranks, never used twice: [A-Za-z0-9-]+
  int rank = 0;
  int node = -1;                // of this rank's region, or -1
  ShmExchangeShape shape;       // ranks and slice_bytes_max the same for all
  size_t record_bytes_max = 0;  // of the step board, the same for all
  WaitOptions wait = {};
  base::TimeNs join_timeout_ns = 30'000'000'000;
};

class Group {
 public:
  /// Meets the others. Errors: kTimeout naming the rank that did not come; kPeerLost if one came
  /// and died; kUnsupported if one has another shape or other memory; kNoSpace.
  static base::Result<std::unique_ptr<Group>> join(const GroupOptions& options);
  ~Group();

  /// Memory that this rank writes for the others: its slices.
  std::span<const std::byte> own_memory() const {
    const Region& own = regions_[static_cast<size_t>(options_.rank)];
    return {own.data(), own.bytes()};
  }
  ShmExchange& exchange() { return *exchange_; }
  StepBoard& board() { return *board_; }
  const GroupSignals& signals() const { return signals_; }

  /// Ends all waits of all ranks with kAborted. Any thread.
  void abort();

 private:
  explicit Group(const GroupOptions& options);
  struct Control;
  Control& control() const;

  base::Result<void> enter();
  base::Result<void> create_control();
  base::Result<void> open_control(base::TimeNs deadline);
  base::Result<void> create_own();
  base::Result<void> meet(int rank, base::TimeNs deadline);
  base::Result<void> await_file(const std::string& path, int rank, base::TimeNs deadline);
  void assemble();
  base::Result<void> await_all_joined(base::TimeNs deadline);
  base::Error lost(int rank) const;
  std::string file(const char* name, int rank) const;

  const GroupOptions options_;
  const std::string path_;
  File lock_;                  // of the directory, shared
  std::vector<char> watched_;  // [ranks] whether peers_ has the rank
  PeerWatch peers_;
  std::optional<Lifeline> lifeline_;
  std::optional<Region> control_region_;
  std::optional<Region> own_;               // until it moves into regions_
  std::vector<Region> regions_;             // [ranks]
  GroupSignals signals_{nullptr, nullptr};  // set once control is mapped
  std::unique_ptr<ShmExchange> exchange_;
  std::unique_ptr<StepBoard> board_;
};

/// Removes what dead groups left in an arena directory; groups with a living member stay. Returns
/// how many were removed.
int remove_dead_groups(const std::string& directory);

}  // namespace shm
