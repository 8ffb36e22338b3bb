// The attention of a model in float.
#include "make_attention.hpp"

template std::unique_ptr<language_model::Attention<float>> language_model::make_attention(const Config&);
