// What does each activation format cost in accuracy? Relative rms error of dot products with exact
// weights.
#include <cmath>
#include <cstdio>

#include "bench/e1_panels/experiment.h"

namespace e1 {

namespace {

constexpr int kVectors = 16, kRows = 256;

float normal(Random& random) {
  return std::normal_distribution<float>()(random);
}

float student(Random& random) {
  float squares = 0;
  for (int i = 0; i < 3; ++i) {
    const float g = normal(random);
    squares += g * g;
  }
  return normal(random) / std::sqrt(squares / 3);
}

struct Source {
  const char* name;
  float (*draw)(int64_t i, Random& random);
};
constexpr Source kSources[] = {
    {"normal", [](int64_t, Random& r) { return normal(r); }},
    {"Student t, 3 degrees of freedom", [](int64_t, Random& r) { return student(r); }},
    {"silu(g) * u",
     [](int64_t, Random& r) {
       const float g = 1.5f * normal(r);
       return g / (1 + std::exp(-g)) * 1.5f * normal(r);
     }},
    {"normal, 0.5 % of channels x 20",
     [](int64_t i, Random& r) { return normal(r) * (i % 200 == 17 ? 20.0f : 1.0f); }},
    {"normal, 2 of 2048 channels x 100",
     [](int64_t i, Random& r) { return normal(r) * (i % 1024 == 77 ? 100.0f : 1.0f); }},
};

}  // namespace

void accuracy() {
  constexpr Kind kKinds[] = {Kind::kA32, Kind::kA256s, Kind::kA256};
  std::printf("%-34s %8s %8s %8s  relative rms error in %%\n", "activations", "a32", "a256s",
              "a256");
  for (const Source& source : kSources) {
    Random random(7);
    double errors[3] = {}, squares = 0;
    for (int n = 0; n < kVectors; ++n) {
      std::vector<float> x;
      for (int64_t i = 0; i < kLength; ++i) x.push_back(source.draw(i, random));
      std::vector<double> deviation[3];
      for (size_t kind = 0; kind < 3; ++kind) {
        const Columns packed({x}, kKinds[kind], 1);
        for (int64_t i = 0; i < kLength; ++i) {
          deviation[kind].push_back(value(packed.block(0, i / 256), static_cast<int>(i % 256)) -
                                    static_cast<double>(x[static_cast<size_t>(i)]));
        }
      }
      for (int row = 0; row < kRows; ++row) {
        double sum = 0, off[3] = {};
        for (size_t i = 0; i < kLength; ++i) {
          const double w = normal(random);
          sum += w * static_cast<double>(x[i]);
          for (size_t kind = 0; kind < 3; ++kind) off[kind] += w * deviation[kind][i];
        }
        squares += sum * sum;
        for (size_t kind = 0; kind < 3; ++kind) errors[kind] += off[kind] * off[kind];
      }
    }
    std::printf("%-34s %8.2f %8.2f %8.2f\n", source.name, 100 * std::sqrt(errors[0] / squares),
                100 * std::sqrt(errors[1] / squares), 100 * std::sqrt(errors[2] / squares));
  }
}

}  // namespace e1
