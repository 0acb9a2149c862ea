// The command line as data: one table of options for all subcommands, from which help is made.
//
// The seam to CLI11. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cli {

enum class Command {
  kRun,
  kServe,
  kLogits,
  kTokenize,
  kDetokenize,
  kPerplexity,
  kInspect,
  kBench,
  kSynth,
  kProbe,
  kStatus,
  kDoctor,
  kShm,
  kTopology,
  kPlan,
  kCompletion,
  kWorker
};

/// Columns of a step. Of 128 experts of which 8 are used, each then has 16: prefill is 9 to 14 %
/// faster than with 128 columns, and 1 % slower than with 512, which keep decoding waiting twice
/// as long.
inline constexpr int kDefaultChunk = 256;

struct Options {
  Command command = Command::kRun;
  std::string model;

  // Text in and out.
  std::optional<std::string> prompt;
  bool special = false;  // text that spells a control token becomes it
  bool bos = false;
  std::vector<int32_t> ids;
  std::string tokens;  // "1 2 3"
  std::string file;
  bool json = false;
  bool stats = false;

  // Generating.
  int64_t max_tokens = 0;  // 0: up to the context
  double temperature = 0.8, top_p = 0.95, min_p = 0.05;
  int64_t top_k = 40;
  double repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int64_t penalty_window = 64;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
  std::string system;  // the system message of a chat

  // The cluster.
  int64_t nodes = 0;             // 0: one rank per NUMA node of this machine
  int64_t threads_per_node = 0;  // 0: every core
  int64_t decode_threads = 0;    // of a rank; 0: as the plan says
  std::string cpus;  // "0-3,8", OS numbers that compute; empty: chosen (of a worker see below)
  std::string strategy = "auto";
  std::string objective = "latency";  // of strategy auto
  int64_t stages = 0;                 // of strategy layers, 0: one a rank
  std::string expert_use;             // of strategy experts: a file with counts; empty: none
  int64_t replicas = 0;               // groups; 0: one, of strategy replicas one a node
  std::string numa_nodes = "auto";    // "1,3", OS numbers
  std::string topology;               // file or synthetic machine; empty: this one
  std::string isa = "auto";
  std::string kv_type;  // empty: f16, f32 with `reference`
  int64_t context = 0;  // 0: the model's own, at most 4096
  int64_t chunk = 0;    // columns a step; 0: kDefaultChunk
  std::string arena_directory;
  std::string huge_pages = "auto";
  bool mlock = false, strict_placement = false;
  std::string exchange = "auto";

  // Serving.
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::string alias;  // empty: the name of the model file
  int64_t parallel = 4;
  int64_t queue = 64;  // answers that wait beside those
  std::string api_key_file;
  int64_t max_body_mib = 32;
  int64_t drain_seconds = 30;
  bool log_requests = false;
  int64_t orphan_seconds = 60;  // workers wait so long for another broker
  bool keep_weights = false;
  int64_t hang_seconds = 300;
  std::string url;  // of a server that is asked; empty: by host and port
  bool placement = false;
  bool experts = false;
  std::string config_file;  // its values are among the others already

  // Measuring; lists such as "128,512", pairs such as "512,128".
  std::string bench_prompt = "512", bench_generated = "128", bench_pairs, bench_depth = "0",
              bench_sequences = "1";
  int64_t repetitions = 5;
  std::string bench_format = "md";
  bool verbose = false;

  // Synthetic models.
  std::string preset, output;
  std::string architecture;  // empty: the preset's own
  std::string weight_type = "q4_k";
  int64_t layers = 0;  // 0: all of the preset
  std::string vocabulary_file;
  bool force = false;

  // Planning.
  std::string hosts_file;         // of several hosts
  std::string bandwidth, memory;  // GB/s and GiB by node, "300" or "300,280"; empty: looked up
  std::string profile_file;       // by `numoe probe --json`; empty: what was saved of this machine
  int64_t depth = 0;              // positions before the token that is predicted; 0: 512

  // Tools.
  bool save = false, quick = false;
  int64_t probe_mib = 0;  // memory measured on each node; 0: by caches and free memory
  std::string shell;
  std::string action;  // of `shm`: ls, verify, rm
  std::vector<std::string> names;

  // Of `numoe worker`, filled in by the process that starts it.
  int64_t rank = 0, ranks = 1;
  std::string group, endpoint;
  uint64_t incarnation = 0;
  int64_t os_node = -1;
  std::string shares;  // of all ranks, "3,1"; empty: equal
  // `cpus` is a list such as "0,2" there; -1 is a thread that is pinned nowhere.
  int64_t sequences = 1;
  bool oversubscribed = false;
  // Directory of the `serve` that it outlives; empty: it dies with its parent.
  std::string instance;
  std::string weights_directory;  // of arenas with names
  bool named_weights = false;
};

struct ParsedOptions {
  std::optional<int> exit_code;  // set: nothing to do but print `message` and end
  std::string message;           // help or version (exit code 0), or what is wrong (2)
  Options options;
};

/// Parses argv[1…]. A message about a bad value names its option.
ParsedOptions parse_options(int argc, const char* const* argv);

/// "0.1.0"
const char* version();

/// At least one number, separated by blanks or commas, each from `min` to the largest int32.
/// Errors: kInvalidArgument naming `option` and the first that is none.
base::Result<std::vector<int32_t>> parse_ids(std::string_view option, std::string_view text,
                                             int32_t min);

}  // namespace cli
