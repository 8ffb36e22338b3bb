#include <sympow/verify/propositions/text_d.hpp>

template std::vector<sympow::verify::PropositionGroup> sympow::verify::text_d<float>();
