// Memory that ends directly at a protected page: one byte too far and the test dies.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"

namespace kernels::testing {

/// `count` elements whose last byte is the last one of its page. Aligned to 64 bytes only if the
/// size is a multiple of 64. Filled with 0xa5.
template <class T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t count) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = count * sizeof(T);
    const size_t pages = (bytes + page - 1) / page;
    mapped_bytes_ = (pages + 2) * page;  // a protected page on either side
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped_ != MAP_FAILED, "mmap of ", mapped_bytes_);
    auto* first = static_cast<std::byte*>(mapped_) + page;
    CHECK(pages == 0 || mprotect(first, pages * page, PROT_READ | PROT_WRITE) == 0, "mprotect");
    std::byte* begin = first + pages * page - bytes;
    std::memset(begin, 0xa5, bytes);
    data_ = reinterpret_cast<T*>(begin);
  }
  ~GuardedBuffer() {
    if (mapped_) munmap(mapped_, mapped_bytes_);
  }
  GuardedBuffer(GuardedBuffer&& other) noexcept
      : mapped_(other.mapped_),
        mapped_bytes_(other.mapped_bytes_),
        data_(other.data_),
        count_(other.count_) {
    other.mapped_ = nullptr;
  }
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  size_t size_bytes() const { return count_ * sizeof(T); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_, count_}; }

 private:
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  T* data_ = nullptr;
  size_t count_ = 0;
};

/// Whether two buffers hold the same bytes: the comparator of all equality tests.
template <class A, class B>
bool same_bytes(const A& a, const B& b) {
  return a.size() == b.size() &&
         (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
}

}  // namespace kernels::testing
