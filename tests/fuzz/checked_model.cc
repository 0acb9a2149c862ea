#include "tests/fuzz/checked_model.h"

#include <algorithm>
#include <memory>

#include "base/cat.h"
#include "model/architectures.h"
#include "model/inspect.h"
#include "model/tokenizer.h"
#include "plan/plan.h"

namespace fuzz {

namespace {

void check_sentence(const base::Error& error) {
  CHECK(!error.message.empty() && error.message.find('\n') == std::string::npos, error.message);
}

void check_tensors(const model::Directory& directory, uint64_t file_bytes) {
  for (const model::TensorInfo& tensor : directory.tensors) {
    CHECK(tensor.bytes > 0 && tensor.bytes <= file_bytes &&
              tensor.offset <= file_bytes - tensor.bytes,
          "a tensor that is not inside the file: ", tensor.name);
    CHECK(tensor.row_length() > 0 && tensor.row_count() > 0, "a tensor without weights");
  }
}

void check_plans(const model::ModelSpec& spec) {
  for (const int ranks : {1, 2, 5}) {
    const auto plan = plan::split(spec, {.rank_count = ranks, .shares = {}});
    if (!plan.ok()) {
      check_sentence(plan.error());
      continue;
    }
    int64_t rows = 0;
    for (const plan::RankShare& rank : plan->ranks) rows += rank.vocabulary.size();
    CHECK(rows == spec.vocabulary, "a plan that loses rows");
    CHECK(!plan::describe(*plan, spec).empty(), "a plan that says nothing");
  }
}

}  // namespace

base::Status HeaderFile::read(uint64_t offset, std::span<std::byte> out) {
  const uint64_t start = std::min(offset, header_.size());
  const auto count = std::min<uint64_t>(out.size(), header_.size() - start);
  std::fill(out.begin(), out.end(), std::byte{0});
  return header_.read(start, out.first(count));
}

void check_model(base::Result<model::Directory> directory, uint64_t file_bytes) {
  if (!directory.ok()) return check_sentence(directory.error());
  check_tensors(*directory, file_bytes);
  const auto tokenizer = [&] {
    base::NullLog log;
    return model::Tokenizer::create(directory->metadata, &log);
  }();
  if (!tokenizer.ok()) check_sentence(tokenizer.error());
  const auto built =
      model::build_model(std::make_unique<const model::Directory>(std::move(*directory)));
  if (!built.ok()) return check_sentence(built.error());
  CHECK(!model::inspect_report(*built).empty(), "no report");
  CHECK(model::inspect_json(*built).front() == '{', "no JSON");
  CHECK(model::active_bytes_per_token(*built) <= 2 * model::weight_bytes(*built->directory),
        "more bytes are read for a token than there are");
  check_plans(built->spec);
}

}  // namespace fuzz
