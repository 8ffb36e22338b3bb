// States between chunks in two terms: rows within the bound of that, which those of one term are not.
#include "split_cases.hpp"

using namespace sympow::test;

#define SYMPOW_SPLIT (Kernels<bf16, 1, 64>), (Kernels<fp16, 1, 64>), (Kernels<bf16, 2, 16>), (Kernels<fp16, 2, 16>)

TEMPLATE_TEST_CASE("where states are all that is rounded, rows of split states are off by the row's own rounding",
                   "[cuda]", SYMPOW_SPLIT) {
  check_rest<TestType>();
}
TEMPLATE_TEST_CASE("rows of rounded states do not keep the bound of split ones", "[cuda]", (Kernels<bf16, 1, 64>),
                   (Kernels<bf16, 2, 16>)) {
  REQUIRE(read_alone<TestType>(false, true).wrong != "");
}
TEMPLATE_TEST_CASE("rows of split states are right", "[cuda]", SYMPOW_SPLIT) { check_split<TestType>(); }
TEST_CASE("floats have nothing to split", "[cuda]") {
  std::string rows;
  for (const bool is_split : {false, true}) {
    Case how = case_of<Kernels<float, 2, 16>>({100});
    how.is_split = is_split;
    ArraysOf<Kernels<float, 2, 16>> x(how);
    REQUIRE(run<Kernels<float, 2, 16>>(x, true) == "");
    REQUIRE((rows.empty() || bits(x.rows.data) == rows));
    rows = bits(x.rows.data);
  }
}
