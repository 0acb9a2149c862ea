// The KV cache of one rank in a file of its own, so that a restarted rank finds it again: format
// and life. docs/kv-arena-format.md has the picture.
//
//   find_kv_arena(path, identity)   takes the lock and looks; stamp 0: nothing that can be kept
//   KvArena::adopt(found)           keeps what is there, or
//   KvArena::create(found, stamp)   makes it new, zeroed
//
// Exactly one process has a KV arena: it holds an exclusive flock on the file, which dies with it.
// Pools belong together only if their stamps are equal: one meeting made them. What is in the file
// was written by another process, so every field is checked before it is used, and whatever is
// wrong only means that the cache starts empty.
// Thread rule: one thread; the memory of the pool follows the engine's rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "base/limits.h"
#include "base/result.h"
#include "shm/checksum.h"
#include "shm/file.h"
#include "shm/region.h"

namespace shm {

inline constexpr char kKvArenaMagic[8] = {'N', 'U', 'M', 'O', 'E', 'K', 'V', 'C'};
inline constexpr uint32_t kKvArenaLayoutVersion = 3;
inline constexpr uint32_t kKvBlockSealed = 0x5ea1ed01;  // any other state: not sealed

/// What a pool holds and how. Equal identities mean: the same bytes would be written again.
struct KvIdentity {
  Hash128 model;           // fingerprint of the model
  uint64_t plan_hash = 0;  // of the KV heads of this rank, layer by layer
  uint64_t pool_bytes = 0;
  uint32_t numerics_version = base::kNumericsVersion;
  uint32_t kv_type = 0;  // of an element
  uint32_t layout = 0;   // family of arithmetic and layouts
  uint32_t block_positions = base::kKvBlockPositions;
  uint32_t block_count = 0;
  uint32_t rank = 0, rank_count = 1;
  int32_t node = -1;  // OS node it is bound to, or -1
  bool operator==(const KvIdentity&) const = default;
};

struct KvArenaHeader {
  char magic[8];  // written last, in one piece
  uint32_t layout_version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t table_offset;  // from the start of the file
  uint64_t data_offset;   // from the start of the file
  uint32_t entry_count;   // blocks of the pool for rank 0, else 0
  uint32_t entry_bytes;
  KvIdentity identity;
  uint64_t stamp;            // not 0
  uint64_t header_checksum;  // XXH3-64 of all bytes before it
  uint8_t reserved[128];     // zero
};
static_assert(std::is_trivially_copyable_v<KvArenaHeader> && sizeof(KvArenaHeader) == 256);
static_assert(sizeof(KvIdentity) == 64 && offsetof(KvArenaHeader, identity) == 48);
static_assert(offsetof(KvArenaHeader, stamp) == 112);
static_assert(offsetof(KvArenaHeader, header_checksum) == 120);

/// A block as the leader knows it. Only `state` is looked at by others while it changes.
struct KvBlockEntry {
  uint32_t state;  // atomic: kKvBlockSealed is stored last with release, and taken away first
  int32_t near;    // block with the same positions of the near layers, -1: none; atomic
  int64_t first_position;  // of the block in its sequence, a multiple of kKvBlockPositions
  Hash128 chain;           // of all tokens up to the block's end
  Hash128 previous;        // chain of the block before it, or the root
  int32_t tokens[base::kKvBlockPositions];
  uint64_t near_check;      // of chain and near
  uint8_t reserved_end[8];  // zero
};
static_assert(std::is_trivially_copyable_v<KvBlockEntry> && sizeof(KvBlockEntry) == 320);
static_assert(offsetof(KvBlockEntry, chain) == 16 && offsetof(KvBlockEntry, tokens) == 48);

/// Where a chain begins: the same for all ranks, splits and pool sizes.
Hash128 kv_chain_root(const KvIdentity& identity);
/// The chain after a block of kKvBlockPositions more tokens.
Hash128 kv_chain(const Hash128& previous, std::span<const int32_t> tokens);

/// Whether the entry is sealed; acquire, so its fields may be read then.
bool is_sealed(const KvBlockEntry& entry);
/// Where a block lies.
struct KvBlockPlace {
  Hash128 previous;  // chain of the block before it, or the root
  int64_t first_position = 0;
  int32_t near = -1;
};
/// The state is written last: who dies inside leaves an entry without a seal. REQUIRES: not sealed.
void seal_entry(KvBlockEntry& entry, const KvBlockPlace& place, std::span<const int32_t> tokens);
/// The near block of a sealed entry is to be overwritten; the entry stays sealed without it.
void drop_near(KvBlockEntry& entry);
/// Takes the seal away, before anything else of the entry changes.
void drop_entry(KvBlockEntry& entry);
/// Whether a sealed entry is, but for its near block, what seal_entry() would write; `root` is the
/// chain's beginning.
bool is_valid(const KvBlockEntry& entry, const Hash128& root);
/// Whether a valid entry has a near block, of the number that was sealed with it.
bool near_is_valid(const KvBlockEntry& entry);

/// Checks a header against the true size of its file and what is expected. Errors: a sentence.
base::Result<void> check_kv_header(const KvArenaHeader& header, uint64_t file_bytes,
                                   const KvIdentity& expected);
uint64_t checksum_of(const KvArenaHeader& header);

/// A locked file that may hold a KV arena.
struct FoundKvArena {
  File file;  // its lock is exclusive
  std::string path;
  KvIdentity identity;  // that was asked for
  uint64_t stamp = 0;   // 0: nothing to keep
  std::string why_new;  // if something is there that cannot be kept: why, for people
};

/// Takes the lock of `path`, which is made if it is not there. Errors: kUnavailable if another
/// process has it for longer than `wait_ns`; kSystem.
base::Result<FoundKvArena> find_kv_arena(const std::string& path, const KvIdentity& identity,
                                         int64_t wait_ns);

/// Frees what is not to be kept, before it is made anew.
void empty(FoundKvArena& found);

struct KvArenaOptions {
  uint64_t stamp = 0;
  bool small_pages = false;                          // refuse huge ones
  std::function<base::Result<void>()> keep_on = {};  // of RegionOptions
};

class KvArena {
 public:
  /// Maps what was found as it is. REQUIRES: found.stamp != 0. Errors: kSystem, kBrokenFile if it
  /// changed meanwhile.
  static base::Result<KvArena> adopt(FoundKvArena found);
  /// Makes it new on its node, reserved to the last byte and zeroed. Errors: kNoSpace with the
  /// bytes needed and free; then the name is gone. REQUIRES: stamp != 0.
  static base::Result<KvArena> create(FoundKvArena found, const KvArenaOptions& options);

  const KvArenaHeader& header() const { return *header_; }
  /// One entry for each block; empty unless rank 0.
  std::span<KvBlockEntry> entries() const { return entries_; }
  std::span<std::byte> pool() const {
    return {region_.data() + header_->data_offset, header_->identity.pool_bytes};
  }
  Bind bind() const { return bind_; }
  const Region& region() const { return region_; }

 private:
  explicit KvArena(Region region);

  Region region_;  // its file carries the lock
  const KvArenaHeader* header_;
  std::span<KvBlockEntry> entries_;
  Bind bind_ = Bind::kNotAsked;
};

}  // namespace shm
