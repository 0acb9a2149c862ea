// Items of several panels each, dealt out by what a panel costs: how the experts of a layer, whose
// panels are multiplied with different numbers of columns, become parts that take equally long.
//
//   cost:   0 ........................................ total
//   item 0: | panel 0 | panel 1 | panel 2 |  item 1: | panel 0 | …
//
// A panel belongs to the range that holds its start. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/plan.h"

namespace engine {

struct PanelWork {
  int64_t panels = 0;
  int64_t cost = 0;  // of each of them; 0: there is nothing to do
};

/// Of the panels of one matrix that go with so many columns: once per column, and once to read it.
inline PanelWork panel_work(int64_t panels, size_t columns) {
  return {.panels = panels, .cost = columns == 0 ? 0 : static_cast<int64_t>(columns) + 1};
}

/// Of items [0, count); `work_of(item)` gives the PanelWork of one.
template <class WorkOf>
int64_t total_cost(int64_t count, WorkOf work_of) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; i++) {
    const PanelWork work = work_of(i);
    total += work.panels * work.cost;
  }
  return total;
}

/// Calls `visit(item, panels)` for the panels that start within `part` of the total cost.
template <class WorkOf, class Visit>
void visit_panels(int64_t count, plan::Range part, WorkOf work_of, Visit visit) {
  int64_t before = 0;  // cost of all items before this one
  for (int64_t i = 0; i < count && before < part.end; i++) {
    const PanelWork work = work_of(i);
    if (work.cost == 0) continue;
    const auto panel_at = [&](int64_t at) {
      return std::clamp<int64_t>((at - before + work.cost - 1) / work.cost, 0, work.panels);
    };
    const plan::Range panels{part.begin <= before ? 0 : panel_at(part.begin), panel_at(part.end)};
    if (!panels.empty()) visit(i, panels);
    before += work.cost * work.panels;
  }
}

}  // namespace engine
