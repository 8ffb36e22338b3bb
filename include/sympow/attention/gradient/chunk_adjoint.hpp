// A chunk on the way back: the state before it and the adjoint state behind it.
#pragma once

#include <sympow/attention/feature_panels_vjp.hpp>
#include <sympow/attention/gradient/adjoint_content.hpp>
#include <sympow/attention/gradient/mixed_states.hpp>
#include <sympow/attention/gradient/read_rows.hpp>
#include <sympow/attention/gradient/segment_adjoint.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// With S⁺ = [S; Z] before a chunk and H behind it,
///
///     dφ(q̃_i) = b S⁺ᵀ g_i        dφ(k̂_j) = b Hᵀ v⁺_j,   dv⁺_j = b H φ(k̂_j)
///     H  ←  b H Aᵀ + Σ_i b g_i φ(q̃_i)ᵀ
///
/// and ⟨H, b S⁺ A⟩ flows through it. Keys read H before the chunk's rows are in it. Four products of D (e + 1) a token.
template <class Scalar, FeatureMap F>
class ChunkAdjoint : protected SegmentAdjoint<Scalar, F> {
  using Base = SegmentAdjoint<Scalar, F>;

 protected:
  using Base::action_, Base::call_, Base::degree, Base::feature_, Base::is_embedded, Base::loader_, Base::log2_of,
      Base::memory_, Base::own_, Base::rows_, Base::size;
  using typename Base::Level;

  ChunkAdjoint(const F& feature, const VjpCall<Scalar>& call, AdjointContent<Scalar>& adjoint)
      : Base(feature, call, false, true),
        gauge_(adjoint.gauge),
        H_(adjoint.sums),
        mixed_(call.transition, call.adjoint_memory, call.V.rows(), call.K.rows()) {}
  ~ChunkAdjoint() = default;

  /// Memory for chunks of n tokens.
  void reserve(Index n) {
    const Index e = call_.V.rows(), D = H_.S.cols(), rows = loader_.vector_rows();
    Base::reserve(n);
    memory_.fold.template reserve<F>(rows, e, D, 2 * n, action_ == KeyAction::scale);
    memory_.fold.panels.template reserve_vjp<F>(rows, 2 * n, n);
    memory_.channels(call_.K.rows()), own_.monomials(action_ == KeyAction::scale ? D : 0);
    if (action_ == KeyAction::mix) mixed_.reserve();
  }

  /// Takes the loaded chunk back from the state before it. `read` is what its rows have read of that, if it is known;
  /// without `goes_on` nobody asks for H before the chunk.
  void take_back(FoldedSums<Scalar>& S, const Frame& start, ReadRows<Scalar>* read = nullptr, bool goes_on = true) {
    begin(S, read);
    goes_on_ = goes_on;
    Base::take_back(start);
    if (Base::is_absolute() && action_ == KeyAction::turn) gauge_ = own_.through(Base::flows_through());
  }
  /// Only has its rows read the state, which is kept, and go into H.
  void take_rows(FoldedSums<Scalar>& S, ReadRows<Scalar>& read) {
    begin(S, &read);
    goes_on_ = true;
    Base::find_rows();
    pass_adjoint(0);
  }

  /// The decay of the channel that forgets least over a segment, as a scalar one.
  double slowest_channel(Segment s) {
    const auto* log_a = loader_.log_channels(s, memory_.log_channels);
    return log_a == nullptr ? 0 : degree * largest_of(*log_a);
  }
  Eigen::VectorXd& gauge_;  // of angles that are seen as they are, dμ

 private:
  void begin(FoldedSums<Scalar>& S, ReadRows<Scalar>* read) {
    S_ = &S;
    if (loader_.begins_anew()) S.clear();
    read_ = read;
    slowest_ = slowest_channel(loader_.segment());
  }
  // Decay over the chunk, that of the slowest channel included.
  [[nodiscard]] double total() const { return loader_.total().high + slowest_; }

  // Sᵀ dŷ_i and Z, brought back through φ, and what they are to φ(q_i).
  void look_before() override {
    const Index n = size();
    if (S_->empty()) return;
    if (read_ != nullptr && read_->is_known()) return read_->put_back(own_, rows_.noise());
    const MatrixView<Scalar> queries = loader_.queries().vectors;
    auto d_rows = own_.d_row_vectors(queries.rows(), rows_.divides() ? 2 * n : n);
    auto dY = own_.tokens_down(n, call_.V.rows());
    set_copy(dY, rows_.dY().transpose());
    for_feature_gradients(feature_, memory_.fold.panels, queries, d_rows.leftCols(n),
                          [&](Index first, MatrixView<Scalar> gradients) {
                            set_product(gradients, dY, MatrixView<Scalar>(S_->S).middleCols(first, gradients.cols()));
                          });
    if (rows_.divides())
      set_feature_gradients<F, Scalar>(feature_, memory_.fold.panels, queries, S_->Z, d_rows.rightCols(n));
    for (Index i = 0; i < n; ++i) {
      own_.read_products(n)[i] = product_with_features(queries.col(i), d_rows.col(i));
      own_.read(n)[i] = rows_.divides() ? product_with_features(queries.col(i), d_rows.col(n + i)) : 0;
    }
    if (rows_.divides()) set_noise();
    if (read_ != nullptr) read_->keep(own_, rows_.noise(), d_rows);
  }
  // φ(x)·z = x·Dφ(x)ᵀz / P, by Euler.
  static double product_with_features(ColumnView<const Scalar> x, ColumnView<const Scalar> brought_back) {
    return static_cast<double>(dot_product(x.data(), brought_back.data(), x.size())) / degree;
  }
  void set_noise() {
    bool nonnegative = has_nonnegative_entries<F>;
    if constexpr (is_embedded) nonnegative = feature_.entries_are_nonnegative();
    if (!nonnegative)
      S_->template set_noise<degree>(loader_.queries().vectors, loader_.queries().lengths, rows_.noise(),
                                     memory_.channels);
  }

  // What S weighs in a row whose sums are counted from 2^E on.
  [[nodiscard]] double weight_of_sums(double E) const { return loader_.first().weight(S_->exponent() - E); }
  // From the absolute weight of the sums, not from their exponent, which has room for large values as well.
  [[nodiscard]] double log2_before() override {
    if (S_->empty() || S_->A == 0) return no_weight;
    return std::log2(S_->A) + S_->exponent() + log2_of(loader_.first().high + slowest_);
  }
  void add_peak_before(Index, Peak<degree>& peak) override { peak.add(log2_before()); }
  void add_before(Index begin, Index end, double E) override {
    if (S_->empty()) return;
    const double weight = weight_of_sums(E);
    for (Index i = begin; i < end; ++i) {
      rows_.add(i, {weight * own_.read(size())[i], weight * own_.read_products(size())[i]});
      rows_.noise()[i] *= weight;
    }
  }
  void read_back(const RowRun& run, double R, MatrixView<Scalar> d_queries) override {
    if (S_->empty()) return;
    const Index n = size(), all = rows_.divides() ? 2 * n : n;
    const auto d_rows = own_.d_row_vectors(d_queries.rows(), all);
    const double weight = weight_of_sums(run.E), slope = power_of_two<double>(-run.slope);
    for (Index i = run.begin; i < run.end; ++i) {
      if (rows_.exponents()[i] == no_weight) continue;  // no gradient, whatever dy is
      const double of_dy = weight * static_cast<double>(own_.factors(n)[i]),
                   of_ones = weight * static_cast<double>(own_.last(n)[i]);
      for_blocks(d_queries.rows(), [&](Index first, auto count) {  // factors may leave the type, not their products
        const auto part = [&](Index t) { return slope * d_rows.col(t).segment(first, count).template cast<double>(); };
        auto to = d_queries.col(i).segment(first, count);
        if (all > n)
          to = (of_dy * part(i) + of_ones * part(n + i)).template cast<Scalar>();
        else
          to = (of_dy * part(i)).template cast<Scalar>();
      });
      own_.of_rows(n)[i] = times_power_of_two(of_dy * own_.read_products(n)[i] + of_ones * own_.read(n)[i], R);
    }
  }

  double look_behind() override {
    if (action_ == KeyAction::mix) mixed_.keep(*S_, H_);
    const double through = find_through();
    exponent_of_keys_ = H_.empty() ? no_weight : loader_.keys().M + H_.exponent();
    pass_adjoint(loader_.keys().size());
    return through;
  }
  // ⟨H, b S⁺ A⟩, and the same by channel or plane.
  double find_through() {
    auto through = own_.through(Base::flows_through());
    through.setZero();
    const bool passes = !S_->empty() && !H_.empty();
    const FarWeight weight = passes ? FarWeight(total(), S_->exponent() + H_.exponent()) : FarWeight();
    if (action_ == KeyAction::turn) {
      if (gauge_.size() != through.size()) gauge_.setZero(through.size());
      if constexpr (!is_embedded)
        if (passes && !Base::is_absolute()) {
          own_.turns.set(call_.K.rows(), degree, call_.vjp.planes());
          own_.turns.add(H_, *S_, -1, through.data());
          for (double& x : through) x = weight.times(x);
        }
      through += gauge_;
    }
    if (!passes || call_.options.mask.is_full) return 0;
    if constexpr (!is_embedded)
      if (action_ == KeyAction::scale) return find_through_channels(weight);
    return weight.times(action_ == KeyAction::mix ? mixed_.product_through(loader_.segment()) : inner_product(H_, *S_));
  }
  double find_through_channels(const FarWeight& weight) {
    const Index D = H_.S.cols();
    const Forgetting decay = FoldedSums<Scalar>::forgetting(feature_, D, memory_.fold, 1, memory_.log_channels);
    auto monomials = own_.monomials(D);
    double sum = 0;
    for (Index a = 0; a < D; ++a) {
      const double beside_slowest = decay.of_channels.size() == 0 ? 1 : decay.of_channels[a];
      sum += monomials[a] = weight.times(beside_slowest * column_product(H_, a, *S_, a));
    }
    add_channel_counts(call_.K.rows(), degree, monomials, own_.through(call_.K.rows()));
    return sum;
  }

  // What H gives to the first keys, and H before the chunk.
  void pass_adjoint(Index count) {
    const Index n = size(), e = call_.V.rows();
    const MatrixView<Scalar> keys = loader_.keys().vectors.leftCols(count),
                             queries = Base::queries().leftCols(goes_on_ ? Base::queries().cols() : 0);
    const MatrixView<const Scalar> key_values = loader_.keys().values.leftCols(count);
    const bool was_empty = H_.empty();
    const double next = next_of_adjoint(), exponent = std::ceil(next);
    auto values = own_.key_values(e, count), G = own_.G(e, n).leftCols(queries.cols()), V = own_.tokens_down(count, e);
    values.setZero(), set_copy(V, key_values.transpose());
    auto last = own_.weights(queries.cols());
    for (Index i = 0; i < queries.cols(); ++i) {
      const double rho = exponent_in_adjoint(i);
      const auto weight = next == no_weight || rho == no_weight
                              ? Scalar(0)
                              : static_cast<Scalar>(loader_.first().weight(rho - exponent));
      Base::set_gradient(G.col(i), i, weight * rows_.factors()[i]);
      last[i] = weight * rows_.last()[i];
    }
    const Forgetting decay = FoldedSums<Scalar>::forgetting(
        feature_, H_.S.cols(), memory_.fold,
        was_empty || next == no_weight ? 0 : weight_of(total(), H_.exponent() - exponent), log_of_channels());
    auto d_keys = own_.d_key_vectors(keys.rows(), count), d_keys_of_Z = own_.d_keys_of_Z(keys.rows(), count);
    constexpr bool is_apart = has_form<F, Scalar>;  // what Z gives to keys
    if (is_apart && !was_empty)
      set_feature_gradients<F, Scalar>(feature_, memory_.fold.panels, keys, H_.Z, d_keys_of_Z);
    for_feature_panels_vjp(
        feature_, memory_.fold.panels, keys, queries, d_keys,
        [&](Index first, const Entries<Scalar>& of_keys, const Entries<Scalar>& of_rows, MatrixView<Scalar> gradients) {
          const Index width = of_keys.cols();
          const auto S = MatrixView<Scalar>(H_.S).middleCols(first, width);
          const auto Z = ColumnView<Scalar>(H_.Z).segment(first, width);
          for (Index c = 0; c < width && (was_empty || !is_apart); ++c) gradients.col(c).setConstant(Z[c]);
          if (!was_empty) {
            product<!is_apart>(gradients, V, S);
            add_product(values, S, of_keys.transpose());
          }
          if (action_ == KeyAction::mix) mixed_.pull(loader_.segment(), H_);
          decay.multiply<Scalar>(first, S, Z);
          add_product(S, G, of_rows);
          add_product(Z, of_rows.transpose(), last);
        });
    if (is_apart && !was_empty) d_keys += d_keys_of_Z;
    if (H_.L = next; next == no_weight) H_.clear();
  }
  // L of H before the chunk.
  [[nodiscard]] double next_of_adjoint() {
    if (loader_.begins_anew()) return no_weight;
    double next = H_.empty() ? no_weight : H_.L + log2_of(total());
    for (Index i = 0; i < size(); ++i) next = std::max(next, exponent_in_adjoint(i) + log2_of(loader_.first().high));
    return next;
  }
  // Of what row i adds to H, but for the gates; a query of length 0 adds nothing, whatever its row is.
  [[nodiscard]] double exponent_in_adjoint(Index i) {
    const double rho = rows_.exponents()[i];
    return rho == no_weight || loader_.queries().exponents[i] == no_weight ? no_weight : rho - rows_.references()[i];
  }
  [[nodiscard]] const Eigen::VectorXd& log_of_channels() const {
    return action_ == KeyAction::scale ? memory_.log_channels : H_.log_channels;
  }
  [[nodiscard]] double exponent_behind() override {
    const auto with = [](double exponent, const LogDecay& decay) {
      return exponent == no_weight ? no_weight : std::ceil(exponent + log2_of(decay.high));
    };
    return std::max(with(exponent_of_keys_, loader_.rest()), with(mixed_.exponent(), loader_.total()));
  }
  [[nodiscard]] double log2_behind(Index j) override {
    const Keys<Scalar> keys = loader_.keys();
    if (exponent_of_keys_ == no_weight) return no_weight;
    return degree * keys.exponents[j] + log2_of(keys.log_b[j] + loader_.rest().high) + exponent_of_keys_ - keys.M;
  }
  void add_behind(double R, const Level& level, MatrixView<Scalar> d_keys, MatrixView<Scalar> dV) override {
    if (exponent_of_keys_ == no_weight) return;
    const Keys<Scalar> keys = loader_.keys();
    const Index n = keys.size(), e = call_.V.rows();
    const ColumnView<const Scalar> weights = level.is_only ? keys.weights : own_.weights(n);
    const double M = level.is_only ? keys.M : Base::set_weights_of(level, keys, own_.weights(n));
    if (M == no_weight) return;
    const double of_keys = loader_.rest().weight(exponent_of_keys_ - keys.M + M - R);
    for (Index j = 0; j < n; ++j) {
      const double exact = static_cast<double>(weights[j]) * of_keys;
      const auto weight = static_cast<Scalar>(exact);
      const auto d_vector = own_.d_key_vectors(d_keys.rows(), n).col(j);
      d_keys.col(j) = weight * d_vector;
      dV.col(j) += weight * own_.key_values(e, n).col(j);
      own_.of_keys(size())[j] += times_power_of_two(exact * product_with_features(keys.vectors.col(j), d_vector), R);
    }
  }
  bool mixes_state(double R) override { return mixed_.set_unit(loader_.total(), R); }

  FoldedSums<Scalar>* S_ = nullptr;
  FoldedSums<Scalar>& H_;
  MixedStates<Scalar> mixed_;
  ReadRows<Scalar>* read_ = nullptr;
  bool goes_on_ = true;
  double slowest_ = 0, exponent_of_keys_ = no_weight;
};

}  // namespace SYMPOW_NAMESPACE::detail
