// What an arena will hold, and what its file and header say: all that needs no mapping.
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/cat.h"
#include "shm/arena.h"

namespace shm {

namespace {

constexpr uint64_t kSmallPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
/// Far above any machine, far below overflow.
constexpr uint64_t kArenaBytesMax = uint64_t{1} << 46;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

base::Result<std::string> arena_path(const std::string& directory, const std::string& name) {
  bool ok = !name.empty() && name.size() <= 200 && name[0] != '.';
  for (const char c : name) {
    ok = ok && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                c == '.' || c == '_' || c == '-');
  }
  if (!ok) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("'", name, "' is no arena name: letters, digits, '.', '_', '-'")};
  }
  return base::cat(directory, "/", name, ".arena");
}

base::Result<ArenaHeader> peek_header(const File& file) {
  struct stat status;
  ArenaHeader header;
  if (fstat(file.fd(), &status) != 0 ||
      pread(file.fd(), &header, sizeof header, 0) != sizeof header) {
    return base::Error{base::Code::kBrokenFile, "the arena is shorter than its header; remove it"};
  }
  RETURN_IF_ERROR(check_header(header, static_cast<uint64_t>(status.st_size)));
  return header;
}

base::Result<uint64_t> ArenaPlan::reserve(const TensorSpec& spec) {
  TensorEntry entry = {};
  if (spec.name.empty() || spec.name.size() >= sizeof entry.name ||
      spec.name.find('\0') != std::string::npos) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("the tensor name '", spec.name, "' must have 1 to ",
                                 sizeof entry.name - 1, " bytes")};
  }
  if (spec.rows == 0 || spec.row_length == 0 || spec.bytes == 0 ||
      spec.bytes > kArenaBytesMax - data_bytes_ || table_.size() >= kArenaTensorsMax) {
    return base::Error{
        base::Code::kInvalidArgument,
        base::cat("tensor ", spec.name, " of ", spec.bytes, " bytes does not fit into an arena")};
  }
  if (!names_.emplace(spec.name, spec.first_row).second) {
    return base::Error{base::Code::kInvalidArgument, base::cat("tensor ", spec.name, " from row ",
                                                               spec.first_row, " is there twice")};
  }
  std::memcpy(entry.name, spec.name.data(), spec.name.size());
  entry.type = spec.type;
  entry.layout = spec.layout;
  entry.rows = spec.rows;
  entry.row_length = spec.row_length;
  entry.first_row = spec.first_row;
  entry.offset = round_up(data_bytes_, kTensorAlignment);
  entry.bytes = spec.bytes;
  data_bytes_ = entry.offset + entry.bytes;
  table_.push_back(entry);
  return entry.offset;
}

uint64_t ArenaPlan::data_offset() const {
  return round_up(sizeof(ArenaHeader) + table_.size() * sizeof(TensorEntry), kSmallPage);
}

// A file that ends in the middle of a huge page would end in small ones (huge=within_size).
uint64_t ArenaPlan::file_bytes() const {
  const uint64_t bytes = data_offset() + data_bytes_ + kTensorTail;
  return round_up(bytes, bytes >= kHugePage ? kHugePage : kSmallPage);
}

}  // namespace shm
