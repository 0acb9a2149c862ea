// Models of known shapes without files, and machines from hwloc's notation, for tests of plans.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "plan/machine.h"
#include "plan/planner.h"

namespace plan_test {

/// REQUIRES: a preset of model/synth_presets.cc and a type that it can have.
model::Model preset(std::string_view name, std::string_view type, int64_t layers = 0);

struct MachineOf {
  std::string topology;
  std::vector<double> gb_per_s = {};        // by node or of each; empty: assumed
  std::vector<uint64_t> memory_bytes = {};  // the same; empty: what the topology says
  int ranks = 0;                            // 0: one a node with cores
  std::string isa = "avx512vnni";
};
/// hwloc's notation, or the path of an XML file.
plan::HostFacts host(const MachineOf& of);
plan::Machine machine(const MachineOf& of);

/// As the fastest kernels of this build lie.
plan::Packing packing();

// Machines that people ask about.
inline constexpr const char* kGenoaNps1 =
    "package:2 [numa(memory=824633720832)] l3:12(size=33554432) core:8 pu:2";
inline constexpr const char* kGenoaNps4 =
    "package:2 group:4 [numa(memory=206158430208)] l3:3(size=33554432) core:8 pu:2";
inline constexpr const char* kGraniteSnc =
    "package:2 group:3 [numa(memory=274877906944)] l3:1(size=176160768) core:43 pu:2";
inline constexpr const char* kGranite =
    "package:2 [numa(memory=824633720832)] l3:1(size=528482304) core:128 pu:2";
inline constexpr const char* kEightSockets =
    "package:8 [numa(memory=274877906944)] l3:1(size=47185920) core:18 pu:2";
inline constexpr const char* kOneSocket =
    "package:1 [numa(memory=412316860416)] l3:8(size=33554432) core:8 pu:2";

}  // namespace plan_test
