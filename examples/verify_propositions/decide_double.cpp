#include "decide_impl.hpp"

template std::vector<sympow::verify::Proposition> decide<double>(std::uint64_t);
