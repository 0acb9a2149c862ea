#include "broker/gate.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cat.h"

namespace broker {

base::Result<std::unique_ptr<Gate>> Gate::create(size_t submissions_max) {
  const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0)
    return base::Error{base::Code::kSystem,
                       base::cat("making an event descriptor: ", std::strerror(errno))};
  return std::unique_ptr<Gate>(new Gate(descriptor, submissions_max));
}

Gate::~Gate() {
  close(descriptor_);
}

base::Status Gate::submit(Submission submission) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.submissions.size() >= submissions_max_)
      return base::Error{base::Code::kUnavailable,
                         "too many requests came at once; try again later"};
    waiting_.submissions.push_back(std::move(submission));
  }
  wake_loop();
  return {};
}

void Gate::cancel(CancelSlots cancel) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.cancels.push_back(cancel);
  }
  wake_loop();
}

void Gate::wake_loop() const {
  // Fails only when the counter is full, and then the loop is awake anyway.
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof one);
}

Gate::Taken Gate::take() {
  // Before the mailbox: what comes in between wakes the loop once more.
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(descriptor_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

void Gate::reply(Reply reply) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = replies_.empty();
    replies_.push_back(std::move(reply));
  }
  if (first && wake_front_) wake_front_();
}

std::vector<Reply> Gate::take_replies() {
  const std::lock_guard lock(mutex_);
  return std::exchange(replies_, {});
}

void Gate::set_status(GroupStatus status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

uint64_t Gate::ask_placement() {
  uint64_t round = 0;
  {
    const std::lock_guard lock(mutex_);
    round = ++placement_asked_;
  }
  wake_loop();
  return round;
}

uint64_t Gate::placement_asked() const {
  const std::lock_guard lock(mutex_);
  return placement_asked_;
}

void Gate::answer_placement(PlacementAnswer answer) {
  const std::lock_guard lock(mutex_);
  placement_ = std::move(answer);
}

PlacementAnswer Gate::placement() const {
  const std::lock_guard lock(mutex_);
  return placement_;
}

void Gate::set_server(ServerStatus server) {
  const std::lock_guard lock(mutex_);
  server_ = std::move(server);
}

ServerStatus Gate::server() const {
  const std::lock_guard lock(mutex_);
  return server_;
}

GroupStatus Gate::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace broker
