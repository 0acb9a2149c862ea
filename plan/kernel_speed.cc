// The part of plan/machine.h about what threads compute.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/machine.h"

namespace plan {

namespace {

double bits(kernels::TensorType type) {
  const kernels::TypeInfo& info = kernels::type_info(type);
  return 8.0 * info.block_bytes / info.block_weights;
}

}  // namespace

bool take_kernels(const shm::MachineProfile& profile, Machine& machine) {
  std::vector<KernelSpeed> speeds;
  ThreadSpeed thread;
  for (const shm::KernelFigure& figure : profile.kernels) {
    if (figure.g_per_s.samples == 0 || figure.g_per_s.median <= 0 || figure.columns < 1) continue;
    const double rate = figure.g_per_s.median;
    if (figure.work == "attend") thread.attend = rate;
    if (figure.work == "prepare") thread.prepare = rate;
    if (figure.work == "route") thread.route = rate;
    const auto type = kernels::type_by_name(figure.work);
    if (!type) continue;
    auto speed = std::ranges::find(speeds, *type, &KernelSpeed::type);
    if (speed == speeds.end()) speed = speeds.insert(speeds.end(), {*type, {}});
    speed->points.push_back({figure.columns, rate});
  }
  if (speeds.empty() || thread.attend <= 0 || thread.prepare <= 0 || thread.route <= 0)
    return false;
  for (KernelSpeed& speed : speeds) std::ranges::sort(speed.points, {}, &KernelPoint::columns);
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
