// The network of a simulation: loses, delays, repeats, reorders, cuts; checks what is sent.
//
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/memory_channel.h"
#include "tests/sim/checker.h"
#include "tests/sim/plants.h"
#include "tests/sim/trace.h"

namespace sim {

/// What all parts of a simulation share; made by the simulation, outlives them.
struct World {
  const Scenario& scenario;
  base::ManualClock& clock;
  Trace& trace;
  Checker& checker;
  const Plant& plant;
};

class Wire {
 public:
  explicit Wire(const World& world);

  std::unique_ptr<proto::Channel> connect(const std::string& name) {
    return network_.connect(name);
  }
  /// `who` as in TraceEntry.
  base::Status send(proto::Channel& from, int who, std::string_view to, proto::Message message);
  std::optional<proto::Received> receive(proto::Channel& channel, int who);
  /// Sends the last hello of `name` once more, as a socket does that was connected again.
  void repeat_hello(proto::Channel& from, const std::string& name);
  std::optional<base::TimeNs> next_arrival(std::string_view name) const {
    return network_.next_arrival(name);
  }

  struct Cut {
    base::TimeNs until = 0;
    bool from_rank = false, to_rank = false;
    bool held = false;          // messages wait until the end of the cut; else they are lost
    bool disconnected = false;  // sends fail
  };
  void cut(int rank, Cut cut) { cuts_[static_cast<size_t>(rank)] = cut; }
  /// From now on nothing goes wrong any more, except that this share of messages is lost, and for
  /// cuts to come.
  void heal(double lost);

 private:
  proto::Fate decide(std::string_view from, std::string_view to);

  const World& world_;
  Random random_;
  bool healed_ = false;
  double lost_;
  bool is_rare_ = false;   // the message being sent decides who belongs to what
  std::vector<Cut> cuts_;  // by rank
  std::map<std::string, proto::Message> hellos_;  // the last one of each peer
  proto::MemoryNetwork network_;
};

const char* body_name(const proto::Body& body);
/// The name of a node without its incarnation, and back.
std::string node_name(int rank);
int rank_of_peer(std::string_view peer);

}  // namespace sim
