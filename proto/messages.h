// The messages between a broker and its workers as plain data.
//
// State machines and tests use these; protobuf is a detail of the codec (proto/codec.h). Whatever
// parse() returns was checked for everything that can be checked without local tables: counts,
// ranges, finite numbers, lengths of text. Ids against a vocabulary or a list of requests are the
// receiver's to check.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace proto {

/// The format of the messages. Another major is refused, another minor understood.
inline constexpr uint32_t kWireMajor = 1;
inline constexpr uint32_t kWireMinor = 3;

inline constexpr size_t kTextBytesMax = 4096;  // of any one text in a message
inline constexpr size_t kStopTokensMax = 1024;
inline constexpr size_t kLogitBiasMax = 4096;
inline constexpr size_t kPlacementClassesMax = 64;
inline constexpr size_t kPlacementNodesMax = 1024;
inline constexpr int kTopCount = 8;  // best tokens that a score gives for each position

struct Hello {
  int rank = 0, rank_count = 1;
  uint32_t numerics_version = 0;
  std::string model_fingerprint = {};
  std::string program_version = {};
  /// The group with which this worker has loaded already; empty: none yet. Workers that outlived
  /// their broker say it to the next one.
  std::string group_id = {};
};
struct HelloReply {
  bool accepted = false;
  std::string reason = {};  // why not
  uint64_t plan_epoch = 0;
};
struct LoadProgress {
  uint64_t bytes_done = 0, bytes_total = 0;
};
struct Ready {
  int64_t vocabulary = 0, context = 0;
  int32_t kv_block_count = 0;
  int columns_max = 0;
  uint64_t arena_bytes = 0, kv_bytes = 0;  // of this rank, as all below
  uint64_t huge_page_bytes = 0;            // of the arena, in huge pages
  std::string memory_placement = {};       // where its memory lies: "bound to node 1"; may be empty
  bool binding_denied = false;             // it was to be bound, and the system forbids that
  std::string exchange = {};               // with other ranks: shm, zmq; empty for a single rank
  std::string exchange_note = {};          // a warning about it, for people; may be empty
  uint64_t attached_bytes = 0;             // of the arena, found loaded by another process
  /// Of the model's weights this rank counts: two words that add up over the ranks, modulo 2^64, to
  /// the same for every split of one model.
  uint64_t content_low = 0, content_high = 0;
};
struct ReadyReply {};
/// From a broker that does not know the epoch of a worker it could use: say Hello again.
struct Rejoin {};
struct WorkerFailed {
  base::Error error = {};
};
struct Shutdown {
  std::string reason = {};
};

/// As engine::SamplingParams, which says what the fields mean.
struct Sampling {
  float temperature = 0.8f;
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t penalty_window = 64;
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // (token id, bias)
};

struct GenerateRequest {
  uint64_t request_id = 0;
  std::vector<int32_t> prompt = {};
  Sampling sampling = {};
  int64_t max_tokens = 0;  // 0: up to the context
  std::vector<int32_t> stop_tokens = {};
  uint32_t prompt_index = 0, choice_index = 0;
  int prefill_chunk = 0;  // columns a step; 0: as many as fit
  /// A request that goes on after a crash: what was generated already, and the index of the first
  /// chunk that is still to come. Limits count `generated` in.
  std::vector<int32_t> generated = {};
  uint64_t first_index = 0;
};

struct ScoreRequest {
  uint64_t request_id = 0;
  std::vector<int32_t> tokens = {};
  /// First token whose log-probability is wanted, at least 1; tokens.size() or more: none.
  int64_t first_scored = std::numeric_limits<int64_t>::max();
  bool want_top = false;   // the kTopCount best at every position
  bool want_last = false;  // all logits of the last position
  int chunk = 0;           // columns a step; 0: as many as fit
};

struct Accepted {
  uint64_t request_id = 0;
};

enum class Finish { kNone, kStop, kLength, kCancelled, kError };
/// "none", "stop", …
const char* finish_name(Finish finish);

struct Usage {
  int64_t prompt_tokens = 0, generated_tokens = 0;
};

struct TokenChunk {
  uint64_t request_id = 0;
  uint64_t index = 0;                // 0, 1, 2, … without gaps
  std::vector<int32_t> tokens = {};  // with kStop the last one is the stop token
  Finish finish = Finish::kNone;
  Usage usage = {};        // with the last chunk
  base::Error error = {};  // with kError
};

struct ScoreChunk {
  uint64_t request_id = 0;
  uint64_t index = 0;
  int64_t first_position = 0;
  int32_t position_count = 0;
  std::vector<float> log_probabilities = {};  // of the tokens after these positions, if scored
  int top_count = 0;                          // kTopCount, or the vocabulary if that is smaller
  std::vector<int32_t> top_ids = {};    // [position_count][top_count], best first, lower id on ties
  std::vector<float> top_logits = {};   // as top_ids
  std::vector<float> last_logits = {};  // [vocabulary], with the last chunk; a raw frame
  Finish finish = Finish::kNone;        // kStop: all there
  base::Error error = {};
};

/// All chunks of the request below next_index have arrived.
struct Ack {
  uint64_t request_id = 0;
  uint64_t next_index = 0;
};
struct Cancel {
  uint64_t request_id = 0;
};

/// How often each expert of a layer was chosen.
struct LayerUse {
  std::vector<uint64_t> choices = {};  // [experts]
  std::vector<int32_t> owners = {};    // [experts] the rank that has all of it; empty: it is split
  bool operator==(const LayerUse&) const = default;
};

struct StatsRequest {};
struct StatsReply {
  uint64_t steps = 0, columns = 0, step_ns = 0;  // step_ns: inside the runner
  uint64_t prefill_columns = 0, prefill_ns = 0;  // steps with at least one prefill column
  uint64_t decode_columns = 0, decode_ns = 0;    // steps of decode columns only
  uint64_t wait_ns = 0;                          // of step_ns: waiting for other threads and ranks
  double waits_per_layer = 0;                    // of one decode step; 0: not counted
  int32_t kv_blocks_used = 0, kv_blocks_peak = 0, kv_block_count = 0;
  uint64_t kv_blocks_reused = 0;  // whose positions were not computed again
  // Of the rank that answers; engine/step_stats.h says what the phases are. A rank that does not
  // lead fills in these, steps, columns, step_ns and wait_ns.
  uint64_t matmul_ns = 0, attention_ns = 0, exchange_ns = 0, barrier_ns = 0;
  uint64_t sample_ns = 0;     // between steps: choosing tokens, answering
  uint64_t weight_bytes = 0;  // read by products
  int threads = 0;            // that took part in the last step
  // [layers] since the start; without choices where a layer has no experts, or is computed by
  // ranks other than the one that answers. Of a model without experts empty.
  std::vector<LayerUse> expert_use = {};
};

/// Where the memory of a rank lies, page by page.
struct PlacementRequest {};
/// Pages of one class of tensors ("experts", "attention", "KV cache", …) of one rank.
struct PlacementClass {
  std::string name = {};
  uint64_t bytes = 0;
  std::vector<uint64_t> bytes_on_node = {};  // by OS node
  uint64_t bytes_absent = 0;                 // never touched or swapped out
  uint64_t bytes_asked = 0;                  // less than `bytes`: a sample
};
struct PlacementReply {
  int rank = 0;
  int os_node = -1;         // intended; -1: none, simulated
  uint64_t page_bytes = 0;  // of the mapping of the weights
  uint64_t huge_bytes = 0;  // of the weights, in huge pages
  std::string source = {};  // "move_pages", "numa_maps", or why nobody knows
  std::vector<PlacementClass> classes = {};
};

using Body = std::variant<Hello, HelloReply, LoadProgress, Ready, ReadyReply, Rejoin, WorkerFailed,
                          Shutdown, GenerateRequest, ScoreRequest, Accepted, TokenChunk, ScoreChunk,
                          Ack, Cancel, StatsRequest, StatsReply, PlacementRequest, PlacementReply>;

}  // namespace proto
