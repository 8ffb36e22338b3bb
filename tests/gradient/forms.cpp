#include "engines.hpp"

SYMPOW_TESTED_GRADIENTS()
