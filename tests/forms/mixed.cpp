// Objects of several settings in one program: each keeps to its own code, and all agree.
#include <cmath>
#include <cstdio>
#include <vector>

void without_threads(const float* q, float* y);
void with_threads(const float* q, float* y);
void with_vectors(const float* q, float* y);

int main() {
  std::vector<float> q(8 * 50), one(q.size()), threads(q.size()), vectors(q.size());
  for (std::size_t n = 0; n < q.size(); ++n) q[n] = std::sin(static_cast<float>(n));
  without_threads(q.data(), one.data());
  with_threads(q.data(), threads.data());
  if (one != threads) return std::puts("the rows with threads differ"), 1;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  with_vectors(q.data(), vectors.data());
  for (std::size_t n = 0; n < q.size(); ++n)
    if (!(std::abs(vectors[n] - one[n]) <= 1e-5f)) return std::puts("the rows by vectors differ"), 1;
}
