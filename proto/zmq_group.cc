#include "proto/zmq_group.h"

#include <poll.h>
#include <sys/random.h>

#include <cstring>

#include "base/cat.h"
#include "base/limits.h"

namespace proto {

namespace {

// Longest sleep while ranks meet; what they wait for wakes them earlier.
constexpr int kDozeMs = 5;

base::TimeNs now() {
  return base::SteadyClock().now();
}

template <class Value>
std::span<const std::byte> bytes_of(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

/// The payload of a hello.
struct ZmqGroup::Hello {
  uint32_t numerics_version;
  uint32_t ranks;
  uint64_t slice_bytes_max;
  uint64_t record_bytes_max;
  FrameNonce bits;  // this rank's part of the nonce
  uint32_t terms_bytes;
  uint32_t offer_bytes;
  char terms[kHelloTextBytesMax];
  char offer[kHelloTextBytesMax];
};
struct ZmqGroup::HelloFrame {
  FrameHeader header;
  Hello hello;
};

ZmqGroup::ZmqGroup(const ZmqGroupOptions& options)
    : options_(options),
      offers_(static_cast<size_t>(options.ranks)),
      sockets_(static_cast<size_t>(options.ranks)) {}

ZmqGroup::~ZmqGroup() = default;

ZmqMeshOptions ZmqGroup::mesh_options() const {
  return {.rank = options_.rank,
          .ranks = options_.ranks,
          .slice_bytes_max = options_.slice_bytes_max,
          .record_bytes_max = options_.record_bytes_max,
          .nonce = nonce_,
          .first_sequence = options_.first_sequence,
          .wait = options_.wait};
}

base::Result<std::unique_ptr<ZmqGroup>> ZmqGroup::meet(const ZmqGroupOptions& options) {
  CHECK(options.rank >= 0 && options.rank < options.ranks && options.ranks <= base::kRanksMax,
        "rank ", options.rank, " of ", options.ranks);
  CHECK(options.endpoints.size() == static_cast<size_t>(options.ranks), options.endpoints.size(),
        " endpoints for ", options.ranks, " ranks");
  CHECK(options.terms.size() <= kHelloTextBytesMax, "terms of ", options.terms.size(), " bytes");
  if (options.offer.size() > kHelloTextBytesMax) {
    return base::Error{
        base::Code::kInvalidArgument,
        base::cat("'", options.offer, "' has ", options.offer.size(), " bytes, at most ",
                  kHelloTextBytesMax, " fit; choose a directory with a shorter path")};
  }
  std::unique_ptr<ZmqGroup> group(new ZmqGroup(options));
  RETURN_IF_ERROR(group->open());
  RETURN_IF_ERROR(group->greet());
  return group;
}

base::Status ZmqGroup::open() {
  ASSIGN_OR_RETURN(context_, ZmqContext::create(options_.cpus));
  const size_t bytes_max = std::max(frame_bytes_max(mesh_options()), sizeof(HelloFrame));
  for (int rank = 0; rank < options_.ranks; rank++) {
    if (rank == options_.rank) continue;
    const auto index = static_cast<size_t>(rank);
    ASSIGN_OR_RETURN(
        sockets_[index],
        PairSocket::open(*context_, {.endpoint = options_.endpoints[index],
                                     .side = options_.rank < rank ? PairSocket::Side::kBinds
                                                                  : PairSocket::Side::kConnects,
                                     .message_bytes_max = bytes_max}));
  }
  return {};
}

base::Status ZmqGroup::greet() {
  static_assert(std::is_trivially_copyable_v<Hello> && sizeof(Hello) == 48 + 512);
  static_assert(sizeof(HelloFrame) == sizeof(FrameHeader) + sizeof(Hello));
  HelloFrame frame = {};
  Hello& hello = frame.hello;
  if (getrandom(&hello.bits, sizeof hello.bits, 0) != sizeof hello.bits) {
    return base::Error{base::Code::kSystem, "the system gives no random bits"};
  }
  hello.numerics_version = base::kNumericsVersion;
  hello.ranks = static_cast<uint32_t>(options_.ranks);
  hello.slice_bytes_max = options_.slice_bytes_max;
  hello.record_bytes_max = options_.record_bytes_max;
  hello.terms_bytes = static_cast<uint32_t>(options_.terms.size());
  hello.offer_bytes = static_cast<uint32_t>(options_.offer.size());
  std::memcpy(hello.terms, options_.terms.data(), options_.terms.size());
  std::memcpy(hello.offer, options_.offer.data(), options_.offer.size());
  frame.header = make_header({.sender = options_.rank}, FrameKind::kHello, 0, sizeof hello);
  offers_[static_cast<size_t>(options_.rank)] = options_.offer;
  nonce_ = hello.bits;
  RETURN_IF_ERROR(trade(bytes_of(frame), [&](int rank, std::span<const std::byte> message) {
    return take_hello(rank, message, frame.hello);
  }));
  for (auto& socket : sockets_) {
    if (socket) socket->hide();
  }
  return {};
}

base::Status ZmqGroup::take_hello(int rank, std::span<const std::byte> message, const Hello& own) {
  ASSIGN_OR_RETURN(const Frame frame, check_frame(message, {.sender = rank}));
  Hello hello;
  if (frame.kind != FrameKind::kHello || frame.payload.size() != sizeof hello) {
    return base::Error{base::Code::kUnsupported,
                       base::cat("rank ", rank, " began with a frame that is no hello")};
  }
  std::memcpy(&hello, frame.payload.data(), sizeof hello);
  if (hello.terms_bytes > kHelloTextBytesMax || hello.offer_bytes > kHelloTextBytesMax) {
    return base::Error{base::Code::kUnsupported,
                       base::cat("the hello of rank ", rank, " is damaged")};
  }
  const auto describe = [](const Hello& one) {
    std::string terms(one.terms, one.terms_bytes);
    for (char& c : terms) c = c < ' ' || c > '~' ? '?' : c;  // it goes to a terminal
    return base::cat("a group of ", one.ranks, " ranks, slices of ", one.slice_bytes_max,
                     " and records of ", one.record_bytes_max, " bytes, numerics ",
                     one.numerics_version, ", ", terms);
  };
  const std::string theirs = describe(hello), ours = describe(own);
  if (theirs != ours) {
    return base::Error{
        base::Code::kUnsupported,
        base::cat("rank ", rank, " expects ", theirs, ", rank ", options_.rank, " expects ", ours,
                  "; start all ranks with the same program, model and options")};
  }
  offers_[static_cast<size_t>(rank)] = std::string(hello.offer, hello.offer_bytes);
  nonce_.words[0] ^= hello.bits.words[0];
  nonce_.words[1] ^= hello.bits.words[1];
  return {};
}

base::Result<std::vector<uint64_t>> ZmqGroup::vote(uint64_t own) {
  struct {
    FrameHeader header;
    uint64_t bits;
  } frame = {make_header({options_.rank, nonce_}, FrameKind::kVote, 0, sizeof own), own};
  static_assert(sizeof frame == sizeof(FrameHeader) + sizeof own);
  std::vector<uint64_t> votes(static_cast<size_t>(options_.ranks), own);
  RETURN_IF_ERROR(
      trade(bytes_of(frame), [&](int rank, std::span<const std::byte> message) -> base::Status {
        ASSIGN_OR_RETURN(const Frame got, check_frame(message, {rank, nonce_}));
        uint64_t& bits = votes[static_cast<size_t>(rank)];
        if (got.kind != FrameKind::kVote || got.payload.size() != sizeof bits) {
          return base::Error{base::Code::kUnsupported,
                             base::cat("rank ", rank, " sent a ", frame_kind_name(got.kind),
                                       " where its vote was due")};
        }
        std::memcpy(&bits, got.payload.data(), sizeof bits);
        return {};
      }));
  return votes;
}

// What a rank sent before it ended has arrived before its end is seen, so a look at what came after
// that decides whether something is missing.
template <class Take>
base::Status ZmqGroup::trade(std::span<const std::byte> frame, Take take) {
  struct Progress {
    bool sent, received, down;
  };
  const base::TimeNs deadline = now() + options_.meet_timeout_ns;
  std::vector<Progress> progress(sockets_.size());
  for (size_t i = 0; i < sockets_.size(); i++) {
    progress[i].sent = progress[i].received = sockets_[i] == nullptr;
  }
  while (true) {
    int missing = -1;
    for (size_t i = 0; i < sockets_.size(); i++) {
      Progress& peer = progress[i];
      if (!peer.received) {
        if (const auto message = sockets_[i]->receive()) {
          RETURN_IF_ERROR(take(static_cast<int>(i), *message));
          peer.received = true;
        }
      }
      peer.sent = peer.sent || sockets_[i]->send(frame);
      if (peer.sent && peer.received) continue;
      missing = static_cast<int>(i);
      if (peer.down) return lost(missing);
    }
    if (missing < 0) return {};
    if (now() > deadline) return late(missing);
    if (options_.keep_on) RETURN_IF_ERROR(options_.keep_on());
    doze();
    for (size_t i = 0; i < sockets_.size(); i++) {
      if (sockets_[i]) progress[i].down = sockets_[i]->link() == PairSocket::Link::kDown;
    }
  }
}

base::Error ZmqGroup::lost(int rank) const {
  return {base::Code::kPeerLost, base::cat("rank ", rank, " of ", options_.ranks,
                                           " ended while the group met; look at its log")};
}

base::Error ZmqGroup::late(int rank) const {
  return {base::Code::kTimeout,
          base::cat("rank ", rank, " of ", options_.ranks, " did not come to ",
                    options_.endpoints[static_cast<size_t>(rank)], " within ",
                    options_.meet_timeout_ns / 1'000'000'000, " s; look at its log")};
}

void ZmqGroup::doze() const {
  std::vector<pollfd> polled;
  for (const auto& socket : sockets_) {
    if (!socket) continue;
    polled.push_back({socket->descriptor(), POLLIN, 0});
    polled.push_back({socket->link_descriptor(), POLLIN, 0});
  }
  ::poll(polled.data(), polled.size(), kDozeMs);
}

base::Status ZmqGroup::start(int threads) {
  ASSIGN_OR_RETURN(mesh_, ZmqMesh::create(mesh_options(), std::move(sockets_)));
  sockets_.clear();
  exchange_ = std::make_unique<ZmqExchange>(*mesh_, threads);
  feed_ = std::make_unique<ZmqStepFeed>(*mesh_);
  return {};
}

}  // namespace proto
