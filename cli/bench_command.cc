// `bench`: prompts and generation timed in the formats of llama-bench, against what the memory
// gives at the same moment.
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/cat.h"
#include "cli/bench_report.h"
#include "cli/bench_run.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "kernels/ops.h"
#include "model/inspect.h"
#include "model/model.h"
#include "shm/machine_facts.h"

namespace cli {

namespace {

/// "llama Q4_K": architecture and the type of most weight bytes.
std::string type_of(const model::Directory& directory) {
  std::map<kernels::TensorType, uint64_t> bytes;
  for (const model::TensorInfo& tensor : directory.tensors) bytes[tensor.type] += tensor.bytes;
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto architecture = directory.metadata.string_or("general.architecture", "model");
  return base::cat(architecture.ok() ? *architecture : "model", " ",
                   most == bytes.end() ? "" : kernels::type_info(most->first).name);
}

uint64_t weights_of(const model::Directory& directory) {
  uint64_t count = 0;
  for (const model::TensorInfo& tensor : directory.tensors)
    count += static_cast<uint64_t>(tensor.row_length() * tensor.row_count());
  return count;
}

BenchSetting setting_of(const Options& options, const model::Model& model,
                        const LocalCluster& cluster) {
  BenchSetting setting;
  setting.version = version();
  if (const auto topology = shm::read_whole_topology({}); topology.ok())
    setting.cpu = shm::read_machine_facts(*topology).cpu_model;
  setting.model_path = options.model;
  setting.model_type = type_of(*model.directory);
  setting.model_bytes = model::weight_bytes(*model.directory);
  setting.model_weights = weights_of(*model.directory);
  setting.active_bytes = model::active_bytes_per_token(model);
  setting.chunk = cluster.ready(0).columns_max;
  setting.nodes = cluster.ranks();
  setting.threads = cluster.threads();
  setting.decode_threads = cluster.decode_threads();
  const auto ops = kernels::find_ops(options.isa);
  setting.isa = ops.ok() ? (*ops)->name : options.isa;
  setting.kv_type = !options.kv_type.empty()           ? options.kv_type
                    : ops.ok() && (*ops)->is_reference ? "f32"
                                                       : "f16";
  setting.strategy = options.strategy;
  setting.exchange = cluster.ready(0).exchange;
  setting.seed = options.seed.value_or(1);
  return setting;
}

shm::PageKind pages_of(const LocalCluster& cluster) {
  uint64_t huge = 0, all = 0;
  for (int rank = 0; rank < cluster.ranks(); rank++) {
    huge += cluster.ready(rank).huge_page_bytes;
    all += cluster.ready(rank).arena_bytes;
  }
  return 2 * huge > all ? shm::PageKind::kHuge : shm::PageKind::kSmall;
}

/// The cluster's options as these tests need them. Errors: kInvalidArgument if --ctx is too small.
base::Result<Options> with_room(Options options, const std::vector<BenchTest>& tests,
                                int64_t chunk) {
  int64_t context = kWarmUpPrompt + 1, sequences = 1;
  for (const BenchTest& test : tests) {
    context = std::max(context, test.context(chunk));
    sequences = std::max(sequences, test.sequences);
  }
  if (options.context != 0 && options.context < context)
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("--ctx ", options.context, " is less than the ", context,
                                 " positions that these tests need; leave it out")};
  options.context = std::max(options.context, context);
  options.sequences = sequences;
  return options;
}

/// One test after the other; results are printed as they come.
base::Status run_tests(BenchRunner& runner, const std::vector<BenchTest>& tests,
                       const Options& options, const BenchSetting& setting) {
  const BenchFormat format = bench_format(options.bench_format);
  const auto repetitions = static_cast<uint64_t>(options.repetitions);
  RETURN_IF_ERROR(print(bench_head(setting, format)));
  for (size_t i = 0; i < tests.size(); i++) {
    base::Result<BenchResult> result = [&] {
      Progress progress(stderr, style_for(stderr), tests[i].name());
      return runner.run(tests[i], [&](int done) {
        progress.update(i * repetitions + static_cast<uint64_t>(done), tests.size() * repetitions,
                        "samples");
      });
    }();
    if (!result.ok()) return result.error();
    RETURN_IF_ERROR(print(
        base::cat(i == 0 ? "" : bench_separator(format), bench_row(setting, *result, format))));
    if (options.verbose)
      std::fputs(base::cat(tests[i].name(), "\n", bench_phases(*result)).c_str(), stderr);
  }
  return print(bench_tail(setting, format));
}

}  // namespace

base::Status bench(Context& context) {
  const int64_t chunk = rank_options(context.options).columns_max;
  ASSIGN_OR_RETURN(const std::vector<BenchTest> tests, bench_tests(context.options, chunk));
  ASSIGN_OR_RETURN(const Options options, with_room(context.options, tests, chunk));
  ASSIGN_OR_RETURN(const model::Model model, model::load_model(options.model));
  Context with_options{options, context.signals, context.factory, context.log};
  ASSIGN_OR_RETURN(const auto cluster, start_cluster(with_options));
  BenchSetting setting = setting_of(options, model, *cluster);
  ASSIGN_OR_RETURN(const ReadCeiling ceiling,
                   ReadCeiling::create(cluster->placement(), pages_of(*cluster)));
  setting.pages = ceiling.pages() == shm::PageKind::kHuge ? "huge" : "small";
  BenchRunner runner(*cluster, ceiling,
                     {.repetitions = static_cast<int>(options.repetitions),
                      .seed = setting.seed,
                      .vocabulary = cluster->ready(0).vocabulary,
                      .active_bytes = setting.active_bytes});
  RETURN_IF_ERROR(runner.warm_up());
  RETURN_IF_ERROR(run_tests(runner, tests, options, setting));
  if (options.stats) RETURN_IF_ERROR(print_stats(*cluster));
  return {};
}

}  // namespace cli
