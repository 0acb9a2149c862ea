// Text that comes from a file, made fit for messages and for JSON.
//
// Names and values of a file may hold anything: control characters, broken UTF-8, megabytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace model {

/// At most `bytes_max` bytes of valid UTF-8 without control characters ('?' for each character or
/// broken sequence that is none), and "..." if something was cut.
std::string printable(std::string_view text, size_t bytes_max = 80);

/// A JSON string with its quotes; broken UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

}  // namespace model
