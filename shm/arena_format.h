// The bytes of an arena: header, tensor table, tensor data. See docs/arena-format.md for a picture.
//
// Everything is trivially copyable, little-endian, offsets instead of pointers, and written by
// another process: whoever attaches checks every field before using it. A change of any size,
// offset or meaning bumps kArenaLayoutVersion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/limits.h"
#include "base/result.h"
#include "shm/checksum.h"

namespace shm {

inline constexpr char kArenaMagic[8] = {'N', 'U', 'M', 'O', 'E', 'A', 'R', 'N'};
inline constexpr uint32_t kArenaLayoutVersion = 2;
inline constexpr uint64_t kTensorAlignment = 128;  // of a tensor's first byte
inline constexpr uint64_t kTensorTail = 128;       // readable bytes behind the last tensor
inline constexpr uint32_t kArenaTensorsMax = 1u << 20;
inline constexpr uint32_t kArenaBound = 1;  // flag: its pages can only be on its node
inline constexpr size_t kArenaLabelBytes = 80;

enum class ArenaState : uint32_t { kLoading = 1, kReady = 2 };

/// What an arena holds. Equal identities mean: the same bytes would be written again. Where only
/// the source differs, the content decides.
struct ArenaIdentity {
  uint64_t model = 0;        // a hash of the tensor table and the sizes
  Hash128 source;            // of (device, inode, size, mtime, ctime) of
                             // the model's files
  uint64_t plan_id = 0;      // a hash of the plan
  uint32_t slice_index = 0;  // of the plan
  uint32_t slice_count = 1;
  uint32_t numerics_version = base::kNumericsVersion;
  uint32_t kernel_layout = 0;  // family of packed layouts
  bool operator==(const ArenaIdentity&) const = default;
};

struct ArenaHeader {
  // Constant once the arena has its name; covered by header_checksum.
  char magic[8];
  uint32_t layout_version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t table_offset;  // from the start of the file
  uint64_t data_offset;   // from the start of the file
  uint64_t data_bytes;
  uint32_t tensor_count;
  uint32_t entry_bytes;
  ArenaIdentity identity;
  uint32_t flags;
  int32_t node;  // OS node it is meant for, or -1
  // Zero while loading; set when sealed.
  Hash128 content;  // this slice's share of the hash of the model's content
  Hash128 table_checksum;
  char label[kArenaLabelBytes];  // for people, ends with a zero byte
  uint64_t header_checksum;      // XXH3-64 of all bytes before it
  uint8_t reserved[24];          // zero
  // May change; read and written as atomics.
  uint32_t state;            // ArenaState; release when sealed, acquire when attached
  uint32_t keep;             // 1: stays when its last process ends; relaxed
  uint64_t progress_bytes;   // relaxed
  uint8_t reserved_end[48];  // zero
};
static_assert(std::is_trivially_copyable_v<ArenaHeader> && sizeof(ArenaHeader) == 320);
static_assert(sizeof(ArenaIdentity) == 48 && offsetof(ArenaHeader, identity) == 56);
static_assert(offsetof(ArenaHeader, flags) == 104 && offsetof(ArenaHeader, content) == 112);
static_assert(offsetof(ArenaHeader, label) == 144 && offsetof(ArenaHeader, header_checksum) == 224);
static_assert(offsetof(ArenaHeader, state) == 256 && offsetof(ArenaHeader, keep) == 260);
static_assert(offsetof(ArenaHeader, progress_bytes) == 264);

struct TensorEntry {
  char name[96];        // ends with a zero byte
  uint32_t type;        // of the model file
  uint32_t layout;      // how the rows are packed
  uint64_t rows;        // of this slice
  uint64_t row_length;  // weights of a row
  uint64_t first_row;   // of the whole tensor
  uint64_t offset;      // from data_offset
  uint64_t bytes;
  Hash128 checksum;      // XXH3-128 of the bytes; zero while loading
  uint64_t reserved[4];  // zero
};
static_assert(std::is_trivially_copyable_v<TensorEntry> && sizeof(TensorEntry) == 192);
static_assert(offsetof(TensorEntry, type) == 96 && offsetof(TensorEntry, rows) == 104);
static_assert(offsetof(TensorEntry, offset) == 128 && offsetof(TensorEntry, checksum) == 144);

/// Checks the constant part of a header against the file's true size. Error: kBrokenFile, or
/// kUnsupported for another version.
base::Result<void> check_header(const ArenaHeader& header, uint64_t file_bytes);
/// Checks that the entries are well-formed, in order, apart, and inside the data.
base::Result<void> check_table(const ArenaHeader& header, std::span<const TensorEntry> table);
/// The checksums that seal a header and its table.
uint64_t checksum_of(const ArenaHeader& header);
Hash128 checksum_of(std::span<const TensorEntry> table);

}  // namespace shm
