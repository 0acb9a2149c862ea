// Every extent is handed out once, whatever is cached, with bounded memory and reads in flight.
#include "worker/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>

namespace worker {
namespace {

// Bytes are a function of the offset; what is cached is drawn from a seed.
class ScriptedSource final : public ModelSource {
 public:
  ScriptedSource(int cached_percent, int fail_at)
      : cached_percent_(cached_percent), fail_at_(fail_at) {}

  bool is_cached(const Extent& extent) override {
    return static_cast<int>(extent.offset * 2654435761u % 100) < cached_percent_;
  }
  base::Result<std::span<const std::byte>> read(const Extent& extent, From from,
                                                std::span<std::byte> buffer) override {
    EXPECT_EQ(from, From::kDevice);
    const int now = reading_.fetch_add(1) + 1;
    int most = most_reading_.load();
    while (now > most && !most_reading_.compare_exchange_weak(most, now)) {
    }
    std::this_thread::yield();
    {
      const std::lock_guard lock(mutex_);
      buffers_.insert(buffer.data());
    }
    for (size_t i = 0; i < extent.bytes; i++) buffer[i] = byte_at(extent.offset + i);
    reading_.fetch_sub(1);
    if (reads_.fetch_add(1) == fail_at_) return base::Error{base::Code::kSystem, "broken"};
    return std::span<const std::byte>(buffer.first(extent.bytes));
  }
  base::Status check_unchanged() override { return {}; }

  static std::byte byte_at(uint64_t offset) { return static_cast<std::byte>(offset * 40503 >> 8); }
  int most_reading() const { return most_reading_.load(); }
  size_t buffer_count() const { return buffers_.size(); }

 private:
  const int cached_percent_, fail_at_;
  std::atomic<int> reading_{0}, most_reading_{0}, reads_{0};
  std::mutex mutex_;
  std::set<const std::byte*> buffers_;
};

std::vector<Extent> extents_of(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Extent> extents;
  uint64_t offset = 0;
  for (size_t i = 0; i < count; i++) {
    extents.push_back({.file = 0, .offset = offset, .bytes = 1 + random() % 5000});
    offset += extents.back().bytes;
  }
  return extents;
}

struct Shape {
  int cached_percent, takers, readers, buffers;
};

void check(const Shape& shape, const std::vector<Extent>& extents) {
  ScriptedSource source(shape.cached_percent, -1);
  ReadAhead ahead(source, extents, {.readers = shape.readers, .buffers = shape.buffers});
  std::vector<std::atomic<int>> taken(extents.size());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < shape.takers; t++) {
    threads.emplace_back([&] {
      while (auto piece = ahead.take()) {
        const Extent& extent = extents[piece->index];
        taken[piece->index]++;
        const bool cached = piece->from == ModelSource::From::kCache;
        if (cached != source.is_cached(extent) || !piece->bytes.ok()) wrong++;
        if (!cached) {
          if (piece->bytes->size() != extent.bytes) wrong++;
          for (size_t i = 0; i < piece->bytes->size(); i++) {
            if ((*piece->bytes)[i] != ScriptedSource::byte_at(extent.offset + i)) wrong++;
          }
        }
        ahead.release(*piece);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& times : taken) EXPECT_EQ(times.load(), 1);
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_LE(source.most_reading(), shape.readers > 0 ? shape.readers : shape.takers);
  EXPECT_LE(source.buffer_count(), static_cast<size_t>(shape.buffers));
}

// Many short runs: what goes wrong goes wrong at the end, when some threads still wait.
TEST(ReadAhead, HandsOutEveryExtentOnce) {
  const Shape shapes[] = {{0, 1, 8, 9},  {0, 3, 4, 2},   {0, 4, 0, 4},  {100, 4, 8, 8},
                          {50, 1, 1, 1}, {50, 3, 8, 11}, {90, 8, 2, 3}, {10, 2, 16, 5},
                          {50, 4, 0, 1}, {80, 6, 1, 1}};
  for (const Shape& shape : shapes) {
    for (uint32_t seed = 0; seed < 25; seed++) {
      SCOPED_TRACE(::testing::Message() << shape.cached_percent << ' ' << shape.takers << ' '
                                        << shape.readers << ' ' << shape.buffers << ' ' << seed);
      check(shape, extents_of(seed + 1, seed));
    }
  }
}

TEST(ReadAhead, HandsOutErrorsAndStops) {
  ScriptedSource source(20, 50);
  const std::vector<Extent> extents = extents_of(300, 18);
  ReadAhead ahead(source, extents, {.readers = 4, .buffers = 6});
  std::atomic<int> errors{0}, after{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++) {
    threads.emplace_back([&] {
      while (auto piece = ahead.take()) {
        if (errors.load() > 0) after++;
        if (!piece->bytes.ok()) {
          errors++;
          ahead.stop();
        }
        ahead.release(*piece);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors.load(), 1);
  EXPECT_LE(after.load(), 3);
  EXPECT_FALSE(ahead.take().has_value());
}

// Readers that wait and readers that read end with it; under sanitizers also without leaks.
TEST(ReadAhead, EndsAtAnyPoint) {
  const std::vector<Extent> extents = extents_of(40, 19);
  for (size_t taken = 0; taken < 40; taken++) {
    ScriptedSource source(30, -1);
    ReadAhead ahead(source, extents, {.readers = 3, .buffers = 3});
    for (size_t i = 0; i < taken; i++) {
      const auto piece = ahead.take();
      ASSERT_TRUE(piece.has_value());
      ahead.release(*piece);
    }
  }
}

}  // namespace
}  // namespace worker
