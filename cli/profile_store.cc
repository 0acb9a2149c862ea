#include "cli/profile_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/cat.h"
#include "cli/profile_json.h"
#include "shm/file.h"

namespace cli {

namespace {

base::Status write_all(const shm::File& file, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file.fd(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return shm::system_error("cannot write", path, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(file.fd()) != 0) return shm::system_error("cannot write", path, errno);
  return {};
}

}  // namespace

base::Result<std::string> state_directory() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return base::cat(state, "/numoe");
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return base::cat(home, "/.local/state/numoe");
  return base::Error{
      base::Code::kNotFound,
      "neither XDG_STATE_HOME nor HOME names a directory to keep results in; set one"};
}

base::Status make_state_directory(const std::string& directory) {
  for (size_t end = directory.find('/', 1);; end = directory.find('/', end + 1)) {
    const std::string part = directory.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0) {
      const int error_number = errno;
      struct stat status;
      // Whatever the refusal, a directory that is there will do.
      if (stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
        return shm::system_error("cannot make the directory", part, error_number);
    }
    if (end == std::string::npos) break;
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0)
    return shm::system_error("cannot keep results in", directory, errno);
  return {};
}

std::string profile_path(const std::string& directory, const std::string& fingerprint) {
  return base::cat(directory, "/probe-", fingerprint, ".json");
}

base::Result<std::string> save_profile(const std::string& directory,
                                       const shm::MachineProfile& profile) {
  const std::string path = profile_path(directory, profile.fingerprint);
  const std::string temporary = base::cat(path, ".", getpid(), ".new");
  const auto write_temporary = [&]() -> base::Status {
    ASSIGN_OR_RETURN(const shm::File file, shm::open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC));
    return write_all(file, temporary, profile_to_json(profile) + "\n");
  };
  base::Status status = write_temporary();
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    status = shm::system_error("cannot replace", path, errno);
  if (status.ok()) return path;
  unlink(temporary.c_str());
  return status.error();
}

base::Result<shm::MachineProfile> load_profile(const std::string& directory,
                                               const std::string& fingerprint) {
  const std::string path = profile_path(directory, fingerprint);
  const auto text = shm::read_text(path);
  if (!text.ok()) {
    return base::Error{base::Code::kNotFound, base::cat("this machine was not measured yet (no ",
                                                        path, "); numoe probe --save does it")};
  }
  auto profile = profile_from_json(*text);
  if (!profile.ok())
    return base::Error{profile.error().code, base::cat(path, ": ", profile.error().message)};
  if (profile->fingerprint != fingerprint) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat(path,
                                 " was measured on another machine, or before its hardware or "
                                 "settings changed; measure again with numoe probe --save")};
  }
  return profile;
}

}  // namespace cli
