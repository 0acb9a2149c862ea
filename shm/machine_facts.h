// What the system says about this machine, and a number that tells machines apart.
//
// Reads only text files of /proc and /sys; what is missing stays empty. Any thread.
#pragma once

#include <string>
#include <vector>

#include "shm/machine_profile.h"
#include "shm/topology.h"

namespace shm {

/// Facts of the machine that `topology` describes. `root` is where / is.
MachineFacts read_machine_facts(const Topology& topology, const std::string& root = "");

/// 16 hexadecimal digits over what changes results: processor, caches, sockets, nodes with their
/// memory in whole GiB, allowed CPUs and quota, kernel version (not its build), and the settings of
/// huge pages, NUMA balancing and frequency. docs/probe.md lists the ingredients.
std::string fingerprint_of(const MachineFacts& facts);

/// "0-3,8" from CPUs in any order.
std::string cpu_list(std::vector<int> cpus);

}  // namespace shm
