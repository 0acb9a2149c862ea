// A 64-byte aligned, zeroed array of trivially copyable elements whose size never changes.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace engine {

/// Owns its memory. The thread that constructs it touches the pages first.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(size_t size) : size_(size) {
    if (size == 0) return;
    data_.reset(static_cast<T*>(::operator new(size * sizeof(T), kAlign)));
    std::memset(static_cast<void*>(data_.get()), 0, size * sizeof(T));
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

/// A count or index that is known not to be negative.
constexpr size_t as_size(int64_t n) {
  return static_cast<size_t>(n);
}

/// `n` rounded up to a multiple of `multiple`.
constexpr size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace engine
