// What GET /status said, for people. A pure function; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace cli {

/// Lines for the server at `url` from its JSON. Error: kUnsupported where it is none.
base::Result<std::string> status_text(std::string_view url, std::string_view json);

}  // namespace cli
