#include "proto/zmq_mesh.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/cat.h"

namespace proto {

namespace {

// Values of the state.
constexpr uint32_t kAborted = 1, kTimedOut = 2, kBroken = 3, kLost = 4;

base::Wait wait_of(uint32_t state) {
  switch (state) {
    case 0: return base::Wait::kOk;
    case kAborted: return base::Wait::kAborted;
    case kTimedOut: return base::Wait::kTimeout;
    case kBroken: return base::Wait::kBroken;
    default: return base::Wait::kPeerLost;
  }
}

base::TimeNs now() {
  return base::SteadyClock().now();
}

}  // namespace

size_t frame_bytes_max(const ZmqMeshOptions& options) {
  return sizeof(FrameHeader) + std::max(options.slice_bytes_max, options.record_bytes_max);
}

base::Result<std::unique_ptr<ZmqMesh>> ZmqMesh::create(const ZmqMeshOptions& options,
                                                       Sockets sockets) {
  const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) {
    return base::Error{base::Code::kSystem,
                       base::cat("no descriptor for the exchange: ", std::strerror(errno),
                                 "; raise the limit of open files")};
  }
  return std::unique_ptr<ZmqMesh>(new ZmqMesh(options, std::move(sockets), descriptor));
}

ZmqMesh::ZmqMesh(const ZmqMeshOptions& options, Sockets sockets, int abort_descriptor)
    : options_(options),
      abort_descriptor_(abort_descriptor),
      open_(options.first_sequence),
      next_publish_(options.first_sequence),
      next_record_(options.first_sequence),
      next_own_read_(options.first_sequence),
      turn_(static_cast<uint32_t>(options.first_sequence) << 1) {
  const auto lines_for = [](size_t bytes) { return Lines((bytes + 63) / 64); };
  const size_t slice = options.slice_bytes_max;
  own_[0] = own_[1] = lines_for(kHeader + slice);
  if (options.rank == 0) record_frame_ = lines_for(kHeader + options.record_bytes_max);
  for (auto& record : records_) record.reserve(options.record_bytes_max);
  targets_.reserve(sockets.size());
  polled_.push_back({.fd = abort_descriptor_, .events = POLLIN, .revents = 0});
  for (size_t rank = 0; rank < sockets.size(); rank++) {
    if (!sockets[rank]) continue;
    polled_.push_back({sockets[rank]->descriptor(), POLLIN, 0});
    polled_.push_back({sockets[rank]->link_descriptor(), POLLIN, 0});
    Peer peer;
    peer.rank = static_cast<int>(rank);
    peer.socket = std::move(sockets[rank]);
    peer.down = peer.socket->link() == PairSocket::Link::kDown;
    peer.next_slice = peer.next_read = options.first_sequence;
    peer.slots[0] = peer.slots[1] = lines_for(slice);
    peers_.push_back(std::move(peer));
  }
  CHECK(static_cast<int>(peers_.size()) == options.ranks - 1, peers_.size(), " peers of ",
        options.ranks, " ranks");
}

ZmqMesh::~ZmqMesh() {
  ::close(abort_descriptor_);
}

base::Wait ZmqMesh::state() const {
  return wait_of(state_.load(std::memory_order_seq_cst));
}

std::string ZmqMesh::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

const std::byte* ZmqMesh::incoming(uint64_t sequence, int rank) const {
  if (rank == options_.rank) return own_[sequence & 1].data()->bytes + kHeader;
  const auto index = static_cast<size_t>(rank < options_.rank ? rank : rank - 1);
  return peers_[index].slots[peers_[index].shown].data()->bytes;
}

// The first reason stands. Whoever sleeps, in poll or on the turn, looks again.
base::Wait ZmqMesh::end(uint32_t reason) {
  uint32_t none = 0;
  if (state_.compare_exchange_strong(none, reason, std::memory_order_seq_cst)) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(abort_descriptor_, &one, sizeof one);
    turn_.fetch_or(1, std::memory_order_seq_cst);
    turn_.notify_all();
  }
  return state();
}

base::Wait ZmqMesh::end_broken(std::string what) {
  if (fault_.empty()) fault_ = std::move(what);
  const base::Wait wait = end(kBroken);
  tell_abort();
  return wait;
}

void ZmqMesh::abort() {
  end(kAborted);  // the thread that holds the mutex sees it and lets go
  const std::lock_guard lock(mutex_);
  tell_abort();
}

void ZmqMesh::tell_abort() {
  if (abort_told_) return;
  abort_told_ = true;
  const FrameHeader header = make_header({options_.rank, options_.nonce}, FrameKind::kAbort, 0, 0);
  // Who cannot be told sees the connection end when this process does.
  for (Peer& peer : peers_) (void)peer.socket->send(std::as_bytes(std::span(&header, 1)));
}

base::Wait ZmqMesh::send_frame(FrameKind kind, uint64_t sequence, const Outgoing& outgoing) {
  const FrameHeader header = make_header({options_.rank, options_.nonce}, kind, sequence,
                                         outgoing.frame.size() - sizeof(FrameHeader));
  std::memcpy(outgoing.frame.data(), &header, sizeof header);
  targets_.clear();
  for (const Peer& peer : peers_) {
    if (outgoing.members.contains(peer.rank)) targets_.push_back(peer.socket.get());
  }
  if (targets_.empty()) return base::Wait::kOk;
  // Queues are longer than a peer can be behind: one that takes nothing is not there.
  const PairSocket* refused = PairSocket::send_all(targets_, outgoing.frame);
  if (refused == nullptr) return base::Wait::kOk;
  for (const Peer& peer : peers_) {
    if (peer.socket.get() == refused) return end(kLost + static_cast<uint32_t>(peer.rank));
  }
  return end(kLost);
}

base::Wait ZmqMesh::receive_all() {
  for (Peer& peer : peers_) {
    while (const auto message = peer.socket->receive()) {
      const base::Wait wait = take(peer, *message);
      if (wait != base::Wait::kOk) return wait;
    }
  }
  return state();
}

base::Wait ZmqMesh::take(Peer& peer, std::span<const std::byte> message) {
  const auto checked = check_frame(message, {peer.rank, options_.nonce});
  if (!checked.ok()) return end_broken(checked.error().message);
  const Frame& frame = *checked;
  switch (frame.kind) {
    case FrameKind::kSlice: return take_slice(peer, frame);
    case FrameKind::kRecord: return take_record(peer, frame);
    case FrameKind::kRead:
      // At most what was published, and one after the other.
      if (options_.rank != 0 || frame.sequence != peer.next_read ||
          frame.sequence == next_publish_ || !frame.payload.empty()) {
        break;
      }
      peer.next_read++;
      return base::Wait::kOk;
    case FrameKind::kAbort: return end(kAborted);
    case FrameKind::kHello:
    case FrameKind::kVote: break;
  }
  return end_broken(base::cat("rank ", peer.rank, " sent ", frame_kind_name(frame.kind), " ",
                              frame.sequence, " of ", frame.payload.size(), " bytes out of turn"));
}

base::Wait ZmqMesh::take_slice(Peer& peer, const Frame& frame) {
  const bool in_turn =
      peer.awaited ? frame.sequence == open_ : !peer.is_ahead && frame.sequence >= peer.next_slice;
  if (!in_turn) {
    return end_broken(base::cat("rank ", peer.rank, " sent slice ", frame.sequence, ", slice ",
                                peer.next_slice, " is its next and gather ", open_, " ours"));
  }
  if (frame.payload.size() > options_.slice_bytes_max) {
    return end_broken(base::cat("rank ", peer.rank, " sent a slice of ", frame.payload.size(),
                                " bytes, at most ", options_.slice_bytes_max, " are possible"));
  }
  if (!frame.payload.empty()) {
    std::memcpy(peer.slots[1 - peer.shown].data(), frame.payload.data(), frame.payload.size());
  }
  peer.next_slice = frame.sequence + 1;
  if (peer.awaited) peer.shown = 1 - peer.shown;
  peer.is_ahead = !peer.awaited;
  peer.awaited = false;
  return base::Wait::kOk;
}

base::Wait ZmqMesh::take_record(Peer& peer, const Frame& frame) {
  if (peer.rank != 0 || frame.sequence != next_record_ || frame.sequence == next_own_read_ + 2 ||
      frame.payload.size() > options_.record_bytes_max) {
    return end_broken(base::cat("rank ", peer.rank, " sent record ", frame.sequence, " of ",
                                frame.payload.size(), " bytes, record ", next_record_,
                                " of at most ", options_.record_bytes_max,
                                " would be rank 0's next"));
  }
  records_[frame.sequence & 1].assign(frame.payload.begin(), frame.payload.end());
  next_record_++;
  return base::Wait::kOk;
}

void ZmqMesh::sleep(base::TimeNs ns) {
  const timespec time = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  const int ready = ::ppoll(polled_.data(), polled_.size(), &time, nullptr);
  for (size_t i = 0; ready > 0 && i < peers_.size(); i++) {
    if (polled_[2 + 2 * i].revents == 0) continue;
    peers_[i].down = peers_[i].socket->link() == PairSocket::Link::kDown;
  }
}

// What a peer sent before it died has arrived before its end is seen, so a peer that is down and
// still needed will never deliver.
template <class Needs>
base::Wait ZmqMesh::wait_while(Needs needs, base::TimeNs timeout_ns) {
  base::TimeNs deadline = 0;
  bool last_look = false;
  while (true) {
    const base::Wait wait = receive_all();
    if (wait != base::Wait::kOk) return wait;
    bool over = true;
    for (const Peer& peer : peers_) {
      if (!needs(peer)) continue;
      if (peer.down) return end(kLost + static_cast<uint32_t>(peer.rank));
      over = false;
    }
    if (over) return base::Wait::kOk;
    const base::TimeNs time = now();
    if (deadline == 0) deadline = time + timeout_ns;
    // A wait without time to sleep must not hide a loss for ever.
    if (last_look) return base::Wait::kTimeout;
    last_look = time >= deadline;
    sleep(last_look ? 0 : deadline - time);
  }
}

// Shows the slices that are here already and notes which ones are awaited.
base::Wait ZmqMesh::begin(const base::Gather& gather) {
  open_ = gather.sequence;
  for (Peer& peer : peers_) {
    if (!gather.members.contains(peer.rank)) continue;
    peer.awaited = !peer.is_ahead;
    if (peer.awaited) continue;
    if (peer.next_slice != gather.sequence + 1) {
      return end_broken(base::cat("rank ", peer.rank, " sent slice ", peer.next_slice - 1,
                                  " where that of gather ", gather.sequence, " was due"));
    }
    peer.shown = 1 - peer.shown;
    peer.is_ahead = false;
  }
  return base::Wait::kOk;
}

base::Wait ZmqMesh::gather(const base::Gather& gather) {
  const std::lock_guard lock(mutex_);
  if (state() != base::Wait::kOk) return state();
  const uint64_t left_out = gather.sequence - open_;
  CHECK(gather.sequence >= open_, "gather ", gather.sequence, " comes again or too late");
  CHECK(left_out == 0 || gather.bytes == 0, "gather ", gather.sequence,
        " publishes a slice after others were left out");
  base::Wait wait = begin(gather);
  if (wait != base::Wait::kOk) return wait;
  wait = send_frame(FrameKind::kSlice, gather.sequence,
                    {.members = gather.members,
                     .frame = {own_[gather.sequence & 1].data()->bytes, kHeader + gather.bytes}});
  if (wait != base::Wait::kOk) return wait;
  wait = wait_while([](const Peer& peer) { return peer.awaited; }, options_.wait.timeout_ns);
  if (wait == base::Wait::kTimeout) return end(kTimedOut);
  if (wait != base::Wait::kOk) return wait;
  open_ = gather.sequence + 1;
  turn_.fetch_add(static_cast<uint32_t>(left_out + 1) << 1, std::memory_order_release);
  turn_.notify_all();
  return base::Wait::kOk;
}

base::Wait ZmqMesh::publish(uint64_t sequence, std::span<const std::byte> record) {
  CHECK(options_.rank == 0, "rank ", options_.rank, " is no leader");
  CHECK(record.size() <= options_.record_bytes_max, "a record of ", record.size(),
        " bytes, at most ", options_.record_bytes_max);
  const std::lock_guard lock(mutex_);
  if (state() != base::Wait::kOk) return state();
  CHECK(sequence == next_publish_, "record ", sequence, " is not the next");
  const base::Wait wait = wait_while(
      [&](const Peer& peer) { return sequence - peer.next_read >= 2; }, options_.wait.timeout_ns);
  if (wait != base::Wait::kOk) return wait;  // nothing was sent: after a timeout it may come again
  std::byte* const frame = record_frame_.data()->bytes;
  if (!record.empty()) std::memcpy(frame + kHeader, record.data(), record.size());
  next_publish_++;
  return send_frame(FrameKind::kRecord, sequence,
                    {.members = everybody(), .frame = {frame, kHeader + record.size()}});
}

base::Wait ZmqMesh::read(uint64_t sequence, base::TimeNs slice_ns, std::vector<std::byte>& record) {
  CHECK(options_.rank != 0, "the leader reads no records");
  const std::lock_guard lock(mutex_);
  if (state() != base::Wait::kOk) return state();
  CHECK(sequence == next_own_read_, "record ", sequence, " is not the next");
  // While nothing comes, the loss of any peer is news.
  const base::Wait wait =
      wait_while([&](const Peer&) { return next_record_ == sequence; }, slice_ns);
  if (wait != base::Wait::kOk) return wait;
  record = records_[sequence & 1];
  next_own_read_++;
  const FrameHeader header =
      make_header({options_.rank, options_.nonce}, FrameKind::kRead, sequence, 0);
  // A leader that is gone is noticed by the next wait.
  (void)peers_[0].socket->send(std::as_bytes(std::span(&header, 1)));
  return base::Wait::kOk;
}

}  // namespace proto
