#include "cli/option_table.h"

#include <limits>

#include "base/cat.h"
#include "base/limits.h"
#include "kernels/kv_type.h"
#include "kernels/ops.h"
#include "model/synth_shapes.h"

namespace cli {

namespace {

constexpr unsigned kRun = bit(Command::kRun), kServe = bit(Command::kServe),
                   kLogits = bit(Command::kLogits), kTokenize = bit(Command::kTokenize),
                   kDetokenize = bit(Command::kDetokenize), kPerplexity = bit(Command::kPerplexity),
                   kInspect = bit(Command::kInspect), kBench = bit(Command::kBench),
                   kSynth = bit(Command::kSynth), kProbe = bit(Command::kProbe),
                   kStatus = bit(Command::kStatus), kDoctor = bit(Command::kDoctor),
                   kShm = bit(Command::kShm), kTopology = bit(Command::kTopology),
                   kPlan = bit(Command::kPlan), kCompletion = bit(Command::kCompletion),
                   kWorker = bit(Command::kWorker);
constexpr unsigned kComputes = kRun | kServe | kLogits | kPerplexity | kBench;
constexpr unsigned kReadsModel = kComputes | kTokenize | kDetokenize | kInspect | kWorker;

constexpr const char* kKvTypeHelp =
    "of the KV cache: f16, q8_0 (half the memory, a little less exact) or f32; without it f16, "
    "with --isa reference f32";

constexpr CommandRow kCommands[] = {
    {Command::kRun, "run", "continue a text, or chat"},
    {Command::kServe, "serve", "answer the OpenAI API over HTTP"},
    {Command::kLogits, "logits", "logits of a token sequence as JSON"},
    {Command::kTokenize, "tokenize", "text to token ids"},
    {Command::kDetokenize, "detokenize", "token ids to text"},
    {Command::kPerplexity, "perplexity", "how well a model predicts a text"},
    {Command::kInspect, "inspect", "what a model file holds"},
    {Command::kBench, "bench", "measure a model: prompts and generation, as llama-bench does"},
    {Command::kSynth, "synth", "write a model of a known shape with synthetic weights"},
    {Command::kProbe, "probe", "measure this machine: memory, caches, exchange"},
    {Command::kStatus, "status", "ask a running server how it is and where its memory lies"},
    {Command::kDoctor, "doctor", "settings of this system that make numoe slow, and their cure"},
    {Command::kShm, "shm", "what numoe holds in shared memory: list, verify, remove"},
    {Command::kTopology, "topology", "show the machine, what is allowed of it, and where ranks go"},
    {Command::kPlan, "plan",
     "which split of a model is best on a machine, and how fast it will be"},
    {Command::kCompletion, "completion", "completion script for a shell"},
    {Command::kWorker, "worker", "one rank; started by the others"},
};

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
using O = Options;

// The table, in the order of the help; one function per group of rows.
std::vector<OptionRow> text_rows() {
  return {
      {"model", "MODEL", "GGUF file (of a split model: its first part)", kReadsModel, &O::model, 0,
       0, "", OptionRow::kRequired},
      {"ids", "IDS", "token ids", kDetokenize, &O::ids, 0, kInt32Max, "", OptionRow::kRequired},
      {"-p,--prompt", "TEXT", "text to continue; without it a chat", kRun, &O::prompt},
      {"-p,--prompt", "TEXT", "text to cut into tokens; without it standard input", kTokenize,
       &O::prompt},
      {"-n,--max-tokens", "N", "tokens to generate; 0: up to the end or the context", kRun,
       &O::max_tokens, 0, kInt32Max},
      {"--tokens", "IDS", "token ids, as in \"1 2 3\"", kLogits, &O::tokens, 0, 0, "",
       OptionRow::kRequired},
      {"-f,--file", "FILE", "text to measure on", kPerplexity, &O::file, 0, 0, "",
       OptionRow::kRequired},
      {"--system", "TEXT", "system message of the chat", kRun, &O::system},
      {"--special", "", "text that spells a control token becomes that token", kRun | kTokenize,
       &O::special},
      {"--bos", "", "put the beginning-of-sequence token in front", kTokenize, &O::bos},
      {"--json", "", "one JSON object", kInspect | kStatus | kDoctor | kShm | kProbe | kTopology,
       &O::json},
  };
}

std::vector<OptionRow> sampling_rows() {
  return {
      {"--temp", "T", "temperature; 0: always the best token", kRun | kServe, &O::temperature, 0,
       1000},
      {"--top-k", "K", "sample from the K best; 0: all", kRun | kServe, &O::top_k, 0, kInt32Max},
      {"--top-p", "P", "sample from the fewest that reach this share; 1: all", kRun | kServe,
       &O::top_p, 0, 1},
      {"--min-p", "P", "drop what is less likely than P times the best; 0: nothing", kRun | kServe,
       &O::min_p, 0, 1},
      {"--repeat-penalty", "R", "divide the logits of recent tokens; 1: off", kRun | kServe,
       &O::repeat_penalty, 0.01, 100},
      {"--presence-penalty", "R", "subtract from recent tokens", kRun | kServe,
       &O::presence_penalty, -2, 2},
      {"--frequency-penalty", "R", "subtract for each recent occurrence", kRun | kServe,
       &O::frequency_penalty, -2, 2},
      {"--penalty-window", "N", "tokens that count as recent; -1: all", kRun | kServe,
       &O::penalty_window, -1, kInt32Max},
      {"--seed", "S", "of the random draws; without it a new one, which is printed", kRun,
       &O::seed},
      {"--ignore-eos", "", "go on where the model would end", kRun, &O::ignore_eos},
  };
}

std::vector<OptionRow> serve_rows() {
  return {
      {"--host", "ADDRESS", "address to listen on; beyond this machine only with --api-key-file",
       kServe, &O::host},
      {"--port", "PORT", "TCP port; 0: any free one, which is printed", kServe, &O::port, 0, 65535},
      {"--alias", "NAME", "model name in the API; without it the file's name", kServe, &O::alias},
      {"--parallel", "N",
       "sequences of full context that are kept at once, by all replicas together", kServe,
       &O::parallel, 1, base::kStepSequencesMax},
      {"--queue", "N", "answers that may wait beside those, of all replicas; more get 429", kServe,
       &O::queue, 0, 128},
      {"--api-key-file", "FILE",
       "keys that clients must send, one a line; nobody else may read the file", kServe,
       &O::api_key_file},
      {"--max-body", "MIB", "largest body of a request", kServe, &O::max_body_mib, 1, 1024},
      {"--drain-timeout", "S", "how long running answers may go on after SIGTERM", kServe,
       &O::drain_seconds, 0, 86400},
      {"--log-requests", "", "one line for each request", kServe, &O::log_requests},
      {"--orphan-timeout", "S",
       "how long workers whose server was killed wait for another one, with the model loaded",
       kServe | kWorker, &O::orphan_seconds, 0, 86400},
      {"--keep-weights", "",
       "leave the weights in shared memory at the end, so that the next start need not load",
       kServe | kWorker, &O::keep_weights},
      {"--hang-timeout", "S",
       "workers that say nothing for so long while they have work are started again", kServe,
       &O::hang_seconds, 1, 86400},
      {"--config", "FILE",
       "options in a section [serve], as in port = 8080; the command line comes first", kServe,
       &O::config_file},
  };
}

std::vector<OptionRow> status_rows() {
  return {
      {"--placement", "", "also where the memory lies; its pages are looked at for it", kStatus,
       &O::placement},
      {"--experts", "",
       "also how often experts were chosen; with --json only that, as --expert-use reads it",
       kStatus, &O::experts},
      {"--url", "URL", "of the server, as in http://127.0.0.1:8080; before --host and --port",
       kStatus, &O::url},
      {"--host", "ADDRESS", "of the server", kStatus, &O::host},
      {"--port", "PORT", "of the server", kStatus, &O::port, 1, 65535},
      {"--api-key-file", "FILE", "with the key to send, the first if there are several", kStatus,
       &O::api_key_file},
      {"--arena-dir", "DIR",
       "where weights would lie in shared memory; without it /run/numoe or /dev/shm", kDoctor,
       &O::arena_directory},
  };
}

std::vector<OptionRow> bench_rows() {
  return {
      {"-p,--n-prompt", "LIST", "tokens of prompts, as in 128,512; 0: none", kBench,
       &O::bench_prompt},
      {"-n,--n-gen", "LIST", "tokens to generate; 0: none", kBench, &O::bench_generated},
      {"--pg", "PAIRS", "a prompt and tokens to generate behind it, as in 512,128; also -pg",
       kBench, &O::bench_pairs},
      {"-d,--n-depth", "LIST", "tokens that are in the cache before, not timed", kBench,
       &O::bench_depth},
      {"-b,--n-seq", "LIST", "sequences that generate together", kBench, &O::bench_sequences},
      {"-r,--repetitions", "N", "samples of each test", kBench, &O::repetitions, 1, 1000},
      {"-t,--threads", "T", "the same as --threads-per-node", kBench, &O::threads_per_node, 0,
       base::kThreadsPerRankMax},
      {"-o,--output", "FORMAT", "md, json, jsonl or csv", kBench, &O::bench_format, 0, 0,
       "md json jsonl csv"},
      {"-v,--verbose", "", "how the time of each test went, on standard error", kBench,
       &O::verbose},
      {"--seed", "S", "of the random tokens; without it 1", kBench, &O::seed},
  };
}

std::vector<OptionRow> plan_rows() {
  std::string presets, isas = "auto";
  for (const model::SynthShape& shape : model::synth_presets())
    presets += base::cat(presets.empty() ? "" : " ", shape.preset);
  for (const kernels::Ops* ops : kernels::all_ops()) isas += base::cat(" ", ops->name);
  return {
      {"model", "MODEL", "GGUF file, or the beginning of one; or see --shape", kPlan, &O::model},
      {"--shape", "PRESET", base::cat("a known shape instead of a file, one of: ", presets), kPlan,
       &O::preset, 0, 0, presets},
      {"--type", "TYPE", "with --shape: of the weights, for example q8_0", kPlan, &O::weight_type},
      {"--topology", "FILE",
       "another machine: XML by lstopo, or hwloc text as in \"package:2 [numa] core:8 pu:2\"",
       kPlan, &O::topology},
      {"--hosts", "FILE", "several hosts and their links; see docs/planning.md", kPlan,
       &O::hosts_file},
      {"--bandwidth", "GB/S", "that reading memory reaches, of each node or by node as in 300,280",
       kPlan, &O::bandwidth},
      {"--memory", "GIB", "that may be filled, of each node or by node; without it what is free",
       kPlan, &O::memory},
      {"--profile", "FILE", "what `numoe probe --json` measured; without it what --save kept",
       kPlan, &O::profile_file},
      {"--objective", "NAME",
       "latency: of a single request; throughput: of --parallel requests together", kPlan,
       &O::objective, 0, 0, "latency throughput"},
      {"--strategy", "NAME", "only this one", kPlan, &O::strategy, 0, 0,
       "auto rows experts layers replicas"},
      {"--stages", "N", "with --strategy layers: only so many stages; 0: all that make sense",
       kPlan, &O::stages, 0, base::kRanksMax},
      {"--replicas", "N", "only so many; 0: as many as serve best", kPlan, &O::replicas, 0,
       base::kRanksMax},
      {"--nodes", "N", "only so many nodes; more than there are are simulated", kPlan, &O::nodes, 0,
       base::kRanksMax},
      {"--threads-per-node", "T", "0: every core", kPlan, &O::threads_per_node, 0,
       base::kThreadsPerRankMax},
      {"--ctx", "N", "positions of one sequence; 0: the model's own, at most 4096", kPlan,
       &O::context, 0, base::kContextMax},
      {"--parallel", "N", "sequences at once", kPlan, &O::parallel, 1, base::kStepSequencesMax},
      {"--depth", "N", "positions before the token that is predicted; 0: 512", kPlan, &O::depth, 0,
       base::kContextMax},
      {"--expert-use", "FILE",
       "how often experts were chosen, as numoe status --experts --json prints it; without it all "
       "equally often",
       kPlan, &O::expert_use},
      {"--chunk", "N", "positions computed in one step; 0: 256", kPlan, &O::chunk, 0,
       base::kStepColumnsMax},
      {"--kv-type", "TYPE", kKvTypeHelp, kPlan, &O::kv_type, 0, 0, kernels::kKvTypeNames},
      {"--isa", "NAME", base::cat("kernels, one of: ", isas), kPlan, &O::isa, 0, 0, isas},
      {"--json", "", "one JSON object", kPlan, &O::json},
  };
}

std::vector<OptionRow> synth_rows() {
  std::string presets;
  for (const model::SynthShape& shape : model::synth_presets())
    presets += base::cat(presets.empty() ? "" : " ", shape.preset);
  return {
      {"preset", "PRESET", base::cat("shape of a known model, one of: ", presets), kSynth,
       &O::preset, 0, 0, presets, OptionRow::kRequired},
      {"output", "FILE", "GGUF file to write", kSynth, &O::output, 0, 0, "", OptionRow::kRequired},
      {"--arch", "NAME", "architecture, if the shape can be written as another one", kSynth,
       &O::architecture},
      {"--type", "TYPE", "of the weights, for example q8_0; the head is mostly q6_k", kSynth,
       &O::weight_type},
      {"--layers", "N", "layers; 0: all of the shape", kSynth, &O::layers, 0, base::kLayersMax},
      {"--vocab", "MODEL", "GGUF file to take the vocabulary from; without it the demo model",
       kSynth, &O::vocabulary_file},
      {"--force", "", "replace an existing file", kSynth, &O::force},
  };
}

std::vector<OptionRow> tool_rows() {
  return {
      {"--save", "", "store the result in the state directory of this user", kProbe, &O::save},
      {"--quick", "", "a few seconds, with fewer samples", kProbe, &O::quick},
      {"--mib", "N", "MiB to measure on each node; 0: several times its caches", kProbe,
       &O::probe_mib, 0, 1 << 20},
      {"action", "ACTION", "ls, verify, or rm: removes what nobody uses", kShm, &O::action, 0, 0,
       "ls verify rm", OptionRow::kRequired},
      {"name", "NAME", "arenas; without: all", kShm, &O::names},
      {"--force", "", "with rm: take the names of arenas away that are in use", kShm, &O::force},
      {"shell", "SHELL", "bash, zsh or fish", kCompletion, &O::shell, 0, 0, "bash zsh fish",
       OptionRow::kRequired},
  };
}

std::string isa_names() {
  std::string names = "auto";
  for (const kernels::Ops* ops : kernels::all_ops()) names += base::cat(" ", ops->name);
  return names;
}

std::string isa_help() {
  std::string help = base::cat("kernels, one of: ", isa_names());
  for (const kernels::Ops* ops : kernels::all_ops()) {
    if (!ops->is_tested) help += base::cat("; untested: ", ops->name);
  }
  return help;
}

std::vector<OptionRow> strategy_rows() {
  return {
      {"--strategy", "NAME",
       "how ranks split the model: rows: every matrix; experts: experts as a whole; layers: "
       "consecutive layers; auto: what a prediction says is best, on one node rows",
       kComputes & ~kServe, &O::strategy, 0, 0, "auto rows experts layers"},
      {"--strategy", "NAME",
       "how ranks split the model: rows: every matrix; experts: experts as a whole; layers: "
       "consecutive layers; replicas: not at all, each node has it and answers requests of its "
       "own; auto: what a prediction says is best, on one node rows",
       kServe, &O::strategy, 0, 0, "auto rows experts layers replicas"},
      {"--strategy", "NAME", "", kWorker, &O::strategy, 0, 0, "rows experts layers"},
      {"--objective", "NAME",
       "what --strategy auto looks for: latency: of a single request; throughput: of --parallel "
       "requests together",
       kRun | kServe, &O::objective, 0, 0, "latency throughput"},
      {"--replicas", "N",
       "groups that each have the whole model; nodes, --parallel and threads are divided among "
       "them; several on a node share its weights; 0: one, with --strategy replicas one a node",
       kServe, &O::replicas, 0, base::kRanksMax},
      {"--stages", "N",
       "with --strategy layers: so many stages, each split by rows over its ranks; 0: one a rank",
       kComputes | kWorker, &O::stages, 0, base::kRanksMax},
  };
}

std::vector<OptionRow> cluster_rows() {
  constexpr unsigned kBoth = kComputes | kWorker;
  return {
      {"--nodes", "N",
       "ranks, one per NUMA node; more than there are nodes are simulated; 0: all nodes",
       kComputes | kProbe | kTopology, &O::nodes, 0, base::kRanksMax},
      {"--threads-per-node", "T",
       "compute threads of a rank; 0: every core of its node, less one on the first node for the "
       "broker from 4 cores up, and no more than the cgroup's CPU quota",
       kComputes | kProbe | kTopology, &O::threads_per_node, 0, base::kThreadsPerRankMax},
      {"--decode-threads", "T",
       "so many of a rank's threads generate tokens; 0: the fewest that are as fast by the saved "
       "probe, all without one",
       kComputes | kWorker, &O::decode_threads, 0, base::kThreadsPerRankMax},
      {"--cpus", "LIST",
       "CPUs that compute, as in 0-3,8, also second threads of cores and slow cores; without it "
       "one of every fast core that is allowed",
       kComputes | kTopology, &O::cpus},
      {"--numa-nodes", "LIST",
       "NUMA nodes to use, by the system's numbers as in 1,3; auto: all that are allowed",
       kComputes | kTopology, &O::numa_nodes},
      {"--topology", "FILE",
       "another machine: XML by lstopo, or hwloc text as in \"package:2 [numa] core:8 pu:2\"",
       kTopology, &O::topology},
      {"--expert-use", "FILE",
       "plan with how often experts were chosen, as numoe status --experts --json prints it, and "
       "balance the ranks of strategy experts by it",
       kBoth, &O::expert_use},
      {"--isa", "NAME", isa_help(), kBoth, &O::isa, 0, 0, isa_names()},
      {"--kv-type", "TYPE", kKvTypeHelp, kBoth, &O::kv_type, 0, 0, kernels::kKvTypeNames},
      {"--ctx", "N", "positions of one sequence; 0: the model's own, at most 4096", kBoth,
       &O::context, 0, base::kContextMax},
      {"--chunk", "N",
       "positions computed in one step; more: faster prompts; fewer: others wait less; 0: 256",
       kBoth, &O::chunk, 0, base::kStepColumnsMax},
      {"--arena-dir", "DIR",
       "where weights lie in shared memory; without it /run/numoe or /dev/shm", kBoth | kShm,
       &O::arena_directory},
      {"--huge-pages", "NAME",
       "of weights and KV cache: auto: what the arena directory gives; off; 2m or 1g: only those, "
       "with an --arena-dir on a hugetlbfs",
       kBoth, &O::huge_pages, 0, 0, "auto off 2m 1g"},
      {"--mlock", "", "never let weights and KV cache be swapped out", kBoth, &O::mlock},
      {"--strict-placement", "",
       "end instead of going on where the system forbids to bind memory to a node", kBoth,
       &O::strict_placement},
      {"--exchange", "NAME",
       "how ranks exchange activations: shm, zmq, or auto: shm where ranks see the same memory",
       kBoth, &O::exchange, 0, 0, "auto shm zmq"},
      {"--stats", "", "the plan beforehand; speed, waits and memory afterwards",
       kComputes & ~kServe, &O::stats},
      {"--stats", "", "before loading also the rows of each rank", kServe, &O::stats},
  };
}

std::vector<OptionRow> worker_rows() {
  return {
      {"--rank", "R", "", kWorker, &O::rank, 0, base::kRanksMax - 1},
      {"--ranks", "N", "", kWorker, &O::ranks, 1, base::kRanksMax},
      {"--group", "ID", "", kWorker, &O::group, 0, 0, "", OptionRow::kRequired},
      {"--endpoint", "URL", "", kWorker, &O::endpoint, 0, 0, "", OptionRow::kRequired},
      {"--incarnation", "N", "", kWorker, &O::incarnation},
      {"--os-node", "N", "", kWorker, &O::os_node, -1, kInt32Max},
      {"--shares", "LIST", "", kWorker, &O::shares},
      {"--cpus", "LIST", "", kWorker, &O::cpus, 0, 0, "", OptionRow::kRequired},
      {"--oversubscribed", "", "", kWorker, &O::oversubscribed},
      {"--weights-dir", "DIR", "", kWorker, &O::weights_directory},
      {"--named-weights", "", "", kWorker, &O::named_weights},
      {"--instance", "DIR", "", kWorker, &O::instance},
      {"--sequences", "N", "", kWorker, &O::sequences, 1, base::kStepSequencesMax},
  };
}

}  // namespace

std::vector<OptionRow> option_rows() {
  std::vector<OptionRow> rows;
  for (const auto& group :
       {text_rows(), serve_rows(), status_rows(), sampling_rows(), cluster_rows(), strategy_rows(),
        bench_rows(), plan_rows(), synth_rows(), tool_rows(), worker_rows()})
    rows.insert(rows.end(), group.begin(), group.end());
  return rows;
}

std::span<const CommandRow> command_rows() {
  return kCommands;
}

}  // namespace cli
