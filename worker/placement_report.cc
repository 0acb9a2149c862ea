#include "worker/placement_report.h"

#include <algorithm>

#include "base/check.h"
#include "shm/region.h"

namespace worker {

namespace {

constexpr char kExperts[] = "experts", kSharedExperts[] = "shared experts",
               kFeedForward[] = "feed-forward", kAttention[] = "attention", kRouter[] = "router",
               kNorms[] = "norms", kEmbedding[] = "embedding", kOutput[] = "output",
               kWeights[] = "weights", kKvCache[] = "KV cache", kExchange[] = "exchange";

/// Classes and their ranges, while they are collected.
class Ranges {
 public:
  void add(const std::string& name, std::span<const std::byte> memory) {
    if (memory.empty()) return;
    const auto found = std::find(names_.begin(), names_.end(), name);
    const auto index = static_cast<size_t>(found - names_.begin());
    if (found == names_.end()) names_.push_back(name);
    ranges_.push_back({.memory = memory, .class_index = index});
  }

  std::span<const shm::SurveyRange> all() const { return ranges_; }
  size_t classes() const { return names_.size(); }

  void put_into(proto::PlacementReply& reply, const shm::PageSurvey& survey) const {
    for (size_t i = 0; i < names_.size(); i++) {
      const shm::SurveyCount& count = survey.classes[i];
      reply.classes.push_back({.name = names_[i],
                               .bytes = count.bytes,
                               .bytes_on_node = count.bytes_on_node,
                               .bytes_absent = count.bytes_absent,
                               .bytes_asked = count.bytes_asked});
    }
  }

 private:
  std::vector<std::string> names_;
  std::vector<shm::SurveyRange> ranges_;
};

void add_memory(const PlacementParts& parts, Ranges& ranges) {
  ranges.add(kKvCache, parts.kv_cache);
  ranges.add(kExchange, parts.exchange);
}

Ranges tensor_ranges(const PlacementParts& parts) {
  Ranges ranges;
  const std::vector<std::string> classes = slice_classes(*parts.map);
  // The order of a report: where the bytes are, first.
  for (const char* name :
       {kExperts, kSharedExperts, kFeedForward, kAttention, kRouter, kNorms, kEmbedding, kOutput}) {
    for (size_t i = 0; i < classes.size(); i++) {
      const engine::WeightSlice& slice = parts.map->slices[i];
      if (classes[i] == name) ranges.add(name, {parts.weights + slice.offset, slice.bytes()});
    }
  }
  add_memory(parts, ranges);
  return ranges;
}

Ranges mapping_ranges(const PlacementParts& parts) {
  Ranges ranges;
  ranges.add(kWeights, parts.arena);
  add_memory(parts, ranges);
  return ranges;
}

}  // namespace

std::vector<std::string> slice_classes(const engine::WeightMap& map) {
  std::vector<std::string> classes(map.slices.size(), kNorms);
  const auto put = [&](const char* name, std::initializer_list<int> slices) {
    for (const int slice : slices)
      if (slice >= 0) classes[static_cast<size_t>(slice)] = name;
  };
  for (const engine::BlockSlices& block : map.blocks) {
    put(kAttention, {block.q, block.k, block.v, block.attention_output, block.q_down, block.q_up,
                     block.kv_down, block.k_up, block.v_up});
    put(kRouter, {block.router, block.selection_bias, block.shared_router});
    put(block.router >= 0 ? kExperts : kFeedForward, {block.gate, block.up, block.down});
    put(kSharedExperts, {block.shared_gate, block.shared_up, block.shared_down});
  }
  put(kOutput, {map.output});
  put(kEmbedding, {map.token_embedding});
  return classes;
}

proto::PlacementReply placement_report(const PlacementParts& parts) {
  CHECK(parts.map != nullptr && parts.weights != nullptr, "nothing is loaded");
  proto::PlacementReply reply{.os_node = parts.os_node};
  Ranges ranges = tensor_ranges(parts);
  shm::PageSurvey survey = shm::survey_pages(ranges.all(), ranges.classes(), parts.survey);
  reply.source = "move_pages";
  if (!survey.permitted) {
    ranges = mapping_ranges(parts);
    survey = shm::survey_mappings(ranges.all(), ranges.classes());
    reply.source =
        survey.permitted ? "numa_maps" : "unknown: move_pages is denied, and there is no numa_maps";
  }
  ranges.put_into(reply, survey);
  if (const auto pages = shm::page_report(parts.weights); pages.ok()) {
    reply.page_bytes = pages->kernel_page_bytes;
    reply.huge_bytes = pages->huge_bytes;
  }
  return reply;
}

}  // namespace worker
