#include "counted_forms.hpp"

COUNTED_FORMS()
