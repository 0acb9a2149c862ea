// Golden files with something changed, and what they give.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/local_ranks.h"
#include "tests/model/gguf_builder.h"

namespace engine {

/// Logits of all positions of one sequence. The file is written, loaded and removed.
base::Result<Logits> run_file(const model_test::GgufFile& file, const std::vector<int32_t>& tokens,
                              const LocalRanksOptions& options);

/// Both ran, and every bit of every logit is equal.
void expect_equal_logits(const base::Result<Logits>& a, const base::Result<Logits>& b);

/// Turns every F16 tensor into F32, exactly.
void widen(model_test::GgufFile& file);

}  // namespace engine
