#include <sympow/verify/dualities.hpp>

template std::vector<sympow::verify::Duality> sympow::verify::dualities<float>(std::uint64_t);
