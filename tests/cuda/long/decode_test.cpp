// Decoding in every instantiation of the library.
#include "decode_cases.hpp"

using namespace sympow::test;

TEMPLATE_TEST_CASE_SIG("every instantiation decodes", "[cuda]", ((class T, int P, int d), T, P, d), (bf16, 1, 64),
                       (bf16, 1, 128), (bf16, 2, 16), (bf16, 2, 32), (bf16, 2, 64), (bf16, 2, 128), (bf16, 3, 16),
                       (bf16, 3, 32), (bf16, 4, 16), (bf16, 4, 32), (fp16, 1, 64), (fp16, 1, 128), (fp16, 2, 16),
                       (fp16, 2, 32), (fp16, 2, 64), (fp16, 2, 128), (fp16, 3, 16), (fp16, 3, 32), (fp16, 4, 16),
                       (fp16, 4, 32), (float, 1, 64), (float, 2, 16), (float, 2, 32), (float, 2, 64), (float, 3, 16),
                       (float, 4, 16)) {
  check_instantiation<T, P, d>();
}
