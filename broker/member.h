// What a broker knows of the workers of its group, and what it sends them.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/channel.h"
#include "proto/messages.h"

namespace broker {

/// What a rank told about itself.
struct RankInfo {
  std::string node_id;
  uint64_t bytes_done = 0, bytes_total = 0;  // of loading
  std::optional<proto::Ready> ready;
};

struct Member {
  std::string peer;
  uint64_t incarnation = 0;
  std::string group_id;  // with which it had loaded before it came; empty: it loads for us
  RankInfo info;
};

struct Outgoing {
  std::string peer;
  proto::Message message;
};

}  // namespace broker
