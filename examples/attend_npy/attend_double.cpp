#include "attend_impl.hpp"

template attend_npy::Results<double> attend_npy::attend(const Problem&, std::istream*, std::ostream*,
                                                        const std::string&, ProblemGradients<double>*);
