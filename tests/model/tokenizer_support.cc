#include "tests/model/tokenizer_support.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/cat.h"
#include "base/check.h"
#include "model/utf8.h"

namespace model_test {

namespace {

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string repeat(std::string_view text, double count) {
  std::string out;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) out += text;
  return out;
}

}  // namespace

void RecordingLog::write(base::Level level, std::string_view message) {
  if (level == base::Level::kWarning) warnings_.emplace_back(message);
}

std::string alphabet_character(int byte) {
  const auto shown = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!shown(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += shown(b) ? 0 : 1;
  }
  std::string out;
  model::append_utf8(static_cast<char32_t>(code), out);
  return out;
}

model::Metadata byte_pair_vocabulary(const BytePairOptions& options) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(alphabet_character(byte));
  for (const std::string& merge : options.merges) {
    const size_t space = merge.find(' ');
    tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  std::vector<int64_t> types(tokens.size(), 1);
  for (const ExtraToken& extra : options.extra) {
    tokens.push_back(extra.text);
    types.push_back(extra.type);
  }
  model::Metadata metadata;
  metadata.set("tokenizer.ggml.model", "gpt2");
  if (!options.pre.empty()) metadata.set("tokenizer.ggml.pre", options.pre);
  metadata.set("tokenizer.ggml.tokens", tokens);
  metadata.set("tokenizer.ggml.token_type", types);
  metadata.set("tokenizer.ggml.merges", options.merges);
  return metadata;
}

model::Metadata spm_vocabulary(const SpmOptions& options) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int64_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte) & 0xFF);
    tokens.emplace_back(name);
    types.push_back(6);
  }
  std::vector<double> scores(tokens.size(), 0.0);
  for (const std::string& piece : options.pieces) {
    tokens.push_back(piece);
    types.push_back(1);
    scores.push_back(-static_cast<double>(scores.size()));
  }
  for (const ExtraToken& extra : options.extra) {
    tokens.push_back(extra.text);
    types.push_back(extra.type);
    scores.push_back(0.0);
  }
  model::Metadata metadata;
  metadata.set("tokenizer.ggml.model", "llama");
  metadata.set("tokenizer.ggml.tokens", tokens);
  metadata.set("tokenizer.ggml.token_type", types);
  metadata.set("tokenizer.ggml.scores", scores);
  metadata.set("tokenizer.ggml.bos_token_id", int64_t{1});
  metadata.set("tokenizer.ggml.eos_token_id", int64_t{2});
  metadata.set("tokenizer.ggml.unknown_token_id", int64_t{0});
  return metadata;
}

model::Tokenizer make_tokenizer(const model::Metadata& metadata) {
  base::NullLog log;
  auto tokenizer = model::Tokenizer::create(metadata, &log);
  CHECK(tokenizer.ok(), tokenizer.error().message);
  return std::move(*tokenizer);
}

std::vector<GoldenCase> read_golden_cases(const std::string& inp, const std::string& out) {
  std::vector<GoldenCase> cases;
  const std::string texts = read_file(inp);
  std::istringstream lines(read_file(out));
  size_t begin = 0;
  while (begin < texts.size()) {
    const size_t end = texts.find(kSeparator, begin);
    if (end == std::string::npos) break;
    GoldenCase item;
    item.text = texts.substr(begin, end - begin);
    std::string line;
    CHECK(static_cast<bool>(std::getline(lines, line)), out, " has too few lines");
    std::istringstream numbers(line);
    for (int32_t id = 0; numbers >> id;) item.ids.push_back(id);
    cases.push_back(std::move(item));
    begin = end + kSeparator.size();
  }
  return cases;
}

std::string golden_tokenizer_folder() {
  return std::string(NUMOE_SOURCE_DIR) + "/tests/golden/tokenizers";
}
std::string shared_golden_folder() {
  return std::string(NUMOE_SOURCE_DIR) + "/../shared/golden";
}
bool file_exists(const std::string& path) {
  return std::filesystem::exists(path);
}

std::vector<LongRun> long_runs(double scale) {
  return {
      {"letters", repeat("Z", 131'072 * scale)},
      {"ideographs", repeat("\xE5\xAD\x97", 100'000 * scale)},
      {"spaces", repeat(" ", 200'000 * scale) + "x"},
      {"newlines", repeat("\n", 100'000 * scale)},
      {"digits", repeat("9", 60'000 * scale)},
      {"marks", repeat("a\xCC\x81", 65'536 * scale)},
      // Nothing takes a blank along here, so a pattern for blanks at the end tries all of them.
      {"spaces before an ideograph", repeat(" ", 200'000 * scale) + "\xE5\xAD\x97"},
  };
}

}  // namespace model_test
