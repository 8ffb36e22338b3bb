#include "counted_forms.hpp"

COUNTED_FORMS(SYMPOW_INSTANTIATE_FORMS)
