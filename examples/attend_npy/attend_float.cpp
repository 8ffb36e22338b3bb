#include "attend_impl.hpp"

template attend_npy::Results<float> attend_npy::attend(const Problem&, std::istream*, std::ostream*, const std::string&,
                                                       ProblemGradients<float>*);
