#include "cli/options.h"

#include <gtest/gtest.h>

#include <limits>

namespace cli {
namespace {

ParsedOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "numoe");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

Options good(std::vector<const char*> arguments) {
  const ParsedOptions parsed = parse(std::move(arguments));
  EXPECT_FALSE(parsed.exit_code.has_value()) << parsed.message;
  return parsed.options;
}

/// The message of a refusal, which must be one line and mention `part`.
void refused(std::vector<const char*> arguments, std::string_view part) {
  const ParsedOptions parsed = parse(std::move(arguments));
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_NE(parsed.message.find(part), std::string::npos) << parsed.message;
  EXPECT_EQ(std::count(parsed.message.begin(), parsed.message.end(), '\n'), 1) << parsed.message;
}

TEST(Options, RunHasDefaults) {
  const Options options = good({"run", "m.gguf"});
  EXPECT_EQ(options.command, Command::kRun);
  EXPECT_EQ(options.model, "m.gguf");
  EXPECT_FALSE(options.prompt.has_value());
  EXPECT_FALSE(options.seed.has_value());
  EXPECT_EQ(options.max_tokens, 0);
  EXPECT_EQ(options.temperature, 0.8);
  EXPECT_EQ(options.isa, "auto");
  EXPECT_FALSE(options.stats);
}

TEST(Options, StrategiesAreThoseThatACommandCanRun) {
  EXPECT_EQ(good({"run", "m"}).strategy, "auto");
  EXPECT_EQ(good({"serve", "m"}).strategy, "auto");
  EXPECT_EQ(good({"serve", "m"}).replicas, 0);
  const Options options = good(
      {"serve", "m", "--strategy", "replicas", "--replicas", "4", "--objective", "throughput"});
  EXPECT_EQ(options.strategy, "replicas");
  EXPECT_EQ(options.replicas, 4);
  EXPECT_EQ(options.objective, "throughput");
  refused({"run", "m", "--strategy", "replicas"}, "--strategy");
  refused({"run", "m", "--replicas", "2"}, "--replicas");
  refused({"serve", "m", "--objective", "fame"}, "--objective");
}

TEST(Options, ServeTakesWhatItNeeds) {
  const Options options = good({"serve",
                                "m",
                                "--host",
                                "::1",
                                "--port",
                                "0",
                                "--alias",
                                "a",
                                "--parallel",
                                "3",
                                "--queue",
                                "5",
                                "--api-key-file",
                                "k",
                                "--max-body",
                                "7",
                                "--drain-timeout",
                                "9",
                                "--log-requests",
                                "--orphan-timeout",
                                "11",
                                "--keep-weights",
                                "--hang-timeout",
                                "13"});
  EXPECT_EQ(options.command, Command::kServe);
  EXPECT_EQ(options.host, "::1");
  EXPECT_EQ(options.port, 0);
  EXPECT_EQ(options.alias, "a");
  EXPECT_EQ(options.parallel, 3);
  EXPECT_EQ(options.queue, 5);
  EXPECT_EQ(options.api_key_file, "k");
  EXPECT_EQ(options.max_body_mib, 7);
  EXPECT_EQ(options.drain_seconds, 9);
  EXPECT_TRUE(options.log_requests);
  EXPECT_EQ(options.orphan_seconds, 11);
  EXPECT_TRUE(options.keep_weights);
  EXPECT_EQ(options.hang_seconds, 13);
  const Options defaults = good({"serve", "m"});
  EXPECT_EQ(defaults.host, "127.0.0.1");
  EXPECT_EQ(defaults.port, 8080);
  EXPECT_EQ(defaults.parallel, 4);
  refused({"serve", "m", "--port", "70000"}, "--port");
  refused({"serve", "m", "--parallel", "0"}, "--parallel");
  refused({"serve", "m", "--config", "nosuch.toml"}, "nosuch.toml");
}

TEST(Options, EveryOptionReachesItsField) {
  const Options options = good({"run",
                                "m",
                                "-p",
                                "- text",
                                "-n",
                                "5",
                                "--temp",
                                "0.5",
                                "--top-k",
                                "7",
                                "--top-p",
                                "0.25",
                                "--min-p",
                                "0.125",
                                "--repeat-penalty",
                                "1.5",
                                "--presence-penalty",
                                "-1",
                                "--frequency-penalty",
                                "2",
                                "--penalty-window",
                                "-1",
                                "--seed",
                                "18446744073709551615",
                                "--ignore-eos",
                                "--system",
                                "s",
                                "--special",
                                "--nodes",
                                "3",
                                "--threads-per-node",
                                "2",
                                "--isa",
                                "avx2",
                                "--kv-type",
                                "f32",
                                "--ctx",
                                "100",
                                "--chunk",
                                "16",
                                "--arena-dir",
                                "/d",
                                "--stats"});
  EXPECT_EQ(options.prompt, "- text");
  EXPECT_EQ(options.max_tokens, 5);
  EXPECT_EQ(options.temperature, 0.5);
  EXPECT_EQ(options.top_k, 7);
  EXPECT_EQ(options.top_p, 0.25);
  EXPECT_EQ(options.min_p, 0.125);
  EXPECT_EQ(options.repeat_penalty, 1.5);
  EXPECT_EQ(options.presence_penalty, -1);
  EXPECT_EQ(options.frequency_penalty, 2);
  EXPECT_EQ(options.penalty_window, -1);
  EXPECT_EQ(options.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(options.ignore_eos && options.special && options.stats);
  EXPECT_EQ(options.system, "s");
  EXPECT_EQ(options.nodes, 3);
  EXPECT_EQ(options.threads_per_node, 2);
  EXPECT_EQ(options.isa, "avx2");
  EXPECT_EQ(options.kv_type, "f32");
  EXPECT_EQ(options.context, 100);
  EXPECT_EQ(options.chunk, 16);
  EXPECT_EQ(options.arena_directory, "/d");
}

TEST(Options, OtherCommands) {
  EXPECT_EQ(good({"logits", "m", "--tokens", "1 2"}).tokens, "1 2");
  EXPECT_EQ(good({"logits", "m", "--tokens", "1 2"}).command, Command::kLogits);
  EXPECT_EQ(good({"tokenize", "m", "-p", ""}).prompt, "");
  EXPECT_TRUE(good({"tokenize", "m", "--special", "--bos"}).bos);
  EXPECT_EQ(good({"detokenize", "m", "5", "0", "77"}).ids, (std::vector<int32_t>{5, 0, 77}));
  EXPECT_EQ(good({"perplexity", "m", "-f", "t"}).file, "t");
  EXPECT_TRUE(good({"inspect", "m", "--json"}).json);
  const Options worker =
      good({"worker", "m", "--rank=1", "--ranks=2", "--group=g", "--endpoint=e", "--incarnation=9",
            "--os-node=-1", "--cpus=-1,3", "--shares=3,1", "--decode-threads=2",
            "--oversubscribed"});
  EXPECT_EQ(worker.command, Command::kWorker);
  EXPECT_EQ(worker.rank, 1);
  EXPECT_EQ(worker.ranks, 2);
  EXPECT_EQ(worker.incarnation, 9u);
  EXPECT_EQ(worker.os_node, -1);
  EXPECT_EQ(worker.cpus, "-1,3");
  EXPECT_EQ(worker.shares, "3,1");
  EXPECT_EQ(worker.decode_threads, 2);
  EXPECT_TRUE(worker.oversubscribed);
}

TEST(Options, BadValuesNameTheOption) {
  refused({"run", "m", "--temp", "hot"}, "--temp");
  refused({"run", "m", "--temp", "-0.1"}, "--temp");
  refused({"run", "m", "--temp", "nan"}, "--temp");
  refused({"run", "m", "--temp", "inf"}, "--temp");
  refused({"run", "m", "--temp"}, "--temp");
  refused({"run", "m", "--top-k", "1.5"}, "--top-k");
  refused({"run", "m", "--top-k", "-1"}, "--top-k");
  refused({"run", "m", "--top-p", "1.01"}, "--top-p");
  refused({"run", "m", "--min-p", "-1"}, "--min-p");
  refused({"run", "m", "-n", "-5"}, "--max-tokens");
  refused({"run", "m", "-n", "99999999999"}, "--max-tokens");
  refused({"run", "m", "-n", "2.5"}, "--max-tokens");
  refused({"run", "m", "--isa", "avx512"},
          "must be one of auto reference scalar avx2 avxvnni avx512vl avx512vnni");
  refused({"run", "m", "--seed", "-1"}, "--seed");
  refused({"run", "m", "--seed", "18446744073709551616"}, "--seed");
  refused({"run", "m", "--nodes", "65"}, "--nodes");
  refused({"run", "m", "--threads-per-node", "x"}, "--threads-per-node");
  refused({"run", "m", "--isa", "mmx"}, "--isa");
  refused({"run", "m", "--kv-type", "q4"}, "--kv-type");
  refused({"run", "m", "--kv-type", "q4"}, "f16 q8_0 f32");
  refused({"run", "m", "--ctx", "1048577"}, "--ctx");
  refused({"run", "m", "--chunk", "513"}, "--chunk");
  refused({"logits", "m"}, "--tokens");
  refused({"perplexity", "m"}, "--file");
  refused({"detokenize", "m"}, "ids");
  refused({"detokenize", "m", "-1"}, "-1");
  refused({"detokenize", "m", "5", "x"}, "ids");
  refused({"run"}, "model");
  refused({"run", "m", "--nonsense"}, "--nonsense");
  refused({"inspect", "m", "--temp", "1"}, "--temp");
  refused({"frobnicate"}, "frobnicate");
  refused({}, "A subcommand is required");
}

TEST(Options, HelpComesFromTheTable) {
  const ParsedOptions help = parse({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name : {"run", "logits", "tokenize", "detokenize", "perplexity", "inspect"})
    EXPECT_NE(help.message.find(name), std::string::npos) << name;
  EXPECT_EQ(help.message.find("worker"), std::string::npos) << "hidden";
  const ParsedOptions run = parse({"run", "--help"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* name :
       {"--prompt", "--max-tokens", "--temp", "--min-p", "--seed", "--nodes", "--isa", "--kv-type",
        "--chunk", "--arena-dir", "--stats", "--ignore-eos"})
    EXPECT_NE(run.message.find(name), std::string::npos) << name;
  const ParsedOptions version_asked = parse({"--version"});
  EXPECT_EQ(version_asked.exit_code, 0);
  EXPECT_EQ(version_asked.message, std::string("numoe ") + version() + "\n");
}

TEST(Options, IdsAreNumbersAndNothingElse) {
  EXPECT_EQ(*parse_ids("--tokens", "1 2 3", 0), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(*parse_ids("--cpus", " 1,2,\n-1 ", -1), (std::vector<int32_t>{1, 2, -1}));
  EXPECT_EQ(*parse_ids("--tokens", "0,2147483647", 0), (std::vector<int32_t>{0, 2147483647}));
  const auto refusal = [](const char* text) {
    const auto ids = parse_ids("--tokens", text, 0);
    EXPECT_FALSE(ids.ok()) << text;
    return ids.ok() ? "" : ids.error().message;
  };
  const std::pair<const char*, const char*> cases[] = {
      {"1 x", "\"x\""},     {"1x 2", "\"1x\""},
      {"1.5", "\"1.5\""},   {"99999999999", "\"99999999999\""},
      {"1 -2", "\"-2\""},   {"2147483648", "\"2147483648\""},
      {"", "at least one"}, {" ,", "at least one"}};
  for (const auto& [text, part] : cases) {
    EXPECT_NE(refusal(text).find(part), std::string::npos) << refusal(text);
    EXPECT_NE(refusal(text).find("--tokens"), std::string::npos) << refusal(text);
  }
}

}  // namespace
}  // namespace cli
