#include "cli/http_client.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <chrono>
#include <optional>

#include "base/cat.h"

namespace cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr uint64_t kBodyBytesMax = uint64_t{16} << 20;
constexpr auto kLook = std::chrono::milliseconds(50);

using Failure = boost::system::error_code;

/// One exchange: each step starts an operation and runs it to its end.
class Exchange {
 public:
  explicit Exchange(const HttpQuestion& question) : question_(question) {
    stream_.expires_after(std::chrono::nanoseconds(question.timeout));
  }

  base::Result<HttpReply> run() {
    Failure failure;
    asio::ip::tcp::resolver resolver(io_);
    // A name is looked up without a bound of ours; the system has one.
    const auto endpoints =
        resolver.resolve(question_.address.host, base::cat(question_.address.port), failure);
    if (failure) return no_server(failure);
    failure = wait_for([&](auto done) { stream_.async_connect(endpoints, std::move(done)); });
    if (failure) return no_server(failure);
    const http::request<http::empty_body> request = make_request();
    failure = wait_for([&](auto done) { http::async_write(stream_, request, std::move(done)); });
    http::response_parser<http::string_body> parser;
    parser.body_limit(kBodyBytesMax);
    if (!failure)
      failure =
          wait_for([&](auto done) { http::async_read(stream_, buffer_, parser, std::move(done)); });
    if (failure) return lost(failure);
    return HttpReply{static_cast<int>(parser.get().result_int()), parser.get().body()};
  }

 private:
  http::request<http::empty_body> make_request() const {
    http::request<http::empty_body> request(http::verb::get, question_.path, 11);
    request.set(http::field::host, question_.address.url().substr(7));
    request.set(http::field::connection, "close");
    if (!question_.api_key.empty())
      request.set(http::field::authorization, base::cat("Bearer ", question_.api_key));
    return request;
  }

  /// Starts an operation with its handler and returns how it ended.
  template <class Start>
  Failure wait_for(Start start) {
    std::optional<Failure> result;
    start([&result](Failure failure, auto&&...) { result = failure; });
    io_.restart();
    while (!result) {
      io_.run_for(kLook);
      if (!result && !gave_up_ && question_.give_up && question_.give_up()) {
        gave_up_ = true;
        stream_.cancel();
      }
    }
    return *result;
  }

  base::Error no_server(const Failure& failure) const {
    if (gave_up_) return cancelled();
    return {base::Code::kUnavailable,
            base::cat("no server answers at ", question_.address.url(), ": ", failure.message(),
                      "; start one with numoe serve, or name it with --url")};
  }

  base::Error lost(const Failure& failure) const {
    if (gave_up_) return cancelled();
    if (failure == beast::error::timeout)
      return {base::Code::kTimeout,
              base::cat(question_.address.url(), question_.path, " gave no answer within ",
                        question_.timeout / 1'000'000'000, " s")};
    return {base::Code::kPeerLost, base::cat(question_.address.url(), question_.path,
                                             " gave no whole answer: ", failure.message())};
  }

  static base::Error cancelled() { return {base::Code::kCancelled, "interrupted"}; }

  const HttpQuestion& question_;
  asio::io_context io_{1};
  beast::tcp_stream stream_{io_};
  beast::flat_buffer buffer_;
  bool gave_up_ = false;
};

}  // namespace

std::string ServerAddress::url() const {
  return base::cat("http://", host.find(':') == std::string::npos ? host : "[" + host + "]", ":",
                   port);
}

base::Result<ServerAddress> parse_address(std::string_view url) {
  const auto wrong = [&](std::string_view what) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("\"", url.substr(0, 200), "\" ", what,
                                 "; a server is named as in http://127.0.0.1:8080")};
  };
  std::string_view rest = url;
  if (rest.starts_with("https://"))
    return wrong("asks for https, which numoe does not speak; ask behind the proxy that does");
  if (!rest.starts_with("http://")) return wrong("is no http address");
  rest.remove_prefix(7);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?#@") != std::string_view::npos) return wrong("is more than an address");
  ServerAddress address;
  size_t end = rest.find(':');
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == std::string_view::npos) return wrong("has an open bracket");
    address.host = rest.substr(1, close - 1);
    end = close + 1 < rest.size() ? close + 1 : std::string_view::npos;
  } else {
    address.host = rest.substr(0, end);
  }
  if (address.host.empty()) return wrong("names no host");
  if (end == std::string_view::npos) return address;
  const std::string_view port = rest.substr(end + 1);
  const auto [after, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (rest[end] != ':' || error != std::errc() || after != port.data() + port.size() ||
      address.port < 1 || address.port > 65535)
    return wrong("has no port of 1 to 65535");
  return address;
}

base::Result<HttpReply> http_get(const HttpQuestion& question) {
  try {
    return Exchange(question).run();
  } catch (const std::exception& error) {
    // No descriptor, no memory: Asio throws where an operation cannot even begin.
    return base::Error{base::Code::kSystem,
                       base::cat("asking ", question.address.url(), ": ", error.what())};
  }
}

}  // namespace cli
