#include "broker/http/response.h"

#include <array>
#include <charconv>

#include "base/cat.h"

namespace broker {

namespace {

struct Reason {
  int status;
  const char* phrase;
};
constexpr Reason kReasons[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

const char* phrase(int status) {
  for (const Reason& reason : kReasons)
    if (reason.status == status) return reason.phrase;
  return "Error";
}

std::string head(int status, const Manner& manner) {
  std::string text =
      base::cat("HTTP/1.1 ", status, " ", phrase(status), "\r\nDate: ", http_date(manner.now),
                "\r\nX-Request-Id: ", manner.request_id, "\r\n");
  // HTTP/1.0 closes unless told otherwise, HTTP/1.1 the other way round.
  if (!manner.keep_alive) text += "Connection: close\r\n";
  if (manner.keep_alive && manner.minor_version == 0) text += "Connection: keep-alive\r\n";
  return text;
}

}  // namespace

std::string http_date(std::time_t time) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm at{};
  gmtime_r(&time, &at);
  const auto two = [](int number) { return base::cat(number < 10 ? "0" : "", number); };
  return base::cat(kDays[at.tm_wday], ", ", two(at.tm_mday), " ", kMonths[at.tm_mon], " ",
                   at.tm_year + 1900, " ", two(at.tm_hour), ":", two(at.tm_min), ":",
                   two(at.tm_sec), " GMT");
}

std::string serialise(const Response& response, const Manner& manner) {
  std::string text = head(response.status, manner);
  for (const auto& [name, value] : response.fields) text += base::cat(name, ": ", value, "\r\n");
  text += base::cat("Content-Type: application/json\r\nContent-Length: ", response.body.size(),
                    "\r\n\r\n");
  if (!manner.head_only) text += response.body;
  return text;
}

std::string serialise(const Refusal& refusal, int retry_seconds, const Manner& manner) {
  Response response{
      .status = refusal.error.status, .fields = refusal.fields, .body = error_json(refusal.error)};
  if (response.status == 429 || response.status == 503)
    response.fields.emplace_back("Retry-After", base::cat(retry_seconds));
  return serialise(response, manner);
}

std::string stream_head(const Manner& manner) {
  std::string text = head(200, manner);
  text +=
      "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\n";
  if (manner.minor_version >= 1) text += "Transfer-Encoding: chunked\r\n";
  return text + "\r\n";
}

std::string stream_part(std::string_view bytes, const Manner& manner) {
  if (manner.minor_version == 0 || bytes.empty()) return std::string(bytes);
  std::array<char, 20> size;
  const auto end = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr;
  return base::cat(std::string_view(size.data(), static_cast<size_t>(end - size.data())), "\r\n",
                   bytes, "\r\n");
}

std::string stream_end(const Manner& manner) {
  return manner.minor_version == 0 ? "" : "0\r\n\r\n";
}

}  // namespace broker
