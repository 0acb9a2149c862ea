// What `numoe bench` measures for which options, and how it tells what it found.
#include <gtest/gtest.h>

#include <sstream>

#include "broker/api/json.h"
#include "cli/bench_report.h"
#include "cli/bench_tests.h"
#include "cli/options.h"

namespace cli {
namespace {

Options parsed(std::vector<const char*> words) {
  words.insert(words.begin(), {"numoe", "bench", "m.gguf"});
  const ParsedOptions result = parse_options(static_cast<int>(words.size()), words.data());
  EXPECT_FALSE(result.exit_code.has_value()) << result.message;
  return result.options;
}

std::vector<std::string> names(const std::vector<const char*>& words) {
  const auto tests = bench_tests(parsed(words), 128);
  if (!tests.ok()) return {tests.error().message};
  std::vector<std::string> all;
  for (const BenchTest& test : *tests) all.push_back(test.name());
  return all;
}

using Names = std::vector<std::string>;

TEST(BenchTests, AreThoseOfTheOptions) {
  EXPECT_EQ(names({}), (Names{"pp512", "tg128"}));
  EXPECT_EQ(names({"-p", "128,512", "-n", "0"}), (Names{"pp128", "pp512"}));
  EXPECT_EQ(names({"-p", "0", "-n", "16", "-b", "1,8"}), (Names{"tg16", "tg16 x8"}));
  EXPECT_EQ(names({"-p", "0", "-n", "0", "-pg", "512,128,64,1"}),
            (Names{"pp512+tg128", "pp64+tg1"}));
  EXPECT_EQ(names({"-d", "0,256", "-p", "8", "-n", "4"}),
            (Names{"pp8", "tg4", "pp8 @ d256", "tg4 @ d256"}));
  EXPECT_EQ(names({"-d", "100", "-p", "0", "-n", "4"}), (Names{"tg4 @ d100"}));
  EXPECT_EQ(parsed({"-t", "3"}).threads_per_node, 3);
}

TEST(BenchTests, ErrorsNameTheOption) {
  for (const auto& [words, part] : std::vector<std::pair<std::vector<const char*>, const char*>>{
           {{"-p", "0", "-n", "0"}, "-p, -n or -pg"},
           {{"-p", "x"}, "--n-prompt"},
           {{"-n", "-3"}, "--n-gen"},
           {{"-b", "0"}, "--n-seq"},
           {{"-b", "100000"}, "-b 100000"},
           {{"-pg", "512"}, "-pg"},
           {{"-d", "100"}, "-d 100"}}) {
    const Names found = names(words);
    ASSERT_EQ(found.size(), 1u) << part;
    EXPECT_NE(found[0].find(part), std::string::npos) << found[0];
  }
}

TEST(BenchTests, EverySequenceHasRoom) {
  // Alone: its prompt, or one token, and what it generates.
  EXPECT_GE((BenchTest{.prompt = 0, .generated = 100}.context(128)), 102);
  // Of eight, the first one generates until the last one's prompt is through.
  const BenchTest eight{.prompt = 0, .generated = 10, .depth = 1000, .sequences = 8};
  EXPECT_GE(eight.context(128), 1000 + 10 + 8 * 8);
}

TEST(Mean, OfSamples) {
  EXPECT_EQ(mean_of({}).mean, 0);
  EXPECT_EQ(mean_of({4}).mean, 4);
  EXPECT_EQ(mean_of({4}).deviation, 0);
  EXPECT_EQ(mean_of({1, 2, 3}).mean, 2);
  EXPECT_EQ(mean_of({1, 2, 3}).deviation, 1);
}

BenchSetting a_setting() {
  BenchSetting setting;
  setting.version = "1";
  setting.cpu = "A \"CPU\"";
  setting.model_path = "m.gguf";
  setting.model_type = "llama Q4_K";
  setting.model_bytes = uint64_t{3} << 30;
  setting.threads = 3;
  setting.decode_threads = 2;
  return setting;
}

BenchResult a_result() {
  BenchResult result;
  result.test = {.prompt = 0, .generated = 64};
  result.started_at = "2025-01-31T12:00:00Z";
  result.samples = {2'000'000'000, 4'000'000'000};
  result.ceiling_gb_per_s = 40;
  result.gb_per_s = 30;
  result.stats.resize(2);
  return result;
}

TEST(BenchReport, JsonHasTheFieldsOfLlamaBenchAndItsOwn) {
  const BenchSetting setting = a_setting();
  const std::string text =
      bench_head(setting, BenchFormat::kJson) + bench_row(setting, a_result(), BenchFormat::kJson) +
      bench_separator(BenchFormat::kJson) + bench_row(setting, a_result(), BenchFormat::kJson) +
      bench_tail(setting, BenchFormat::kJson);
  broker::Json json;
  ASSERT_FALSE(broker::parse_json(text, {}, json)) << text;
  ASSERT_NE(json.array(), nullptr);
  ASSERT_EQ(json.array()->size(), 2u);
  const broker::Json& row = (*json.array())[0];
  for (const char* name :
       {"build_commit",   "build_number", "cpu_info",         "gpu_info",       "backends",
        "model_filename", "model_type",   "model_size",       "model_n_params", "n_batch",
        "n_ubatch",       "n_threads",    "type_k",           "type_v",         "n_prompt",
        "n_gen",          "n_depth",      "test_time",        "avg_ns",         "stddev_ns",
        "avg_ts",         "stddev_ts",    "samples_ns",       "samples_ts",     "n_seq",
        "n_nodes",        "gb_per_s",     "ceiling_gb_per_s", "ceiling_share",  "ranks"})
    EXPECT_NE(row.find(name), nullptr) << name;
  EXPECT_EQ(*row.find("cpu_info")->string(), "A \"CPU\"");
  EXPECT_EQ(*row.find("n_threads")->integer(), 2);
  EXPECT_EQ(*row.find("avg_ns")->integer(), 3'000'000'000);
  EXPECT_EQ(*row.find("avg_ts")->number(), 24);  // of 32 and 16
  EXPECT_EQ(*row.find("ceiling_share")->number(), 0.75);
  EXPECT_EQ(row.find("ranks")->array()->size(), 2u);
}

TEST(BenchReport, OtherFormatsHaveOneLineForEachTest) {
  const BenchSetting setting = a_setting();
  broker::Json json;
  const std::string line = bench_row(setting, a_result(), BenchFormat::kJsonLines);
  EXPECT_FALSE(broker::parse_json(line, {}, json));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const std::string head = bench_head(setting, BenchFormat::kCsv);
  const std::string row = bench_row(setting, a_result(), BenchFormat::kCsv);
  EXPECT_EQ(std::count(head.begin(), head.end(), ','), std::count(row.begin(), row.end(), ','));
  EXPECT_NE(row.find("\"A \"\"CPU\"\"\""), std::string::npos) << row;
  const std::string table = bench_head(setting, BenchFormat::kMarkdown) +
                            bench_row(setting, a_result(), BenchFormat::kMarkdown);
  EXPECT_NE(table.find("24.00 ± 11.31"), std::string::npos) << table;
  EXPECT_NE(table.find("75 %"), std::string::npos) << table;
  std::istringstream lines(table);
  std::string first, next;
  std::getline(lines, first);
  while (std::getline(lines, next)) {
    EXPECT_EQ(std::count(next.begin(), next.end(), '|'),
              std::count(first.begin(), first.end(), '|'));
  }
}

}  // namespace
}  // namespace cli
