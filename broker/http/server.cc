#include "broker/http/server.h"

#include <ctime>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "base/cat.h"
#include "broker/http/connection.h"

namespace broker {

namespace {

using asio::ip::tcp;

base::Result<asio::ip::address> parse_host(std::string host) {
  if (host == "localhost") host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error)
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("--host must be an IP address such as 127.0.0.1, ::1 or 0.0.0.0, "
                                 "or localhost, not \"",
                                 host, "\"")};
  return address;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, HttpParts parts)
      : front_(std::move(options), std::move(parts)), acceptor_(front_.io), tick_(front_.io) {}

  ~Impl() {
    if (!thread_.joinable()) return;
    asio::post(front_.io, [this] { stop(); });
    thread_.join();
    front_.parts.gate.on_replies({});
    front_.desk.join();
  }

  base::Status listen();
  void start();

  void drain() {
    asio::post(front_.io, [this] {
      front_.draining = true;
      close_acceptor();
      for (auto& [id, entry] : connections_) entry.connection->drain();
    });
  }

  const Front& front() const { return front_; }
  tcp::endpoint endpoint() const { return endpoint_; }

 private:
  struct Entry {
    std::unique_ptr<Connection> connection;
    int coroutines = 2;
  };

  Task<void> accept();
  Task<void> tick();
  void add(tcp::socket socket);
  void end_coroutine(uint64_t id, const std::exception_ptr& thrown);
  void close_acceptor();
  void stop();
  void report(const std::exception_ptr& thrown);

  Front front_;
  tcp::acceptor acceptor_;
  asio::steady_timer tick_;
  tcp::endpoint endpoint_;
  bool stopping_ = false;
  std::map<uint64_t, Entry> connections_;
  uint64_t last_connection_ = 0;
  std::thread thread_;
};

base::Status HttpServer::Impl::listen() {
  const HttpOptions& options = front_.options;
  ASSIGN_OR_RETURN(const asio::ip::address address, parse_host(options.host));
  if (!address.is_loopback() && !front_.parts.keys.required())
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("--host ", options.host,
                                 " can be reached from other machines, so it needs API keys; give "
                                 "them with --api-key-file, or listen on 127.0.0.1")};
  const tcp::endpoint wanted(address, static_cast<uint16_t>(options.port));
  boost::system::error_code error;
  acceptor_.open(wanted.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(wanted, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) endpoint_ = acceptor_.local_endpoint(error);
  if (error)
    return base::Error{base::Code::kSystem,
                       base::cat("cannot listen on port ", options.port, " of ", options.host, ": ",
                                 error.message(), "; choose another with --port, or 0 for any")};
  return {};
}

void HttpServer::Impl::start() {
  front_.parts.gate.on_replies([this] {
    asio::post(front_.io, [this] {
      for (Reply& reply : front_.parts.gate.take_replies())
        front_.tickets.deliver(std::move(reply));
    });
  });
  const auto on_end = [this](const std::exception_ptr& thrown) { report(thrown); };
  asio::co_spawn(front_.io, accept(), on_end);
  asio::co_spawn(front_.io, tick(), on_end);
  thread_ = std::thread([this] {
    // A handler that ran out of memory must not end the others.
    while (true) {
      try {
        front_.io.run();
        return;
      } catch (...) {
        report(std::current_exception());
      }
    }
  });
}

Task<void> HttpServer::Impl::accept() {
  while (acceptor_.is_open()) {
    auto [error, socket] = co_await acceptor_.async_accept(kAsTuple);
    if (!error) {
      try {
        add(std::move(socket));
      } catch (...) {
        report(std::current_exception());  // out of memory costs one connection, not all later ones
      }
    } else if (acceptor_.is_open()) {
      // Out of descriptors, most likely: they come back when connections end.
      asio::steady_timer pause(front_.io, std::chrono::milliseconds(100));
      co_await pause.async_wait(kAsTuple);
    }
  }
}

void HttpServer::Impl::add(tcp::socket socket) {
  if (connections_.size() >= front_.options.connections_max) {
    const Refusal full{.error = {.status = 503,
                                 .message = "too many connections; try again later",
                                 .type = "server_error",
                                 .code = "connections_full"}};
    const std::string text =
        serialise(full, 1, {.keep_alive = false, .request_id = "-", .now = std::time(nullptr)});
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
    return;
  }
  const uint64_t id = ++last_connection_;
  auto connection = std::make_unique<Connection>(front_, std::move(socket));
  Entry& entry = connections_[id];
  entry.connection = std::move(connection);
  front_.connections.store(static_cast<int>(connections_.size()), std::memory_order_relaxed);
  const auto on_end = [this, id](const std::exception_ptr& thrown) { end_coroutine(id, thrown); };
  asio::co_spawn(front_.io, entry.connection->read(), on_end);
  asio::co_spawn(front_.io, entry.connection->serve(), on_end);
}

void HttpServer::Impl::end_coroutine(uint64_t id, const std::exception_ptr& thrown) {
  report(thrown);
  Entry& entry = connections_.at(id);
  if (thrown) entry.connection->close();
  if (--entry.coroutines > 0) return;
  connections_.erase(id);
  front_.connections.store(static_cast<int>(connections_.size()), std::memory_order_relaxed);
}

Task<void> HttpServer::Impl::tick() {
  while (!stopping_) {
    tick_.expires_after(std::chrono::nanoseconds(front_.options.times.tick));
    co_await tick_.async_wait(kAsTuple);
    const base::TimeNs now = front_.parts.clock.now();
    for (auto& [id, entry] : connections_) entry.connection->on_tick(now);
  }
}

void HttpServer::Impl::close_acceptor() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

void HttpServer::Impl::stop() {
  stopping_ = true;
  front_.draining = true;
  close_acceptor();
  tick_.cancel();
  for (auto& [id, entry] : connections_) entry.connection->close();
}

void HttpServer::Impl::report(const std::exception_ptr& thrown) {
  if (!thrown) return;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    front_.parts.log.error(base::cat("a connection was given up: ", error.what()));
  } catch (...) {
    front_.parts.log.error("a connection was given up");
  }
}

base::Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, HttpParts parts) {
  try {
    auto impl = std::make_unique<Impl>(std::move(options), std::move(parts));
    RETURN_IF_ERROR(impl->listen());
    impl->start();
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& error) {
    return base::Error{base::Code::kSystem,
                       base::cat("the HTTP server cannot start: ", error.what())};
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->endpoint().port();
}

std::string HttpServer::url() const {
  const auto endpoint = impl_->endpoint();
  const bool brackets = endpoint.address().is_v6();
  return base::cat("http://", brackets ? "[" : "", endpoint.address().to_string(),
                   brackets ? "]:" : ":", endpoint.port());
}

void HttpServer::drain() {
  impl_->drain();
}

int HttpServer::busy() const {
  return impl_->front().busy.load(std::memory_order_relaxed);
}

int HttpServer::connections() const {
  return impl_->front().connections.load(std::memory_order_relaxed);
}

}  // namespace broker
