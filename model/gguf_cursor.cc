#include "model/gguf_cursor.h"

#include <algorithm>
#include <bit>

#include "base/cat.h"
#include "model/printable.h"

namespace model {

namespace {

static_assert(std::endian::native == std::endian::little, "fields are copied as they are");

constexpr uint64_t kWindowBytes = 256 << 10;
// Real headers have a few MiB (the vocabulary). The bound keeps a forged count from filling memory.
constexpr uint64_t kHeaderBytesMax = 256 << 20;

}  // namespace

std::string Field::text() const {
  std::string out(what);
  if (index >= 0) out += base::cat(' ', index);
  if (!name.empty()) out += base::cat(" '", printable(name), '\'');
  return out;
}

GgufCursor::GgufCursor(FileReader& file)
    : file_(file), end_(std::min(file.size(), kHeaderBytesMax)) {}

base::Error GgufCursor::too_short(const Field& field) const {
  if (end_ < file_.size()) {
    return {base::Code::kUnsupported,
            base::cat("the header is longer than ", end_, " bytes, the most accepted, at the ",
                      field.text())};
  }
  return {base::Code::kBrokenFile,
          base::cat("the file ends (after ", end_, " bytes) before the end of the ", field.text(),
                    "; it may be an incomplete download")};
}

base::Result<std::string> GgufCursor::string(const Field& field, uint64_t length_max) {
  ASSIGN_OR_RETURN(const uint64_t length, number<uint64_t>(field));
  if (length > length_max) {
    return base::Error{base::Code::kBrokenFile,
                       base::cat("the ", field.text(), " has a length of ", length,
                                 " bytes; the most accepted is ", length_max)};
  }
  if (length > remaining()) return too_short(field);
  std::string text(length, '\0');
  RETURN_IF_ERROR(copy(std::as_writable_bytes(std::span(text)), field));
  return text;
}

base::Status GgufCursor::copy(std::span<std::byte> out, const Field& field) {
  if (out.size() > remaining()) return too_short(field);
  while (!out.empty()) {
    if (position_ - window_start_ >= window_.size()) RETURN_IF_ERROR(fill());
    const uint64_t skip = position_ - window_start_;
    const size_t count = std::min(out.size(), window_.size() - skip);
    std::memcpy(out.data(), window_.data() + skip, count);
    out = out.subspan(count);
    position_ += count;
  }
  return {};
}

base::Status GgufCursor::fill() {
  window_.resize(std::min(kWindowBytes, remaining()));
  window_start_ = position_;
  return file_.read(position_, window_);
}

}  // namespace model
