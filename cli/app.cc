#include "cli/app.h"

#include <cstdio>

#include "cli/commands.h"
#include "cli/input.h"

namespace cli {

namespace {

base::Status dispatch(Context& context) {
  switch (context.options.command) {
    case Command::kRun: return context.options.prompt ? run(context) : chat(context);
    case Command::kServe: return serve(context);
    case Command::kLogits: return logits(context);
    case Command::kTokenize: return tokenize(context);
    case Command::kDetokenize: return detokenize(context);
    case Command::kPerplexity: return perplexity(context);
    case Command::kInspect: return inspect(context);
    case Command::kBench: return bench(context);
    case Command::kSynth: return synth(context);
    case Command::kProbe: return probe(context);
    case Command::kStatus: return status(context);
    case Command::kDoctor: return doctor(context);
    case Command::kShm: return shm_tool(context);
    case Command::kTopology: return topology(context);
    case Command::kPlan: return plan(context);
    case Command::kCompletion: return completion(context);
    case Command::kWorker: break;  // run_app's own
  }
  return {};
}

}  // namespace

int run_app(int argc, const char* const* argv, const worker::BackendFactory& factory) {
  open_standard_descriptors();
  const ParsedOptions parsed = parse_options(argc, argv);
  if (parsed.exit_code) {
    std::fputs(parsed.message.c_str(), *parsed.exit_code == 0 ? stdout : stderr);
    return *parsed.exit_code;
  }
  if (parsed.options.command == Command::kWorker) {
    // A worker leaves signals as they are: it ends when told to, or with its parent.
    base::StderrLog log("numoe worker", base::Level::kWarning);
    return be_worker(parsed.options, factory, log).ok() ? 0 : 1;
  }
  base::StderrLog log("numoe", base::Level::kInfo);
  SignalWatch signals;
  Context context{parsed.options, signals, factory, log};
  const base::Status status = dispatch(context);
  if (status.ok()) return 0;
  if (status.error().code != base::Code::kCancelled) log.error(status.error().message);
  return signals.ending_signal() != 0 ? 128 + signals.ending_signal() : 1;
}

}  // namespace cli
