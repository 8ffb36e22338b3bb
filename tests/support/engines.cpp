#include "engines.hpp"

SYMPOW_TEST_ENGINES()
