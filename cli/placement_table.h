// Where the memory of all ranks lies, for people: a table, and what is wrong with it.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "broker/report.h"
#include "proto/messages.h"

namespace cli {

/// A title, a row for each class of tensors and a column for each rank; ends with a newline.
std::string placement_table(const std::vector<proto::PlacementReply>& ranks);

/// One line for each rank that has memory on a wrong node: which class, how much, where, and what
/// helps.
std::vector<std::string> placement_warnings(const std::vector<proto::PlacementReply>& ranks);

/// The answer of GET /placement, by group. Error: kUnsupported where it is none.
base::Result<std::vector<broker::GroupPlacement>> placement_from_json(std::string_view text);

}  // namespace cli
