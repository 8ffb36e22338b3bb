#include <sympow/verify/propositions/texts_a_to_c.hpp>

template std::vector<sympow::verify::PropositionGroup> sympow::verify::texts_a_to_c<float>();
