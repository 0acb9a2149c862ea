#include "cli/instance_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/cat.h"
#include "proto/zmq_channel.h"
#include "shm/checksum.h"
#include "worker/instance.h"

namespace cli {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "serve-";
constexpr std::string_view kKvPrefix = "kv";  // of the caches, which say themselves what is in them
constexpr int kInstancesMax = 1000;           // of one model; a bound of a loop

std::string key_of(std::string_view fingerprint) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string key;
  for (uint64_t h = shm::hash64(std::as_bytes(std::span(fingerprint))); key.size() < 16; h <<= 4)
    key += kDigits[h >> 60];
  return key;
}

base::Result<std::string> endpoint_of(const std::string& path, const std::string& runtime) {
  ASSIGN_OR_RETURN(const std::string sockets, proto::ipc_instance_directory(runtime, path));
  return proto::ipc_endpoint(sockets, "broker");
}

/// Instances of which neither the broker nor a worker lives.
void remove_stale(const InstanceDirectory::Options& options, const std::string& own) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(options.parent, error)) {
    const std::string path = entry.path();
    if (path == own || !entry.path().filename().string().starts_with(kPrefix)) continue;
    const shm::File lock = worker::lock_instance(path, worker::Patience::kNone);
    if (!lock.is_open() || !worker::instance_holders(path).empty()) continue;
    const auto endpoint = endpoint_of(path, options.runtime);
    worker::remove_instance(path, endpoint.ok() ? *endpoint : "");
  }
}

}  // namespace

base::Result<InstanceDirectory> InstanceDirectory::take(const Options& options) {
  const std::string prefix =
      base::cat(options.parent, "/", kPrefix, key_of(options.fingerprint), ".");
  for (int number = 0; number < kInstancesMax; number++) {
    const std::string path = base::cat(prefix, number);
    // Somebody may remove it between the two, as nobody's: then it is made anew.
    for (int attempt = 0; attempt < 3; attempt++) {
      if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
        return shm::system_error("cannot make", path, errno);
      shm::File lock = worker::lock_instance(path, worker::Patience::kMoment);
      if (!lock.is_open()) continue;
      remove_stale(options, path);
      ASSIGN_OR_RETURN(std::string endpoint, endpoint_of(path, options.runtime));
      return InstanceDirectory(path, std::move(endpoint), std::move(lock));
    }
  }
  return base::Error{base::Code::kSystem,
                     base::cat("no directory can be kept in ", options.parent)};
}

InstanceDirectory::InstanceDirectory(InstanceDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      endpoint_(std::move(other.endpoint_)),
      lock_(std::move(other.lock_)) {}

InstanceDirectory::~InstanceDirectory() {
  // Not what another server has made of that name since.
  if (!path_.empty() && restore().ok()) worker::remove_instance(path_, endpoint_);
}

std::string InstanceDirectory::plan() const {
  const auto text = shm::read_text(base::cat(path_, "/", worker::kInstancePlan));
  return text.ok() ? *text : "";
}

base::Status InstanceDirectory::write_plan(std::string_view text) {
  const std::string path = base::cat(path_, "/", worker::kInstancePlan);
  const std::string unnamed = base::cat(path, ".new");
  ASSIGN_OR_RETURN(const shm::File file, shm::open_file(unnamed, O_WRONLY | O_CREAT | O_TRUNC));
  if (write(file.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(unnamed.c_str(), path.c_str()) != 0)
    return shm::system_error("cannot write", path, errno);
  return {};
}

base::Status InstanceDirectory::restore() {
  if (shm::is_named(lock_, path_)) return {};
  if (mkdir(path_.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return shm::system_error("cannot make", path_, errno);
  shm::File lock = worker::lock_instance(path_, worker::Patience::kMoment);
  if (!lock.is_open())
    return base::Error{base::Code::kUnavailable,
                       base::cat(path_,
                                 " was removed, and another server has that name now; start "
                                 "this one again")};
  lock_ = std::move(lock);
  return {};
}

void InstanceDirectory::clean() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (!entry.path().filename().string().starts_with(kKvPrefix))
      fs::remove_all(entry.path(), error);
}

}  // namespace cli
