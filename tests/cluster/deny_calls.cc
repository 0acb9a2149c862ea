// Runs a command as container runtimes do that deny system calls about memory policies:
//
//   deny_calls all COMMAND…          mbind, set_mempolicy, get_mempolicy and move_pages: EPERM
//   deny_calls move_pages COMMAND…   only that one, as Docker does with CAP_SYS_NICE
//
// The filter is a seccomp one, so whatever the command starts is under it too. Exit code 125 if
// there can be none.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace {

std::vector<sock_filter> filter_for(std::initializer_list<long> calls) {
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

bool install(std::vector<sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kNoFilter = 125;
  const std::string_view which = argc > 2 ? argv[1] : "";
  std::vector<sock_filter> filter;
  if (which == "all") {
    filter = filter_for({SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_move_pages});
  } else if (which == "move_pages") {
    filter = filter_for({SYS_move_pages});
  } else {
    std::fprintf(stderr, "usage: deny_calls all|move_pages COMMAND…\n");
    return kNoFilter;
  }
  if (!install(std::move(filter))) {
    std::fprintf(stderr, "deny_calls: no seccomp filter: %s\n", std::strerror(errno));
    return kNoFilter;
  }
  execv(argv[2], argv + 2);
  std::fprintf(stderr, "deny_calls: %s: %s\n", argv[2], std::strerror(errno));
  return kNoFilter;
}
