#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/cat.h"
#include "proto/zmq_channel.h"

namespace proto {

namespace {

// "/numoe-4294967295", a directory of one run in it, and "/0123456789abcdef.sock" must still fit.
constexpr size_t kRunDirectoryBytes = 24;
constexpr size_t kBaseBytesMax = kIpcPathBytesMax - 17 - kRunDirectoryBytes - 22;

/// FNV-1a: spreads names over file names; nothing rests on it being hard to invert.
uint64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

/// 16 digits.
std::string hash_name(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (uint64_t h = hash(name); digits.size() < 16; h <<= 4) digits += kDigits[h >> 60];
  return digits;
}

/// Makes it if need be; it must be of this user alone.
base::Status make_private(const std::string& directory) {
  if (::mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return base::Error{base::Code::kSystem,
                       base::cat("creating ", directory, ": ", std::strerror(errno))};
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0)
    return base::Error{base::Code::kSystem,
                       base::cat("looking at ", directory, ": ", std::strerror(errno))};
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::getuid() || (status.st_mode & 077) != 0)
    return base::Error{base::Code::kSystem,
                       base::cat(directory,
                                 " must be a directory of yours with mode 0700; remove "
                                 "it or set XDG_RUNTIME_DIR")};
  return {};
}

bool usable(const std::string& base) {
  return !base.empty() && base.front() == '/' && base.size() <= kBaseBytesMax &&
         ::access(base.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

base::Result<std::string> ipc_directory(const std::string& base) {
  const std::string directory = base::cat(usable(base) ? base : "/tmp", "/numoe-", ::getuid());
  RETURN_IF_ERROR(make_private(directory));
  return directory;
}

base::Result<std::string> ipc_instance_directory(const std::string& base, std::string_view name) {
  ASSIGN_OR_RETURN(const std::string home, ipc_directory(base));
  const std::string directory = base::cat(home, "/serve-", hash_name(name));
  RETURN_IF_ERROR(make_private(directory));
  return directory;
}

base::Result<std::string> ipc_endpoint(const std::string& directory, std::string_view name) {
  const std::string path = base::cat(directory, "/", hash_name(name), ".sock");
  if (path.size() > kIpcPathBytesMax)
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("socket path ", path, " has ", path.size(), " bytes, at most ",
                                 kIpcPathBytesMax, " are possible; choose a shorter directory")};
  return base::cat(kIpc, path);
}

base::Status check_ipc_endpoint(const std::string& endpoint) {
  if (!endpoint.starts_with(kIpc) || endpoint.size() == kIpc.size())
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("endpoint \"", endpoint, "\" must be ipc://PATH")};
  const size_t length = endpoint.size() - kIpc.size();
  if (length > kIpcPathBytesMax)
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("socket path ", endpoint.substr(kIpc.size()), " has ", length,
                                 " bytes, at most ", kIpcPathBytesMax, " are possible")};
  return {};
}

}  // namespace proto
