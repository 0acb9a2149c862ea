// Sizes, names and packing of the layouts, from the list of formats.
#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/format_list.h"
#include "kernels/ops.h"

namespace kernels {

namespace {

/// What a format says that does not depend on an instruction set.
struct LayoutFacts {
  const char* name = nullptr;
  TensorType type = {};
  ActivationFormat activations = ActivationFormat::kF32;
  size_t (*panel_bytes)(int64_t k) = nullptr;
  bool (*has_padding)(int64_t k) = nullptr;  // bytes of a panel that belong to no weight
  void (*pack_panel)(const std::byte* rows, int row_count, int64_t k, std::byte* panel) = nullptr;
};

/// By layout; kRows is none of a format.
constexpr std::array<LayoutFacts, kLayoutCount> kFacts = [] {
  std::array<LayoutFacts, kLayoutCount> facts = {};
  facts[static_cast<size_t>(Layout::kRows)].name = "rows";
  Formats::for_each([&]<class Format>() {
    facts[static_cast<size_t>(Format::kLayout)] = {
        .name = Format::kName,
        .type = Format::kType,
        .activations = Format::kActivations,
        .panel_bytes = Format::panel_bytes,
        .has_padding = Format::has_padding,
        .pack_panel = Format::pack_panel,
    };
  });
  return facts;
}();
static_assert([] {
  for (const LayoutFacts& facts : kFacts) {
    if (facts.name == nullptr) return false;
  }
  return true;
}());

const LayoutFacts& facts_of(Layout layout) {
  CHECK(static_cast<uint32_t>(layout) < kLayoutCount, "layout ", static_cast<uint32_t>(layout));
  return kFacts[static_cast<size_t>(layout)];
}

}  // namespace

const char* layout_name(Layout layout) {
  return static_cast<uint32_t>(layout) < kLayoutCount ? facts_of(layout).name : "unknown";
}

Layout layout_for(TensorType type, const Ops& ops) {
  for (size_t i = 1; i < kLayoutCount; ++i) {
    if (kFacts[i].type == type && ops.matmul[i] != nullptr) return static_cast<Layout>(i);
  }
  return Layout::kRows;
}

ActivationFormat activation_format(Layout layout) {
  return facts_of(layout).activations;
}

size_t panel_bytes(Layout layout, TensorType type, int64_t k) {
  if (layout != Layout::kRows) return facts_of(layout).panel_bytes(k);
  const size_t bytes = static_cast<size_t>(row_bytes(type, k)) * kPanelRows;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void pack_panel(Layout layout, TensorType type, const std::byte* rows, int row_count, int64_t k,
                std::byte* panel) {
  const LayoutFacts& facts = facts_of(layout);
  CHECK(row_count >= 1 && row_count <= kPanelRows, "rows of a panel: ", row_count);
  CHECK(layout == Layout::kRows || type == facts.type, layout_name(layout), " cannot hold ",
        type_info(type).name);
  CHECK(k > 0 && k % type_info(type).block_weights == 0, "k ", k, " of ", type_info(type).name);
  if (layout == Layout::kRows) {
    const size_t bytes = static_cast<size_t>(row_bytes(type, k)) * static_cast<size_t>(row_count);
    std::memcpy(panel, rows, bytes);
    std::memset(panel + bytes, 0, panel_bytes(layout, type, k) - bytes);
    return;
  }
  if (row_count < kPanelRows || facts.has_padding(k)) {
    std::memset(panel, 0, facts.panel_bytes(k));
  }
  facts.pack_panel(rows, row_count, k, panel);
}

}  // namespace kernels
