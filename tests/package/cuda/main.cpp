// Links with all of the library, and calls what needs no GPU.
#include <cstdio>
#include <sympow/cuda/decode.hpp>

int main(int count, char**) {
  const sympow::cuda::Problem problem{.tokens = 4096, .query_heads = 8, .key_heads = 8};
  std::size_t bytes = 0;
  sympow::cuda::Status status = sympow::cuda::attention_workspace(problem, bytes);
  if (status.ok() && count > 1) status = sympow::cuda::attend(problem, {}, {}, nullptr, bytes, nullptr);
  std::printf("%zu bytes. %s\n", bytes, status.text());
  return status.ok() ? 0 : 1;
}
