#include "shm/kv_arena.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/cat.h"
#include "base/clock.h"

namespace shm {

namespace {

constexpr uint64_t kSmallPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

base::Error broken(const std::string& what) {
  return {base::Code::kBrokenFile, base::cat("its header is damaged (", what, ")")};
}

base::Error other(const std::string& what) {
  return {base::Code::kUnsupported, base::cat("it is the KV cache of ", what)};
}

uint32_t entry_count_of(const KvIdentity& identity) {
  return identity.rank == 0 ? identity.block_count : 0;
}

uint64_t data_offset_of(const KvIdentity& identity) {
  return round_up(sizeof(KvArenaHeader) + entry_count_of(identity) * sizeof(KvBlockEntry),
                  kSmallPage);
}

/// The size to ask for; a file that ends in the middle of a huge page would end in small ones.
uint64_t file_bytes_of(const KvIdentity& identity) {
  const uint64_t bytes = data_offset_of(identity) + identity.pool_bytes;
  return round_up(bytes, bytes >= kHugePage ? kHugePage : kSmallPage);
}

uint64_t near_check(const Hash128& chain, int32_t near) {
  const struct {
    Hash128 chain;
    int64_t near;
  } all = {chain, near};
  static_assert(sizeof all == 24);
  return hash64(std::as_bytes(std::span(&all, 1)));
}

KvBlockEntry content_of(const KvBlockPlace& place, std::span<const int32_t> tokens) {
  KvBlockEntry entry = {};
  entry.state = kKvBlockSealed;
  entry.near = place.near;
  entry.first_position = place.first_position;
  entry.chain = kv_chain(place.previous, tokens);
  entry.previous = place.previous;
  entry.near_check = near_check(entry.chain, place.near);
  std::copy(tokens.begin(), tokens.end(), entry.tokens);
  return entry;
}

/// What differs between two identities, for people: "another model".
const char* difference(const KvIdentity& found, const KvIdentity& expected) {
  if (found.numerics_version != expected.numerics_version) return "another version of numoe";
  if (!(found.model == expected.model)) return "another model";
  if (found.rank != expected.rank || found.rank_count != expected.rank_count ||
      found.plan_hash != expected.plan_hash) {
    return "another split into ranks";
  }
  if (found.kv_type != expected.kv_type) return "another --kv-type";
  if (found.layout != expected.layout) return "another --isa";
  if (found.node != expected.node) return "another NUMA node";
  return "another size (--ctx or --parallel)";
}

}  // namespace

Hash128 kv_chain_root(const KvIdentity& identity) {
  const struct {
    Hash128 model;
    uint32_t numerics_version, kv_type, layout, block_positions;
  } root = {identity.model, identity.numerics_version, identity.kv_type, identity.layout,
            identity.block_positions};
  static_assert(sizeof root == 32);
  return hash128(std::as_bytes(std::span(&root, 1)));
}

Hash128 kv_chain(const Hash128& previous, std::span<const int32_t> tokens) {
  CHECK(tokens.size() == size_t{base::kKvBlockPositions}, "a block of ", tokens.size(), " tokens");
  struct {
    Hash128 previous;
    int32_t tokens[base::kKvBlockPositions];
  } block;
  static_assert(sizeof block == 16 + 256);
  block.previous = previous;
  std::copy(tokens.begin(), tokens.end(), block.tokens);
  return hash128(std::as_bytes(std::span(&block, 1)));
}

// The partner of all of these is the leader of a later group: it reads what a dead one stored.
bool is_sealed(const KvBlockEntry& entry) {
  return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(entry.state))
             .load(std::memory_order_acquire) == kKvBlockSealed;
}

void seal_entry(KvBlockEntry& entry, const KvBlockPlace& place, std::span<const int32_t> tokens) {
  CHECK(!is_sealed(entry), "a block sealed twice");
  const KvBlockEntry content = content_of(place, tokens);
  const size_t behind = offsetof(KvBlockEntry, near);
  std::memcpy(reinterpret_cast<std::byte*>(&entry) + behind,
              reinterpret_cast<const std::byte*>(&content) + behind, sizeof entry - behind);
  std::atomic_ref<uint32_t>(entry.state).store(kKvBlockSealed, std::memory_order_release);
}

void drop_near(KvBlockEntry& entry) {
  std::atomic_ref<int32_t>(entry.near).exchange(-1, std::memory_order_acq_rel);
}

// The exchange keeps what follows behind it, as the release in seal_entry() what came before. The
// hash goes too: a stray bit in `state` alone does not bring the seal back.
void drop_entry(KvBlockEntry& entry) {
  std::atomic_ref<uint32_t>(entry.state).exchange(0, std::memory_order_acq_rel);
  entry.chain = {};
}

bool is_valid(const KvBlockEntry& entry, const Hash128& root) {
  if (!is_sealed(entry) || entry.first_position < 0 ||
      entry.first_position % base::kKvBlockPositions != 0 ||
      entry.first_position >= base::kContextMax ||
      (entry.first_position == 0) != (entry.previous == root)) {
    return false;
  }
  KvBlockEntry content = content_of({entry.previous, entry.first_position}, entry.tokens);
  content.near = entry.near;
  content.near_check = entry.near_check;
  return std::memcmp(&content, &entry, sizeof content) == 0;
}

bool near_is_valid(const KvBlockEntry& entry) {
  return entry.near >= 0 && entry.near_check == near_check(entry.chain, entry.near);
}

uint64_t checksum_of(const KvArenaHeader& header) {
  return hash64(
      {reinterpret_cast<const std::byte*>(&header), offsetof(KvArenaHeader, header_checksum)});
}

base::Result<void> check_kv_header(const KvArenaHeader& header, uint64_t file_bytes,
                                   const KvIdentity& expected) {
  if (std::memcmp(header.magic, kKvArenaMagic, sizeof kKvArenaMagic) != 0) {
    return base::Error{base::Code::kBrokenFile, "it does not start with NUMOEKVC"};
  }
  if (header.layout_version != kKvArenaLayoutVersion) return other("another version of numoe");
  if (header.header_checksum != checksum_of(header)) return broken("checksum");
  if (!(header.identity == expected)) return other(difference(header.identity, expected));
  if (header.header_bytes != sizeof(KvArenaHeader) || header.entry_bytes != sizeof(KvBlockEntry) ||
      header.entry_count != entry_count_of(expected)) {
    return broken("sizes of header or table");
  }
  if (header.file_bytes != file_bytes || header.file_bytes < file_bytes_of(expected)) {
    return broken(base::cat("it says ", header.file_bytes, " bytes and has ", file_bytes));
  }
  if (header.table_offset != sizeof(KvArenaHeader) ||
      header.data_offset != data_offset_of(expected)) {
    return broken("offsets of table or data");
  }
  if (header.stamp == 0) return broken("stamp");
  if (std::any_of(std::begin(header.reserved), std::end(header.reserved),
                  [](uint8_t byte) { return byte != 0; })) {
    return broken("reserved bytes");
  }
  return {};
}

base::Result<FoundKvArena> find_kv_arena(const std::string& path, const KvIdentity& identity,
                                         int64_t wait_ns) {
  FoundKvArena found;
  found.path = path;
  found.identity = identity;
  const base::SteadyClock clock;
  for (const base::TimeNs deadline = clock.now() + wait_ns;;) {
    ASSIGN_OR_RETURN(found.file, open_file(path, O_RDWR | O_CREAT));
    // Whoever removed it between open and lock leaves us a file without a name.
    if (try_lock(found.file, Lock::kExclusive) && is_named(found.file, path)) break;
    if (clock.now() >= deadline) {
      return base::Error{base::Code::kUnavailable,
                         base::cat("another process still has the KV cache ", path,
                                   "; end it, or remove the file")};
    }
    const timespec millisecond = {.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
  struct stat status;
  if (fstat(found.file.fd(), &status) != 0) return system_error("cannot look at", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return base::Error{base::Code::kSystem, base::cat(path, " is no file; remove it")};
  }
  if (status.st_size == 0) return found;
  KvArenaHeader header;
  const ssize_t count = pread(found.file.fd(), &header, sizeof header, 0);
  const base::Result<void> usable =
      count == sizeof header
          ? check_kv_header(header, static_cast<uint64_t>(status.st_size), identity)
          : broken("it is too short");
  if (usable.ok()) {
    found.stamp = header.stamp;
  } else {
    found.why_new = usable.error().message;
  }
  return found;
}

void empty(FoundKvArena& found) {
  found.stamp = 0;
  // Where that fails, making it anew fails too, and says so.
  while (ftruncate(found.file.fd(), 0) != 0 && errno == EINTR) {
  }
}

KvArena::KvArena(Region region) : region_(std::move(region)) {
  header_ = std::launder(reinterpret_cast<const KvArenaHeader*>(region_.data()));
}

base::Result<KvArena> KvArena::adopt(FoundKvArena found) {
  CHECK(found.stamp != 0, "nothing to adopt in ", found.path);
  ASSIGN_OR_RETURN(Region region,
                   Region::open_in(std::move(found.file), found.path, Access::kReadWrite,
                                   file_bytes_of(found.identity)));
  KvArena arena(std::move(region));
  const base::Result<void> usable =
      check_kv_header(*arena.header_, arena.region_.bytes(), found.identity);
  if (!usable.ok() || arena.header_->stamp != found.stamp) {
    return base::Error{base::Code::kBrokenFile,
                       base::cat(found.path, " was changed by a process that does not own it")};
  }
  ASSIGN_OR_RETURN(arena.bind_,
                   bind_to_node(arena.region_.data(), arena.region_.bytes(), found.identity.node));
  arena.entries_ = {
      reinterpret_cast<KvBlockEntry*>(arena.region_.data() + arena.header_->table_offset),
      arena.header_->entry_count};
  return arena;
}

base::Result<KvArena> KvArena::create(FoundKvArena found, const KvArenaOptions& options) {
  CHECK(options.stamp != 0, "a stamp of 0");
  const KvIdentity& identity = found.identity;
  auto region = Region::create_in(std::move(found.file), found.path,
                                  {.bytes = file_bytes_of(identity),
                                   .node = identity.node,
                                   .huge = !options.small_pages,
                                   .small = options.small_pages,
                                   .keep_on = options.keep_on});
  if (!region.ok()) {
    unlink_region(found.path);
    return region.error();
  }
  KvArenaHeader header = {};
  header.layout_version = kKvArenaLayoutVersion;
  header.header_bytes = sizeof(KvArenaHeader);
  header.file_bytes = region->bytes();
  header.table_offset = sizeof(KvArenaHeader);
  header.data_offset = data_offset_of(identity);
  header.entry_count = entry_count_of(identity);
  header.entry_bytes = sizeof(KvBlockEntry);
  header.identity = identity;
  header.stamp = options.stamp;
  std::memcpy(header.magic, kKvArenaMagic, sizeof kKvArenaMagic);
  header.header_checksum = checksum_of(header);
  // The magic comes last and in one piece: who dies before leaves zeros there, not half a header.
  std::memset(header.magic, 0, sizeof header.magic);
  std::memcpy(region->data(), &header, sizeof header);
  uint64_t magic;
  std::memcpy(&magic, kKvArenaMagic, sizeof magic);
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(region->data()))
      .store(magic, std::memory_order_release);
  KvArena arena(std::move(*region));
  arena.bind_ = arena.region_.bind();
  arena.entries_ = {reinterpret_cast<KvBlockEntry*>(arena.region_.data() + header.table_offset),
                    header.entry_count};
  return arena;
}

}  // namespace shm
