// The subcommands: each does its work and says how it went. Thread rule: the main thread.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/layout.h"
#include "cli/local_cluster.h"
#include "cli/options.h"
#include "cli/signal_watch.h"
#include "model/metadata.h"
#include "model/tokenizer.h"
#include "worker/backend.h"

namespace cli {

/// What main made for a command.
struct Context {
  const Options& options;
  SignalWatch& signals;
  const worker::BackendFactory& factory;
  base::Log& log;
};

base::Status run(Context& context);   // `run -p TEXT`
base::Status chat(Context& context);  // `run` without a prompt
base::Status logits(Context& context);
base::Status tokenize(Context& context);
base::Status detokenize(Context& context);
base::Status perplexity(Context& context);
base::Status inspect(Context& context);
base::Status serve(Context& context);
base::Status bench(Context& context);
base::Status synth(Context& context);
base::Status probe(Context& context);
base::Status status(Context& context);
base::Status doctor(Context& context);
base::Status topology(Context& context);
base::Status plan(Context& context);
base::Status completion(Context& context);
base::Status shm_tool(Context& context);
base::Status be_worker(const Options& options, const worker::BackendFactory& factory,
                       base::Log& log);

// Shared by them.

/// Metadata and tokenizer of a model file.
struct ModelText {
  model::Metadata metadata;
  model::Tokenizer tokenizer;
};
base::Result<ModelText> open_text(const std::string& path, base::Log& log);

/// The cluster that the options ask for, its first group placed as `layout` says; `context` must
/// outlive it.
ClusterOptions cluster_options(Context& context, const Layout& layout);

/// Starts that cluster, with progress on stderr.
base::Result<std::unique_ptr<LocalCluster>> start_cluster(Context& context);

/// Where the ranks go as the command line says.
PlaceOptions place_options(const Options& options);

/// Rank options as the command line says; rank, group and CPUs are the caller's.
worker::RankHostOptions rank_options(const Options& options);
/// [layers][experts] of the file of --expert-use, empty without one. Errors: kNotFound, kBrokenFile
/// with its name; kInvalidArgument for a strategy that has no use for it.
base::Result<std::vector<std::vector<double>>> counted_expert_use(const Options& options);
/// Gives the counts to ranks of strategy experts; others do without. Errors: as above.
base::Status use_expert_counts(const Options& options, worker::RankHostOptions& rank);

/// As the options say, without the seed.
proto::Sampling sampling(const Options& options);
/// The tokens with which the model ends by itself.
std::vector<int32_t> end_tokens(const model::Tokenizer& tokenizer);

/// A request for what follows `prompt`, with sampling and limits as the options say.
proto::GenerateRequest generate_request(const Options& options, const model::Tokenizer& tokenizer,
                                        std::vector<int32_t> prompt, uint64_t seed);

/// The seed of --seed, or a new one, which is printed if draws depend on it.
uint64_t choose_seed(const Options& options, base::Log& log);

/// Writes to stdout at once. Errors: kCancelled if nobody reads it any more, kSystem.
base::Status print(std::string_view text);

/// What a rank did with its time, in percent of its steps.
std::string phases_text(const proto::StatsReply& stats);

/// --stats, to stderr.
base::Status print_stats(LocalCluster& cluster);

}  // namespace cli
