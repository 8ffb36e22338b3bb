#include "counted_gradients.hpp"

COUNTED_GRADIENTS()
