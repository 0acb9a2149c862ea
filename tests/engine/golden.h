// The golden model cases: files, token sequences and the logits they must give.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace engine {

struct GoldenSequence {
  std::vector<int32_t> tokens;
  std::vector<float> last_logits;                            // [vocabulary]
  std::vector<std::vector<std::pair<int32_t, float>>> top8;  // [tokens][8]
  std::vector<std::vector<std::vector<int32_t>>> experts;    // [layers][tokens][used]
  std::vector<std::pair<int32_t, float>> greedy;             // [24] id, lead over the second
};

struct GoldenCase {
  std::string name;
  std::string path;  // of the GGUF file, the first part if split
  std::string architecture;
  double mean_max = 0, difference_max = 0;  // tolerance with rounded activations
  std::vector<GoldenSequence> reference;    // exact weights, float32 activations and KV
};

/// Cases of the given architectures, sorted by name: all of ../shared/golden if that is there, else
/// the small set in tests/golden. `*complete` tells which.
std::vector<GoldenCase> golden_cases(const std::vector<std::string>& architectures,
                                     bool* complete = nullptr);
/// One case by name; fails the test if it is missing.
GoldenCase golden_case(const std::string& name);
/// The model that comes with the source.
std::string demo_model_path();

}  // namespace engine
