#include "broker/http/connection.h"

#include <algorithm>
#include <utility>

namespace broker {

namespace {

constexpr size_t kWriteBytesMax = 64 * 1024;
// What the kernel keeps for a client that does not read; the rest waits, bounded, here.
constexpr int kSendBufferBytes = 256 * 1024;

}  // namespace

Connection::Connection(Front& front, asio::ip::tcp::socket socket)
    : front_(front), socket_(std::move(socket)), wakeup_(front.io), room_(front.io) {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
}

Task<void> Connection::read() {
  while (!closed_) {
    if (buffer_.size() >= kBufferBytesMax) {
      co_await room_.wait();
      continue;
    }
    const auto [error, count] = co_await socket_.async_read_some(asio::buffer(chunk_), kAsTuple);
    if (error) break;
    buffer_.append(chunk_.data(), count);
    wakeup_.announce();
  }
  gone_ = true;
  wakeup_.announce();
}

Task<void> Connection::serve() {
  // Not as conditions of the loop: gcc 12 lays the frame of such a coroutine out wrongly.
  while (true) {
    const bool came = co_await await_request();
    if (!came) break;
    const After after = co_await serve_one();
    if (after == After::kClose) break;
  }
  co_await linger();
  close();
}

Task<bool> Connection::await_request() {
  late_ = false;
  read_deadline_ = now() + front_.options.times.idle;
  while (true) {
    // Blank lines between requests are permitted.
    while (buffer_.starts_with("\r\n")) buffer_.erase(0, 2);
    if (closed_ || late_ || front_.draining) co_return false;
    if (!buffer_.empty() && buffer_ != "\r") break;
    if (gone_) co_return false;
    co_await wakeup_.wait();
  }
  read_deadline_ = kNever;
  co_return true;
}

Task<Connection::Got> Connection::feed(MessageReader& reader, MessageReader::State state,
                                       base::TimeNs total, base::TimeNs pause) {
  const base::TimeNs end = now() + total;
  late_ = false;
  while (true) {
    buffer_.erase(0, reader.put(buffer_));
    room_.announce();
    if (reader.state() != state) break;
    const size_t seen = buffer_.size();
    read_deadline_ = std::min(end, now() + pause);
    while (buffer_.size() == seen && !gone_ && !closed_ && !late_) co_await wakeup_.wait();
    read_deadline_ = kNever;
    if (closed_ || (gone_ && buffer_.size() == seen)) co_return Got::kEnd;
    if (late_) co_return Got::kLate;
  }
  co_return Got::kAll;
}

Task<bool> Connection::write(std::string_view bytes) {
  size_t part = 0;  // bytes that are left of the present part
  while (!bytes.empty() && !closed_) {
    // Renewed for each part: a slow client may take long, one that takes next to nothing may not.
    if (part == 0) {
      part = std::min(bytes.size(), kWriteBytesMax);
      write_deadline_ = now() + front_.options.times.write;
    }
    const auto [error, count] =
        co_await socket_.async_write_some(asio::buffer(bytes.data(), part), kAsTuple);
    if (error) {
      gone_ = true;
      close();
      break;
    }
    bytes.remove_prefix(count);
    part -= count;
  }
  write_deadline_ = kNever;
  co_return !closed_;
}

Task<void> Connection::linger() {
  // Closing a socket with unread bytes resets it, and the client may lose the answer that says why.
  if (closed_ || gone_ || (!unread_ && buffer_.empty())) co_return;
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  late_ = false;
  read_deadline_ = now() + front_.options.times.linger;
  while (!closed_ && !gone_ && !late_) {
    buffer_.clear();
    room_.announce();
    co_await wakeup_.wait();
  }
}

void Connection::on_tick(base::TimeNs now) {
  if (now >= write_deadline_) return close();
  if (now >= read_deadline_) late_ = true;
  if (now >= ping_at_) ping_due_ = true;
  if (late_ || ping_due_ || polls_) wakeup_.announce();
}

void Connection::close() {
  closed_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
  wakeup_.announce();
  room_.announce();
}

}  // namespace broker
