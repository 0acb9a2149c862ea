#include "worker/weight_names.h"

#include <span>

#include "base/cat.h"

namespace worker {

namespace {

std::string hex(uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(value >> shift) & 15];
  return text;
}

uint64_t hash_of(const std::string& text) {
  return shm::hash64(std::as_bytes(std::span(text)));
}

std::string describe(const model::Model& model) {
  std::string text = model.spec.architecture;
  for (const model::SourceFile& file : model.directory->files) text += base::cat('\n', file.bytes);
  for (const model::TensorInfo& tensor : model.directory->tensors) {
    text += base::cat('\n', tensor.name, ' ', static_cast<uint32_t>(tensor.type), ' ',
                      tensor.file_index, ' ', tensor.offset);
    for (const int64_t length : tensor.shape) text += base::cat(' ', length);
  }
  return text;
}

std::string describe(const engine::WeightMap& map) {
  std::string text;
  for (const engine::WeightSlice& slice : map.slices) {
    text +=
        base::cat('\n', slice.tensor->name, ' ', static_cast<uint32_t>(slice.type), ' ',
                  static_cast<uint32_t>(slice.layout), ' ', slice.matrix_begin, ' ',
                  slice.matrix_count, ' ', slice.rows.begin, ' ', slice.rows.end, ' ',
                  slice.row_length, ' ', slice.transposed, ' ', slice.offset, ' ', slice.bytes());
    for (const int32_t matrix : slice.listed) text += base::cat(' ', matrix);
  }
  return text;
}

}  // namespace

WeightNames weight_names(const model::Model& model, const plan::Plan& plan,
                         const kernels::Ops& ops) {
  WeightNames names;
  names.model = hash_of(describe(model));
  std::string slices = ops.is_reference ? "reference" : "packed";
  for (const plan::RankShare& share : plan.ranks) {
    slices += base::cat("\n\n", describe(engine::map_weights(model, share, ops)));
  }
  names.plan = hash_of(slices);
  names.prefix = base::cat("w-", hex(names.model), "-", hex(names.plan), "-");
  return names;
}

std::string weight_arena_name(const WeightNames& names, const SliceOf& slice) {
  return base::cat(names.prefix, slice.rank, "of", slice.rank_count,
                   slice.node < 0 ? "" : base::cat(".n", slice.node));
}

shm::Hash128 source_identity(const model::Model& model) {
  std::string text;
  for (const model::SourceFile& file : model.directory->files) {
    text += base::cat(file.device, ' ', file.inode, ' ', file.bytes, ' ', file.mtime_ns, ' ',
                      file.ctime_ns, '\n');
  }
  return shm::hash128(std::as_bytes(std::span(text)));
}

shm::ArenaIdentity weight_identity(const model::Model& model, const WeightNames& names,
                                   const SliceOf& slice, const kernels::Ops& ops) {
  shm::ArenaIdentity identity;
  identity.model = names.model;
  identity.source = source_identity(model);
  identity.plan_id = names.plan;
  identity.slice_index = static_cast<uint32_t>(slice.rank);
  identity.slice_count = static_cast<uint32_t>(slice.rank_count);
  identity.kernel_layout = ops.is_reference ? 1 : 0;
  return identity;
}

base::Result<shm::ArenaPlan> plan_weight_arena(const engine::WeightMap& map) {
  shm::ArenaPlan arena;
  for (size_t i = 0; i < map.slices.size(); i++) {
    const engine::WeightSlice& slice = map.slices[i];
    if (slice.bytes() == 0) continue;
    // A tied matrix lies there twice, once as rows to look up.
    const bool lookup = static_cast<int>(i) == map.token_embedding;
    ASSIGN_OR_RETURN(
        const uint64_t offset,
        arena.reserve({.name = slice.tensor->name + (lookup ? "/lookup" : ""),
                       .type = static_cast<uint32_t>(slice.type),
                       .layout = static_cast<uint32_t>(slice.layout),
                       .rows = static_cast<uint64_t>(slice.matrix_count * slice.rows.size()),
                       .row_length = static_cast<uint64_t>(slice.row_length),
                       .first_row = static_cast<uint64_t>(
                           slice.matrix_number(0) * slice.matrix_rows + slice.rows.begin),
                       .bytes = slice.bytes()}));
    CHECK(offset == slice.offset, "arena and weight map disagree about ", slice.tensor->name);
  }
  return arena;
}

}  // namespace worker
