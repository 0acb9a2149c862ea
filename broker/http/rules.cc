#include "broker/http/rules.h"

#include <algorithm>
#include <cctype>

#include "base/cat.h"

namespace broker {

namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kEchoBytesMax = 200;  // of an address, in a message

struct RouteRow {
  std::string_view path;
  Route route;
  bool is_open;  // without a key
  bool takes_body;
};
constexpr RouteRow kRoutes[] = {
    {"/live", Route::kLive, true, false},
    {"/ready", Route::kReady, true, false},
    {"/health", Route::kHealth, true, false},
    {"/status", Route::kStatus, false, false},
    {"/placement", Route::kPlacement, false, false},
    {"/experts", Route::kExperts, false, false},
    {"/v1/models", Route::kModels, false, false},
    {kModelPrefix, Route::kModel, false, false},
    {"/v1/completions", Route::kCompletions, false, true},
    {"/v1/chat/completions", Route::kChatCompletions, false, true},
};

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// %41 is A; what is no escape stays as it is.
std::string decode_percent(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
                        hex_digit(text[i + 2]) >= 0;
    if (!escape) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
    i += 2;
  }
  return out;
}

const RouteRow* find_route(std::string_view path) {
  for (const RouteRow& row : kRoutes) {
    const bool is_prefix = row.path.ends_with('/');
    if (is_prefix ? path.starts_with(row.path) && path.size() > row.path.size() : path == row.path)
      return &row;
  }
  return nullptr;
}

Refusal refuse(int status, std::string sentence, std::string_view code = {}) {
  return {.error = {.status = status, .message = std::move(sentence), .code = std::string(code)}};
}

/// The host of "http://host:port"; the whole if it is something else.
std::string_view host_of_origin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? origin : origin.substr(scheme + 3);
}

std::optional<Refusal> check_host(const RequestHead& head) {
  if (head.count("host") > 0 && !names_loopback(head.field("host")))
    return refuse(403,
                  "this server listens for this machine only, so the Host header must name "
                  "localhost, 127.0.0.1 or [::1]; others need --api-key-file");
  if (head.count("origin") > 0 && !names_loopback(host_of_origin(head.field("origin"))))
    return refuse(403,
                  "web pages of other hosts may not use this server; others need --api-key-file");
  return std::nullopt;
}

std::optional<Refusal> check_types(const RequestHead& head) {
  std::string_view type = head.field("content-type");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  if (!type.empty() && !equals_ignoring_case(type, "application/json"))
    return refuse(415, "the body must be JSON, with Content-Type: application/json");
  const std::string_view coding = head.field("content-encoding");
  if (!coding.empty() && !equals_ignoring_case(coding, "identity"))
    return refuse(415, "the body must be sent without Content-Encoding");
  return std::nullopt;
}

}  // namespace

bool names_loopback(std::string_view host) {
  if (const size_t colon = host.rfind(':');
      colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    const std::string_view port = host.substr(colon + 1);
    if (!std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return false;
    host = host.substr(0, colon);
  }
  if (equals_ignoring_case(host, "localhost") || host == "[::1]") return true;
  // A name like 127.0.0.1.example.org is somebody else's.
  return host.starts_with("127.") && std::all_of(host.begin(), host.end(), [](char c) {
           return c == '.' || (c >= '0' && c <= '9');
         });
}

std::optional<Refusal> check_request(const RequestHead& head, const ApiKeys& keys,
                                     RuleOptions options, Destination& destination) {
  if (options.guard_loopback && !keys.required())
    if (auto refusal = check_host(head)) return refusal;
  std::string_view target = head.target;
  // Absolute form, as proxies send it.
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.starts_with(scheme))
      target.remove_prefix(std::min(target.find('/', scheme.size()), target.size()));
  const std::string_view path = target.substr(0, target.find('?'));
  const RouteRow* row = find_route(path);
  if (!(row != nullptr && row->is_open) && !keys.allow(head.field("authorization"))) {
    Refusal refusal =
        refuse(401, "send a valid API key, as in Authorization: Bearer KEY", "invalid_api_key");
    refusal.error.type = "authentication_error";
    refusal.fields.emplace_back("WWW-Authenticate", "Bearer");
    return refusal;
  }
  if (row == nullptr)
    return refuse(404,
                  base::cat("there is no ", path.substr(0, kEchoBytesMax),
                            " here; see /v1/models, /v1/completions, /v1/chat/completions, "
                            "/live, /ready, /health, /status, /placement and /experts"),
                  "unknown_route");
  const bool right_method =
      row->takes_body ? head.method == "POST" : head.method == "GET" || head.method == "HEAD";
  if (!right_method) {
    const char* allow = row->takes_body ? "POST" : "GET, HEAD";
    Refusal refusal =
        refuse(405, base::cat(row->path, " knows only ", allow), "method_not_allowed");
    refusal.fields.emplace_back("Allow", allow);
    return refusal;
  }
  if (row->takes_body)
    if (auto refusal = check_types(head)) return refusal;
  destination.route = row->route;
  if (row->route == Route::kModel)
    destination.model = decode_percent(path.substr(kModelPrefix.size()));
  return std::nullopt;
}

Expectation expectation_of(const RequestHead& head) {
  const std::string_view expect = head.field("expect");
  // HTTP/1.0 has no expectations.
  if (expect.empty() || head.minor_version == 0) return Expectation::kNone;
  return equals_ignoring_case(expect, "100-continue") ? Expectation::kContinue
                                                      : Expectation::kUnknown;
}

std::string request_id_of(const RequestHead& head) {
  const std::string_view id = head.field("x-request-id");
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._:/+=@-").find(c) != std::string_view::npos;
  };
  const bool usable =
      !id.empty() && id.size() <= kRequestIdBytesMax && std::all_of(id.begin(), id.end(), is_plain);
  return usable ? std::string(id) : std::string();
}

}  // namespace broker
