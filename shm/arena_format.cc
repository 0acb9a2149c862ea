#include "shm/arena_format.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/cat.h"

namespace shm {

namespace {

base::Error broken(const std::string& what) {
  return {base::Code::kBrokenFile, base::cat("the arena is damaged: ", what, "; remove it")};
}

template <class T, size_t N>
bool all_zero(const T (&values)[N]) {
  return std::all_of(values, values + N, [](T value) { return value == 0; });
}

}  // namespace

uint64_t checksum_of(const ArenaHeader& header) {
  return hash64(
      {reinterpret_cast<const std::byte*>(&header), offsetof(ArenaHeader, header_checksum)});
}

Hash128 checksum_of(std::span<const TensorEntry> table) {
  return hash128(std::as_bytes(table));
}

base::Result<void> check_header(const ArenaHeader& header, uint64_t file_bytes) {
  if (std::memcmp(header.magic, kArenaMagic, sizeof kArenaMagic) != 0) {
    return broken("it does not start with NUMOEARN");
  }
  if (header.layout_version != kArenaLayoutVersion) {
    return base::Error{base::Code::kUnsupported,
                       base::cat("the arena has layout version ", header.layout_version,
                                 ", this program knows ", kArenaLayoutVersion, "; remove it")};
  }
  if (header.header_bytes != sizeof(ArenaHeader) || header.entry_bytes != sizeof(TensorEntry)) {
    return broken("sizes of header or table entry");
  }
  if (header.header_checksum != checksum_of(header)) return broken("checksum of the header");
  if (header.file_bytes != file_bytes) {
    return broken(base::cat("it says ", header.file_bytes, " bytes and has ", file_bytes));
  }
  const uint64_t table_bytes = uint64_t{header.tensor_count} * sizeof(TensorEntry);
  if (header.tensor_count > kArenaTensorsMax || header.table_offset != sizeof(ArenaHeader) ||
      header.data_offset % kTensorAlignment != 0 || header.data_offset > file_bytes ||
      header.data_offset < header.table_offset + table_bytes ||
      header.data_bytes > file_bytes - header.data_offset) {
    return broken("offsets of table or data");
  }
  if (header.identity.slice_index >= header.identity.slice_count || header.node < -1 ||
      (header.flags & ~kArenaBound) != 0 || header.keep > 1 || !all_zero(header.reserved) ||
      !all_zero(header.reserved_end) || header.label[kArenaLabelBytes - 1] != 0) {
    return broken("slice, node, flags, label or reserved bytes");
  }
  if ((header.state != static_cast<uint32_t>(ArenaState::kLoading) &&
       header.state != static_cast<uint32_t>(ArenaState::kReady)) ||
      header.progress_bytes > header.data_bytes ||
      (header.state == static_cast<uint32_t>(ArenaState::kReady) &&
       header.progress_bytes != header.data_bytes)) {
    return broken(base::cat("state ", header.state, " with ", header.progress_bytes,
                            " bytes loaded of ", header.data_bytes));
  }
  return {};
}

base::Result<void> check_table(const ArenaHeader& header, std::span<const TensorEntry> table) {
  uint64_t end = 0;  // of the tensor before
  for (size_t i = 0; i < table.size(); ++i) {
    const TensorEntry& entry = table[i];
    if (std::memchr(entry.name, 0, sizeof entry.name) == nullptr || entry.name[0] == 0) {
      return broken(base::cat("name of tensor ", i));
    }
    if (entry.offset % kTensorAlignment != 0 || entry.offset < end ||
        entry.offset > header.data_bytes || entry.bytes > header.data_bytes - entry.offset) {
      return broken(base::cat("place of tensor ", entry.name));
    }
    if (entry.rows == 0 || entry.row_length == 0 || entry.bytes == 0 || !all_zero(entry.reserved)) {
      return broken(base::cat("shape of tensor ", entry.name));
    }
    end = entry.offset + entry.bytes;
  }
  return {};
}

}  // namespace shm
