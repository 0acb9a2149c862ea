// What a request may do before anything of its body is read: routes, keys, hosts, types.
//
// Pure functions of the head. The order of checks decides what a stranger can learn: without a key
// only the three status routes answer anything but 401. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/api/api_error.h"
#include "broker/http/api_keys.h"
#include "broker/http/message_reader.h"

namespace broker {

enum class Route {
  kLive,
  kReady,
  kHealth,
  kStatus,
  kPlacement,
  kExperts,
  kModels,
  kModel,
  kCompletions,
  kChatCompletions
};

using Fields = std::vector<std::pair<std::string, std::string>>;

/// A final answer instead of the service.
struct Refusal {
  ApiError error = {};
  Fields fields = {};  // further ones of the header, as Allow
};

struct Destination {
  Route route = Route::kLive;
  std::string model = {};  // of kModel, decoded
};

struct RuleOptions {
  /// Clients are known by the loopback address alone, so web pages of other hosts must be kept out.
  bool guard_loopback = true;
};

/// Nothing: `destination` says where it goes.
std::optional<Refusal> check_request(const RequestHead& head, const ApiKeys& keys,
                                     RuleOptions options, Destination& destination);

/// What `Expect` asks for.
enum class Expectation { kNone, kContinue, kUnknown };
Expectation expectation_of(const RequestHead& head);

/// The client's own request id if it may be echoed, else empty: 1 to 128 of [A-Za-z0-9._:/+=@-].
std::string request_id_of(const RequestHead& head);

/// Whether `host`, as in a Host header, names this machine itself: localhost, 127.x.y.z, [::1].
bool names_loopback(std::string_view host);

}  // namespace broker
