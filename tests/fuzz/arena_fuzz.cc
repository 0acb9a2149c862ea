// Any bytes as the header and table of an arena: refused, or entries that lie inside the data and
// apart from each other.
#include <algorithm>
#include <cstring>
#include <vector>

#include "shm/arena_format.h"
#include "tests/fuzz/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes bytes(data, size);
  const uint8_t flags = bytes.byte();
  auto header = bytes.number<shm::ArenaHeader>();
  const uint64_t file_bytes = (flags & 1) != 0 ? header.file_bytes : bytes.number<uint32_t>();
  // A checksum says that nothing was damaged, not that the writer was right.
  if ((flags & 2) != 0) header.header_checksum = shm::checksum_of(header);
  if (!shm::check_header(header, file_bytes).ok()) return 0;
  const uint64_t table_end =
      header.table_offset + uint64_t{header.tensor_count} * sizeof(shm::TensorEntry);
  CHECK(table_end <= header.data_offset && header.data_offset <= file_bytes &&
            header.data_bytes <= file_bytes - header.data_offset,
        "a header that points outside of its file");
  std::vector<shm::TensorEntry> table(std::min<size_t>(header.tensor_count, 16));
  for (shm::TensorEntry& entry : table) entry = bytes.number<shm::TensorEntry>();
  if (!shm::check_table(header, table).ok()) return 0;
  for (size_t i = 0; i < table.size(); i++) {
    CHECK(strnlen(table[i].name, sizeof table[i].name) < sizeof table[i].name,
          "a name without end");
    CHECK(table[i].bytes <= header.data_bytes &&
              table[i].offset <= header.data_bytes - table[i].bytes,
          "a tensor outside of the data");
    CHECK(i == 0 || table[i - 1].offset + table[i - 1].bytes <= table[i].offset,
          "tensors that overlap");
  }
  return 0;
}
