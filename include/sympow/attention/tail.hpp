// The last tokens of a state, as they are.
#pragma once

#include <sympow/attention/embedded_feature.hpp>
#include <sympow/attention/keys.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Some log gates by channel: the largest, and whether all are the same.
inline double largest_of(const Eigen::VectorXd& log_a) {
  double largest = log_a.size() > 0 ? no_weight : 0;
  for (Index c = 0; c < log_a.size(); ++c) largest = std::max(largest, log_a[c]);
  return largest;
}
inline bool all_equal(const Eigen::VectorXd& log_a) {
  return std::all_of(log_a.data(), log_a.data() + log_a.size(), [&](double x) { return x == log_a[0]; });
}

/// Up to `capacity` tokens. Key j is 2^exponents_j times its column, in the coordinates of its state's frame, and has
/// decayed by log_b_j.
template <class Scalar>
class Tail {
 public:
  Tail(Index d, Index e, Index capacity) {
    keys_.setZero(d, capacity);
    values_.setZero(e, capacity);
    exponents_.setZero(capacity);
    log_b_.setZero(capacity);
  }
  Tail(const Tail&) = default;
  Tail(Tail&&) = default;
  Tail& operator=(Tail&&) = default;
  ~Tail() = default;
  /// Of one of the same sizes no more than the tokens that are there.
  Tail& operator=(const Tail& other) {
    if (keys_.rows() != other.keys_.rows() || values_.rows() != other.values_.rows() || capacity() != other.capacity())
      return *this = Tail(other);
    size_ = other.size_;
    largest_value_ = other.largest_value_;
    keys_.leftCols(size_) = other.keys_.leftCols(size_);
    values_.leftCols(size_) = other.values_.leftCols(size_);
    exponents_.head(size_) = other.exponents_.head(size_);
    log_b_.head(size_) = other.log_b_.head(size_);
    return *this;
  }

  [[nodiscard]] Index capacity() const { return keys_.cols(); }
  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] MatrixView<Scalar> keys() { return MatrixView<Scalar>(keys_).leftCols(size_); }
  [[nodiscard]] MatrixView<Scalar> values() { return MatrixView<Scalar>(values_).leftCols(size_); }
  [[nodiscard]] ColumnView<double> exponents() { return ColumnView<double>(exponents_).head(size_); }
  [[nodiscard]] ColumnView<double> log_b() { return ColumnView<double>(log_b_).head(size_); }

  [[nodiscard]] bool has_room_for(Index n) const { return size_ + n <= capacity(); }
  /// max |v| of the values that are finite.
  [[nodiscard]] Scalar largest_value() const { return largest_value_; }
  void clear() {
    size_ = 0;
    largest_value_ = 0;
  }
  /// An empty one for so many tokens.
  void clear(Index capacity) {
    const Index d = keys_.rows(), e = values_.rows();
    if (capacity != this->capacity()) *this = Tail(d, e, capacity);
    clear();
  }

  /// Puts tokens that fit at its end: keys as they were before φ, which have decayed by e^since more.
  void append(MatrixView<const Scalar> plain_keys, const Keys<Scalar>& keys, const LogDecay& since) {
    const Index n = keys.size();
    size_ += n;
    this->keys().rightCols(n) = plain_keys;
    this->values().rightCols(n) = keys.values;
    this->exponents().tail(n) = keys.exponents;
    largest_value_ = std::max(largest_value_, keys.extent.largest);
    for (Index j = 0; j < n; ++j)
      log_b_[size_ - n + j] = std::min(0.0, (keys.log_b[j] + since.high) + (keys.log_b_low[j] + since.low));
  }

  /// All tokens decay, in logarithms: by a gate, and by those of channels if there are any, of which `degree` times the
  /// slowest goes into log_b.
  void forget(double log_gamma, const Eigen::VectorXd* log_a, int degree) {
    const double slowest = log_a == nullptr ? 0 : largest_of(*log_a);
    for (Index j = 0; j < size_; ++j) log_b_[j] += log_gamma + degree * slowest;
    if (log_a == nullptr || slowest == no_weight || all_equal(*log_a)) return;
    for (Index c = 0; c < log_a->size(); ++c) {
      const auto gate = static_cast<Scalar>(std::exp((*log_a)[c] - slowest));
      for (Index j = 0; j < size_; ++j) keys_(c, j) *= gate;
    }
  }

  /// visit(part, name) of every part as far as there are tokens, for files.
  template <class Visit>
  void visit(Visit&& visit) {
    visit(size_, "tail size");
    if (size_ < 0 || size_ > capacity()) return;  // what follows cannot be understood
    visit_live(visit, exponents(), "tail exponents");
    visit_live(visit, log_b(), "tail gates");
    visit_live(visit, keys(), "tail keys");
    visit_live(visit, values(), "tail values");
    largest_value_ = extent_of<Scalar>(values()).largest;
  }

 private:
  template <class Visit, class Part>
  static void visit_live(Visit& visit, Part part, const char* name) {
    Matrix<typename Part::Scalar> copy = part;
    visit(copy, name);
    part = copy;
  }

  Matrix<Scalar> keys_, values_;
  Eigen::VectorXd exponents_, log_b_;
  Index size_ = 0;
  Scalar largest_value_ = 0;
};

/// The keys of a tail, with memory for their vectors, lengths and weights.
template <class Scalar>
struct TailMemory {
  Panel<Scalar> features, norms, weights;
  Panel<double> exponents, scratch;

  /// Memory for so many tokens of so many rows.
  void reserve(Index rows, Index tokens) {
    features(rows, tokens);
    norms(tokens), weights(tokens);
    exponents(tokens), scratch(2 * tokens);
  }

  /// Those of a tail, b up to now, as sums take them: φ of an embedded score.
  template <FeatureMap F>
  Keys<Scalar> keys(const F& feature, Tail<Scalar>& tail) {
    const MatrixView<Scalar> keys = tail.keys();
    auto of_vectors = exponents_of(tail);
    if constexpr (F::score == Score::embedded) {
      const MatrixView<Scalar> embedded = features(feature.dimension(keys.rows()), keys.cols());
      feature.embed(keys, embedded, of_vectors, norms(keys.cols()));
      return weighed<F>(embedded, tail);
    } else {
      set_norms<Scalar>(keys, norms(keys.cols()));
      return weighed<F>(keys, tail);
    }
  }
  /// The same as scores are made of them; their lengths are wanted by diagnostics only.
  template <FeatureMap F>
  Keys<Scalar> direct_keys(const F& feature, Tail<Scalar>& tail, bool with_lengths) {
    if (scores_need_features(feature)) return keys(feature, tail);
    const MatrixView<Scalar> keys = tail.keys();
    auto of_vectors = exponents_of(tail);
    if constexpr (F::score == Score::embedded) {
      if (with_lengths) feature.set_lengths(keys, of_vectors, norms(keys.cols()));
    } else {
      if (with_lengths) set_norms<Scalar>(keys, norms(keys.cols()));
    }
    return weighed<F>(keys, tail);
  }

 private:
  ColumnView<double> exponents_of(Tail<Scalar>& tail) {
    auto of_vectors = exponents(tail.size());
    of_vectors = tail.exponents();
    return of_vectors;
  }
  template <FeatureMap F>
  Keys<Scalar> weighed(MatrixView<Scalar> vectors, Tail<Scalar>& tail) {
    const Index m = tail.size();
    const double M =
        set_weights<degree_of<F>>(weights(m), tail.log_b(), tail.log_b().head(0), exponents(m), scratch(2 * m));
    return {vectors,
            tail.values(),
            exponents(m),
            tail.log_b(),
            tail.log_b().head(0),
            norms(m),
            norms(m),
            weights(m),
            M,
            {tail.largest_value(), true}};
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
