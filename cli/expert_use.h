// How often the experts of a model were chosen: as `numoe status --experts` shows it, and as a plan
// takes it to balance whole experts.
//
// The JSON is that of GET /experts (docs/api.md). Pure functions; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "proto/messages.h"

namespace cli {

/// [layers][experts], summed over the groups that have told anything. Errors: kBrokenFile, naming
/// what is wrong in it, also if nobody has.
base::Result<std::vector<std::vector<double>>> expert_use_from_json(std::string_view json);

/// A table for each group: per layer how often experts were chosen, the most used ones, and how
/// unevenly the ranks are used. Errors: as above.
base::Result<std::string> expert_use_table(std::string_view json);

/// Adds what another rank of the same group knows: each layer is told by one of them.
void complete(std::vector<proto::LayerUse>& layers, const std::vector<proto::LayerUse>& of_other);

/// One line; empty if nothing was chosen.
std::string expert_use_line(std::span<const proto::LayerUse> layers);

/// How much more the most used rank has to do than the mean says: of each rank its choices by the
/// experts it has, the largest over the mean. 1 where all ranks have rows of each expert, or
/// nothing was chosen.
double rank_imbalance(const proto::LayerUse& layer);

}  // namespace cli
