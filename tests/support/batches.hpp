// Batches of random sequences of unequal lengths, in any order in memory, with gates and rates of their own for every
// head.
#pragma once

#include <vector>

#include <sympow/attention/batch.hpp>
#include <sympow/rotation/frequencies.hpp>

#include <sympow/sympow.hpp>
#include "random.hpp"
#include "tokens.hpp"

namespace sympow::test {

enum class Order { bthd, bhtd, packed };

/// Memory of a batch and its view. What is no token's is `filler`.
template <class Scalar>
class BatchData {
 public:
  BatchData(Order order, const std::vector<Index>& lengths, Index H, Index D, Scalar filler)
      : order_(order), lengths_(lengths), H_(H), D_(D) {
    offsets_.push_back(0);
    for (const Index n : lengths) offsets_.push_back(offsets_.back() + n);
    for (const Index n : lengths) T_ = std::max(T_, n + (order == Order::packed ? 0 : 3));
    const Index tokens = order == Order::packed ? offsets_.back() : B() * T_;
    data.assign(static_cast<std::size_t>(tokens * H * D), filler);
  }

  [[nodiscard]] Heads<Scalar> heads() {
    if (order_ == Order::packed) return Heads<Scalar>::packed(data.data(), offsets_.back(), H_, D_, offsets_);
    if (order_ == Order::bthd) return Heads<Scalar>::bthd(data.data(), B(), T_, H_, D_, lengths_);
    return Heads<Scalar>::bhtd(data.data(), B(), H_, T_, D_, lengths_);
  }

  std::vector<Scalar> data;

 private:
  [[nodiscard]] Index B() const { return std::ssize(lengths_); }

  Order order_;
  std::vector<Index> lengths_, offsets_;
  Index H_, D_, T_ = 0;
};

/// A batch as its heads alone, b H + h, and as arrays. Padding of the inputs is not a number, so that it shows where it
/// goes.
template <class Scalar>
struct RandomBatch {
  static constexpr Index d = 4, e = 3;

  std::vector<Index> lengths;
  Index H, groups;  // query heads, key heads
  Order order;
  BatchData<Scalar> Q, K, V, Y;
  std::vector<Eigen::VectorXd> log_gamma, beta;
  Eigen::VectorXd theta = rotary_frequencies<double>(d, 64);

  RandomBatch(Order the_order, std::vector<Index> the_lengths, Index heads, Index key_heads, std::uint64_t seed)
      : lengths(std::move(the_lengths)),
        H(heads),
        groups(key_heads),
        order(the_order),
        Q(order, lengths, H, d, filler()),
        K(order, lengths, groups, d, filler()),
        V(order, lengths, groups, e, filler()),
        Y(order, lengths, H, e, Scalar(7)) {
    Random random(seed);
    for (Index b = 0; b < B(); ++b) {
      for (Index h = 0; h < H; ++h) {
        const Index n = lengths[static_cast<std::size_t>(b)];
        Q.heads().head(b, h) = random.matrix<Scalar>(d, n);
        log_gamma.push_back(-.05 * random.vector(n).cwiseAbs());
        beta.push_back(1 + random.vector(n).array().tanh());
      }
      for (Index g = 0; g < groups; ++g) {
        K.heads().head(b, g) = random.matrix<Scalar>(d, lengths[static_cast<std::size_t>(b)]);
        V.heads().head(b, g) = random.matrix<Scalar>(e, lengths[static_cast<std::size_t>(b)]);
      }
    }
  }

  [[nodiscard]] Index B() const { return std::ssize(lengths); }
  [[nodiscard]] std::size_t index(Index b, Index h) const { return static_cast<std::size_t>(b * H + h); }

  /// γ R(β θ) of a head.
  [[nodiscard]] auto transition(Index b, Index h) const {
    return decay(log_gamma[index(b, h)]) * rotary(theta, beta[index(b, h)], Pairing::interleaved);
  }
  [[nodiscard]] auto transitions() const {
    return [this](Index b, Index h) { return transition(b, h); };
  }

  /// Fills Y.
  template <class Normalization = DefaultNormalization, class F, class Transitions>
  void attend(const F& feature, const Transitions& of_heads, const BatchOptions& options,
              RangeRef<typename sympow::detail::StateOf<Scalar, F>::type> states = {},
              std::type_identity_t<OptionalRef<Tapes<Scalar, F>>> tapes = {}) {
    sympow::attend<Normalization>(feature, of_heads,
                                  {.Q = Q.heads(),
                                   .K = K.heads(),
                                   .V = V.heads(),
                                   .states = states,
                                   .Y = Y.heads(),
                                   .tapes = tapes,
                                   .options = options});
  }

  template <class F>
  [[nodiscard]] std::vector<State<Scalar, F>> fresh_states() const {
    return std::vector<State<Scalar, F>>(static_cast<std::size_t>(B() * H), State<Scalar, F>(d, e));
  }

 private:
  static Scalar filler() { return std::numeric_limits<Scalar>::quiet_NaN(); }
};

/// Whether two numbers or matrices are the same bit for bit.
template <class A, class B>
[[nodiscard]] bool same_bits(const A& a, const B& b) {
  const auto x = a.eval();
  const auto y = b.eval();
  return x.rows() == y.rows() && x.cols() == y.cols() &&
         (x.size() == 0 || std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.size()) * sizeof(x(0))) == 0);
}
template <class Scalar, class F>
[[nodiscard]] bool same_bits(const State<Scalar, F>& a, const State<Scalar, F>& b) {
  return same_bits(a.values(), b.values()) && same_bits(a.normalizer(), b.normalizer()) && a.tokens() == b.tokens() &&
         same_bits(a.frame().numbers(), b.frame().numbers()) && a.log_decay() == b.log_decay() &&
         a.tail_size() == b.tail_size() && same_bits(a.log_channels(), b.log_channels()) &&
         same_bits(a.key_product(), b.key_product());
}

}  // namespace sympow::test
