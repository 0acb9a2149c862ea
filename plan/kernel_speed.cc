// The part of plan/machine.h about what threads compute.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "plan/machine.h"

namespace plan {

namespace {

constexpr int kFewColumns = 4;  // up to here weights from memory would be a figure of the memory

double bits(kernels::TensorType type) {
  const kernels::TypeInfo& info = kernels::type_info(type);
  return 8.0 * info.block_bytes / info.block_weights;
}

/// What a core of the first node reads, all of them at the same time, in GB/s; 0: not measured.
double read_per_core(const shm::MachineProfile& profile) {
  for (const shm::NodeFacts& node : profile.facts.nodes) {
    if (node.cores == 0) continue;
    double best = 0;
    for (const shm::BandwidthFigure& figure : profile.bandwidth)
      if (figure.traffic == shm::Traffic::kRead && figure.reader_node == node.os_index &&
          figure.memory_node == node.os_index && figure.threads == node.cores)
        best = std::max(best, figure.gb_per_s.median);
    return best / node.cores;
  }
  return 0;
}

}  // namespace

bool take_kernels(const shm::MachineProfile& profile, Machine& machine) {
  std::vector<KernelSpeed> speeds;
  ThreadSpeed thread;
  std::set<std::pair<kernels::TensorType, int>> cached;  // which points are of weights in a cache
  const double read = read_per_core(profile);
  for (const shm::KernelFigure& figure : profile.kernels) {
    if (figure.g_per_s.samples == 0 || figure.g_per_s.median <= 0 || figure.columns < 1) continue;
    const double rate = figure.g_per_s.median;
    if (figure.work == "attend" && figure.columns == 1) thread.attend = rate;
    if (figure.work == "attend" && figure.columns >= kFewColumns)
      thread.attend_together = std::max(thread.attend_together, rate);
    if (figure.work == "prepare") thread.prepare = rate;
    if (figure.work == "route") thread.route = rate;
    if (figure.work == "sample") thread.sample = rate;
    const auto type = kernels::type_by_name(figure.work);
    if (!type) continue;
    auto speed = std::ranges::find(speeds, *type, &KernelSpeed::type);
    if (speed == speeds.end()) speed = speeds.insert(speeds.end(), {*type, {}});
    if (figure.in_memory && figure.columns == 1) {
      if (read > 0) speed->stream_share = std::min(1.0, rate * bits(*type) / 8 / read);
      continue;
    }
    speed->points.push_back({figure.columns, rate});
    // Many columns hide most of the way from memory, not all of it: those are the figures for many.
    if (!figure.in_memory) cached.insert({*type, figure.columns});
  }
  for (KernelSpeed& speed : speeds) {
    const auto is_cached = [&](const KernelPoint& point) {
      return cached.contains({speed.type, point.columns});
    };
    if (std::ranges::all_of(speed.points, is_cached))
      continue;  // slow types: only computing counts
    std::erase_if(speed.points, [&](const KernelPoint& point) {
      return point.columns > kFewColumns && is_cached(point);
    });
  }
  if (thread.attend_together <= 0) thread.attend_together = thread.attend;
  const double least = std::min({thread.attend, thread.prepare, thread.route, thread.sample});
  if (speeds.empty() || least <= 0) return false;
  for (KernelSpeed& speed : speeds) {
    if (speed.points.empty()) return false;
    std::ranges::sort(speed.points, {}, &KernelPoint::columns);
  }
  machine.kernels = std::move(speeds);
  machine.thread = thread;
  return true;
}

double weight_ns(const KernelSpeed& speed, double columns) {
  CHECK(!speed.points.empty());
  // Of all columns together, so that points are on a rising line.
  const auto ns = [](const KernelPoint& point) { return point.columns / point.gmac_per_s; };
  const KernelPoint* before = &speed.points.front();
  if (columns <= before->columns) return ns(*before);
  for (const KernelPoint& point : speed.points) {
    if (columns <= point.columns) {
      if (&point == before) return ns(point);
      const double part = (columns - before->columns) / (point.columns - before->columns);
      return ns(*before) + part * (ns(point) - ns(*before));
    }
    before = &point;
  }
  return columns / before->gmac_per_s;
}

const KernelSpeed& kernel_speed(const Machine& machine, kernels::TensorType type) {
  CHECK(!machine.kernels.empty());
  const KernelSpeed* best = &machine.kernels.front();
  for (const KernelSpeed& speed : machine.kernels) {
    if (speed.type == type) return speed;
    if (std::abs(bits(speed.type) - bits(type)) < std::abs(bits(best->type) - bits(type)))
      best = &speed;
  }
  return *best;
}

}  // namespace plan
