#include "shm/memory_probe.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>

#include "base/cat.h"
#include "shm/file.h"

namespace shm {

namespace {

constexpr size_t kNonceDigits = 32;

std::string fresh_nonce() {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto [high, low] = random_128();
  std::string text;
  for (const uint64_t word : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(word >> shift) & 15];
  }
  return text;
}

/// The path in an offer; empty if there is none.
std::string path_of(const std::string& offer) {
  if (offer.size() < kNonceDigits + 2 || offer[kNonceDigits] != '/') return {};
  std::string path = offer.substr(kNonceDigits);
  return path.find('\0') == std::string::npos ? path : std::string();
}

}  // namespace

base::Result<MemoryProbe> MemoryProbe::show(const std::string& directory, const std::string& name) {
  if (!directory.starts_with('/')) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("the arena directory ", directory, " must be an absolute path")};
  }
  const std::string nonce = fresh_nonce();
  const std::string path = base::cat(directory, "/", name);
  ASSIGN_OR_RETURN(Region region, Region::create(path, {.bytes = kNonceDigits}));
  std::memcpy(region.data(), nonce.data(), kNonceDigits);
  return MemoryProbe(std::move(region), nonce + path);
}

MemoryProbe::MemoryProbe(MemoryProbe&& other) noexcept
    : region_(std::move(other.region_)), offer_(std::exchange(other.offer_, {})) {}

MemoryProbe::~MemoryProbe() {
  if (!offer_.empty()) unlink_region(path_of(offer_));
}

bool MemoryProbe::sees(const std::string& offer) {
  const std::string path = path_of(offer);
  if (path.empty()) return false;
  // Whatever lies there: opening a pipe must not block.
  auto file = open_file(path, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (!file.ok() || fstat(file->fd(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const auto region = Region::open_in(std::move(*file), path, Access::kReadOnly, kNonceDigits);
  return region.ok() && std::memcmp(region->data(), offer.data(), kNonceDigits) == 0;
}

std::string MemoryProbe::directory_of(const std::string& offer) {
  const std::string path = path_of(offer);
  return path.empty() ? path : path.substr(0, path.rfind('/'));
}

}  // namespace shm
