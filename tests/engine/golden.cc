#include "tests/engine/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/src.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace engine {

namespace {

namespace json = boost::json;

json::value read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return json::parse(text.str());
}

std::filesystem::path golden_folder(bool* complete) {
  const std::filesystem::path source(NUMOE_SOURCE_DIR);
  const std::filesystem::path shared = source / "../shared/golden";
  const bool found = std::filesystem::exists(shared / "manifest.json");
  if (complete != nullptr) *complete = found;
  return found ? shared : source / "tests/golden";
}

std::vector<int32_t> ids_of(const json::value& list) {
  std::vector<int32_t> ids;
  for (const json::value& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

std::vector<std::pair<int32_t, float>> pairs_of(const json::value& list) {
  std::vector<std::pair<int32_t, float>> pairs;
  for (const json::value& pair : list.as_array()) {
    pairs.emplace_back(static_cast<int32_t>(pair.at(0).as_int64()),
                       static_cast<float>(pair.at(1).to_number<double>()));
  }
  return pairs;
}

GoldenSequence sequence_of(const json::value& v) {
  GoldenSequence sequence;
  sequence.tokens = ids_of(v.at("tokens"));
  for (const json::value& logit : v.at("last_logits").as_array()) {
    sequence.last_logits.push_back(static_cast<float>(logit.to_number<double>()));
  }
  for (const json::value& top : v.at("top8").as_array()) sequence.top8.push_back(pairs_of(top));
  if (const auto* experts = v.as_object().if_contains("experts")) {
    for (const auto& [layer, positions] : experts->as_object()) {
      const auto index = static_cast<size_t>(std::stoi(std::string(layer)));
      if (sequence.experts.size() <= index) sequence.experts.resize(index + 1);
      for (const json::value& ids : positions.as_array()) {
        sequence.experts[index].push_back(ids_of(ids));
      }
    }
  }
  sequence.greedy = pairs_of(v.at("greedy"));
  return sequence;
}

}  // namespace

namespace {

GoldenCase read_case(const std::filesystem::path& folder, std::string_view name,
                     const json::value& info) {
  GoldenCase one;
  one.name = std::string(name);
  one.path = folder / "models" / std::string(info.at("files").at(0).as_string());
  one.architecture = std::string(info.at("architecture").as_string());
  one.mean_max = info.at("tolerance").at("mean_abs").to_number<double>();
  one.difference_max = info.at("tolerance").at("max_abs").to_number<double>();
  const json::value data = read_json(folder / "models" / (one.name + ".json"));
  for (const json::value& s : data.at("reference").as_array()) {
    one.reference.push_back(sequence_of(s));
  }
  return one;
}

}  // namespace

std::vector<GoldenCase> golden_cases(const std::vector<std::string>& architectures,
                                     bool* complete) {
  const std::filesystem::path folder = golden_folder(complete);
  const json::value manifest = read_json(folder / "manifest.json");
  std::vector<GoldenCase> cases;
  for (const auto& [name, info] : manifest.at("cases").as_object()) {
    const std::string architecture(info.at("architecture").as_string());
    if (std::find(architectures.begin(), architectures.end(), architecture) ==
        architectures.end()) {
      continue;
    }
    const auto path = folder / "models" / std::string(info.at("files").at(0).as_string());
    if (!std::filesystem::exists(path)) continue;
    cases.push_back(read_case(folder, name, info));
  }
  std::sort(cases.begin(), cases.end(),
            [](const GoldenCase& a, const GoldenCase& b) { return a.name < b.name; });
  return cases;
}

GoldenCase golden_case(const std::string& name) {
  const std::filesystem::path folder = golden_folder(nullptr);
  const json::value manifest = read_json(folder / "manifest.json");
  const auto* info = manifest.at("cases").as_object().if_contains(name);
  if (info != nullptr) return read_case(folder, name, *info);
  ADD_FAILURE() << "no golden case " << name;
  return {};
}

std::string demo_model_path() {
  return std::filesystem::path(NUMOE_SOURCE_DIR) / "models/fairy-tales-moe-21m-Q4_K_M.gguf";
}

}  // namespace engine
