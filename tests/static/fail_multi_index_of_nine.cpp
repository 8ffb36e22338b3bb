// expect: the power must lie in 1
#include <sympow/combinatorics/multi_index.hpp>

int main() {
#ifdef SYMPOW_CONTROL
  return sympow::MultiIndex<8>().size() == 8 ? 0 : 1;
#else
  return sympow::MultiIndex<9>().size() == 9 ? 0 : 1;
#endif
}
