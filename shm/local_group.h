// A group whose ranks are threads of one process, over one mapping: for tests, race detectors and
// single-process runs. The same exchange and step board as between processes, without files.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "shm/region.h"
#include "shm/shm_exchange.h"
#include "shm/step_board.h"

namespace shm {

struct LocalGroupOptions {
  ShmExchangeShape shape;
  size_t record_bytes_max = 0;
  WaitOptions wait = {};
  uint64_t first_sequence = 0;       // of gathers and records
  const PeerWatch* peers = nullptr;  // outlives the group
};

class LocalGroup {
 public:
  static base::Result<std::unique_ptr<LocalGroup>> create(const LocalGroupOptions& options);

  ShmExchange& exchange(int rank) { return *exchanges_[static_cast<size_t>(rank)]; }
  StepBoard& board(int rank) { return *boards_[static_cast<size_t>(rank)]; }

 private:
  explicit LocalGroup(Region region) : region_(std::move(region)) {}

  Region region_;
  std::vector<std::unique_ptr<ShmExchange>> exchanges_;  // [ranks]
  std::vector<std::unique_ptr<StepBoard>> boards_;       // [ranks]
};

}  // namespace shm
