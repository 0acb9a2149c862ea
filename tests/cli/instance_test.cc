// The directory of a server, from both sides: who holds it, who is found in it, who removes it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/instance_directory.h"
#include "cli/worker_processes.h"
#include "worker/instance.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

class Instances : public testing::Test {
 protected:
  Instances() {
    char path[] = "/tmp/numoe-cli-test-XXXXXX";
    parent_ = ::mkdtemp(path);
    fs::create_directory(parent_ + "/runtime");
  }
  ~Instances() override { fs::remove_all(parent_); }

  InstanceDirectory::Options options(const std::string& fingerprint = "model") const {
    return {.parent = parent_, .runtime = parent_ + "/runtime", .fingerprint = fingerprint};
  }
  std::vector<std::string> instances() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(parent_))
      if (entry.path().filename().string().starts_with("serve-")) found.push_back(entry.path());
    return found;
  }
  /// What a broker leaves that is killed.
  std::string leave_behind() {
    auto instance = InstanceDirectory::take(options());
    const std::string path = instance->path();
    { const InstanceDirectory gone(std::move(*instance)); }
    fs::create_directory(path);
    return path;
  }

  std::string parent_;
};

TEST_F(Instances, AreCountedWhileTheyAreHeldAndGoWithTheirObject) {
  std::string path, endpoint;
  {
    const auto first = InstanceDirectory::take(options());
    const auto second = InstanceDirectory::take(options());
    const auto other = InstanceDirectory::take(options("another model"));
    ASSERT_TRUE(first.ok() && second.ok() && other.ok());
    path = first->path();
    endpoint = first->endpoint();
    EXPECT_TRUE(path.ends_with(".0")) << path;
    EXPECT_EQ(second->path(), path.substr(0, path.size() - 1) + "1");
    EXPECT_TRUE(other->path().ends_with(".0"));
    EXPECT_NE(other->path(), path);
    EXPECT_NE(second->endpoint(), endpoint);
    EXPECT_EQ(instances().size(), 3u);
  }
  EXPECT_TRUE(instances().empty());
  EXPECT_TRUE(fs::is_empty(parent_ + "/runtime/numoe-" + std::to_string(::getuid())));
  const auto again = InstanceDirectory::take(options());
  EXPECT_EQ(again->path(), path);
  EXPECT_EQ(again->endpoint(), endpoint) << "workers find it again";
}

TEST_F(Instances, OneThatSomebodyRemovesIsMadeAgainUnlessItHasBeenTaken) {
  auto first = InstanceDirectory::take(options());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(first->restore().ok());
  fs::remove_all(first->path());
  ASSERT_FALSE(first->write_plan("7 abc x\n").ok());
  ASSERT_TRUE(first->restore().ok());
  ASSERT_TRUE(first->write_plan("7 abc x\n").ok());
  EXPECT_NE(InstanceDirectory::take(options())->path(), first->path()) << "it is held";
  fs::remove_all(first->path());
  const auto second = InstanceDirectory::take(options());
  ASSERT_EQ(second->path(), first->path());
  const auto lost = first->restore();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, base::Code::kUnavailable);
  { const InstanceDirectory gone(std::move(*first)); }
  EXPECT_TRUE(fs::exists(second->path())) << "it is the other's";
}

TEST_F(Instances, NobodysAreRemovedAndTheOwnOneIsTaken) {
  const std::string path = leave_behind();
  std::ofstream(path + "/kv.0") << "cache";
  std::ofstream(path + "/worker.0") << "4711";
  const auto other = InstanceDirectory::take(options("another model"));
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(fs::exists(path)) << "nobody lives there";
  leave_behind();
  std::ofstream(path + "/kv.0") << "cache";
  std::ofstream(path + "/group-1") << "rest";
  auto own = InstanceDirectory::take(options());
  EXPECT_EQ(own->path(), path);
  own->clean();
  EXPECT_TRUE(fs::exists(path + "/kv.0")) << "it may be of use";
  EXPECT_FALSE(fs::exists(path + "/group-1"));
}

TEST_F(Instances, OnesWithALivingWorkerStay) {
  const std::string path = leave_behind();
  auto member = worker::InstanceMember::join(path, 3);
  ASSERT_TRUE(member.ok());
  const auto other = InstanceDirectory::take(options("another model"));
  ASSERT_TRUE(fs::exists(path));
  const auto holders = worker::instance_holders(path);
  ASSERT_EQ(holders.size(), 1u);
  EXPECT_EQ(holders[0].rank, 3);
  EXPECT_EQ(holders[0].pid, ::getpid());
  EXPECT_TRUE(worker::is_held(path, holders[0]));
  EXPECT_FALSE(worker::is_held(path, {.rank = 3, .pid = 1}));
}

TEST_F(Instances, AMemberSeesWhetherThereIsABrokerAndItsPlan) {
  auto instance = InstanceDirectory::take(options());
  ASSERT_TRUE(instance.ok());
  ASSERT_TRUE(instance->write_plan(worker::instance_head(7, "abc") + " x\nmore\n").ok());
  EXPECT_EQ(instance->plan(), "7 abc x\nmore\n");
  const auto member = worker::InstanceMember::join(instance->path(), 0);
  EXPECT_TRUE(member->has_broker());
  EXPECT_EQ(member->head(), "7 abc x");
  { const InstanceDirectory gone(std::move(*instance)); }
  EXPECT_FALSE(member->has_broker());
  EXPECT_EQ(member->head(), "");
}

TEST_F(Instances, TheLastMemberRemovesThem) {
  const std::string path = leave_behind();
  auto first = worker::InstanceMember::join(path, 0);
  auto second = worker::InstanceMember::join(path, 1);
  first->leave("");
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(worker::instance_holders(path).size(), 1u);
  second->leave("");
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Instances, AMemberLeavesThoseOfALivingBroker) {
  const auto instance = InstanceDirectory::take(options());
  auto member = worker::InstanceMember::join(instance->path(), 0);
  member->leave(instance->endpoint());
  EXPECT_TRUE(fs::exists(instance->path()));
  EXPECT_TRUE(worker::instance_holders(instance->path()).empty());
}

TEST_F(Instances, ASuccessorTakesTheLifelineOfADeadRank) {
  const std::string path = leave_behind();
  std::ofstream(path + "/worker.0") << "1";
  auto member = worker::InstanceMember::join(path, 0);
  ASSERT_TRUE(member.ok());
  EXPECT_EQ(worker::instance_holders(path)[0].pid, ::getpid());
}

TEST_F(Instances, WordsThatAreNoLifelinesAreNobody) {
  const auto instance = InstanceDirectory::take(options());
  for (const char* name : {"worker.", "worker.x", "worker.-1", "worker.99999", "worker.0.new"})
    std::ofstream(instance->path() + "/" + name) << "1";
  const auto file = shm::open_file(instance->path() + "/worker.5", O_CREAT | O_RDWR);
  ASSERT_TRUE(file.ok() && shm::try_lock(*file, shm::Lock::kExclusive));
  EXPECT_TRUE(worker::instance_holders(instance->path()).empty()) << "a lock without a pid";
}

/// A process that holds the lifelines of `ranks` ranks, as if each were one; it lives until killed.
pid_t hold(const std::string& path, int ranks) {
  int ready[2];
  if (::pipe(ready) != 0) return -1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Held to the end of the process.
    for (int rank = 0; rank < ranks; rank++)
      std::make_unique<worker::InstanceMember>(std::move(*worker::InstanceMember::join(path, rank)))
          .release();
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte;
  [[maybe_unused]] const ssize_t got = ::read(ready[0], &byte, 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return pid;
}

WorkerProcessesOptions one_worker(const InstanceDirectory& instance) {
  WorkerProcessesOptions options;
  options.program = "/no/such/program";
  options.rank.model_path = "m";
  options.rank.arena_directory = instance.path();
  options.placement.ranks.resize(1);
  options.endpoint = instance.endpoint();
  options.outlive.emplace();
  return options;
}

TEST_F(Instances, WorkersStartedWithTheSameAreAdopted) {
  SignalWatch signals;
  auto instance = InstanceDirectory::take(options());
  WorkerProcesses before(one_worker(*instance), signals);
  before.prepare("abc");
  ASSERT_TRUE(instance->write_plan(before.plan()).ok());
  const pid_t pid = hold(instance->path(), 1);
  WorkerProcesses after(one_worker(*instance), signals);
  ASSERT_EQ(after.take_over(*instance), WorkerProcesses::Leftover::kAdopted);
  EXPECT_EQ(after.pid(0), pid);
  EXPECT_EQ(after.peer(0), before.peer(0));
  const auto without_server = [](const std::string& plan) {
    const size_t line_end = plan.find('\n');
    return plan.substr(0, plan.rfind(' ', line_end)) + plan.substr(line_end);
  };
  EXPECT_NE(after.plan(), before.plan()) << "it is another server";
  EXPECT_EQ(without_server(after.plan()), without_server(before.plan()));
  EXPECT_FALSE(after.all_ended());
  EXPECT_EQ(after.descriptors().size(), 1u);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_TRUE(after.all_ended());
  EXPECT_TRUE(after.descriptors().empty());
  EXPECT_TRUE(after.ended(WorkerProcesses::EndedHow::kAnyhow)->starts_with("worker 0 (process "));
}

TEST_F(Instances, WorkersStartedWithSomethingElseAreKilled) {
  SignalWatch signals;
  auto instance = InstanceDirectory::take(options());
  for (const bool other_count : {false, true}) {
    WorkerProcesses before(one_worker(*instance), signals);
    before.prepare("abc");
    ASSERT_TRUE(instance->write_plan(before.plan() + (other_count ? "" : "more")).ok());
    const pid_t pid = hold(instance->path(), other_count ? 2 : 1);
    WorkerProcesses after(one_worker(*instance), signals);
    EXPECT_EQ(after.take_over(*instance), WorkerProcesses::Leftover::kKilled);
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  WorkerProcesses none(one_worker(*instance), signals);
  EXPECT_EQ(none.take_over(*instance), WorkerProcesses::Leftover::kNone);
}

}  // namespace
}  // namespace cli
