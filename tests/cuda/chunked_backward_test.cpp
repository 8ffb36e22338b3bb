// Gradients of the chunked form by the gradient row rule.
#include "chunked_backward.hpp"

using namespace sympow::test;

TEST_CASE("gradients of the chunked form", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 16>;
  Case how = case_of<Kernel>({150});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  REQUIRE(run_chunked_backward<Kernel>(how) == "");
  how.normalised = false;
  REQUIRE(run_chunked_backward<Kernel>(how) == "");
  how.log_gate = {};
  REQUIRE(run_chunked_backward<Kernel>(how) == "");
}
