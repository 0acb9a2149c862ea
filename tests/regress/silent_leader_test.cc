// A leader that was stopped (SIGSTOP) was waited for without end.
#include <gtest/gtest.h>

#include <csignal>

#include "cli/local_cluster.h"

namespace cli {
namespace {

/// What the command needs of a backend: the fingerprint that its workers have.
class NamedBackend final : public worker::Backend {
 public:
  std::string fingerprint() const override { return "scripted"; }
  int32_t token_count() const override { return 100; }
  base::Status load(const worker::LoadWatch&) override { return unused(); }
  engine::StepRunner& runner() override { CHECK(false, "only its name is used"); }
  base::Result<bool> follow(base::TimeNs) override { return unused(); }
  worker::RankReport report() const override { return {}; }
  proto::PlacementReply placement() const override { return {}; }

 private:
  static base::Error unused() { return {base::Code::kUnsupported, "only its name is used"}; }
};

constexpr base::TimeNs kSecond = 1'000'000'000;

base::Result<std::unique_ptr<worker::Backend>> open_named(const worker::RankHostOptions&) {
  return std::unique_ptr<worker::Backend>(std::make_unique<NamedBackend>());
}

base::Result<std::unique_ptr<LocalCluster>> start(SignalWatch& signals, base::Log& log) {
  ClusterOptions options;
  options.rank.model_path = NUMOE_SOURCE_DIR "/models/fairy-tales-moe-21m-Q4_K_M.gguf";
  options.place = {.nodes = 1, .threads_per_node = 1};
  options.program = SCRIPTED_NUMOE;
  options.silence_max = kSecond;
  return LocalCluster::start(options, open_named, signals, log, {});
}

TEST(SilentLeader, IsGivenUpWithASentence) {
  SignalWatch signals;
  base::NullLog log;
  const auto started = start(signals, log);
  ASSERT_TRUE(started.ok()) << started.error().message;
  LocalCluster& cluster = **started;
  int tokens = 0;
  const auto generated =
      cluster.generate({.prompt = {1, 2, 3}, .max_tokens = 0}, [&](std::span<const int32_t>) {
        if (tokens++ == 0) kill(cluster.worker_pid(0), SIGSTOP);
        return Continue::kYes;
      });
  ASSERT_FALSE(generated.ok());
  EXPECT_EQ(generated.error().code, base::Code::kTimeout);
  EXPECT_NE(generated.error().message.find("worker 0 (process "), std::string::npos);
  EXPECT_NE(generated.error().message.find("has said nothing for 1 s"), std::string::npos)
      << generated.error().message;
}

TEST(SilentLeader, OneThatOnlyHasNothingToSayIsNot) {
  // 60 steps of 50 ms without a token: three times the bound.
  setenv("NUMOE_SCRIPT", "step_us=50000", 1);
  SignalWatch signals;
  base::NullLog log;
  const auto started = start(signals, log);
  unsetenv("NUMOE_SCRIPT");
  ASSERT_TRUE(started.ok()) << started.error().message;
  proto::GenerateRequest request{.prompt = std::vector<int32_t>(60, 1), .max_tokens = 1};
  request.prefill_chunk = 1;
  const auto generated =
      (*started)->generate(request, [](std::span<const int32_t>) { return Continue::kYes; });
  ASSERT_TRUE(generated.ok()) << generated.error().message;
  EXPECT_EQ(generated->tokens.size(), 1u);
}

}  // namespace
}  // namespace cli
