#include "engines.hpp"

template Eigen::MatrixXd sympow::gate_distances(const sympow::ChannelDecay<double>&, sympow::Index, sympow::Index);
SYMPOW_TEST_TRANSITIONS(, double)
SYMPOW_TEST_TRANSITIONS(, float)
SYMPOW_TEST_ENGINES()
