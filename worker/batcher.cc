#include "worker/batcher.h"

#include <algorithm>

#include "base/cat.h"
#include "base/check.h"
#include "base/limits.h"

namespace worker {

namespace {

/// The sealed blocks that the pool has, each once: what an index says of them comes from outside.
std::vector<int32_t> usable(const SealedBlocks* sealed, int32_t count) {
  std::vector<int32_t> ids;
  if (sealed == nullptr) return ids;
  std::vector<bool> seen(static_cast<size_t>(count));
  for (const int32_t id : sealed->sealed()) {
    if (id < 0 || id >= count || seen[static_cast<size_t>(id)]) continue;
    seen[static_cast<size_t>(id)] = true;
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

Batcher::Batcher(const engine::RunnerShape& shape, SealedBlocks* sealed)
    : shape_(shape),
      sealed_(sealed),
      blocks_(shape.kv_block_count, usable(sealed, shape.kv_block_count)),
      near_(shape, sealed) {
  CHECK(shape.columns_max >= 1 && shape.columns_max <= base::kStepColumnsMax, "columns_max ",
        shape.columns_max);
  CHECK(shape.logit_columns_max >= 1, "logit_columns_max ", shape.logit_columns_max);
}

base::Status Batcher::check_fits(int64_t positions_max) const {
  if (blocks_for(positions_max) <= blocks_.count()) return {};
  return base::Error{
      base::Code::kNoSpace,
      base::cat("the request needs ", blocks_for(positions_max), " KV blocks of ",
                base::kKvBlockPositions, " positions, the cache has ", blocks_.count(),
                "; ask for fewer tokens or start with a larger --ctx")};
}

void Batcher::add(NewSequence sequence) {
  CHECK(!sequence.tokens.empty(), "a sequence without tokens");
  CHECK(sequence.positions_max >= static_cast<int64_t>(sequence.tokens.size()), "positions_max");
  CHECK(check_fits(sequence.positions_max).ok(), "a sequence that can never run");
  CHECK(find(sequence.id) == nullptr, "sequence ", sequence.id, " twice");
  waiting_.push_back(std::move(sequence));
}

void Batcher::append(uint64_t id, int32_t token) {
  Running* running = find(id);
  CHECK(running != nullptr && running->left() == 0, "a token after positions not computed");
  running->sequence.tokens.push_back(token);
}

void Batcher::remove(uint64_t id) {
  std::erase_if(waiting_, [&](const NewSequence& sequence) { return sequence.id == id; });
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const Running& r) { return r.sequence.id == id; });
  if (found == running_.end()) return;
  blocks_.release(found->blocks, found->reserved - static_cast<int32_t>(found->blocks.size()),
                  found->sealed);
  near_.release(found->near, found->sealed);
  running_.erase(found);
}

void Batcher::set_paused(uint64_t id, bool paused) {
  if (Running* running = find(id)) running->paused = paused;
}

Batcher::Running* Batcher::find(uint64_t id) {
  for (Running& running : running_)
    if (running.sequence.id == id) return &running;
  return nullptr;
}

void Batcher::admit() {
  while (!waiting_.empty() && running_.size() < size_t{base::kStepSequencesMax}) {
    const int32_t blocks = blocks_for(waiting_.front().positions_max);
    if (!near_.can_reserve(waiting_.front().positions_max) || !blocks_.reserve(blocks)) return;
    Running running;
    running.near = near_.reserve(waiting_.front().positions_max);
    running.sequence = std::move(waiting_.front());
    running.reserved = blocks;
    waiting_.pop_front();
    if (sealed_ != nullptr && !running.sequence.computes_all) adopt(running);
    running_.push_back(std::move(running));
  }
}

void Batcher::adopt(Running& running) {
  const NewSequence& sequence = running.sequence;
  // Logits come from computing: the first position that wants them stays.
  const int64_t most =
      std::min(static_cast<int64_t>(sequence.tokens.size()) - 1, sequence.logits_from) /
      base::kKvBlockPositions;
  if (most <= 0) return;
  const auto tokens = std::span<const int32_t>(sequence.tokens)
                          .first(static_cast<size_t>(most * base::kKvBlockPositions));
  // One that another sequence uses is not shared.
  const auto is_free = [&](int32_t block) { return blocks_.is_kept(block); };
  std::vector<int32_t> found;
  for (const int32_t block : sealed_->find(tokens, is_free)) {
    const bool twice = std::find(found.begin(), found.end(), block) != found.end();
    if (static_cast<int64_t>(found.size()) == most || twice || !is_free(block)) break;
    found.push_back(block);
  }
  found.resize(near_.usable(found));
  for (const int32_t block : found) blocks_.take_kept(block);
  near_.adopt(found, running.near);
  running.blocks = std::move(found);
  running.sealed = running.blocks.size();
  running.computed = static_cast<int64_t>(running.sealed) * base::kKvBlockPositions;
}

void Batcher::seal(uint64_t id) {
  if (sealed_ == nullptr) return;
  Running* running = find(id);
  CHECK(running != nullptr, "sequence ", id, " has no blocks");
  const auto full = static_cast<size_t>(running->computed / base::kKvBlockPositions);
  for (; running->sealed < full; running->sealed++) {
    const size_t index = running->sealed;
    const auto tokens = std::span<const int32_t>(running->sequence.tokens)
                            .subspan(index * base::kKvBlockPositions, base::kKvBlockPositions);
    const std::vector<int32_t>& near = running->near.table;
    sealed_->seal({.block = running->blocks[index],
                   .previous = index == 0 ? -1 : running->blocks[index - 1],
                   .near = near.empty() ? -1 : near[index]},
                  tokens);
  }
}

void Batcher::add_part(Running& running, int column_count) {
  const int64_t end = running.computed + column_count;
  while (static_cast<int32_t>(running.blocks.size()) < blocks_for(end)) {
    running.blocks.push_back(blocks_.take());
    if (sealed_ != nullptr) sealed_->forget(running.blocks.back());
  }
  near_.grow(running.near, running.computed, running.blocks.size(), running.sealed);
  Part part{.id = running.sequence.id,
            .first_column = static_cast<int>(step_.columns.size()),
            .column_count = column_count,
            .first_position = running.computed,
            .first_logits = logits_rows_,
            .tokens = running.sequence.tokens};
  for (int64_t position = running.computed; position < end; position++) {
    const bool wants_logits = position >= running.sequence.logits_from;
    part.logits_count += wants_logits ? 1 : 0;
    step_.columns.push_back({.token = running.sequence.tokens[static_cast<size_t>(position)],
                             .sequence = static_cast<int32_t>(parts_.size()),
                             .position = position,
                             .wants_logits = wants_logits});
  }
  logits_rows_ += part.logits_count;
  step_.block_tables.push_back(running.blocks);
  if (near_.exists()) step_.near_tables.push_back(running.near.table);
  parts_.push_back(part);
}

int Batcher::fitting_columns(const Running& running) const {
  int64_t columns = std::min<int64_t>(running.left(),
                                      shape_.columns_max - static_cast<int>(step_.columns.size()));
  if (running.sequence.chunk > 0) columns = std::min<int64_t>(columns, running.sequence.chunk);
  const int64_t without_logits =
      std::max<int64_t>(running.sequence.logits_from - running.computed, 0);
  columns = std::min(columns, without_logits + shape_.logit_columns_max - logits_rows_);
  return static_cast<int>(columns);
}

// Without a column of its own a prompt would wait for as long as others decode.
int Batcher::reserve_for_prompt(size_t decoding) {
  const bool prompt_waits = std::any_of(running_.begin(), running_.end(),
                                        [](const Running& r) { return !r.paused && r.left() > 1; });
  const int columns = std::min(shape_.columns_max, shape_.logit_columns_max);
  if (!prompt_waits || decoding < static_cast<size_t>(columns)) return 0;
  if (columns > 1) return 1;
  // One column: every other step is the prompt's.
  prompt_turn_ = !prompt_turn_;
  return prompt_turn_ ? 1 : 0;
}

const engine::Step* Batcher::plan() {
  admit();
  step_.columns.clear();
  step_.block_tables.clear();
  step_.near_tables.clear();
  parts_.clear();
  logits_rows_ = 0;

  std::vector<Running*> decoding;
  for (Running& running : running_)
    if (!running.paused && running.left() == 1) decoding.push_back(&running);
  const int reserved = reserve_for_prompt(decoding.size());
  size_t served = 0;
  for (; served < decoding.size(); served++) {
    Running& next = *decoding[(decode_turn_ + served) % decoding.size()];
    const auto columns = static_cast<int>(step_.columns.size());
    if (columns + reserved >= shape_.columns_max ||
        logits_rows_ + reserved >= shape_.logit_columns_max || fitting_columns(next) == 0)
      break;
    add_part(next, 1);
  }
  decode_turn_ = served < decoding.size() ? decode_turn_ + served : 0;

  for (Running& running : running_) {
    if (running.paused || running.left() <= 1) continue;
    if (const int columns = fitting_columns(running); columns > 0) add_part(running, columns);
  }
  return step_.columns.empty() ? nullptr : &step_;
}

bool Batcher::has_work() const {
  for (const Running& running : running_)
    if (!running.paused && running.left() > 0) return true;
  return !waiting_.empty() && running_.size() < size_t{base::kStepSequencesMax} &&
         blocks_.can_reserve(blocks_for(waiting_.front().positions_max)) &&
         near_.can_reserve(waiting_.front().positions_max);
}

void Batcher::complete() {
  for (const Part& part : parts_) {
    Running* running = find(part.id);
    CHECK(running != nullptr && running->computed == part.first_position, "a step completed twice");
    running->computed += part.column_count;
  }
}

}  // namespace worker
