#include <sympow/verify/dualities.hpp>

template std::vector<sympow::verify::Duality> sympow::verify::dualities<double>(std::uint64_t);
