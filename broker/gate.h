// Between the threads that talk to clients and the thread that runs the broker: requests one way,
// answers the other, and what state the group is in.
//
// Two mailboxes under one mutex that is never held over work. Requests and cancels wake the loop
// through a descriptor; answers wake the front through a function. Neither side ever waits for the
// other. Bounds: submissions that wait are limited by an option; a ticket has at most one cancel a
// slot; answers that wait are at most the tokens of the live requests.
// Thread rule: the functions of each side on one thread, status from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "broker/report.h"
#include "proto/messages.h"

namespace broker {

/// All generations of one HTTP request: admitted together or not at all.
struct Submission {
  uint64_t ticket = 0;                             // chosen by the front, never used twice
  std::vector<proto::GenerateRequest> slots = {};  // their request ids are ignored
};

struct CancelSlots {
  uint64_t ticket = 0;
  std::optional<size_t> slot = {};  // nothing: all
};

/// What the loop says about a ticket. After kRefused or the last chunk of each slot: nothing more.
struct Reply {
  enum class Kind { kAccepted, kRefused, kBusy, kChunk };
  uint64_t ticket = 0;
  Kind kind = Kind::kChunk;
  base::Error error = {};        // kRefused, kBusy
  size_t slot = 0;               // kChunk
  proto::TokenChunk chunk = {};  // kChunk
};

class Gate {
 public:
  /// Errors: kSystem.
  static base::Result<std::unique_ptr<Gate>> create(size_t submissions_max);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // The front's side.
  /// Error: kUnavailable if too many wait already.
  base::Status submit(Submission submission);
  void cancel(CancelSlots cancel);
  std::vector<Reply> take_replies();
  /// Asks the workers where their memory lies; the answer has at least the round returned here.
  uint64_t ask_placement();
  PlacementAnswer placement() const;
  ServerStatus server() const;
  /// `wake` is called by the loop's thread when the first reply waits, with no lock held. REQUIRES:
  /// the loop does not run yet, or nothing is to be said any more.
  void on_replies(std::function<void()> wake) { wake_front_ = std::move(wake); }

  // The loop's side.
  /// Readable while something waits to be taken.
  int descriptor() const { return descriptor_; }
  struct Taken {
    std::vector<Submission> submissions = {};
    std::vector<CancelSlots> cancels = {};  // may be of submissions taken at the same time
  };
  Taken take();
  void reply(Reply reply);
  void set_status(GroupStatus status);
  void set_server(ServerStatus server);
  /// The last question about the placement; 0 if there was none.
  uint64_t placement_asked() const;
  void answer_placement(PlacementAnswer answer);

  GroupStatus status() const;

 private:
  Gate(int descriptor, size_t submissions_max)
      : descriptor_(descriptor), submissions_max_(submissions_max) {}
  void wake_loop() const;

  // Constant once the threads run.
  const int descriptor_;
  const size_t submissions_max_;
  std::function<void()> wake_front_;
  // Shared, under the mutex.
  mutable std::mutex mutex_;
  Taken waiting_;
  std::vector<Reply> replies_;
  GroupStatus status_;
  ServerStatus server_;
  uint64_t placement_asked_ = 0;
  PlacementAnswer placement_;
};

}  // namespace broker
