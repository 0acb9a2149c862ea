#include "tests/engine/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace engine {
namespace {

std::atomic<int64_t> count{0};  // relaxed: readers join the threads that they ask about

}  // namespace

int64_t allocation_count() {
  return count.load(std::memory_order_relaxed);
}

namespace {

void* counted(void* memory) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace
}  // namespace engine

void* operator new(size_t bytes) {
  return engine::counted(std::malloc(bytes));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return engine::counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
// Libraries use it; a sanitizer would serve it from another heap than delete below frees into.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return engine::counted(std::malloc(bytes));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
