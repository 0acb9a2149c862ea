#include "proto/zmq_channel.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/cat.h"
#include "proto/zmq_seam.h"

namespace proto {

namespace {

class ZmqChannel final : public Channel {
 public:
  ZmqChannel(zmq::socket_type type, int queue_max)
      : context_(1), socket_(context_, type), router_(type == zmq::socket_type::router) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndhwm, queue_max);
    socket_.set(zmq::sockopt::rcvhwm, queue_max);
    socket_.set(zmq::sockopt::immediate, true);
    socket_.set(zmq::sockopt::maxmsgsize, int64_t{kMessageBytesMax});
    if (router_) socket_.set(zmq::sockopt::router_mandatory, true);
  }
  ~ZmqChannel() override {
    socket_.close();
    // ZeroMQ leaves the file behind.
    if (!bound_path_.empty()) ::unlink(bound_path_.c_str());
  }
  ZmqChannel(const ZmqChannel&) = delete;
  ZmqChannel& operator=(const ZmqChannel&) = delete;

  void bind(const std::string& endpoint) {
    socket_.bind(endpoint);
    bound_path_ = endpoint.substr(kIpc.size());
    // The directory already keeps others out; the mode says so to whoever looks.
    ::chmod(bound_path_.c_str(), S_IRUSR | S_IWUSR);
  }
  void connect(const std::string& endpoint, std::string_view peer_name) {
    socket_.set(zmq::sockopt::routing_id, peer_name);
    socket_.set(zmq::sockopt::reconnect_ivl, 20);
    // A broker that was started again is waited for by its clients, and trying costs nothing here.
    socket_.set(zmq::sockopt::reconnect_ivl_max, 100);
    socket_.connect(endpoint);
  }

  base::Status send(std::string_view peer, Message message) override {
    for (const auto& frame : message.frames)
      if (frame.size() > kMessageBytesMax)
        return base::Error{base::Code::kInvalidArgument,
                           base::cat("a frame of ", frame.size(), " bytes, at most ",
                                     kMessageBytesMax, " can be sent")};
    try {
      bool sent = true;
      if (router_) sent = send_frame(peer, kMore);
      for (size_t i = 0; sent && i < message.frames.size(); i++)
        sent = send_frame(message.frames[i], i + 1 < message.frames.size() ? kMore : kLast);
      // Only a first frame can be refused: ZeroMQ takes a message as a whole.
      if (!sent)
        return base::Error{base::Code::kUnavailable, base::cat("the queue to ", peer, " is full")};
      return {};
    } catch (const zmq::error_t& error) {
      if (error.num() == EHOSTUNREACH)
        return base::Error{base::Code::kPeerLost, base::cat(peer, " is not connected")};
      return zmq_error(base::cat("sending to ", peer), error);
    }
  }

  std::optional<Received> receive() override {
    try {
      Received received;
      while (receive_frames(received.message.frames)) {
        auto& frames = received.message.frames;
        if (!router_) {
          received.peer = kBroker;
          return received;
        }
        if (frames.size() < 2 || frames.front().size() > kPeerBytesMax) continue;
        received.peer = std::move(frames.front());
        frames.erase(frames.begin());
        return received;
      }
    } catch (const zmq::error_t&) {
      // EINTR and a closing context: nothing to read now.
    }
    return std::nullopt;
  }

  bool wait(base::TimeNs timeout, std::span<const int> descriptors) override {
    std::vector<zmq::pollitem_t> items;
    items.push_back({socket_.handle(), 0, ZMQ_POLLIN, 0});
    for (const int descriptor : descriptors) items.push_back({nullptr, descriptor, ZMQ_POLLIN, 0});
    const auto wait_ms = (timeout + 999'999) / 1'000'000;
    try {
      return zmq::poll(items, std::chrono::milliseconds(wait_ms)) > 0;
    } catch (const zmq::error_t&) {
      return true;  // a signal: the caller looks
    }
  }

  bool has_message() override {
    try {
      return (socket_.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
    } catch (const zmq::error_t&) {
      return true;  // a signal: the caller looks
    }
  }

  int descriptor() const override {
    try {
      return static_cast<int>(socket_.get(zmq::sockopt::fd));
    } catch (const zmq::error_t&) {
      return -1;
    }
  }

 private:
  static constexpr zmq::send_flags kLast = zmq::send_flags::dontwait;
  static constexpr zmq::send_flags kMore = zmq::send_flags::dontwait | zmq::send_flags::sndmore;

  bool send_frame(std::string_view bytes, zmq::send_flags flags) {
    return socket_.send(zmq::buffer(bytes), flags).has_value();
  }

  /// Reads one message, at most kFramesMax frames of it kept. False: there is none.
  bool receive_frames(std::vector<std::string>& frames) {
    frames.clear();
    zmq::message_t part;
    do {
      if (!socket_.recv(part, zmq::recv_flags::dontwait)) return false;
      if (frames.size() <= kFramesMax) frames.push_back(part.to_string());
    } while (part.more());
    return true;
  }

  zmq::context_t context_;
  zmq::socket_t socket_;
  const bool router_;
  std::string bound_path_;
};

}  // namespace

base::Result<std::unique_ptr<Channel>> bind_broker(const ZmqOptions& options) {
  RETURN_IF_ERROR(check_ipc_endpoint(options.endpoint));
  try {
    auto channel = std::make_unique<ZmqChannel>(zmq::socket_type::router, options.queue_max);
    channel->bind(options.endpoint);
    return std::unique_ptr<Channel>(std::move(channel));
  } catch (const zmq::error_t& error) {
    return zmq_error(base::cat("binding ", options.endpoint), error);
  }
}

base::Result<std::unique_ptr<Channel>> connect_worker(const ZmqOptions& options,
                                                      std::string_view peer_name) {
  RETURN_IF_ERROR(check_ipc_endpoint(options.endpoint));
  if (peer_name.empty() || peer_name.size() > kPeerBytesMax)
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("a peer name of ", peer_name.size(), " bytes, 1 … ", kPeerBytesMax,
                                 " are allowed")};
  try {
    auto channel = std::make_unique<ZmqChannel>(zmq::socket_type::dealer, options.queue_max);
    channel->connect(options.endpoint, peer_name);
    return std::unique_ptr<Channel>(std::move(channel));
  } catch (const zmq::error_t& error) {
    return zmq_error(base::cat("connecting to ", options.endpoint), error);
  }
}

}  // namespace proto
