// One token at the speed of reading the state: the step of a recurrence where nothing is near the ends of the scalar type.
#pragma once

#include <array>
#include <optional>

#include <sympow/attention/engine/ordinary_engine.hpp>

namespace sympow::detail {

/// Reads a token's output and takes it into the tail of a state. With the weights w_j = b_j ‖k_j‖^P 2^-M of the keys in the tail and of
/// the token's own, and a = b_0 2^{M_0 - M},
///
///     y   ←   a S φ(q) + Σ_j (q·k_j)^P w_j v_j     (divided by the same with v = 1)
///
/// A full tail is folded into the sums when the row is done. Whatever is not ordinary is left to `OrdinaryEngine`: rows near
/// the noise of the sums or the ends of the type, transitions that multiply the state.
template <class Scalar, FiniteFeatureMap F>
class OneToken {
  static constexpr int degree = degree_of<F>;
  static constexpr Index at_once = 16;  // tokens of the tail

 public:
  OneToken(const F& feature, StateCall<Scalar, F>& call)
      : feature_(feature),
        call_(call),
        state_(call.state),
        work_(call.work),
        d_(call.Q.rows()),
        e_(call.V.rows()),
        is_plain_(
            F::score == Score::power && call.rows != Rows::signed_means &&
            (call.transition.key_action() == KeyAction::none || call.transition.key_action() == KeyAction::turn) &&
            std::all_of(state_.tail_log_channels.data(), state_.tail_log_channels.data() + d_,
                        [](double log_a) { return log_a == 0; })) {
    if (is_plain_) reserve();
  }

  /// The token, one way or the other.
  void run(Index token) {
    if (!is_plain_ || !run_plain(token, call_.transition.log_decay(token))) others().run({token, 1});
  }

 private:
  // False, and nothing has happened, if the token is not ordinary.
  bool run_plain(Index token, double log_gamma) {
    const bool is_full = state_.tail_size == state_.tail_keys.cols();
    if (!(log_gamma >= least_log_decay<Scalar>)) return false;
    if (is_full && room_for(largest_entry(MatrixView<const Scalar>(state_.tail_values))) != 0) return false;
    Frame& frame = state_.frame;
    work_.frame.angles = frame.angles;
    if (!read(token, log_gamma)) {
      frame.angles = work_.frame.angles;
      return false;
    }
    state_.forget(log_gamma, nullptr);
    ++state_.tokens;
    if (is_full) fold();
    state_.append(work_.keys(d_, 1), work_.key_exponents(1), work_.to_end(1), call_.V.middleCols(token, 1));
    return true;
  }

  bool read(Index token, double log_gamma) {
    auto q = work_.queries(d_, 1), k = work_.keys(d_, 1);
    auto query_exponent = work_.query_exponents(1), key_exponent = work_.key_exponents(1), to_end = work_.to_end(1);
    load_queries<F, Scalar>(call_.Q.middleCols(token, 1), q, query_exponent, work_.query_norms(1), call_.options.scale);
    load_keys<F, Scalar>(call_.K.middleCols(token, 1), k, key_exponent, work_.key_norms(1));
    call_.transition.transport(state_.frame, {token, 1}, q, k, no_logits<Scalar>());
    to_end.setZero();

    const Index m = state_.tail_size;
    const Scalar logit = dot_product<Scalar>(q.data(), k.data(), d_);
    const bool folded = state_.L != no_weight;
    if (!folded && !(degree * std::log2(std::abs(logit)) >= least_weight)) return false;
    const double M = weigh(log_gamma, key_exponent[0]);
    if (!std::isfinite(M)) return false;
    const auto own_weight = static_cast<Scalar>(nearest_power_of_two<double>(degree * key_exponent[0] - M));
    const Scalar own = power<degree>(logit) * own_weight;

    auto row = work_.sums(e_), part = work_.partial(e_);
    Scalar denominator = own;
    set_scaled(row.data(), call_.V.col(token).data(), own, e_);
    if (m > 0) {
      const Index some = std::min((m + at_once - 1) / at_once * at_once, state_.tail_keys.cols());  // of whole packets
      auto logits = work_.logits(some, 1);
      set_product(logits, MatrixView<Scalar>(state_.tail_keys).leftCols(some).transpose(), q);
      denominator += weigh_scores<degree>(logits.data(), work_.tail_weights(m).data(), m);
      add_product(row, state_.values(), logits.topRows(m));
    }
    double noise = 0;
    if (folded) {
      auto features = work_.features(state_.S.cols(), 1);
      feature_.embed(q, features);
      set_product(part, state_.sums(), features);
      for (Index r = 0; r < e_; ++r) row[r] += static_cast<Scalar>(a_) * part[r];
      if (call_.rows == Rows::weighted_means || call_.options.diagnostics != nullptr) {
        denominator += static_cast<Scalar>(a_) * dot_product<Scalar>(state_.Z.data(), features.data(), features.size());
        noise = a_ * state_.A * power<degree>(std::sqrt(static_cast<double>(squared_norm(q.data(), d_))));
      }
    }
    const double whole = degree * query_exponent[0] + M;
    if (!write(row, denominator, noise, whole, call_.Y.col(token))) return false;
    if (call_.options.diagnostics != nullptr) {
      const double sum = std::abs(static_cast<double>(denominator));
      double* const said = &(*call_.options.diagnostics)(0, token);
      said[0] = sum == 0 ? no_weight : std::log(sum) + whole * std::numbers::ln2;
      said[1] = all_weights(own_weight) / sum;
      said[2] = 0;
    }
    return true;
  }

  // Σ_j w_j (‖q‖ ‖k_j‖)^P over all that the row sees.
  double all_weights(Scalar own_weight) {
    auto norms = work_.fold_norms(state_.tail_size);
    set_norms<Scalar>(state_.keys(), norms);
    const auto of_length = [](Scalar norm) { return power<degree>(static_cast<double>(norm)); };
    return of_length(work_.query_norms(1)[0]) *
           (a_ * state_.A + absolute_weight<degree, Scalar>(work_.tail_weights(state_.tail_size), norms) +
            static_cast<double>(own_weight) * of_length(work_.key_norms(1)[0]));
  }

  // The weights of the tail, a, and the exponent M of what they have in common.
  double weigh(double log_gamma, double key_exponent) {
    const Index m = state_.tail_size;
    const auto exponents = state_.exponents(), log_b = state_.log_b();
    const double M =
        std::ceil(std::max({degree * key_exponent, state_.L + (state_.tail_log_decay + log_gamma) * std::numbers::log2e,
                            largest_log2_weight<degree>(log_b, exponents) + std::numbers::log2e * log_gamma}));
    auto gates = work_.gates((m / at_once + 1) * at_once);
    auto weights = work_.tail_weights(m);
    for (Index j = 0; j < gates.size(); ++j) gates[j] = (j < m ? log_b[j] : state_.tail_log_decay) + log_gamma;
    set_exponential(gates, gates);
    for (Index j = 0; j < m; ++j)
      weights[j] = static_cast<Scalar>(gates[j] * nearest_power_of_two<double>(degree * exponents[j] - M));
    a_ = gates[m] * nearest_power_of_two<double>(state_.exponent() - M);
    return M;
  }

  // False where the row is not ordinary.
  bool write(ColumnView<const Scalar> row, Scalar denominator, double noise, double whole, ColumnView<Scalar> y) const {
    constexpr double tolerance = 16 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    constexpr int half = std::numeric_limits<Scalar>::max_exponent / 2;
    const Scalar size = row.cwiseAbs().sum();
    if (!(std::ldexp(Scalar(1), -half) <= size && size <= std::ldexp(Scalar(1), half))) return false;
    if (call_.rows != Rows::weighted_means) {
      set_times_power_of_two<Scalar>(y, row, whole);
      return true;
    }
    const auto sum = static_cast<double>(denominator);
    if (!(sum >= 0x1p-80 && sum > tolerance * noise)) return false;
    y = row / denominator;
    return true;
  }

  // The tail into the sums. These stay at the time of an earlier fold while their exponent has room for it, and the tail is taken back
  // there: few folds multiply them.
  void fold() {
    constexpr double room = 8;
    auto log_b = state_.log_b();
    const double since = state_.tail_log_decay, of_decay = since * std::numbers::log2e,
                 heaviest = largest_log2_weight<degree>(log_b, state_.exponents()),
                 then = std::max(state_.L, heaviest - of_decay), now = std::max(state_.L + of_decay, heaviest + room);
    if (now == no_weight) {
      state_.L = no_weight;
      state_.clear_tail();
    } else if (since >= least_log_decay<Scalar> && std::ceil(then) == state_.exponent()) {
      for (Index j = 0; j < log_b.size(); ++j) log_b[j] -= since;
      state_.tail_log_decay = 0;
      others().fold_tail(then);
      state_.tail_log_decay = since;
      log_b.setZero();  // of tokens that are in the tail no more; a file has no growth
    } else {
      others().fold_tail(now);
    }
  }

  // The engine of all other tokens, which looks at all values before it begins.
  OrdinaryEngine<Scalar, F>& others() {
    if (!others_) others_.emplace(feature_, call_);
    return *others_;
  }

  // Memory for either way, once for every shape.
  void reserve() {
    const std::array<Index, 5> shape = {d_, e_, state_.S.cols(), state_.tail_keys.cols(), degree};
    if (std::equal(shape.begin(), shape.end(), work_.reserved.begin(), work_.reserved.end())) return;
    others().reserve(1);
    work_.from_start(1);
    work_.features(state_.S.cols(), 1);
    work_.gates(state_.tail_keys.cols() + at_once);
    work_.reserved.assign(shape.begin(), shape.end());
  }

  const F& feature_;
  StateCall<Scalar, F>& call_;
  StateAccess<State<Scalar, F>>& state_;
  Workspace<Scalar>& work_;
  std::optional<OrdinaryEngine<Scalar, F>> others_;
  Index d_, e_;
  bool is_plain_;
  double a_ = 0;
};

}  // namespace sympow::detail
