// What a caller chooses needs no Eigen: compiled without the path to it.
#include <sympow/attention/options.hpp>

static_assert(sympow::Options{}.mask == sympow::causal());
static_assert(sympow::Options{.chunk = 48}.chunk == 48 && sympow::ProblemShape{.T = 1, .d = 2, .e = 3}.from_nothing);
