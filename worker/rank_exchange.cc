#include "worker/rank_exchange.h"

#include <algorithm>

#include "base/cat.h"
#include "proto/zmq_channel.h"
#include "shm/file.h"

namespace worker {

namespace {

bool votes_for(const std::vector<uint64_t>& votes, size_t rank, size_t peer) {
  return (votes[rank] >> peer & 1) != 0;
}

}  // namespace

base::Result<std::string> peer_endpoint(const RankExchangeOptions& options, int low, int high) {
  RETURN_IF_ERROR(proto::check_ipc_endpoint(options.broker_endpoint));
  const std::string path = options.broker_endpoint.substr(proto::kIpc.size());
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash);
  return proto::ipc_endpoint(directory, base::cat(options.group_id, "/", low, "-", high));
}

std::string strangers(const std::vector<uint64_t>& votes) {
  std::string text;
  int more = 0;
  for (size_t low = 0; low < votes.size(); low++) {
    for (size_t high = low + 1; high < votes.size(); high++) {
      if (votes_for(votes, low, high) && votes_for(votes, high, low)) continue;
      if (!text.empty()) {
        more++;
        continue;
      }
      text = base::cat("ranks ", low, " and ", high);
    }
  }
  return more == 0 ? text : base::cat(text, " (and ", more, " more pairs)");
}

base::Result<std::unique_ptr<RankExchange>> RankExchange::meet(const RankExchangeOptions& options) {
  std::unique_ptr<RankExchange> met(new RankExchange(options));
  met->directory_ = options.arena_directory;
  if (options.ranks > 1) {
    RETURN_IF_ERROR(met->meet_over_zmq());
    if (options.choice == "zmq") {
      met->kind_ = "zmq";
    } else {
      RETURN_IF_ERROR(met->decide());
    }
  }
  RETURN_IF_ERROR(met->agree_on_kv());
  return met;
}

RankExchange::~RankExchange() = default;

base::Status RankExchange::meet_over_zmq() {
  const RankExchangeOptions& o = options_;
  if (o.choice != "zmq") {
    ASSIGN_OR_RETURN(
        shm::MemoryProbe probe,
        shm::MemoryProbe::show(o.arena_directory, base::cat(o.group_id, ".", o.rank, ".probe")));
    probe_.emplace(std::move(probe));
  }
  proto::ZmqGroupOptions group;
  group.rank = o.rank;
  group.ranks = o.ranks;
  group.cpus = o.cpus;
  for (int peer = 0; peer < o.ranks; peer++) {
    group.endpoints.emplace_back();
    if (peer == o.rank) continue;
    ASSIGN_OR_RETURN(group.endpoints.back(),
                     peer_endpoint(o, std::min(o.rank, peer), std::max(o.rank, peer)));
  }
  group.slice_bytes_max = o.slice_bytes_max;
  group.record_bytes_max = o.record_bytes_max;
  group.terms = base::cat("--exchange ", o.choice);
  if (probe_) group.offer = probe_->offer();
  if (o.oversubscribed) group.wait.spin_pauses = shm::kSpinPausesOversubscribed;
  group.meet_timeout_ns = o.timeout_ns;
  group.keep_on = o.keep_on;
  ASSIGN_OR_RETURN(zmq_, proto::ZmqGroup::meet(group));
  return {};
}

base::Status RankExchange::decide() {
  uint64_t seen = uint64_t{1} << options_.rank;
  for (int peer = 0; peer < options_.ranks; peer++) {
    if (peer != options_.rank && shm::MemoryProbe::sees(zmq_->offer(peer)))
      seen |= uint64_t{1} << peer;
  }
  ASSIGN_OR_RETURN(const std::vector<uint64_t> votes, zmq_->vote(seen));
  probe_.reset();
  const std::string apart = strangers(votes);
  if (apart.empty()) {
    kind_ = "shm";
    // All have seen what lies there, also those that keep their own arenas elsewhere.
    directory_ = shm::MemoryProbe::directory_of(zmq_->offer(0));
    return {};
  }
  const std::string cure =
      "let them share the arena directory (--arena-dir on one tmpfs that all mount, or "
      "--ipc=host)";
  if (options_.choice == "shm") {
    return base::Error{base::Code::kUnsupported,
                       base::cat("--exchange shm: ", apart,
                                 " do not share memory (containers with a private /dev/shm?); ",
                                 cure, ", or use --exchange auto")};
  }
  kind_ = "zmq";
  note_ = base::cat(apart,
                    " do not share memory (containers with a private /dev/shm?); exchanging over "
                    "ZeroMQ, which is slower; ",
                    cure);
  return {};
}

// A rank whose pool was lost, or made at another meeting, tells a stamp that the others do not
// have; all see that, and all start afresh.
base::Status RankExchange::agree_on_kv() {
  const auto all = [&](uint64_t own) -> base::Result<std::vector<uint64_t>> {
    if (!zmq_) return std::vector<uint64_t>{own};
    return zmq_->vote(own);
  };
  ASSIGN_OR_RETURN(const std::vector<uint64_t> found, all(options_.kv_stamp));
  keeps_kv_ = found[0] != 0 && std::all_of(found.begin(), found.end(),
                                           [&](uint64_t stamp) { return stamp == found[0]; });
  kv_stamp_ = found[0];
  if (keeps_kv_) return {};
  ASSIGN_OR_RETURN(const std::vector<uint64_t> drawn, all(shm::random_128().first));
  kv_stamp_ = std::max<uint64_t>(drawn[0], 1);
  return {};
}

base::Status RankExchange::open() {
  if (kind_ == "zmq") return zmq_->start(static_cast<int>(options_.cpus.size()));
  shm::GroupOptions group;
  group.directory = directory_;
  group.id = options_.group_id;
  group.rank = options_.rank;
  group.node = options_.os_node;
  group.shape = {.ranks = options_.ranks,
                 .threads = static_cast<int>(options_.cpus.size()),
                 .slice_bytes_max = options_.slice_bytes_max};
  group.record_bytes_max = options_.record_bytes_max;
  if (options_.oversubscribed)
    group.wait.spin_pauses = shm::kSpinPausesOversubscribed;
  else
    group.wait.spin_ns = shm::kSpinInStep;
  group.join_timeout_ns = options_.timeout_ns;
  ASSIGN_OR_RETURN(shm_, shm::Group::join(group));
  // Only now has everybody the votes: until then the last ones may still be on their way.
  zmq_.reset();
  return {};
}

std::span<const std::byte> RankExchange::own_memory() const {
  return shm_ ? shm_->own_memory() : std::span<const std::byte>();
}

base::Exchange& RankExchange::exchange() {
  return shm_ ? static_cast<base::Exchange&>(shm_->exchange()) : zmq_->exchange();
}

base::StepFeed& RankExchange::feed() {
  return shm_ ? static_cast<base::StepFeed&>(shm_->board()) : zmq_->feed();
}

}  // namespace worker
