#include <sympow/verify/propositions/all_propositions.hpp>

namespace sympow::verify {

// Each text in each type is compiled in a file of its own, for they take a while.
extern template std::vector<PropositionGroup> texts_a_to_c<double>();
extern template std::vector<PropositionGroup> texts_a_to_c<float>();
extern template std::vector<PropositionGroup> text_d<double>();
extern template std::vector<PropositionGroup> text_d<float>();
extern template std::vector<PropositionGroup> text_e<double>();
extern template std::vector<PropositionGroup> text_e<float>();

}  // namespace sympow::verify

template std::vector<sympow::verify::PropositionGroup> sympow::verify::proposition_groups<double>();
template std::vector<sympow::verify::PropositionGroup> sympow::verify::proposition_groups<float>();
