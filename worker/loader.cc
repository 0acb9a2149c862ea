#include "worker/loader.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/cat.h"
#include "base/limits.h"
#include "kernels/finite.h"
#include "kernels/ops.h"
#include "worker/read_ahead.h"

namespace worker {

namespace {

// What a thread copies, hashes and packs at once: source and panels stay in its second-level cache.
constexpr int64_t kChunkBytes = 128 << 10;

/// Some rows of one matrix of one slice: what one read brings.
struct Span {
  size_t slice = 0;
  int64_t matrix = 0;     // from the slice's first
  FileRows rows;          // in the file
  int64_t first_row = 0;  // of the matrix as packed, a multiple of kSliceRows
};

int64_t file_row_bytes(const model::TensorInfo& tensor) {
  return kernels::row_bytes(tensor.type, tensor.row_length());
}

/// How many rows of a tensor make about `bytes`, in whole blocks.
int64_t rows_of(const model::TensorInfo& tensor, int64_t bytes) {
  const int64_t blocks = bytes / (file_row_bytes(tensor) * base::kSliceRows);
  return std::max<int64_t>(blocks, 1) * base::kSliceRows;
}

std::vector<Span> spans_of(const engine::WeightMap& map, size_t span_bytes) {
  std::vector<Span> spans;
  for (size_t i = 0; i < map.slices.size(); i++) {
    const engine::WeightSlice& slice = map.slices[i];
    for (int64_t m = 0; m < slice.matrix_count; m++) {
      const FileRows all = file_rows(slice, m);
      // A transposed matrix needs all its rows in the file for any row of its own.
      const int64_t step = slice.transposed
                               ? std::max<int64_t>(all.end - all.begin, 1)
                               : rows_of(*all.tensor, static_cast<int64_t>(span_bytes));
      for (int64_t row = all.begin; row < all.end; row += step) {
        spans.push_back({.slice = i,
                         .matrix = m,
                         .rows = {all.tensor, row, std::min(row + step, all.end)},
                         .first_row = row - all.begin});
      }
    }
  }
  return spans;
}

/// What the threads of one load share. Without memory to fill it only hashes.
class Loading {
 public:
  Loading(const RankSlices& slices, std::byte* memory, ModelSource& source,
          const LoadOptions& options)
      : slices_(slices),
        memory_(memory),
        source_(source),
        options_(options),
        blocks_(slices),
        checksums_(slices.map.slices.size()),
        spans_left_(slices.map.slices.size()) {
    for (Span& span : spans_of(slices.map, options.span_bytes)) {
      if (memory_ == nullptr && !blocks_.counts_any(span.slice, span.rows)) continue;
      extents_.push_back(
          extent_of(span.rows.tensor, span.rows.begin, blocks_.read_end(span.slice, span.rows)));
      spans_.push_back(span);
      spans_left_[span.slice].fetch_add(1, std::memory_order_relaxed);
    }
    ahead_.emplace(source, extents_,
                   ReadAheadOptions{.readers = options.reads_ahead,
                                    .buffers = options.reads_ahead + options.team->size()});
  }

  base::Result<shm::Hash128> run() {
    options_.team->run([this](int thread) { run(thread); });
    if (failed_.load()) return error_;
    RETURN_IF_ERROR(source_.check_unchanged());
    return content_;
  }
  /// [slices] of the packed bytes. REQUIRES: run() succeeded.
  std::vector<shm::Hash128> take_checksums() { return std::move(checksums_); }

 private:
  void run(int thread) {
    shm::Hash128 content;
    ReadBuffer own;
    std::function<void()> tell;
    if (thread == 0 && options_.on_progress) tell = [this] { tell_progress(); };
    if (tell) tell();
    while (auto piece = ahead_->take(tell)) {
      const Span& span = spans_[piece->index];
      const base::Status status = load(span, *piece, own, content);
      ahead_->release(*piece);
      if (status.ok()) {
        finish_span(span.slice);
      } else {
        fail(status.error());
      }
      if (tell) tell();
    }
    if (tell) tell();  // all, also if others have done it
    const std::lock_guard lock(mutex_);
    add(content_, content);
  }

  // Whoever packs the last rows of a slice hashes it, while others pack and devices read.
  void finish_span(size_t index) {
    if (spans_left_[index].fetch_sub(1, std::memory_order_acq_rel) > 1 || memory_ == nullptr)
      return;
    const engine::WeightSlice& slice = slices_.map.slices[index];
    checksums_[index] = shm::hash128({memory_ + slice.offset, slice.bytes()});
  }

  void tell_progress() {
    const base::Status status = options_.on_progress(done_bytes_.load(std::memory_order_relaxed));
    if (!status.ok()) fail(status.error());
  }

  base::Status load(const Span& span, const ReadAhead::Piece& piece, ReadBuffer& own,
                    shm::Hash128& content) {
    const model::TensorInfo& tensor = *span.rows.tensor;
    if (!piece.bytes.ok()) return read_error(tensor, piece.bytes.error());
    const engine::WeightSlice& slice = slices_.map.slices[span.slice];
    const int64_t step =
        slice.transposed ? span.rows.end - span.rows.begin : rows_of(tensor, kChunkBytes);
    for (int64_t row = span.rows.begin; row < span.rows.end; row += step) {
      const FileRows rows{&tensor, row, std::min(row + step, span.rows.end)};
      const std::byte* bytes =
          piece.bytes->data() + (row - span.rows.begin) * file_row_bytes(tensor);
      if (piece.from == ModelSource::From::kCache) {
        const Extent extent = extent_of(&tensor, row, blocks_.read_end(span.slice, rows));
        if (own.bytes().size() < extent.bytes) own = ReadBuffer::for_extents_of(extent.bytes);
        if (own.bytes().empty()) return base::Error{base::Code::kNoSpace, "no memory to read into"};
        const auto read = source_.read(extent, piece.from, own.bytes());
        if (!read.ok()) return read_error(tensor, read.error());
        bytes = read->data();
      }
      add(content, blocks_.sum(span.slice, rows, bytes));
      if (memory_ != nullptr) RETURN_IF_ERROR(pack(span, rows, bytes));
      const int64_t done = slice.transposed ? slice.rows.size() : rows.end - rows.begin;
      const int64_t panels = (done + kernels::kPanelRows - 1) / kernels::kPanelRows;
      done_bytes_.fetch_add(static_cast<uint64_t>(panels) * slice.panel_bytes,
                            std::memory_order_relaxed);
    }
    return {};
  }

  // Rows that start with a panel, and are all of a matrix if it is transposed.
  base::Status pack(const Span& span, const FileRows& rows, const std::byte* bytes) {
    const model::TensorInfo& tensor = *rows.tensor;
    const engine::WeightSlice& slice = slices_.map.slices[span.slice];
    int64_t count = rows.end - rows.begin;
    if (!kernels::rows_finite(tensor.type, bytes, count, tensor.row_length())) {
      return base::Error{base::Code::kBrokenFile,
                         base::cat("tensor ", tensor.name,
                                   " holds a scale or weight that is not a finite number; the file "
                                   "is damaged, fetch it again")};
    }
    std::vector<std::byte> turned;
    if (slice.transposed) {
      const auto size = static_cast<size_t>(count * file_row_bytes(tensor));
      turned = engine::transposed_rows(tensor.type, {bytes, size}, tensor.row_length());
      bytes = turned.data();
      count = slice.rows.size();
    }
    const int64_t row_bytes = kernels::row_bytes(slice.type, slice.row_length);
    const int64_t first = span.first_row + rows.begin - span.rows.begin;
    std::byte* out = memory_ + slice.offset +
                     static_cast<size_t>(span.matrix) * slice.matrix_bytes +
                     static_cast<size_t>(first / kernels::kPanelRows) * slice.panel_bytes;
    for (int64_t row = 0; row < count; row += kernels::kPanelRows, out += slice.panel_bytes) {
      const int64_t panel_rows = std::min<int64_t>(kernels::kPanelRows, count - row);
      kernels::pack_panel(slice.layout, slice.type, bytes + row * row_bytes,
                          static_cast<int>(panel_rows), slice.row_length, out);
    }
    return {};
  }

  static Extent extent_of(const model::TensorInfo* tensor, int64_t begin, int64_t end) {
    const auto row_bytes = static_cast<uint64_t>(file_row_bytes(*tensor));
    return {.file = tensor->file_index,
            .offset = tensor->offset + static_cast<uint64_t>(begin) * row_bytes,
            .bytes = static_cast<size_t>(static_cast<uint64_t>(end - begin) * row_bytes)};
  }

  base::Error read_error(const model::TensorInfo& tensor, const base::Error& error) const {
    const auto file = static_cast<size_t>(tensor.file_index);
    return {base::Code::kBrokenFile,
            base::cat("cannot read tensor ", tensor.name, " of ",
                      slices_.model.directory->files[file].path, ": ", error.message)};
  }

  void fail(const base::Error& error) {
    ahead_->stop();
    const std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) error_ = error;
  }

  const RankSlices& slices_;
  std::byte* const memory_;
  ModelSource& source_;
  const LoadOptions& options_;
  const ContentBlocks blocks_;
  std::vector<Span> spans_;
  std::vector<Extent> extents_;  // [spans]
  std::optional<ReadAhead> ahead_;
  // written by whoever finishes the slice
  std::vector<shm::Hash128> checksums_;  // [slices]
  // shared, atomic
  std::vector<std::atomic<uint32_t>> spans_left_;  // [slices] acq_rel: the last one sees all rows
  std::atomic<uint64_t> done_bytes_{0};            // relaxed: only shown
  std::atomic<bool> failed_{false};                // error_ is read after all threads ended
  std::mutex mutex_;
  base::Error error_;     // guarded by mutex_
  shm::Hash128 content_;  // guarded by mutex_
};

base::Result<LoadResult> load(const RankSlices& slices, std::byte* memory,
                              const LoadOptions& options) {
  std::unique_ptr<FileSource> files;
  ModelSource* source = options.source;
  if (source == nullptr) {
    ASSIGN_OR_RETURN(files, FileSource::open(*slices.model.directory));
    source = files.get();
  }
  Loading loading(slices, memory, *source, options);
  ASSIGN_OR_RETURN(const shm::Hash128 content, loading.run());
  return LoadResult{.content = content, .checksums = loading.take_checksums()};
}

}  // namespace

base::Result<LoadResult> load_weights(const RankSlices& slices, std::byte* memory,
                                      const LoadOptions& options) {
  return load(slices, memory, options);
}

base::Result<shm::Hash128> hash_weights(const RankSlices& slices, const LoadOptions& options) {
  ASSIGN_OR_RETURN(const LoadResult hashed, load(slices, nullptr, options));
  return hashed.content;
}

uint64_t model_fingerprint(const model::Model& model) {
  std::string text = model.spec.architecture;
  for (const model::SourceFile& file : model.directory->files) {
    text += base::cat('\n', file.bytes, ' ', file.device, ' ', file.inode, ' ', file.mtime_ns, ' ',
                      file.ctime_ns);
  }
  for (const model::TensorInfo& tensor : model.directory->tensors) {
    text +=
        base::cat('\n', tensor.name, ' ', static_cast<uint32_t>(tensor.type), ' ', tensor.offset);
    for (const int64_t length : tensor.shape) text += base::cat(' ', length);
  }
  return shm::hash64(std::as_bytes(std::span(text)));
}

}  // namespace worker
