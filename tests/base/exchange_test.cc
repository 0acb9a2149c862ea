#include "base/exchange.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace base {
namespace {

TEST(Exchange, EveryEndOfAWaitHasItsOwnName) {
  std::set<std::string> names;
  for (const Wait wait :
       {Wait::kOk, Wait::kAborted, Wait::kPeerLost, Wait::kTimeout, Wait::kBroken})
    names.insert(wait_name(wait));
  EXPECT_EQ(names.size(), 5u);
  EXPECT_FALSE(names.contains("?"));
  EXPECT_STREQ(wait_name(Wait::kPeerLost), "peer lost");
}

}  // namespace
}  // namespace base
