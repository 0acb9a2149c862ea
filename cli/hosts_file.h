// Hosts that a plan is about, from a text file: `numoe plan --hosts FILE`.
//
//   # two sockets each, one switch
//   [host left]
//   topology = package:2 [numa] core:48 pu:2     hwloc's notation, or a file by lstopo
//   memory = 384                                 GiB for weights and KV cache, by node or of each
//   bandwidth = 300                              GB/s that reading reaches, the same
//   link = 100                                   Gbit/s to other hosts
//   round-trip = 15                              microseconds
//   isa = avx512vnni
//   count = 2                                    so many hosts like this
//
// Everything but the topology may be left out. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cli {

struct HostEntry {
  std::string name;
  std::string topology;
  std::vector<double> memory_gib, gb_per_s;       // by node, or one for each
  double link_gbit_per_s = 0, round_trip_us = 0;  // 0: not said
  std::string isa;
};

/// One entry for each host. Errors: kInvalidArgument with the line and what is wrong with it.
base::Result<std::vector<HostEntry>> parse_hosts(std::string_view text);

/// "300" or "300,280", each above 0. Error: kInvalidArgument naming `what`.
base::Result<std::vector<double>> parse_figures(std::string_view what, std::string_view text);

}  // namespace cli
