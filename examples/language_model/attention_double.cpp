// The attention of a model in double, for its tests.
#include "make_attention.hpp"

template std::unique_ptr<language_model::Attention<double>> language_model::make_attention(const Config&);
