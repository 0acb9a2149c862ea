// Counts one way to spread a model: the shares of its ranks, what they hold, how fast it is.
//
// Private to the folder; plan/planner.h is the contract. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/cost.h"
#include "plan/planner.h"

namespace plan {

/// One way to spread, before it is counted.
struct Shape {
  Strategy strategy = Strategy::kRows;
  std::vector<std::vector<size_t>> replicas;  // indices into Machine::nodes, by rank
  int stages = 1;
};

/// Errors: those of split().
base::Result<Candidate> evaluate(const Question& question, const Shape& shape);

/// Every shape that the wishes allow; none twice.
std::vector<Shape> shapes_of(const Question& question);

/// "node 1", with its host where there are several.
std::string node_name(const Machine& machine, size_t index);

/// "412 GiB"
std::string gib_text(uint64_t bytes);

/// With so many decimals.
std::string decimal(double value, int decimals);

}  // namespace plan
