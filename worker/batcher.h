// Continuous batching: which positions of which sequences go into the next step.
//
// Every running sequence that has one position left to compute (decode) gets a column first, but
// one column stays for the oldest prompt; then prompts are filled in, in order of arrival, up to
// the columns of a step and the columns of it that may want logits. Sequences wait in order of
// arrival until the KV blocks they can ever need are free: nobody overtakes a large request.
// What a sequence computes does not depend on the batch it shares (that is the engine's promise);
// the batcher only decides when. With an index of sealed blocks a sequence begins behind the tokens
// that free blocks hold already. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/step.h"
#include "worker/kv_blocks.h"
#include "worker/near_blocks.h"
#include "worker/sealed_blocks.h"

namespace worker {

struct NewSequence {
  uint64_t id = 0;
  std::vector<int32_t> tokens;  // at least one, ids checked
  int64_t positions_max = 0;    // it will ever have in the cache, at least tokens.size()
  int64_t logits_from = 0;      // first position whose logits are wanted; all later ones are too
  int chunk = 0;                // columns it may have in a step; 0: as many as fit
  bool computes_all = false;    // each position is asked for: none is taken from sealed blocks
};

/// The columns of one sequence in a step: contiguous.
struct Part {
  uint64_t id = 0;
  int first_column = 0, column_count = 0;
  int64_t first_position = 0;       // of the first column
  int first_logits = 0;             // row of StepOutput::logits
  int logits_count = 0;             // rows of the last columns of the part
  std::span<const int32_t> tokens;  // all tokens of the sequence; valid until append() or remove()
};

class Batcher {
 public:
  /// `sealed` may be null, else it must outlive the batcher; ids out of range are ignored.
  Batcher(const engine::RunnerShape& shape, SealedBlocks* sealed = nullptr);

  /// Whether `sequence` could ever run. Errors: kNoSpace with both numbers.
  base::Status check_fits(int64_t positions_max) const;
  /// Queues a sequence. REQUIRES: check_fits, an id not in use.
  void add(NewSequence sequence);
  /// The next token of a sequence whose positions are all computed.
  void append(uint64_t id, int32_t token);
  /// Forgets a sequence in any state and frees its blocks; unknown ids are ignored.
  void remove(uint64_t id);
  /// A paused sequence keeps its blocks and gets no columns.
  void set_paused(uint64_t id, bool paused);

  /// The next step, nullptr if there is nothing to compute. Valid until the next call.
  const engine::Step* plan();
  /// The parts of the planned step.
  std::span<const Part> parts() const { return parts_; }
  /// The planned step has run: its positions are in the cache.
  void complete();
  /// What is in the cache of a sequence is right and may be used again: its full blocks are sealed.
  void seal(uint64_t id);

  /// Whether plan() would give a step now.
  bool has_work() const;
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int running() const { return static_cast<int>(running_.size()); }
  const KvBlocks& blocks() const { return blocks_; }

 private:
  struct Running {
    NewSequence sequence;
    std::vector<int32_t> blocks;
    int32_t reserved = 0;  // blocks in all
    NearBlocks::Held near;
    int64_t computed = 0;  // positions in the cache
    size_t sealed = 0;     // blocks, the first ones
    bool paused = false;

    int64_t left() const { return static_cast<int64_t>(sequence.tokens.size()) - computed; }
  };

  void admit();
  /// Takes free blocks that hold its first tokens.
  void adopt(Running& running);
  /// Columns that `decoding` sequences must leave to the oldest prompt: 0 or 1.
  int reserve_for_prompt(size_t decoding);
  /// How many columns of it the step being planned still takes.
  int fitting_columns(const Running& running) const;
  void add_part(Running& running, int column_count);
  Running* find(uint64_t id);

  const engine::RunnerShape shape_;
  SealedBlocks* const sealed_;
  KvBlocks blocks_;
  NearBlocks near_;
  std::deque<NewSequence> waiting_;
  std::list<Running> running_;  // in order of arrival; addresses stay
  size_t decode_turn_ = 0;      // who is first when not all decode columns fit
  bool prompt_turn_ = false;    // of a step of one column, while prompts wait
  engine::Step step_;
  std::vector<Part> parts_;
  int logits_rows_ = 0;
};

}  // namespace worker
