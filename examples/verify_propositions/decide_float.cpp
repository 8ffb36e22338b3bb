#include "decide_impl.hpp"

template std::vector<sympow::verify::Proposition> decide<float>(std::uint64_t);
