// The attention of a model in float.
#include "attention.hpp"

template sympow::AnyLayer<float> language_model::attention_layer(const Config&, sympow::Form);
