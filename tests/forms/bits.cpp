// Prints the bits of what the forms give. The tests compile it with the headers alone and with sympow::forms.
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include <sympow/sympow.hpp>

using namespace sympow;

namespace {

class Digest {
 public:
  // FNV-1a over the bytes of a matrix.
  template <class M>
  void add(const M& x) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(x.data());
    for (std::size_t n = 0; n < static_cast<std::size_t>(x.size()) * sizeof(*x.data()); ++n)
      hash_ = (hash_ ^ bytes[n]) * 1099511628211u;
  }
  void print(const char* what) const { std::printf("%-12s %016" PRIx64 "\n", what, hash_); }

 private:
  std::uint64_t hash_ = 14695981039346656037u;
};

template <class Scalar, class F>
void print_bits(const char* what, const F& feature) {
  const Index d = 12, e = 7, T = 203;
  Random random(7);
  const Matrix<Scalar> Q = random.matrix<Scalar>(d, T) / 4, K = random.matrix<Scalar>(d, T) / 4,
                       V = random.matrix<Scalar>(e, T);
  Eigen::VectorXd log_gamma = -random.vector(T).cwiseAbs() / 8;
  log_gamma[T / 3] = -800;
  const auto transition = decay(log_gamma) * rotary(rotary_frequencies<double>(d, 4096), Pairing::interleaved);
  Digest digest;
  Diagnostics diagnostics;
  digest.add(attention(feature, transition, Q, K, V));
  digest.add(attention(feature, transition, Q, K, V, {.diagnostics = &diagnostics}));
  digest.add(diagnostics.log_sum);
  digest.add(diagnostics.condition);
  digest.add(diagnostics.is_degenerate.cast<double>().matrix().eval());
  if constexpr (FiniteFeatureMap<F>) {
    State<Scalar, F> chunks(feature, d, e), steps(feature, d, e), literal(feature, d, e, 0);
    digest.add(chunked(feature, transition, Q, K, V, chunks, {.chunk = 48}));
    digest.add(recurrent(feature, transition, Q, K, V, steps));
    digest.add(recurrent(feature, transition, Q, K, V, literal));
    digest.add(chunks.values());
    digest.add(steps.normalizer());
    digest.add(merge(literal, State<Scalar, F>(feature, d, e, 0, literal.frame())).values());
  }
  digest.print(what);
}

}  // namespace

int main() {
  print_bits<float>("float P 2", SymmetricPower<2>{});
  print_bits<double>("double exp", Exponential{});
  print_bits<float>("float FAVOR+", PositiveRandomFeatures(12, 40));
}
