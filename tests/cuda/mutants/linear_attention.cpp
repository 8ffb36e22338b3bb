// Rows of P 1 that go along their chunks, for the mutants of linear_attention.cmake.
#include "along_cases.hpp"

using namespace sympow::test;
using Narrow = Along<bf16, 64>;

TEST_CASE("rows are right along a chunk", "[cuda]") {
  check_layouts<Narrow>(300);
  check_gates<Narrow>(200);
  check_norms<Narrow>(140);
  check_far<Narrow>();
  check_joined<Narrow>({300, 129, 40}, 70);
  check_conditions<Narrow>();
  check_about_resets<Narrow>();
  Case how = case_of<Narrow>({200});
  how.is_split = true;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check<Narrow>(how);
  Case wide = case_of<Along<bf16, 128>>({200});
  wide.log_gate = [](int t) { return t == 100 ? -infinity : -.01; };
  check<Along<bf16, 128>>(wide);
}
