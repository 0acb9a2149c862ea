// A broker alone, with messages made by hand, for tests of single answers.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "broker/broker.h"

namespace broker {

struct Alone {
  Broker broker{{.rank_count = 2, .model_fingerprint = "model"}};

  proto::Body answer_to(const std::string& peer, proto::Message message) {
    broker.on_message(peer, message, 0);
    const auto out = broker.take_outbox();
    if (out.empty()) return proto::StatsRequest{};  // none
    EXPECT_EQ(out.back().peer, peer);
    return proto::parse(out.back().message)->body;
  }
  static proto::Message from(std::string node, uint64_t incarnation, proto::Body body,
                             uint64_t epoch = 0) {
    return proto::encode(
        {{.node_id = std::move(node), .incarnation = incarnation, .plan_epoch = epoch},
         std::move(body)});
  }
  proto::HelloReply hello(std::string node, proto::Hello hello) {
    hello.rank_count = hello.rank_count == 1 ? 2 : hello.rank_count;
    return std::get<proto::HelloReply>(answer_to(node + "#1", from(node, 1, hello)));
  }
};

}  // namespace broker
