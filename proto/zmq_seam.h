// The seam to ZeroMQ: what proto/ knows of the library comes through here. Private to proto/.
#pragma once

#include <string_view>
#include <zmq.hpp>

#include "base/cat.h"
#include "base/result.h"

namespace proto {

/// What the library threw, as an error value.
inline base::Error zmq_error(std::string_view what, const zmq::error_t& error) {
  return {base::Code::kSystem, base::cat(what, ": ", error.what())};
}

}  // namespace proto
