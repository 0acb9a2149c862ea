// Counts of experts: from the page of a server to plans and tables, and what is wrong with a file.
#include "cli/expert_use.h"

#include <gtest/gtest.h>

#include <string>

#include "base/cat.h"
#include "base/limits.h"
#include "broker/http/report_pages.h"
#include "cli/commands.h"

namespace cli {
namespace {

using Use = std::vector<std::vector<double>>;
using Layers = std::vector<proto::LayerUse>;

std::string page(const std::vector<Layers>& groups) {
  broker::ServerStatus server;
  for (const Layers& layers : groups) server.groups.emplace_back().stats.expert_use = layers;
  return broker::experts_page(server).body;
}

std::string refusal(const std::string& json) {
  const auto use = expert_use_from_json(json);
  EXPECT_FALSE(use.ok()) << json;
  if (use.ok()) return {};
  EXPECT_EQ(use.error().code, base::Code::kBrokenFile);
  return use.error().message;
}

TEST(ExpertUse, OfTheServersPageComesBack) {
  const Layers layers = {{}, {.choices = {5, 0, 7}, .owners = {0, 1, 0}}, {.choices = {1, 2}}};
  const auto use = expert_use_from_json(page({layers}));
  ASSERT_TRUE(use.ok()) << use.error().message;
  EXPECT_EQ(*use, (Use{{}, {5, 0, 7}, {1, 2}}));
  // Replicas count together; one that loads has told nothing yet.
  const auto sum = expert_use_from_json(page({{}, layers, layers}));
  ASSERT_TRUE(sum.ok()) << sum.error().message;
  EXPECT_EQ(*sum, (Use{{}, {10, 0, 14}, {2, 4}}));
  const auto largest = expert_use_from_json(page({{{.choices = {uint64_t{1} << 48}}}}));
  ASSERT_TRUE(largest.ok());
  EXPECT_EQ(largest->at(0).at(0), 281474976710656.0);
}

TEST(ExpertUse, RefusesWhatAServerDoesNotSay) {
  const auto of = [](const std::string& layers) {
    return base::cat(R"({"object":"expert_use","groups":[{"layers":)", layers, "}]}");
  };
  const std::string what = "this is not what numoe status --experts --json prints: ";
  std::string ones = "1";
  for (int i = 0; i < base::kExpertsMax; i++) ones += ",1";
  std::string layers = R"({"choices":[1]})";
  for (int i = 0; i < base::kLayersMax; i++) layers += R"(,{"choices":[1]})";
  for (const auto& [json, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"", what},
           {"{", what},
           {"[]", what + "its object is not expert_use"},
           {R"({"object":7})", what + "its object is not expert_use"},
           {R"({"object":"status"})", what + "its object is not expert_use"},
           {R"({"object":"expert_use"})", what + "groups are missing"},
           {R"({"object":"expert_use","groups":{}})", what + "groups are missing"},
           {R"({"object":"expert_use","groups":[]})", what + "it has no group"},
           {R"({"object":"expert_use","groups":[3]})", what + "layers are missing"},
           {of("[]"), "no expert was counted yet"},
           {of("[{}]"), what + "choices is missing or no array"},
           {of(R"([{"choices":[1,-1]}])"), what + "choices holds -1"},
           {of(R"([{"choices":[0.5]}])"), what + "choices holds 0.5"},
           {of(R"([{"choices":["1"]}])"), what + "choices holds"},
           {of(R"([{"choices":[281474976710657]}])"), what + "choices holds 281474976710657"},
           {of(R"([{"choices":[18446744073709551615]}])"), what + "choices holds"},
           {of(R"([{"choices":[1],"owners":[64]}])"), what + "owners holds 64"},
           {of(R"([{"choices":[1],"owners":[0,1]}])"), what + "owners and choices differ"},
           {of(base::cat(R"([{"choices":[)", ones, "]}]")), what + "choices has more than 1024"},
           {of(base::cat("[", layers, "]")), what + "more than 1024 layers"}}) {
    EXPECT_EQ(refusal(json).substr(0, sentence.size()), sentence) << json.substr(0, 200);
  }
  EXPECT_EQ(refusal(page({{{.choices = {1}}}, {{.choices = {1, 1}}}})),
            what + "its groups differ in layers or experts");
}

TEST(ExpertUse, OfAFileIsRefusedWithItsName) {
  Options options;
  EXPECT_EQ(counted_expert_use(options)->size(), 0u);
  options.expert_use = "/nowhere/use.json";
  const auto missing = counted_expert_use(options);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("--expert-use /nowhere/use.json: "), std::string::npos);
  options.strategy = "rows";
  const auto unused = counted_expert_use(options);
  ASSERT_FALSE(unused.ok());
  EXPECT_EQ(unused.error().code, base::Code::kInvalidArgument);
  EXPECT_NE(unused.error().message.find("only --strategy experts"), std::string::npos);
}

TEST(ExpertUse, CompletesWhatOneRankKnows) {
  Layers layers = {{.choices = {1, 1}}, {}};
  complete(layers, {{.choices = {9, 9}}, {.choices = {2, 3}}, {.choices = {4}}});
  EXPECT_EQ(layers, (Layers{{.choices = {1, 1}}, {.choices = {2, 3}}, {.choices = {4}}}));
}

TEST(ExpertUse, IsShownByRankAndExpert) {
  EXPECT_EQ(rank_imbalance({.choices = {6, 1, 1, 0}}), 1) << "everybody has rows of each";
  EXPECT_DOUBLE_EQ(rank_imbalance({.choices = {6, 1, 1, 0}, .owners = {0, 0, 1, 1}}), 1.75);
  EXPECT_EQ(rank_imbalance({.choices = {0, 0}, .owners = {0, 1}}), 1) << "nothing was chosen";
  const Layers layers = {{}, {.choices = {6, 1, 1, 0}, .owners = {0, 0, 1, 1}}};
  EXPECT_EQ(expert_use_line(layers),
            "experts:   most used is 0 of layer 1, 75.0 % of its choices (evenly: 25.0 %); ranks: "
            "most/mean up to 1.75\n");
  EXPECT_EQ(expert_use_line(Layers{{}, {.choices = {0, 0}}}), "");
  const auto table = expert_use_table(page({layers, {}}));
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_NE(table->find("experts of replica 0:\n"), std::string::npos) << *table;
  EXPECT_NE(table->find("0 (75.0 %), 1 (12.5 %), 2 (12.5 %), 3 (0.0 %)"), std::string::npos)
      << *table;
  EXPECT_NE(table->find("experts of replica 1:\nno expert was chosen yet\n"), std::string::npos)
      << *table;
  EXPECT_FALSE(expert_use_table("{}").ok());
}

}  // namespace
}  // namespace cli
