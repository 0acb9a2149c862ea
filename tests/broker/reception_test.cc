// The gate and the loop's side of it: every submission is answered, every slot ends exactly once.
#include <gtest/gtest.h>
#include <poll.h>

#include "base/cat.h"
#include "base/limits.h"
#include "broker/reception.h"
#include "proto/envelope.h"

namespace broker {
namespace {

/// A broker whose only worker is the test.
struct OneLeader {
  Broker broker{{.rank_count = 1, .model_fingerprint = "m", .requests_max = 100}};
  uint64_t sequence = 0;

  OneLeader() {
    say(proto::Hello{.numerics_version = base::kNumericsVersion, .model_fingerprint = "m"});
    say(proto::Ready{.vocabulary = 100, .context = 64, .kv_block_count = 4, .columns_max = 8});
    broker.take_events();
    broker.take_outbox();
  }
  void say(proto::Body body) {
    const proto::Envelope envelope{.header = {.node_id = "rank-0",
                                              .incarnation = 1,
                                              .plan_epoch = broker.plan_epoch(),
                                              .sequence = ++sequence},
                                   .body = std::move(body)};
    broker.on_message("leader", proto::encode(envelope), 0);
  }
  void chunk(uint64_t id, uint64_t index, proto::Finish finish = proto::Finish::kNone) {
    say(proto::TokenChunk{.request_id = id, .index = index, .tokens = {7}, .finish = finish});
  }
  /// Requests and cancels that were sent to the leader, as "g1 c1".
  std::string sent() {
    std::string text;
    for (const Outgoing& out : broker.take_outbox()) {
      const auto parsed = proto::parse(out.message);
      if (const auto* request = std::get_if<proto::GenerateRequest>(&parsed->body))
        text += base::cat("g", request->request_id, " ");
      if (const auto* cancel = std::get_if<proto::Cancel>(&parsed->body))
        text += base::cat("c", cancel->request_id, " ");
    }
    return text;
  }
};

class ReceptionTest : public testing::Test {
 protected:
  static Submission submission(uint64_t ticket, size_t slots) {
    Submission out{.ticket = ticket};
    for (size_t i = 0; i < slots; i++) out.slots.push_back({.prompt = {1, 2}});
    return out;
  }
  /// What the gate has for the front: "1:accepted 1/0:stop …".
  std::string replies() {
    std::string text;
    for (const Reply& reply : gate->take_replies()) {
      text += base::cat(reply.ticket);
      switch (reply.kind) {
        case Reply::Kind::kAccepted: text += ":accepted "; break;
        case Reply::Kind::kRefused: text += ":refused "; break;
        case Reply::Kind::kBusy: text += ":busy "; break;
        case Reply::Kind::kChunk:
          text += base::cat("/", reply.slot, ":", proto::finish_name(reply.chunk.finish), " ");
      }
    }
    return text;
  }
  void pass() {
    for (Event& event : leader.broker.take_events()) {
      router.on_event(0, event);
      reception.on_event(event);
    }
  }

  std::unique_ptr<Gate> gate = std::move(*Gate::create(2));
  Reception reception{*gate, 5};
  OneLeader leader;
  Router router{{&leader.broker}};
};

TEST_F(ReceptionTest, SlotsOfOneTicketGoTheirWay) {
  ASSERT_TRUE(gate->submit(submission(1, 2)).ok());
  reception.take(&router, 0);
  EXPECT_EQ(leader.sent(), "g1 g2 ");
  EXPECT_EQ(replies(), "1:accepted ");
  leader.chunk(2, 0);
  leader.chunk(1, 0, proto::Finish::kStop);
  pass();
  EXPECT_EQ(replies(), "1/1:none 1/0:stop ");
  EXPECT_EQ(reception.live_slots(), 1);
  leader.chunk(2, 1, proto::Finish::kLength);
  pass();
  EXPECT_EQ(replies(), "1/1:length ");
  EXPECT_EQ(reception.live_slots(), 0);
}

TEST_F(ReceptionTest, WhatDoesNotFitIsBusyAsAWhole) {
  ASSERT_TRUE(gate->submit(submission(1, 3)).ok());
  ASSERT_TRUE(gate->submit(submission(2, 3)).ok());
  reception.take(&router, 0);
  EXPECT_EQ(replies(), "1:accepted 2:busy ");
  EXPECT_EQ(leader.sent(), "g1 g2 g3 ");
  ASSERT_TRUE(gate->submit(submission(3, 2)).ok());
  reception.take(&router, 0);
  EXPECT_EQ(replies(), "3:accepted ");
}

TEST_F(ReceptionTest, OneBadSlotRefusesTheWhole) {
  Submission bad = submission(1, 2);
  bad.slots.push_back({.prompt = {1000}});
  ASSERT_TRUE(gate->submit(bad).ok());
  reception.take(&router, 0);
  EXPECT_EQ(replies(), "1:refused ");
  EXPECT_EQ(leader.sent(), "g1 g2 c1 c2 ");
  leader.chunk(1, 0, proto::Finish::kCancelled);
  pass();
  EXPECT_EQ(replies(), "") << "nobody hears of them any more";
  EXPECT_EQ(reception.live_slots(), 0);
}

TEST_F(ReceptionTest, CancelsOneSlotOrAll) {
  ASSERT_TRUE(gate->submit(submission(1, 3)).ok());
  reception.take(&router, 0);
  leader.sent();
  gate->cancel({.ticket = 1, .slot = 1});
  gate->cancel({.ticket = 9});
  reception.take(&router, 0);
  EXPECT_EQ(leader.sent(), "c2 ");
  gate->cancel({.ticket = 1});
  reception.take(&router, 0);
  EXPECT_EQ(leader.sent(), "c1 c2 c3 ");
  // Together with the request itself, too.
  ASSERT_TRUE(gate->submit(submission(2, 1)).ok());
  gate->cancel({.ticket = 2});
  reception.take(&router, 0);
  EXPECT_EQ(leader.sent(), "g4 c4 ");
}

TEST_F(ReceptionTest, ALostGroupEndsEverySlotOnce) {
  ASSERT_TRUE(gate->submit(submission(1, 2)).ok());
  reception.take(&router, 0);
  leader.chunk(1, 0, proto::Finish::kStop);
  pass();
  replies();
  reception.lose_all({base::Code::kPeerLost, "worker 1 was killed"});
  EXPECT_EQ(replies(), "1/1:error ");
  EXPECT_EQ(reception.live_slots(), 0);
  leader.chunk(2, 0, proto::Finish::kStop);
  pass();
  EXPECT_EQ(replies(), "");
  ASSERT_TRUE(gate->submit(submission(2, 1)).ok());
  gate->cancel({.ticket = 2});
  reception.take(nullptr, 0);
  EXPECT_EQ(replies(), "2:refused ") << "while there is no group";
}

TEST(Gate, WakesBothSidesAndIsBounded) {
  const auto gate = std::move(*Gate::create(2));
  const auto readable = [&] {
    pollfd watched{gate->descriptor(), POLLIN, 0};
    return poll(&watched, 1, 0) > 0;
  };
  int woken = 0;
  gate->on_replies([&] { woken++; });
  EXPECT_FALSE(readable());
  EXPECT_TRUE(gate->submit({.ticket = 1}).ok());
  EXPECT_TRUE(readable());
  EXPECT_TRUE(gate->submit({.ticket = 2}).ok());
  EXPECT_FALSE(gate->submit({.ticket = 3}).ok()) << "two may wait";
  gate->cancel({.ticket = 1});
  const Gate::Taken taken = gate->take();
  EXPECT_EQ(taken.submissions.size(), 2u);
  EXPECT_EQ(taken.cancels.size(), 1u);
  EXPECT_FALSE(readable());
  gate->reply({.ticket = 1});
  gate->reply({.ticket = 2});
  EXPECT_EQ(woken, 1) << "once for all that wait";
  EXPECT_EQ(gate->take_replies().size(), 2u);
  gate->reply({.ticket = 3});
  EXPECT_EQ(woken, 2);
}

}  // namespace
}  // namespace broker
