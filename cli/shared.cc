// What several commands need.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/cat.h"
#include "cli/commands.h"
#include "cli/expert_use.h"
#include "cli/progress.h"
#include "model/model.h"
#include "plan/plan.h"
#include "shm/file.h"

namespace cli {

namespace {

std::string megabytes(uint64_t bytes) {
  const uint64_t tenths = (bytes + 50'000) / 100'000;
  return base::cat(tenths / 10, ".", tenths % 10, " MB");
}

/// One decimal.
std::string rounded(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

/// `tokens` as the user counts them, the speed by the steps that computed `columns` of them.
std::string speed(int64_t tokens, uint64_t columns, uint64_t ns) {
  if (columns == 0 || ns == 0) return base::cat(tokens, " tokens");
  const double per_second = static_cast<double>(columns) * 1e9 / static_cast<double>(ns);
  return base::cat(tokens, " tokens, ", rounded(per_second), " tok/s");
}

shm::HugePages huge_pages(const Options& options) {
  if (options.huge_pages == "off") return shm::HugePages::kOff;
  if (options.huge_pages == "2m") return shm::HugePages::k2M;
  if (options.huge_pages == "1g") return shm::HugePages::k1G;
  return shm::HugePages::kAuto;
}

}  // namespace

base::Result<ModelText> open_text(const std::string& path, base::Log& log) {
  ASSIGN_OR_RETURN(model::Directory directory, model::read_directory(path));
  ASSIGN_OR_RETURN(model::Tokenizer tokenizer, model::Tokenizer::create(directory.metadata, &log));
  return ModelText{std::move(directory.metadata), std::move(tokenizer)};
}

worker::RankHostOptions rank_options(const Options& options) {
  worker::RankHostOptions rank;
  rank.model_path = options.model;
  rank.isa = options.isa;
  rank.exchange = options.exchange;
  rank.huge_pages = huge_pages(options);
  rank.mlock = options.mlock;
  rank.strict_placement = options.strict_placement;
  rank.keep_weights = options.keep_weights;
  rank.weights_directory = options.weights_directory;
  rank.named_weights = options.named_weights;
  rank.kv_type = kernels::find_kv_type(options.kv_type);
  rank.strategy = plan::find_strategy(options.strategy).value_or(plan::Strategy::kRows);
  rank.stages = static_cast<int>(options.stages);
  rank.decode_threads = static_cast<int>(options.decode_threads);
  rank.context = options.context;
  rank.sequences = static_cast<int>(options.sequences);
  if (options.chunk > 0) rank.columns_max = static_cast<int>(options.chunk);
  return rank;
}

base::Result<std::vector<std::vector<double>>> counted_expert_use(const Options& options) {
  if (options.expert_use.empty()) return std::vector<std::vector<double>>{};
  const auto error = [&](base::Code code, std::string_view why) {
    return base::Error{code, base::cat("--expert-use ", options.expert_use, ": ", why)};
  };
  const bool may_be_taken = options.command == Command::kPlan || options.strategy == "auto" ||
                            options.strategy == plan::strategy_name(plan::Strategy::kExperts);
  if (!may_be_taken)
    return error(base::Code::kInvalidArgument,
                 "only --strategy experts gives whole experts to ranks; use it, or leave this out");
  const auto text = shm::read_text(options.expert_use);
  if (!text.ok()) return error(text.error().code, text.error().message);
  auto use = expert_use_from_json(*text);
  if (!use.ok()) return error(use.error().code, use.error().message);
  return use;
}

base::Status use_expert_counts(const Options& options, worker::RankHostOptions& rank) {
  ASSIGN_OR_RETURN(auto use, counted_expert_use(options));
  if (use.empty() || rank.strategy != plan::Strategy::kExperts) return {};
  rank.expert_use = std::move(use);
  // Workers may start in another directory.
  std::error_code failed;
  const auto path = std::filesystem::absolute(options.expert_use, failed);
  rank.expert_use_path = failed ? options.expert_use : path.string();
  return {};
}

PlaceOptions place_options(const Options& options) {
  return {.nodes = static_cast<int>(options.nodes),
          .threads_per_node = static_cast<int>(options.threads_per_node),
          .cpus = options.cpus,
          .numa_nodes = options.numa_nodes};
}

ClusterOptions cluster_options(Context& context, const Layout& layout) {
  const Options& options = context.options;
  ClusterOptions cluster{.rank = rank_options(options),
                         .placement = layout.groups.front(),
                         .arena_directory = options.arena_directory};
  cluster.rank.strategy = layout.strategy;
  cluster.rank.stages = layout.stages;
  cluster.rank.decode_threads = layout.decode_threads;
  cluster.before_loading = [&context](const worker::RankHostOptions& rank) -> base::Status {
    const Options& asked = context.options;
    ASSIGN_OR_RETURN(const model::Model model, model::load_model(asked.model));
    if (asked.context > model.spec.context)
      context.log.warning(base::cat("--ctx ", asked.context, " is more than the ",
                                    model.spec.context,
                                    " positions that the model was trained on; what lies beyond "
                                    "them may make no sense"));
    if (!asked.stats) return {};
    ASSIGN_OR_RETURN(const plan::Plan plan, plan::split(model.spec, worker::split_options(rank)));
    const std::string text = plan::describe(plan, model.spec);
    std::fputs(base::cat(text, text.ends_with('\n') ? "" : "\n").c_str(), stderr);
    return {};
  };
  return cluster;
}

base::Result<std::unique_ptr<LocalCluster>> start_cluster(Context& context) {
  ASSIGN_OR_RETURN(const Layout layout, choose_layout(context.options, context.log));
  if (context.options.stats) std::fputs(layout.text.c_str(), stderr);
  ClusterOptions cluster = cluster_options(context, layout);
  RETURN_IF_ERROR(use_expert_counts(context.options, cluster.rank));
  Progress progress(stderr, style_for(stderr), "loading");
  return LocalCluster::start(
      std::move(cluster), context.factory, context.signals, context.log,
      [&](uint64_t done, uint64_t total) { progress.update(done, total, "MB"); });
}

proto::Sampling sampling(const Options& options) {
  proto::Sampling sampling;
  sampling.temperature = static_cast<float>(options.temperature);
  sampling.top_k = static_cast<int32_t>(options.top_k);
  sampling.top_p = static_cast<float>(options.top_p);
  sampling.min_p = static_cast<float>(options.min_p);
  sampling.repeat_penalty = static_cast<float>(options.repeat_penalty);
  sampling.presence_penalty = static_cast<float>(options.presence_penalty);
  sampling.frequency_penalty = static_cast<float>(options.frequency_penalty);
  sampling.penalty_window = static_cast<int32_t>(options.penalty_window);
  return sampling;
}

std::vector<int32_t> end_tokens(const model::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.size(); id++)
    if (tokenizer.ends_generation(id)) ids.push_back(id);
  return ids;
}

proto::GenerateRequest generate_request(const Options& options, const model::Tokenizer& tokenizer,
                                        std::vector<int32_t> prompt, uint64_t seed) {
  proto::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = options.max_tokens;
  request.sampling = sampling(options);
  request.sampling.seed = seed;
  if (!options.ignore_eos) request.stop_tokens = end_tokens(tokenizer);
  return request;
}

uint64_t choose_seed(const Options& options, base::Log& log) {
  if (options.seed) return *options.seed;
  if (options.temperature == 0) return 0;
  // Short enough to be typed again.
  const uint64_t seed = random_bits() % 1'000'000'000;
  log.info(base::cat("seed ", seed));
  return seed;
}

base::Status print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return {};
  const int number = errno;
  // Who closed the pipe knows; a full disk must be told.
  if (number == EPIPE) return base::Error{base::Code::kCancelled, "nobody reads standard output"};
  return base::Error{base::Code::kSystem,
                     base::cat("standard output cannot be written: ", std::strerror(number))};
}

std::string phases_text(const proto::StatsReply& stats) {
  if (stats.step_ns == 0) return "no step";
  const auto percent = [&](uint64_t ns) {
    return base::cat(rounded(100 * static_cast<double>(ns) / static_cast<double>(stats.step_ns)),
                     " %");
  };
  const uint64_t named =
      stats.matmul_ns + stats.attention_ns + stats.exchange_ns + stats.barrier_ns;
  std::string text = base::cat(
      percent(stats.matmul_ns), " products, ", percent(stats.attention_ns), " attention, ",
      percent(stats.exchange_ns), " exchange, ", percent(stats.barrier_ns), " own threads, ",
      percent(stats.step_ns - std::min(named, stats.step_ns)), " other; ",
      rounded(static_cast<double>(stats.weight_bytes) / static_cast<double>(stats.step_ns)),
      " GB/s of packed weights, ", stats.threads, " threads in the last step");
  if (stats.sample_ns > 0) text += base::cat("; between steps ", percent(stats.sample_ns), " more");
  return text;
}

base::Status print_stats(LocalCluster& cluster) {
  ASSIGN_OR_RETURN(const std::vector<proto::StatsReply> ranks, cluster.stats());
  const proto::StatsReply& stats = ranks[0];
  const proto::Usage& usage = cluster.usage();
  const double wait_share = stats.step_ns == 0 ? 0
                                               : 100 * static_cast<double>(stats.wait_ns) /
                                                     static_cast<double>(stats.step_ns);
  const std::string& exchange = cluster.ready(0).exchange;
  std::string text = base::cat(
      "prompt:    ", speed(usage.prompt_tokens, stats.prefill_columns, stats.prefill_ns),
      "\ngenerated: ", speed(usage.generated_tokens, stats.decode_columns, stats.decode_ns),
      "\nwaits:     ", rounded(stats.waits_per_layer), " per layer, ", rounded(wait_share),
      " % of the time\nexchange:  ", exchange.empty() ? "none, a single rank" : exchange,
      "\nKV blocks: ", stats.kv_blocks_peak, " used of ", stats.kv_block_count, "\n");
  std::vector<proto::LayerUse> experts;
  for (const proto::StatsReply& rank : ranks) complete(experts, rank.expert_use);
  text += expert_use_line(experts);
  for (int rank = 0; rank < cluster.ranks(); rank++) {
    const proto::Ready& ready = cluster.ready(rank);
    const shm::RankPlacement& place = cluster.placement().ranks[static_cast<size_t>(rank)];
    text += base::cat("rank ", rank, ":    ", megabytes(ready.arena_bytes), " weights, ",
                      megabytes(ready.kv_bytes), " KV cache, ", megabytes(ready.huge_page_bytes),
                      " of the arena in huge pages, ", place.cpus.size(), " threads, memory ",
                      ready.memory_placement.empty() ? "somewhere" : ready.memory_placement, "\n");
    text += base::cat("  its time: ", phases_text(ranks[static_cast<size_t>(rank)]), "\n");
  }
  std::fputs(text.c_str(), stderr);
  return {};
}

}  // namespace cli
