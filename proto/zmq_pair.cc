#include "proto/zmq_pair.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "proto/zmq_channel.h"
#include "proto/zmq_seam.h"

namespace proto {

namespace {

constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
// How soon to try again to connect to a peer that starts later than we do.
constexpr int kRetryMs = 2;

zmq::const_buffer buffer_of(std::span<const std::byte> bytes) {
  return zmq::buffer(bytes.data(), bytes.size());
}

}  // namespace

struct ZmqContext::Impl {
  zmq::context_t context{1};
};

ZmqContext::ZmqContext() : impl_(std::make_unique<Impl>()) {}
ZmqContext::~ZmqContext() = default;

base::Result<std::unique_ptr<ZmqContext>> ZmqContext::create(std::span<const int> cpus) {
  try {
    std::unique_ptr<ZmqContext> context(new ZmqContext());
    void* const handle = context->impl().context.handle();
    // A CPU that is refused costs speed, nothing else.
    for (const int cpu : cpus) {
      if (cpu >= 0) (void)zmq_ctx_set(handle, ZMQ_THREAD_AFFINITY_CPU_ADD, cpu);
    }
    return context;
  } catch (const zmq::error_t& error) {
    return zmq_error("starting ZeroMQ", error);
  }
}

struct PairSocket::Impl {
  explicit Impl(ZmqContext& context)
      : socket(context.impl().context, zmq::socket_type::pair),
        monitor(context.impl().context, zmq::socket_type::pair) {}
  // First the source: ZeroMQ's thread would wait for ever for a place to put its next event.
  ~Impl() { zmq_socket_monitor(socket.handle(), nullptr, 0); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// False if it cannot be watched; ZeroMQ throws what else goes wrong.
  bool set_up(const Options& options) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, options.queue_max);
    socket.set(zmq::sockopt::rcvhwm, options.queue_max);
    socket.set(zmq::sockopt::immediate, true);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(options.message_bytes_max));
    socket.set(zmq::sockopt::reconnect_ivl, kRetryMs);
    const std::string watch = base::cat("inproc://link-", reinterpret_cast<uintptr_t>(this));
    if (zmq_socket_monitor(socket.handle(), watch.c_str(), kEvents) != 0) return false;
    monitor.set(zmq::sockopt::linger, 0);
    monitor.connect(watch);
    if (options.side == Side::kConnects) {
      socket.connect(options.endpoint);
      return true;
    }
    socket.bind(options.endpoint);
    bound_path = options.endpoint.substr(kIpc.size());
    // The directory already keeps others out; the mode says so to whoever looks.
    ::chmod(bound_path.c_str(), S_IRUSR | S_IWUSR);
    return true;
  }

  /// Takes all events that are there.
  void read_events() {
    zmq::message_t event;
    while (monitor.recv(event, zmq::recv_flags::dontwait)) {
      const bool first_frame = event.more();  // the second one is an address
      uint16_t number = 0;
      if (!first_frame || event.size() < sizeof number) continue;
      std::memcpy(&number, event.data(), sizeof number);
      if (number == ZMQ_EVENT_DISCONNECTED && link == Link::kUp) link = Link::kDown;
      if (number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && link == Link::kWaiting) link = Link::kUp;
    }
  }

  zmq::socket_t socket;
  zmq::socket_t monitor;
  zmq::message_t received;
  Link link = Link::kWaiting;
  std::string bound_path;  // empty once hidden
};

PairSocket::PairSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PairSocket::~PairSocket() {
  hide();
}

base::Result<std::unique_ptr<PairSocket>> PairSocket::open(ZmqContext& context,
                                                           const Options& options) {
  RETURN_IF_ERROR(check_ipc_endpoint(options.endpoint));
  try {
    auto impl = std::make_unique<Impl>(context);
    if (!impl->set_up(options)) {
      return base::Error{base::Code::kSystem,
                         base::cat("the connection to ", options.endpoint, " cannot be watched")};
    }
    return std::unique_ptr<PairSocket>(new PairSocket(std::move(impl)));
  } catch (const zmq::error_t& error) {
    return zmq_error(
        base::cat(options.side == Side::kBinds ? "binding " : "connecting to ", options.endpoint),
        error);
  }
}

bool PairSocket::send(std::span<const std::byte> message) {
  try {
    return impl_->socket.send(buffer_of(message), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t&) {
    return false;  // a socket that is being closed
  }
}

PairSocket* PairSocket::send_all(std::span<PairSocket* const> sockets,
                                 std::span<const std::byte> message) {
  if (sockets.size() == 1) return sockets[0]->send(message) ? nullptr : sockets[0];
  PairSocket* refused = nullptr;
  try {
    zmq::message_t whole(message.data(), message.size());
    for (PairSocket* socket : sockets) {
      zmq::message_t share;
      share.copy(whole);
      refused = socket;
      if (!socket->impl_->socket.send(share, zmq::send_flags::dontwait)) return refused;
      refused = nullptr;
    }
  } catch (const zmq::error_t&) {
    return refused == nullptr ? sockets[0] : refused;
  }
  return nullptr;
}

std::optional<std::span<const std::byte>> PairSocket::receive() {
  try {
    zmq::message_t& message = impl_->received;
    if (!impl_->socket.recv(message, zmq::recv_flags::dontwait)) return std::nullopt;
    return std::span(static_cast<const std::byte*>(message.data()), message.size());
  } catch (const zmq::error_t&) {
    return std::nullopt;  // EINTR: the caller comes again
  }
}

PairSocket::Link PairSocket::link() {
  try {
    impl_->read_events();
  } catch (const zmq::error_t&) {
    // EINTR: what is left is read next time.
  }
  return impl_->link;
}

int PairSocket::descriptor() const {
  return impl_->socket.get(zmq::sockopt::fd);
}

int PairSocket::link_descriptor() const {
  return impl_->monitor.get(zmq::sockopt::fd);
}

void PairSocket::hide() {
  if (!impl_->bound_path.empty()) ::unlink(impl_->bound_path.c_str());
  impl_->bound_path.clear();
}

}  // namespace proto
