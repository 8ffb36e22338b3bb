#include <sympow/verify/propositions/text_e.hpp>

template std::vector<sympow::verify::PropositionGroup> sympow::verify::text_e<double>();
