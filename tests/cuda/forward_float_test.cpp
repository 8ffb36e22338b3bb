// A forward pass of floats: every row within its bound, which is that of float.
#include "update_cases.hpp"

using namespace sympow::test;

namespace {

using Small = Kernels<float, 2, 16>;

}  // namespace

TEST_CASE("sums of chunks of floats are right", "[cuda]") { check_update<Small>(40); }
TEST_CASE("rows of floats are right in packed batches and groups of heads", "[cuda]") {
  Case how = case_of<Small>({67, 0, 65, 1});
  how.packed = true;
  how.e = 72;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t == 50 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  check<Small>(how);
}
TEMPLATE_TEST_CASE("rows of floats are right over more keys than a ring of stages has", "[cuda]", Small,
                   (Kernels<float, 1, 64>)) {
  check<TestType>(case_of<TestType>({200}));
}
TEST_CASE("rows of floats are right for all norms and scales", "[cuda]") { check_norms<Small>(70); }
TEST_CASE("two runs of floats joined are one", "[cuda]") { check_joined<Small>({100, 40}, 70); }
TEST_CASE("rows of floats that turn are right", "[cuda]") {
  Case how = case_of<Small>({40, 3});
  how.rotary = Rotation{true, [](int t) { return 1 + .9 * std::sin(t); }, 0};
  check<Small>(how);
}
TEST_CASE("rows of floats are the same in any order of warps", "[cuda]") {
  Case how = case_of<Small>({80});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_orders<Small>(how);
}
TEMPLATE_TEST_CASE("rows of exact and of fast products of floats are right, and not the same", "[cuda]",
                   (Kernels<float, 1, 64>), (Kernels<float, 2, 64>)) {
  std::string rows;
  for (const Products products : {Products::exact, Products::fast}) {
    Case how = case_of<TestType>({70});
    how.products = products;
    how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
    ArraysOf<TestType> x(how);
    REQUIRE(run<TestType>(x, true) == "");
    REQUIRE(bits(x.rows.data) != rows);
    rows = bits(x.rows.data);
  }
}
