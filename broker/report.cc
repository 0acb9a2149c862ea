#include "broker/report.h"

namespace broker {

double Misplaced::percent() const {
  return present == 0 ? 0 : 100 * static_cast<double>(elsewhere) / static_cast<double>(present);
}

Misplaced misplaced_in(const proto::PlacementClass& own, int os_node) {
  Misplaced result;
  for (size_t node = 0; node < own.bytes_on_node.size(); node++) {
    const uint64_t bytes = own.bytes_on_node[node];
    result.present += bytes;
    if (os_node >= 0 && node != static_cast<size_t>(os_node)) result.elsewhere += bytes;
  }
  return result;
}

Misplaced misplaced_in(const proto::PlacementReply& rank) {
  Misplaced sum;
  for (const proto::PlacementClass& own : rank.classes) {
    const Misplaced part = misplaced_in(own, rank.os_node);
    sum.present += part.present;
    sum.elsewhere += part.elsewhere;
  }
  return sum;
}

bool is_sample(const proto::PlacementReply& rank) {
  uint64_t bytes = 0, asked = 0;
  for (const proto::PlacementClass& own : rank.classes) {
    bytes += own.bytes;
    asked += own.bytes_asked;
  }
  return asked < bytes;
}

}  // namespace broker
