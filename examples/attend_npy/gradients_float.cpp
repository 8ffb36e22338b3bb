#include "gradients_impl.hpp"

namespace attend_npy {

#define ATTEND_NPY_GRADIENTS(F) ATTEND_NPY_GRADIENTS_OF(float, F)
ATTEND_NPY_EACH_FEATURE(ATTEND_NPY_GRADIENTS)

}  // namespace attend_npy
