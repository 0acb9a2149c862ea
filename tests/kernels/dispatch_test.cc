// Finding a table by name, and that the table found is the one that runs.
#include <gtest/gtest.h>

#include <set>

#include "kernels/cpu.h"
#include "kernels/isa/tables.h"
#include "tests/kernels/matrix_case.h"
#include "tests/kernels/tables.h"

namespace kernels::testing {
namespace {

TEST(FindOps, KnowsEveryTableByItsName) {
  for (const Ops* ops : all_ops()) {
    const auto found = find_ops(ops->name);
    if (can_run(*ops)) {
      ASSERT_TRUE(found.ok()) << ops->name;
      EXPECT_EQ(*found, ops);
    } else {
      EXPECT_EQ(found.error().code, base::Code::kUnsupported);
    }
  }
}

TEST(FindOps, AutoIsTheFastestThatCanRunAndNeverTheReference) {
  const auto found = find_ops("auto");
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE((*found)->is_reference);
  const CpuFeatures cpu = cpu_features();
  EXPECT_EQ((*found)->name, std::string(cpu.avx512_vnni ? "avx512vnni"
                                        : cpu.avx2      ? "avx2"
                                                        : "scalar"));
}

TEST(FindOps, AutoLeavesOutWhatNobodyTested) {
  for (const Ops* ops : all_ops()) {
    EXPECT_EQ(ops->is_tested, ops != &isa::kAvxVnniOps) << ops->name;
  }
  EXPECT_TRUE((*find_ops("auto"))->is_tested);
}

TEST(FindOps, RefusesAnUnknownNameAndListsTheKnownOnes) {
  const auto found = find_ops("sse9");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, base::Code::kInvalidArgument);
  for (const char* name :
       {"sse9", "auto", "reference", "scalar", "avx2", "avxvnni", "avx512vl", "avx512vnni"}) {
    EXPECT_NE(found.error().message.find(name), std::string::npos) << found.error().message;
  }
}

TEST(AllOps, ScalarAndReferenceRunEverywhere) {
  EXPECT_TRUE(can_run(table("scalar")));
  EXPECT_TRUE(can_run(table("reference")));
  EXPECT_TRUE(table("reference").is_reference);
}

/// The code addresses of a table.
std::set<const void*> functions(const Ops& ops) {
  std::set<const void*> all;
  for (size_t layout = 1; layout < kLayoutCount; ++layout) {
    all.insert(reinterpret_cast<const void*>(ops.matmul[layout]));
  }
  for (const void* p :
       {reinterpret_cast<const void*>(ops.quantise), reinterpret_cast<const void*>(ops.quantise_32),
        reinterpret_cast<const void*>(ops.rms_norm),
        reinterpret_cast<const void*>(ops.silu_multiply), reinterpret_cast<const void*>(ops.add),
        reinterpret_cast<const void*>(ops.multiply_add), reinterpret_cast<const void*>(ops.softmax),
        reinterpret_cast<const void*>(ops.exp), reinterpret_cast<const void*>(ops.rope),
        reinterpret_cast<const void*>(ops.store_k), reinterpret_cast<const void*>(ops.store_v),
        reinterpret_cast<const void*>(ops.attend), reinterpret_cast<const void*>(ops.attend_merge),
        reinterpret_cast<const void*>(ops.attend_finish)}) {
    all.insert(p);
  }
  return all;
}

TEST(Tables, AForcedInstructionSetIsTheOneThatRuns) {
  // No function of one table is a function of another, so equal results cannot come from running
  // the same code twice; and each table has all of its own: a product per layout, fourteen others.
  std::set<const void*> seen;
  size_t count = 0;
  for (const Ops* ops : all_ops()) {
    if (ops->is_reference) continue;
    const auto mine = functions(*ops);
    EXPECT_EQ(mine.size(), kLayoutCount - 1u + 14) << ops->name;
    EXPECT_EQ(mine.count(nullptr), 0u) << ops->name;
    seen.insert(mine.begin(), mine.end());
    count += mine.size();
  }
  EXPECT_EQ(seen.size(), count);
}

}  // namespace
}  // namespace kernels::testing
