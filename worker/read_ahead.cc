#include "worker/read_ahead.h"

#include <algorithm>
#include <chrono>
#include <system_error>

namespace worker {

namespace {

constexpr std::chrono::milliseconds kPatience(50);

}  // namespace

ReadAhead::ReadAhead(ModelSource& source, std::span<const Extent> extents,
                     const ReadAheadOptions& options)
    : source_(source),
      extents_(extents),
      readers_max_(static_cast<size_t>(std::max(options.readers, 0))),
      buffers_(static_cast<size_t>(std::max(options.buffers, 1))) {
  for (const Extent& extent : extents)
    extent_bytes_max_ = std::max(extent_bytes_max_, extent.bytes);
  for (size_t i = buffers_.size(); i > 0; i--) free_.push_back(i - 1);
}

ReadAhead::~ReadAhead() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  takers_.notify_all();
  readers_.notify_all();
}

void ReadAhead::release(const Piece& piece) {
  if (piece.from == ModelSource::From::kCache) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(piece.buffer);
  takers_.notify_one();
}

std::optional<ReadAhead::Piece> ReadAhead::take(const std::function<void()>& while_waiting) {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    // To keep the device busy comes before what has arrived.
    if (next_ < extents_.size() && !free_.empty()) {
      const Request request{.index = next_++, .buffer = free_.back()};
      free_.pop_back();
      lock.unlock();
      const bool cached = source_.is_cached(extents_[request.index]);
      ReadBuffer& buffer = buffers_[request.buffer];
      if (!cached && buffer.bytes().empty()) buffer = ReadBuffer::for_extents_of(extent_bytes_max_);
      lock.lock();
      if (cached) {
        free_.push_back(request.buffer);
        takers_.notify_one();
        return Piece{.index = request.index,
                     .from = ModelSource::From::kCache,
                     .bytes = std::span<const std::byte>(),
                     .buffer = 0};
      }
      submit(lock, request);
      continue;
    }
    if (!arrived_.empty()) {
      Piece piece = std::move(arrived_.front());
      arrived_.pop_front();
      in_flight_--;
      // Whoever waits for a piece that will not come has to look again.
      if (next_ == extents_.size() && in_flight_ == 0) takers_.notify_all();
      return piece;
    }
    if (next_ == extents_.size() && in_flight_ == 0) {
      // Who was woken by a buffer that nobody needs any more tells the others.
      takers_.notify_all();
      return {};
    }
    if (!while_waiting) {
      takers_.wait(lock);
    } else if (takers_.wait_for(lock, kPatience) == std::cv_status::timeout) {
      lock.unlock();
      while_waiting();
      lock.lock();
    }
  }
  return {};
}

void ReadAhead::submit(std::unique_lock<std::mutex>& lock, const Request& request) {
  requests_.push_back(request);
  in_flight_++;
  if (idle_readers_ < requests_.size() && threads_.size() < readers_max_) {
    try {
      threads_.emplace_back([this] { reader_main(); });
    } catch (const std::system_error&) {
      // No more threads in this container; those there are do it, or this one.
    }
  }
  if (threads_.empty()) {
    serve(lock);
  } else {
    readers_.notify_one();
  }
}

// Reads the oldest request. REQUIRES: there is one.
void ReadAhead::serve(std::unique_lock<std::mutex>& lock) {
  const Request request = requests_.front();
  requests_.pop_front();
  lock.unlock();
  constexpr auto kDevice = ModelSource::From::kDevice;
  const std::span<std::byte> buffer = buffers_[request.buffer].bytes();
  auto bytes = buffer.empty() ? base::Error{base::Code::kNoSpace, "no memory for a buffer"}
                              : source_.read(extents_[request.index], kDevice, buffer);
  lock.lock();
  arrived_.push_back(Piece{.index = request.index,
                           .from = kDevice,
                           .bytes = std::move(bytes),
                           .buffer = request.buffer});
  takers_.notify_one();
}

void ReadAhead::reader_main() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (!requests_.empty()) {
      serve(lock);
      continue;
    }
    idle_readers_++;
    readers_.wait(lock);
    idle_readers_--;
  }
}

}  // namespace worker
