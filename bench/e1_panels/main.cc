// E1: which weight panels and which activation blocks, if scalar, AVX2 and AVX-512, decode and
// prefill must agree bit for bit? docs/decisions/001-panels-and-activations.md has the answers.
//
//   e1_panels check            equality of all kernels by memcmp, and against double arithmetic
//   e1_panels accuracy         the activation formats against each other
//   e1_panels decode [MIB] [ROUNDS]   one column, from L2 and from MIB (256) of memory
//   e1_panels prefill [ROUNDS]        64 columns; per-column pointers against columns side by side
//
// One thread; pin it (taskset -c N). Runs what the CPU has; AVX-512 needs VNNI.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/e1_panels/experiment.h"

int main(int argc, char** argv) {
  const std::string section = argc > 1 ? argv[1] : "check";
  const auto number = [&](int i, int otherwise) {
    const int n = argc > i ? std::atoi(argv[i]) : otherwise;
    return n > 0 ? n : otherwise;
  };
  if (section == "check") return e1::check() != 0;
  if (section == "accuracy") {
    e1::accuracy();
  } else if (section == "decode") {
    e1::decode(static_cast<size_t>(number(2, 256)), number(3, 9));
  } else if (section == "prefill") {
    e1::prefill(number(2, 21));
  } else {
    std::fprintf(stderr, "e1_panels: no section '%s'; there are check, accuracy, decode, prefill\n",
                 section.c_str());
    return 2;
  }
  return 0;
}
