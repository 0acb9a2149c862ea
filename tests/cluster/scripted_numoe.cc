// The whole program with a scripted model in the place of the engine, so that tests of processes,
// signals and crashes need no weights and can be told when to fail.
//
// NUMOE_SCRIPT, words separated by blanks: load_error=RANK (load fails there), load_forever=RANK
// (it never ends), load_ms=N (how long it takes), crash_in_load=RANK (it aborts), crash_at_step=N
// (the leader aborts), crash_at_token=ID (it aborts when it computes that token), fail_at_step=N
// (the runner returns an error), step_us=N (how long a step takes), bind_denied=1 (memory could not
// be bound).
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "base/cat.h"
#include "cli/app.h"
#include "model/model.h"
#include "tests/worker/scripted_runner.h"

namespace {

using Script = std::map<std::string, int64_t>;

Script read_script() {
  Script script;
  const char* text = std::getenv("NUMOE_SCRIPT");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    script[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
  }
  return script;
}

int64_t value(const Script& script, const char* name, int64_t otherwise) {
  const auto found = script.find(name);
  return found == script.end() ? otherwise : found->second;
}

void pass_time(int64_t ns) {
  const timespec time{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  nanosleep(&time, nullptr);  // tidy: allow sleep because it stands for work that takes time
}

class ScriptedBackend final : public worker::Backend {
 public:
  ScriptedBackend(const worker::RankHostOptions& options, int64_t vocabulary, Script script)
      : options_(options),
        script_(std::move(script)),
        vocabulary_(vocabulary),
        runner_(runner_options()) {}

  std::string fingerprint() const override { return "scripted"; }
  int32_t token_count() const override { return static_cast<int32_t>(vocabulary_); }

  base::Status load(const worker::LoadWatch& watch) override {
    RETURN_IF_ERROR(watch(0, 1'000'000));
    if (value(script_, "load_error", -1) == options_.rank)
      return base::Error{base::Code::kNoSpace, "the scripted memory is full"};
    if (value(script_, "crash_in_load", -1) == options_.rank) std::abort();
    while (value(script_, "load_forever", -1) == options_.rank) pass_time(10'000'000);
    const int64_t load_ms = value(script_, "load_ms", 0);
    for (int64_t ms = 0; ms < load_ms; ms += 10) {
      RETURN_IF_ERROR(watch(static_cast<uint64_t>(ms * 1'000'000 / load_ms), 1'000'000));
      pass_time(10'000'000);
    }
    return watch(1'000'000, 1'000'000);
  }
  engine::StepRunner& runner() override { return runner_; }
  base::Result<bool> follow(base::TimeNs slice) override {
    pass_time(slice);
    return false;
  }
  worker::RankReport report() const override {
    worker::RankReport report;
    report.weight_bytes = 1'000'000;
    report.kv_bytes = 2'000'000;
    report.huge_page_bytes = 500'000;
    if (value(script_, "bind_denied", 0) != 0) report.bind = shm::Bind::kDenied;
    report.engine.layers = 4;
    report.engine.layer_waits = 22;
    return report;
  }
  proto::PlacementReply placement() const override {
    // Of the experts, a part lies on the other node if the script wants it.
    const auto wrong = static_cast<uint64_t>(value(script_, "misplaced_bytes", 0));
    return {.rank = options_.rank,
            .os_node = wrong > 0 ? 0 : options_.os_node,
            .page_bytes = 4096,
            .huge_bytes = 500'000,
            .source = "move_pages",
            .classes = {{.name = "experts",
                         .bytes = 1'000'000,
                         .bytes_on_node = {1'000'000 - wrong, wrong},
                         .bytes_asked = 1'000'000}}};
  }

 private:
  worker::ScriptedOptions runner_options() {
    const int64_t context = options_.context > 0 ? options_.context : 4096;
    worker::ScriptedOptions scripted{.vocabulary = vocabulary_,
                                     .context = context,
                                     .kv_block_count = static_cast<int32_t>((context + 63) / 64),
                                     .columns_max = options_.columns_max,
                                     .logit_columns_max = options_.columns_max,
                                     .fail_at_step = value(script_, "fail_at_step", -1)};
    scripted.before_step = [this](const engine::Step& step) {
      if (steps_++ == value(script_, "crash_at_step", -1)) std::abort();
      for (const engine::Column& column : step.columns)
        if (column.token == value(script_, "crash_at_token", -1)) std::abort();
      if (const int64_t us = value(script_, "step_us", 0); us > 0) pass_time(us * 1000);
    };
    return scripted;
  }

  const worker::RankHostOptions options_;
  const Script script_;
  const int64_t vocabulary_;
  int64_t steps_ = 0;
  worker::ScriptedRunner runner_;
};

base::Result<std::unique_ptr<worker::Backend>> open_scripted(
    const worker::RankHostOptions& options) {
  ASSIGN_OR_RETURN(const model::Directory directory, model::read_directory(options.model_path));
  const auto* pieces = directory.metadata.strings("tokenizer.ggml.tokens");
  const auto vocabulary = static_cast<int64_t>(pieces == nullptr ? 100 : pieces->size());
  return std::unique_ptr<worker::Backend>(
      std::make_unique<ScriptedBackend>(options, vocabulary, read_script()));
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run_app(argc, argv, open_scripted);
}
