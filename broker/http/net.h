// The folder's seam to Boost.Asio: what the coroutines here are made of.
//
// Everything runs on the one thread of the server unless it says otherwise. Operations give error
// codes instead of throwing.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace broker {

namespace asio = boost::asio;

template <class Value>
using Task = asio::awaitable<Value>;

/// Ends operations with a tuple that begins with their error code.
inline constexpr auto kAsTuple = asio::as_tuple(asio::use_awaitable);

/// Something that a coroutine waits for and another one announces. Announcements without a waiter
/// are lost, so look at the condition first.
class Wakeup {
 public:
  explicit Wakeup(asio::io_context& io) : timer_(io, asio::steady_timer::time_point::max()) {}
  Task<void> wait() { co_await timer_.async_wait(kAsTuple); }
  void announce() { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

}  // namespace broker
