#include "shm/local_group.h"

#include <new>

namespace shm {

base::Result<std::unique_ptr<LocalGroup>> LocalGroup::create(const LocalGroupOptions& options) {
  const auto ranks = static_cast<size_t>(options.shape.ranks);
  const StepBoardShape board_shape = {options.shape.ranks, options.record_bytes_max};
  const size_t per_rank = ShmExchange::bytes_per_rank(options.shape);
  const size_t board_offset = sizeof(AbortWord) + ranks * per_rank;
  ASSIGN_OR_RETURN(Region region, Region::anonymous(board_offset + StepBoard::bytes(board_shape)));
  std::unique_ptr<LocalGroup> group(new LocalGroup(std::move(region)));
  std::byte* const base = group->region_.data();
  auto* word = new (base) AbortWord{};
  std::byte* const board = base + board_offset;
  StepBoard::format(board, board_shape, options.first_sequence);
  std::vector<std::byte*> regions;
  for (size_t rank = 0; rank < ranks; ++rank) {
    regions.push_back(base + sizeof(AbortWord) + rank * per_rank);
    ShmExchange::format(
        regions.back(), options.shape,
        {.rank = static_cast<int>(rank), .nonce = {}, .first_sequence = options.first_sequence});
  }
  const GroupSignals signals(word, options.peers);
  for (int rank = 0; rank < options.shape.ranks; ++rank) {
    group->exchanges_.push_back(std::make_unique<ShmExchange>(
        ShmExchange::Options{options.shape, rank, regions, signals, options.wait}));
    group->boards_.push_back(std::make_unique<StepBoard>(
        StepBoard::Options{board_shape, rank, board, signals, options.wait}));
  }
  return group;
}

}  // namespace shm
