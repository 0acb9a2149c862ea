#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/cat.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "model/inspect.h"
#include "model/synth.h"

namespace cli {

namespace {

using base::cat;

/// The first model file of a folder by name; empty if there is none.
std::string first_model(const std::filesystem::path& folder) {
  std::error_code failed;
  std::string first;
  for (auto it = std::filesystem::directory_iterator(folder, failed);
       !failed && it != std::filesystem::directory_iterator(); it.increment(failed)) {
    const std::string path = it->path().string();
    if (path.ends_with(".gguf") && (first.empty() || path < first)) first = path;
  }
  return first;
}

/// The demo model: beside the program, in the tree it was built in, or installed with it.
base::Result<std::string> demo_model() {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  const std::filesystem::path folders[] = {program / "models", program / "../models",
                                           program / "../share/numoe/models", NUMOE_SOURCE_MODELS};
  for (const std::filesystem::path& folder : folders)
    if (std::string found = first_model(folder.lexically_normal()); !found.empty()) return found;
  return base::Error{base::Code::kNotFound,
                     cat("there is no model in ", (program / "models").string(),
                         " to take the vocabulary from; name a GGUF file with --vocab")};
}

class Rate {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  std::string text(uint64_t bytes) const {
    const double rate = static_cast<double>(bytes) / 1e6 / std::max(seconds(), 1e-9);
    return cat(static_cast<int64_t>(rate + 0.5), " MB/s");
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string in_tenths(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

}  // namespace

base::Status synth(Context& context) {
  const Options& options = context.options;
  const model::SynthShape* shape = model::find_synth_preset(options.preset);
  if (shape == nullptr)
    return base::Error{base::Code::kInvalidArgument, cat("no shape is named ", options.preset)};
  std::string vocabulary = options.vocabulary_file;
  if (vocabulary.empty()) {
    ASSIGN_OR_RETURN(vocabulary, demo_model());
  }
  ASSIGN_OR_RETURN(const ModelText text, open_text(vocabulary, context.log));
  ASSIGN_OR_RETURN(const model::SynthPlan plan,
                   model::plan_synth(*shape,
                                     {.architecture = options.architecture,
                                      .weight_type = options.weight_type,
                                      .layers = options.layers},
                                     text.metadata));
  const Rate rate;
  Progress progress(stderr, style_for(stderr), "writing");
  const auto on_progress = [&](uint64_t done, uint64_t total) {
    progress.update(done, total, "MB", rate.text(done));
    return !context.signals.asked_to_end();
  };
  const auto written = model::write_synth(plan, options.output,
                                          {.replace = options.force, .on_progress = on_progress});
  if (context.signals.ending_signal() != 0) return context.signals.error();
  if (!written.ok()) return written.error();
  progress.finish();
  context.log.info(cat("wrote ", options.output, ": ",
                       in_tenths(static_cast<double>(*written) / 1e6), " MB in ",
                       in_tenths(rate.seconds()), " s, ", rate.text(*written)));
  ASSIGN_OR_RETURN(const model::Model model, model::load_model(options.output));
  context.log.info(cat(shape->title, " as ", model.spec.architecture, ", ",
                       model.spec.blocks.size(), " layers, output head ",
                       kernels::type_info(model.output->type).name, ", ",
                       model::active_bytes_per_token(model), " bytes read per decoded token"));
  return {};
}

}  // namespace cli
