// The attention of a model in double.
#include "attention.hpp"

template sympow::AnyLayer<double> language_model::attention_layer(const Config&, sympow::Form);
