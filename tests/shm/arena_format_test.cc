// Damaged arenas: every byte, every field, every size is an error with a sentence.
#include "shm/arena_format.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/shm/arena_fixture.h"

namespace shm {
namespace {

using base::Code;

class ArenaFormatTest : public ArenaTest {};
using H = ArenaHeader;
using T = TensorEntry;

// Every byte of header and table, one at a time, with four kinds of damage: never accepted, never a
// crash. Only the last words have other legal values; of those only `keep` is right either way.
TEST_F(ArenaFormatTest, EveryDamagedByteIsAnError) {
  ASSERT_TRUE(make("x").ok());
  std::fstream file(path("x"), std::ios::in | std::ios::out | std::ios::binary);
  const size_t bytes = sizeof(ArenaHeader) + 3 * sizeof(TensorEntry);
  for (size_t at = 0; at < bytes; ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      const bool says_keep = at == offsetof(ArenaHeader, keep) && flip == 1;
      file.seekg(static_cast<std::streamoff>(at));
      const int original = file.get();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(original ^ flip));
      file.flush();
      const auto arena = Arena::attach(directory_, "x");
      EXPECT_EQ(arena.ok(), says_keep) << "byte " << at << " xor " << flip;
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(original));
      file.flush();
    }
  }
  EXPECT_TRUE(Arena::attach(directory_, "x").ok());
}

// The checks behind the checksums: each field wrong in a header whose checksums are right.
TEST_F(ArenaFormatTest, EveryFieldIsCheckedByItself) {
  ASSERT_TRUE(make("x").ok());
  const int fd = open(path("x").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const File file(fd);
  ArenaHeader header;
  TensorEntry table[3];
  ASSERT_EQ(pread(fd, &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  ASSERT_EQ(pread(fd, table, sizeof table, sizeof header), static_cast<ssize_t>(sizeof table));
  const auto message_with = [&](const std::function<void(ArenaHeader&, TensorEntry*)>& damage) {
    ArenaHeader wrong = header;
    TensorEntry wrong_table[3];
    std::memcpy(wrong_table, table, sizeof table);
    damage(wrong, wrong_table);
    wrong.table_checksum = checksum_of(std::span<const TensorEntry>(wrong_table));
    wrong.header_checksum = checksum_of(wrong);
    EXPECT_EQ(pwrite(fd, &wrong, sizeof wrong, 0), static_cast<ssize_t>(sizeof wrong));
    EXPECT_EQ(pwrite(fd, wrong_table, sizeof table, sizeof wrong),
              static_cast<ssize_t>(sizeof table));
    const auto arena = Arena::attach(directory_, "x");
    return arena.ok() ? std::string("accepted") : arena.error().message;
  };
  const struct {
    const char* says;
    std::function<void(H&, T*)> damage;
  } cases[] = {
      {"accepted", [](H&, T*) {}},
      {"NUMOEARN", [](H& h, T*) { h.magic[7] = 'X'; }},
      {"layout version 3", [](H& h, T*) { h.layout_version = 3; }},
      {"layout version 1", [](H& h, T*) { h.layout_version = 1; }},
      {"sizes", [](H& h, T*) { h.header_bytes = 128; }},
      {"sizes", [](H& h, T*) { h.entry_bytes = 128; }},
      {"it says", [](H& h, T*) { h.file_bytes += 4096; }},
      {"offsets", [](H& h, T*) { h.table_offset = 512; }},
      {"offsets", [](H& h, T*) { h.data_offset = 256; }},
      {"offsets", [](H& h, T*) { h.data_offset += 1; }},
      {"offsets", [](H& h, T*) { h.data_offset = ~uint64_t{127}; }},
      {"offsets", [](H& h, T*) { h.data_bytes = ~uint64_t{0}; }},
      {"offsets", [](H& h, T*) { h.tensor_count = ~uint32_t{0}; }},
      {"slice", [](H& h, T*) { h.identity.slice_index = 2; }},
      {"slice", [](H& h, T*) { h.flags = 2; }},
      {"slice", [](H& h, T*) { h.node = -2; }},
      {"slice", [](H& h, T*) { h.reserved[0] = 1; }},
      {"slice", [](H& h, T*) { h.reserved_end[47] = 1; }},
      {"slice", [](H& h, T*) { h.keep = 2; }},
      {"slice", [](H& h, T*) { h.label[79] = 'x'; }},
      {"died half-way", [](H& h, T*) { h.state = 1; }},
      {"state 3", [](H& h, T*) { h.state = 3; }},
      {"state 0", [](H& h, T*) { h.state = 0; }},
      {"bytes loaded", [](H& h, T*) { h.progress_bytes -= 1; }},
      {"bytes loaded", [](H& h, T*) { h.progress_bytes += 1; }},
      {"name of tensor 1", [](H&, T* t) { t[1].name[0] = 0; }},
      {"name of tensor 2", [](H&, T* t) { std::memset(t[2].name, 'a', sizeof t[2].name); }},
      {"place of tensor", [](H&, T* t) { t[1].offset = t[0].offset; }},
      {"place of tensor", [](H&, T* t) { t[1].offset += 64; }},
      {"place of tensor", [](H&, T* t) { t[0].bytes += 128; }},
      {"place of tensor", [](H&, T* t) { t[2].bytes = ~uint64_t{0}; }},
      {"place of tensor", [](H&, T* t) { t[2].offset = uint64_t{1} << 63; }},
      {"shape of tensor", [](H&, T* t) { t[0].rows = 0; }},
      {"shape of tensor", [](H&, T* t) { t[0].row_length = 0; }},
      {"shape of tensor", [](H&, T* t) { t[0].bytes = 0; }},
      {"shape of tensor", [](H&, T* t) { t[0].reserved[3] = 1; }},
      {"accepted", [](H&, T*) {}},
  };
  for (const auto& [says, damage] : cases) {
    const std::string message = message_with(damage);
    EXPECT_NE(message.find(says), std::string::npos) << says << ": " << message;
  }
}

TEST_F(ArenaFormatTest, ShorterOrLongerFileIsAnErrorNotASigbus) {
  ASSERT_TRUE(make("x").ok());
  const auto bytes = static_cast<off_t>(std::filesystem::file_size(path("x")));
  for (const off_t size : {off_t{0}, off_t{1}, off_t{319}, off_t{320}, bytes - 1, bytes + 4096}) {
    ASSERT_EQ(truncate(path("x").c_str(), size), 0);
    const auto arena = Arena::attach(directory_, "x");
    ASSERT_FALSE(arena.ok()) << size;
    EXPECT_EQ(arena.error().code, Code::kBrokenFile);
  }
}

TEST_F(ArenaFormatTest, VerifyNamesTheDamagedTensor) {
  const auto arena = make("x");
  ASSERT_TRUE(arena.ok());
  const uint64_t at = arena->header().data_offset + arena->tensors()[2].offset + 5;
  std::fstream file(path("x"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(~static_cast<int>(byte(arena->tensors()[2], 5))));
  file.flush();
  const auto result = arena->verify();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("blk.2.weight"), std::string::npos);
}

TEST_F(ArenaFormatTest, OtherIdentityIsRefused) {
  ASSERT_TRUE(make("x").ok());
  std::vector<ArenaIdentity> others(8, identity());
  others[0].source.low++;
  others[1].source.high++;
  others[2].plan_id++;
  others[3].slice_index = 0;
  others[4].slice_count++;
  others[5].numerics_version++;
  others[6].kernel_layout++;
  others[7].model++;
  for (size_t i = 0; i < others.size(); ++i) {
    const auto arena = Arena::attach(directory_, "x", others[i]);
    ASSERT_FALSE(arena.ok()) << i;
    EXPECT_EQ(arena.error().code, Code::kUnsupported);
  }
}

}  // namespace
}  // namespace shm
