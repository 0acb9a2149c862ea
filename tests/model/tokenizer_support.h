// Vocabularies and golden cases for the tokenizer tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "model/metadata.h"
#include "model/tokenizer.h"

namespace model_test {

/// Keeps what was written, as "level: message" lines.
class RecordingLog final : public base::Log {
 public:
  void write(base::Level level, std::string_view message) override;
  /// Lines of warnings.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> warnings_;
};

/// A token to be added to a hand-made vocabulary.
struct ExtraToken {
  std::string text;
  int64_t type = 1;  // as in tokenizer.ggml.token_type
};

struct BytePairOptions {
  std::string pre = "qwen2";             // empty: no such key
  std::vector<std::string> merges = {};  // their results are added as tokens
  std::vector<ExtraToken> extra = {};    // after those
};

/// 256 byte tokens (token b is byte b), the results of the merges, then the extra ones.
model::Metadata byte_pair_vocabulary(const BytePairOptions& options);

struct SpmOptions {
  std::vector<std::string> pieces = {};  // with U+2581 for blanks; earlier ones have higher scores
  std::vector<ExtraToken> extra = {};
};

/// <unk>, <s>, </s>, 256 byte tokens (token 3 + b is byte b), the pieces, then the extra ones.
model::Metadata spm_vocabulary(const SpmOptions& options);

/// CHECKs that it can be created.
model::Tokenizer make_tokenizer(const model::Metadata& metadata);

/// The spelling of a byte in the alphabet of byte-level vocabularies.
std::string alphabet_character(int byte);

struct GoldenCase {
  std::string text;
  std::vector<int32_t> ids;
};

/// Pairs each text of the `.inp` file with its line of the `.out` file; empty if a file is missing.
std::vector<GoldenCase> read_golden_cases(const std::string& inp, const std::string& out);

/// "tests/golden/tokenizers" of the repository, and the same of the full set beside it.
std::string golden_tokenizer_folder();
std::string shared_golden_folder();
bool file_exists(const std::string& path);

/// Texts of one long run of a character class, `count` characters or so each.
struct LongRun {
  std::string name;
  std::string text;
};
/// The six runs that overflowed other pre-tokenizers and one more; scale 1 is the published size.
std::vector<LongRun> long_runs(double scale);

}  // namespace model_test
