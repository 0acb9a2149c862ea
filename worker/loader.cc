#include "worker/loader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/cat.h"
#include "kernels/finite.h"
#include "kernels/ops.h"
#include "shm/checksum.h"

namespace worker {

namespace {

// One read covers about this much, so that many are in flight and progress is smooth.
constexpr int64_t kSpanBytes = 1 << 20;

class SourceFd {
 public:
  SourceFd() = default;
  explicit SourceFd(int fd) : fd_(fd) {}
  SourceFd(SourceFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SourceFd& operator=(SourceFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~SourceFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

base::Result<SourceFd> open_unchanged(const model::SourceFile& file) {
  SourceFd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0) {
    return base::Error{base::Code::kNotFound,
                       base::cat("cannot open ", file.path, ": ", std::strerror(errno))};
  }
  const int64_t mtime = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (static_cast<uint64_t>(status.st_size) != file.bytes || status.st_ino != file.inode ||
      mtime != file.mtime_ns) {
    return base::Error{base::Code::kBrokenFile,
                       base::cat(file.path, " was changed while it was being loaded; start again")};
  }
  return fd;
}

// Some panels of one matrix of one slice.
struct Span {
  const engine::WeightSlice* slice;
  int64_t matrix;  // from the slice's first
  int64_t panel_begin, panel_end;
};

std::vector<Span> spans_of(const engine::WeightMap& map) {
  std::vector<Span> spans;
  for (const engine::WeightSlice& slice : map.slices) {
    const int64_t panels = (slice.rows.size() + kernels::kPanelRows - 1) / kernels::kPanelRows;
    const int64_t row_bytes = kernels::row_bytes(slice.tensor->type, slice.tensor->row_length());
    // A transposed matrix needs all its rows in the file for any row of its own.
    const int64_t step = slice.transposed
                             ? panels
                             : std::max<int64_t>(1, kSpanBytes / (row_bytes * kernels::kPanelRows));
    for (int64_t m = 0; m < slice.matrix_count; m++) {
      for (int64_t p = 0; p < panels; p += step) {
        spans.push_back({&slice, m, p, std::min(p + step, panels)});
      }
    }
  }
  return spans;
}

// What the threads of one load share.
class Loading {
 public:
  Loading(const model::Model& model, std::vector<SourceFd> files, std::vector<Span> spans,
          std::byte* memory, const LoadOptions& options)
      : model_(model),
        files_(std::move(files)),
        spans_(std::move(spans)),
        memory_(memory),
        options_(options) {}

  void run(int thread) {
    std::vector<std::byte> rows;
    while (!failed_.load(std::memory_order_relaxed)) {
      const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= spans_.size()) return;
      const base::Status status = load(spans_[i], rows);
      if (!status.ok()) fail(status.error());
      if (thread == 0 && options_.on_progress) {
        options_.on_progress(done_bytes_.load(std::memory_order_relaxed));
      }
    }
  }

  // REQUIRES: no thread runs.
  base::Status result() const {
    if (failed_) return error_;
    return {};
  }

 private:
  base::Status load(const Span& span, std::vector<std::byte>& rows) {
    const engine::WeightSlice& slice = *span.slice;
    const int64_t matrix = slice.matrix_begin + span.matrix;
    const model::TensorInfo& tensor = slice.parts ? *slice.parts[matrix] : *slice.tensor;
    const int64_t file_row_bytes = kernels::row_bytes(tensor.type, tensor.row_length());
    const int64_t first = span.panel_begin * kernels::kPanelRows;
    const int64_t last = std::min(span.panel_end * kernels::kPanelRows, slice.rows.size());
    const int64_t file_rows = slice.transposed ? slice.row_length : last - first;
    rows.resize(static_cast<size_t>(file_rows * file_row_bytes));
    const int64_t file_row = (slice.parts ? 0 : matrix * slice.matrix_rows) +
                             (slice.transposed ? 0 : slice.rows.begin + first);
    RETURN_IF_ERROR(read(tensor, file_row * file_row_bytes, rows));
    if (!kernels::rows_finite(tensor.type, rows.data(), file_rows, tensor.row_length())) {
      return base::Error{base::Code::kBrokenFile,
                         base::cat("tensor ", tensor.name,
                                   " holds a scale or weight that is not a finite number; the file "
                                   "is damaged, fetch it again")};
    }
    if (slice.transposed) rows = engine::transposed_rows(tensor.type, rows, tensor.row_length());
    const int64_t row_bytes = kernels::row_bytes(slice.type, slice.row_length);
    std::byte* out = memory_ + slice.offset + static_cast<size_t>(span.matrix) * slice.matrix_bytes;
    for (int64_t p = span.panel_begin; p < span.panel_end; p++) {
      const int64_t row = p * kernels::kPanelRows - first;
      const int64_t count = std::min<int64_t>(kernels::kPanelRows, last - first - row);
      kernels::pack_panel(slice.layout, slice.type, rows.data() + row * row_bytes,
                          static_cast<int>(count), slice.row_length,
                          out + static_cast<size_t>(p) * slice.panel_bytes);
    }
    done_bytes_.fetch_add(
        static_cast<uint64_t>(span.panel_end - span.panel_begin) * slice.panel_bytes,
        std::memory_order_relaxed);
    return {};
  }

  base::Status read(const model::TensorInfo& tensor, int64_t offset, std::vector<std::byte>& out) {
    const int fd = files_[static_cast<size_t>(tensor.file_index)].get();
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t got =
          ::pread(fd, out.data() + done, out.size() - done,
                  static_cast<off_t>(tensor.offset + static_cast<uint64_t>(offset) + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return base::Error{
            base::Code::kBrokenFile,
            base::cat("cannot read tensor ", tensor.name, " of ",
                      model_.directory->files[static_cast<size_t>(tensor.file_index)].path, ": ",
                      got < 0 ? std::strerror(errno) : "the file became shorter")};
      }
      done += static_cast<size_t>(got);
    }
    return {};
  }

  void fail(const base::Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) error_ = error;
  }

  const model::Model& model_;
  const std::vector<SourceFd> files_;
  const std::vector<Span> spans_;
  std::byte* const memory_;
  const LoadOptions& options_;
  // shared, atomic
  std::atomic<size_t> next_{0};          // relaxed: only hands out numbers
  std::atomic<uint64_t> done_bytes_{0};  // relaxed: only shown
  std::atomic<bool> failed_{false};      // error_ is read after all threads ended
  std::mutex mutex_;
  base::Error error_;  // guarded by mutex_
};

}  // namespace

base::Status load_weights(const model::Model& model, const engine::WeightMap& map,
                          std::byte* memory, const LoadOptions& options) {
  std::vector<SourceFd> files;
  for (const model::SourceFile& file : model.directory->files) {
    ASSIGN_OR_RETURN(SourceFd fd, open_unchanged(file));
    files.push_back(std::move(fd));
  }
  Loading loading(model, std::move(files), spans_of(map), memory, options);
  options.team->run([&](int thread) { loading.run(thread); });
  return loading.result();
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
