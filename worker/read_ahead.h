// Reads extents ahead of the threads that use them: those threads take what has arrived, a few
// more wait for the device. What is in the page cache is left to the taker, who copies it piece by
// piece while it is in a CPU's cache anyway.
//
//   take() ── in the page cache? ── yes ──────────────────────────────────► taken
//               no │                                                          ▲
//                  └─ buffer ─► requests ─► reader threads ─► arrived ────────┘ ─ release() ─►
//
// Extents come in any order. Reader threads start when something has to be waited for, on the CPUs
// of the thread that asks for it, and buffers are first touched by that thread, so that both are on
// its node. Memory: at most `buffers` buffers of the largest extent.
// Thread rule: take() and release() by any thread; everybody has returned before the destructor.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "worker/source_reader.h"

namespace worker {

struct ReadAheadOptions {
  int readers = 8;  // threads, so reads in flight
  int buffers = 8;  // at least 1
};

class ReadAhead {
 public:
  struct Piece {
    size_t index = 0;                                // of the extent
    ModelSource::From from;                          // kCache: nothing was read yet
    base::Result<std::span<const std::byte>> bytes;  // kDevice: what was read
    size_t buffer = 0;                               // for release()
  };

  /// Borrows source and extents.
  ReadAhead(ModelSource& source, std::span<const Extent> extents, const ReadAheadOptions& options);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The next piece that is there; nullopt when none is left for this thread, or after stop().
  /// While nothing has come `while_waiting` is called several times a second; it may call stop().
  std::optional<Piece> take(const std::function<void()>& while_waiting = {});
  /// Gives the memory of a piece back. Each piece that was taken must be released.
  void release(const Piece& piece);
  /// Nothing is handed out any more.
  void stop();

 private:
  struct Request {
    size_t index;
    size_t buffer;
  };
  void submit(std::unique_lock<std::mutex>& lock, const Request& request);
  void serve(std::unique_lock<std::mutex>& lock);
  void reader_main();

  // constant after construction
  ModelSource& source_;
  const std::span<const Extent> extents_;
  const size_t readers_max_;
  size_t extent_bytes_max_ = 0;

  // guarded by mutex_, but the bytes of a buffer, which belong to whoever has its number
  std::mutex mutex_;
  std::condition_variable takers_, readers_;
  size_t next_ = 0;       // extent
  size_t in_flight_ = 0;  // requested and not taken
  size_t idle_readers_ = 0;
  std::vector<ReadBuffer> buffers_;
  std::vector<size_t> free_;
  std::deque<Request> requests_;
  std::deque<Piece> arrived_;
  std::vector<std::thread> threads_;
  bool stopped_ = false;
};

}  // namespace worker
