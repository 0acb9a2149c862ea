#include "model/synth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/cat.h"
#include "model/gguf_writer.h"
#include "model/synth_blocks.h"
#include "model/synth_types.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

constexpr uint64_t kPartBytes = 4 << 20;  // written at a time, and what a thread keeps
constexpr int kThreadsMax = 8;            // more do not make disks faster
constexpr auto kProgressEvery = std::chrono::milliseconds(50);
constexpr int64_t kUnusedToken = 5;  // of tokenizer.ggml.token_type
constexpr double kUnusedScore = -10000;

/// The tokenizer's keys, with unused tokens up to `size`.
Status copy_vocabulary(const Metadata& from, int64_t size, Metadata& to) {
  const std::vector<std::string>* tokens = from.strings("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->empty())
    return Error{Code::kBrokenFile,
                 "the file to take the vocabulary from has none (tokenizer.ggml.tokens); give "
                 "another one with --vocab"};
  if (!std::cmp_less_equal(tokens->size(), size))
    return Error{Code::kInvalidArgument,
                 cat("the vocabulary has ", tokens->size(), " tokens, more than the ", size,
                     " of the shape; give a smaller one with --vocab")};
  for (const auto& [key, value] : from.values())
    if (key.starts_with("tokenizer.")) to.set(key, value);

  const auto count = static_cast<size_t>(size);
  std::vector<std::string> padded = *tokens;
  while (padded.size() < count) padded.push_back(cat("[PAD", padded.size(), ']'));
  std::vector<int64_t> types(tokens->size(), 1);
  if (const auto* given = from.integers("tokenizer.ggml.token_type")) types = *given;
  types.resize(count, kUnusedToken);
  to.set("tokenizer.ggml.tokens", std::move(padded));
  to.set("tokenizer.ggml.token_type", std::move(types));
  if (const auto* given = from.numbers("tokenizer.ggml.scores")) {
    std::vector<double> scores = *given;
    scores.resize(count, kUnusedScore);
    to.set("tokenizer.ggml.scores", std::move(scores));
  }
  return {};
}

Result<SynthShape> cut_shape(const SynthShape& shape, int64_t layers) {
  if (layers < 0 || layers > shape.layers)
    return Error{Code::kInvalidArgument,
                 cat(shape.preset, " has ", shape.layers, " layers; it cannot be cut to ", layers)};
  SynthShape cut = shape;
  if (layers > 0) cut.layers = layers;
  cut.leading_dense = std::min(cut.leading_dense, cut.layers);
  return cut;
}

/// A piece of a tensor that is made and written at once.
struct Part {
  size_t tensor = 0;
  uint64_t offset = 0, bytes = 0;
};

std::vector<Part> parts_of(const GgufLayout& layout) {
  std::vector<Part> parts;
  for (size_t i = 0; i < layout.tensors.size(); i++) {
    const TensorInfo& tensor = layout.tensors[i];
    // Groups of 8 blocks begin at whole random words.
    const auto group =
        uint64_t{8} * static_cast<uint64_t>(kernels::type_info(tensor.type).block_bytes);
    const uint64_t step = kPartBytes / group * group;
    for (uint64_t offset = 0; offset < tensor.bytes; offset += step)
      parts.push_back({i, offset, std::min(step, tensor.bytes - offset)});
  }
  return parts;
}

/// Threads that make parts in order and write them.
class SynthRun {
 public:
  SynthRun(const SynthPlan& plan, const GgufWriter& writer, uint64_t seed)
      : plan_(plan), writer_(writer), seed_(seed), parts_(parts_of(writer.layout())) {
    for (const Part& part : parts_) total_ += part.bytes;
  }
  ~SynthRun() { stop_and_join(); }
  SynthRun(const SynthRun&) = delete;
  SynthRun& operator=(const SynthRun&) = delete;

  Status start(int threads) {
    try {
      for (int i = 0; i < threads; i++) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      if (threads_.empty())
        return Error{Code::kUnavailable, cat("cannot start a thread: ", error.what())};
    }
    return {};
  }

  /// Waits until all is written, something failed, or the caller wants no more.
  Status wait(const std::function<bool(uint64_t, uint64_t)>& on_progress) {
    for (;;) {
      uint64_t done = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kProgressEvery, [this] { return failed_ || done_ == total_; });
        if (failed_) return *failed_;
        done = done_;
      }
      if (on_progress && !on_progress(done, total_))
        return Error{Code::kCancelled, "stopped while writing"};
      if (done == total_) return {};
    }
  }

  void stop_and_join() {
    stopped_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void work() {
    std::vector<std::byte> bytes;
    for (;;) {
      const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= parts_.size() || stopped_.load(std::memory_order_relaxed)) return;
      const Part& part = parts_[index];
      bytes.resize(part.bytes);
      make(part, bytes);
      const Status status = writer_.write(part.tensor, part.offset, bytes);
      const std::lock_guard lock(mutex_);
      done_ += status.ok() ? part.bytes : 0;
      if (!status.ok() && !failed_) failed_ = status.error();
      if (failed_ || done_ == total_) changed_.notify_one();
      if (failed_) return;
    }
  }

  void make(const Part& part, std::span<std::byte> bytes) const {
    const SynthBits bits(seed_, part.tensor);
    const double deviation = plan_.deviations[part.tensor];
    if (deviation > 0) {
      SynthBlocks(plan_.tensors[part.tensor].type, deviation).fill(bits, part.offset, bytes);
      return;
    }
    const std::span<float> floats(reinterpret_cast<float*>(bytes.data()),
                                  bytes.size() / sizeof(float));
    fill_norm(bits, part.offset / sizeof(float), floats);
  }

  // Constant after start().
  const SynthPlan& plan_;
  const GgufWriter& writer_;
  const uint64_t seed_;
  const std::vector<Part> parts_;
  uint64_t total_ = 0;
  std::vector<std::thread> threads_;
  // Shared, atomic: which part is next, and whether to go on; the join orders all else.
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopped_ = false;
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t done_ = 0;
  std::optional<Error> failed_;
};

int thread_count(int asked) {
  if (asked > 0) return asked;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kThreadsMax);
}

}  // namespace

Result<SynthPlan> plan_synth(const SynthShape& shape, const SynthRequest& request,
                             const Metadata& vocabulary) {
  ASSIGN_OR_RETURN(const kernels::TensorType type, synth_weight_type(request.weight_type));
  ASSIGN_OR_RETURN(const SynthShape cut, cut_shape(shape, request.layers));
  ASSIGN_OR_RETURN(SynthModel described, describe_synth(cut, request.architecture));
  SynthPlan plan{.metadata = std::move(described.metadata), .tensors = {}, .deviations = {}};
  RETURN_IF_ERROR(copy_vocabulary(vocabulary, cut.vocabulary, plan.metadata));
  plan.metadata.set("general.file_type", synth_file_type(type));
  plan.metadata.set("general.quantization_version", int64_t{2});
  for (const SynthTensor& tensor : described.tensors) {
    TensorInfo info;
    info.name = tensor.name;
    info.type = synth_tensor_type(type, tensor);
    info.dimension_count = static_cast<int>(tensor.shape.size());
    std::ranges::copy(tensor.shape, info.shape);
    plan.tensors.push_back(std::move(info));
    plan.deviations.push_back(tensor.deviation);
  }
  return plan;
}

Directory synth_directory(const SynthPlan& plan) {
  GgufLayout layout = lay_out_gguf(plan.metadata, plan.tensors);
  Directory directory;
  directory.files.push_back({.path = "synthetic", .bytes = layout.file_bytes});
  directory.metadata = plan.metadata;
  directory.tensors = std::move(layout.tensors);
  return directory;
}

Result<uint64_t> write_synth(const SynthPlan& plan, const std::string& path,
                             const SynthWriteOptions& options) {
  ASSIGN_OR_RETURN(GgufWriter writer,
                   GgufWriter::create(path, lay_out_gguf(plan.metadata, plan.tensors),
                                      {.replace = options.replace}));
  SynthRun run(plan, writer, options.seed);
  RETURN_IF_ERROR(run.start(thread_count(options.threads)));
  RETURN_IF_ERROR(run.wait(options.on_progress));
  run.stop_and_join();
  RETURN_IF_ERROR(writer.commit());
  return writer.layout().file_bytes;
}

}  // namespace model
