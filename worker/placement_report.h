// Where the memory of a rank lies, as the broker is told: by class of tensor and node.
//
// Looks at pages; changes nothing. Where the system lets nobody ask page by page, the weights are
// one class, since numa_maps knows only whole mappings. Thread rule: the rank's thread, between
// steps.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/weights.h"
#include "proto/messages.h"
#include "shm/page_survey.h"

namespace worker {

struct PlacementParts {
  int os_node = -1;                          // intended; -1: none
  const engine::WeightMap* map = nullptr;    // what lies where in the weights
  std::span<const std::byte> arena = {};     // the mapping that holds the weights
  const std::byte* weights = nullptr;        // where the map's offsets begin
  std::span<const std::byte> kv_cache = {};  // the mapping of the KV pool
  std::span<const std::byte> exchange = {};  // of this rank's slices; may be empty
  shm::SurveyOptions survey = {};
};

proto::PlacementReply placement_report(const PlacementParts& parts);

/// The class of each slice of the map: "experts", "shared experts", "attention", "router", "norms",
/// "embedding", "output", and "feed-forward" for that of dense layers.
std::vector<std::string> slice_classes(const engine::WeightMap& map);

}  // namespace worker
