// Any bytes as the header and table of a KV arena: a header is refused, or points inside its file;
// of a table only entries are taken that hold what they say, and the index over it keeps working.
#include <algorithm>
#include <vector>

#include "shm/kv_arena.h"
#include "tests/fuzz/bytes.h"
#include "worker/sealed_index.h"

namespace {

constexpr size_t kPositions = base::kKvBlockPositions;
constexpr int32_t kBlocks = 8;

shm::KvIdentity wanted(uint8_t flags) {
  shm::KvIdentity identity;
  identity.model = {.low = 1, .high = 2};
  identity.pool_bytes = (flags & 4) != 0 ? 100'000 : (size_t{5} << 20);
  identity.block_count = kBlocks;
  identity.rank = (flags & 8) != 0 ? 1 : 0;
  identity.rank_count = 2;
  return identity;
}

void read_header(fuzz::Bytes& bytes, uint8_t flags) {
  auto header = bytes.number<shm::KvArenaHeader>();
  const shm::KvIdentity identity = wanted(flags);
  const uint64_t file_bytes = (flags & 1) != 0 ? header.file_bytes : bytes.number<uint32_t>();
  if ((flags & 16) != 0) header.identity = identity;
  // A checksum says that nothing was damaged, not that the writer was right.
  if ((flags & 2) != 0) header.header_checksum = shm::checksum_of(header);
  if (!shm::check_kv_header(header, file_bytes, identity).ok()) return;
  CHECK(header.stamp != 0 && header.identity == identity, "a pool that is not the wanted one");
  CHECK(header.table_offset + uint64_t{header.entry_count} * sizeof(shm::KvBlockEntry) <=
                header.data_offset &&
            header.data_offset <= file_bytes &&
            identity.pool_bytes <= file_bytes - header.data_offset,
        "a header that points outside of its file");
}

/// Tokens of a whole block.
std::vector<int32_t> tokens_of(uint8_t kind) {
  std::vector<int32_t> tokens(kPositions);
  for (size_t i = 0; i < kPositions; i++) tokens[i] = kind * 100 + static_cast<int32_t>(i);
  return tokens;
}

void fill(shm::KvBlockEntry& entry, fuzz::Bytes& bytes, std::span<const shm::KvBlockEntry> before,
          const shm::Hash128& root) {
  const uint8_t how = bytes.byte();
  if (how % 4 == 0) {  // anything at all
    entry = bytes.number<shm::KvBlockEntry>();
    return;
  }
  const shm::KvBlockEntry* previous =
      before.empty() || how % 4 == 1 ? nullptr : &before[bytes.below(before.size())];
  shm::seal_entry(
      entry,
      {.previous = previous == nullptr ? root : previous->chain,
       .first_position = previous == nullptr ? 0 : previous->first_position + int64_t{kPositions},
       .near = static_cast<int32_t>(bytes.below(8)) - 1},
      tokens_of(bytes.byte() % 4));
  if (how % 4 == 3) reinterpret_cast<uint8_t*>(&entry)[bytes.below(sizeof entry)] ^= bytes.byte();
}

void use_table(fuzz::Bytes& bytes) {
  const shm::Hash128 root = shm::kv_chain_root(wanted(0));
  std::vector<shm::KvBlockEntry> table(kBlocks);
  for (size_t i = 0; i < table.size(); i++) fill(table[i], bytes, std::span(table).first(i), root);
  worker::SealedIndex index(table, root);
  for (int turn = 0; turn < 32 && !bytes.empty(); turn++) {
    std::vector<int32_t> tokens;
    for (size_t i = bytes.below(4) + 1; i > 0; i--) {
      const std::vector<int32_t> block = tokens_of(bytes.byte() % 4);
      tokens.insert(tokens.end(), block.begin(), block.end());
    }
    const uint8_t usable = bytes.byte();
    const std::vector<int32_t> found =
        index.find(tokens, [&](int32_t block) { return (usable >> block & 1) != 0; });
    for (size_t i = 0; i < found.size(); i++) {
      CHECK(found[i] >= 0 && found[i] < kBlocks && (usable >> found[i] & 1) != 0, "block");
      const shm::KvBlockEntry& entry = table[static_cast<size_t>(found[i])];
      CHECK(entry.first_position == static_cast<int64_t>(i * kPositions), "position");
      CHECK(std::equal(entry.tokens, entry.tokens + kPositions,
                       tokens.begin() + static_cast<std::ptrdiff_t>(i * kPositions)),
            "tokens of block ", found[i]);
      CHECK(std::count(found.begin(), found.end(), found[i]) == 1, "a block twice");
    }
    // The next block of that sequence, in some place that it does not need.
    const auto place = static_cast<int32_t>(bytes.below(kBlocks));
    if (std::find(found.begin(), found.end(), place) != found.end()) continue;
    index.forget(place);
    CHECK(!index.is_sealed(place), "a seal that stayed");
    if (found.size() * kPositions == tokens.size()) continue;
    index.seal({.block = place, .previous = found.empty() ? -1 : found.back()},
               std::span<const int32_t>(tokens).subspan(found.size() * kPositions, kPositions));
    CHECK(shm::is_valid(table[static_cast<size_t>(place)], root), "a seal that is not valid");
  }
  const std::vector<int32_t> sealed = index.sealed();
  CHECK(static_cast<int32_t>(sealed.size()) == index.sealed_count(), "seals that are not counted");
  // Another index over the same table sees the same.
  worker::SealedIndex again(table, root);
  CHECK(again.sealed() == sealed, "seals that a new index does not see");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes bytes(data, size);
  const uint8_t flags = bytes.byte();
  if ((flags & 32) != 0) {
    use_table(bytes);
  } else {
    read_header(bytes, flags);
  }
  return 0;
}
