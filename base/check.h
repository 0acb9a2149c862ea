// CHECK: our own bugs end the process with file, line and a sentence, in every build.
#pragma once

#include <string>

#include "base/cat.h"

namespace base {

/// Prints "file:line: CHECK failed: condition: message" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace base

#define CHECK(condition, ...)                                                         \
  do {                                                                                \
    if (!(condition)) [[unlikely]]                                                    \
      ::base::check_failed(__FILE__, __LINE__, #condition, ::base::cat(__VA_ARGS__)); \
  } while (false)

/// Only in kernel loops: off when NDEBUG is defined.
#ifdef NDEBUG
#define DCHECK(condition, ...) \
  do {                         \
  } while (false)
#else
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#endif
