#include "tests/plan/machines.h"

#include <filesystem>

#include "base/check.h"
#include "kernels/ops.h"
#include "model/architectures.h"
#include "model/synth.h"
#include "shm/topology.h"

namespace plan_test {

model::Model preset(std::string_view name, std::string_view type, int64_t layers) {
  model::Metadata vocabulary;
  vocabulary.set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  const model::SynthShape* shape = model::find_synth_preset(name);
  CHECK(shape != nullptr, "preset ", name);
  const auto plan = model::plan_synth(*shape, {.weight_type = type, .layers = layers}, vocabulary);
  CHECK(plan.ok(), plan.error().message);
  auto built =
      model::build_model(std::make_unique<const model::Directory>(model::synth_directory(*plan)));
  CHECK(built.ok(), built.error().message);
  return std::move(*built);
}

plan::HostFacts host(const MachineOf& of) {
  std::error_code none;
  const auto kind = std::filesystem::exists(of.topology, none) ? shm::TopologyKind::kXmlFile
                                                               : shm::TopologyKind::kSynthetic;
  auto topology = shm::read_whole_topology({.kind = kind, .text = of.topology});
  CHECK(topology.ok(), topology.error().message);
  // As for a server: cores without memory serve the nearest that has some, memory alone no rank.
  shm::Topology usable = shm::restrict_to(*topology, {});
  shm::PlacementOptions options{.ranks = of.ranks, .reserve_cores = 1};
  options.simulate = of.ranks > shm::usable_nodes(usable, options);
  auto placement = shm::cpus_for_ranks(usable, options);
  CHECK(placement.ok(), placement.error().message);
  return {.topology = std::move(usable),
          .placement = std::move(*placement),
          .gb_per_s = of.gb_per_s,
          .memory_bytes = of.memory_bytes,
          .isa = of.isa};
}

plan::Machine machine(const MachineOf& of) {
  return plan::machine_of({host(of)});
}

plan::Packing packing() {
  const kernels::Ops* ops = kernels::all_ops().back();
  return {
      .panel_bytes =
          [ops](kernels::TensorType type, int64_t length) {
            return uint64_t{kernels::panel_bytes(kernels::layout_for(type, *ops), type, length)};
          },
      .is_fast =
          [ops](kernels::TensorType type) {
            return kernels::layout_for(type, *ops) != kernels::Layout::kRows;
          }};
}

}  // namespace plan_test
