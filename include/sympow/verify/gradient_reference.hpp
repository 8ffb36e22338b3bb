// Gradients of attention by their definition, without blocks, states, flows or shortcuts, in long double: what every
// vector-Jacobian product is measured against.
#pragma once

#include <sympow/verify/gradient_pairs.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Gradients of Σ dY∘Y + ⟨[dS_T; dZ_T], [S_T; Z_T]⟩ in everything that a call is made of.
struct GradientReference {
  Matrix<Wide> Q = {},          ///< dQ
      K = {},                   ///< dK
      V = {};                   ///< dV
  Wide scale = 0;               ///< d scale
  Matrix<Wide> initial = {};    ///< [dS_0; dZ_0], empty without a state
  Vector<Wide> log_gamma = {};  ///< d log γ_t; 0 under a full mask, which has no decay
  /// dA_t as if every entry of A_t were free, and dA_0 of the frame; empty where keys stay as they are.
  std::vector<Matrix<Wide>> steps = {};
  Matrix<Wide> frame = {};  ///< dA_0
  /// Turning transitions: d(A_0 … A_t), t for t, all logits being (A_0 … A_i q'_i)ᵀ (A_0 … A_j k_j).
  std::vector<Matrix<Wide>> products = {};
  Matrix<Wide> coupling = {};  ///< c_ij = s_ij ∂loss/∂s_ij, T_k × T_q
};

namespace detail {

/// The gradients while they are added up.
class GradientSums {
 public:
  explicit GradientSums(const GradientCall& call) : call_(call), pairs_(call) {
    const Index d = call.Q.rows(), n = call.K.cols(), m = call.Q.cols(), T = call.tokens();
    result_.Q.setZero(d, m);
    result_.K.setZero(d, n);
    result_.V.setZero(call.V.rows(), n);
    result_.log_gamma.setZero(T);
    result_.coupling.setZero(n, m);
    if (call.has_state()) result_.initial.setZero(call.V.rows() + 1, call.feature.dimension);
    if (call.action == KeyAction::none) return;
    result_.steps.assign(static_cast<std::size_t>(T), Matrix<Wide>::Zero(d, d));
    result_.frame.setZero(d, d);
    if (call.action == KeyAction::turn) result_.products = result_.steps;
  }

  GradientReference sum() {
    for (Index i = 0; i < call_.Q.cols(); ++i) add_row(i);
    if (call_.d_final.size() > 0) add_final_state();
    for (Index i = 0; i < call_.Q.cols(); ++i) {  // q' = scale · q
      result_.scale += call_.Q.col(i).dot(result_.Q.col(i));
      result_.Q.col(i) *= call_.scale;
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] Vector<Wide> extended_value(Index j) const {  // [v_j; 1]
    Vector<Wide> v = Vector<Wide>::Ones(call_.V.rows() + 1);
    v.head(call_.V.rows()) = call_.V.col(j);
    return v;
  }

  // g_i, the gradient of [num_i; den_i], in units of e^{-shift}.
  [[nodiscard]] Vector<Wide> adjoint_of_sums(Index i) const {
    const Index e = call_.V.rows();
    Vector<Wide> g = Vector<Wide>::Zero(e + 1);
    if (pairs_.is_degenerate[static_cast<std::size_t>(i)]) return g;
    g.head(e) = call_.dY.col(i);
    if (!call_.divided || pairs_.denominator[i] == 0) return g;
    g[e] = -call_.dY.col(i).dot(pairs_.Y.col(i));
    return g / pairs_.denominator[i];
  }

  // What multiplies every pair of a token before `first` and one from `last` on: d log γ_t += c, first ≤ t ≤ last.
  void add_flow(Index first, Index last, Wide coupling) {
    for (Index t = first; t <= last && !call_.mask.is_full; ++t) result_.log_gamma[t] += coupling;
  }
  // The gradient of aᵀ A_first … A_last b in every step, a before the first and b behind the last, times dx.
  template <class Before, class Behind>
  void add_between(Index first, Index last, Wide dx, const Before& before, const Behind& behind) {
    if (call_.steps.empty()) return;
    for (Index t = first; t <= last; ++t)
      add_outer(result_.steps[static_cast<std::size_t>(t)], dx, before(t - 1), behind(t));
  }

  void add_row(Index i) {
    if (call_.token_of(i) < 0) return;
    const Vector<Wide> g = adjoint_of_sums(i);
    const auto row = static_cast<std::size_t>(i);
    Vector<Wide> d_features = Vector<Wide>::Zero(call_.feature.dimension);
    for (Index j = call_.first(i); j < call_.seen(i); ++j) {
      const Wide b = pairs_.weights(j, i), s = pairs_.scores(j, i), D = extended_value(j).dot(g);
      if (b == 0 && s == 0) continue;  // behind a closed gate, whatever it is
      result_.V.col(j) += s * g.head(call_.V.rows());
      result_.coupling(j, i) = s * D;
      add_flow(j + 1, call_.token_of(i), s * D);
      if (call_.score == Score::embedded) {
        const auto& key = pairs_.key_features[static_cast<std::size_t>(j)];
        d_features += (b * D) * key.phi;
        add_absolute(pairs_.keys[static_cast<std::size_t>(j)],
                     (b * D) * transposed_image(key.jacobian, pairs_.query_features[row].phi), call_.K.col(j),
                     result_.K, j);
      } else {
        const Wide slope = call_.score == Score::exponential ? s
                                                             : b * static_cast<Wide>(call_.degree) *
                                                                   integer_power(pairs_.logits(j, i), call_.degree - 1);
        add_pair(i, j, slope * D);
      }
    }
    if (call_.initial.size() > 0 && pairs_.state_weights[i] > 0) {
      const Wide b = pairs_.state_weights[i];
      add_outer(result_.initial, b, g, pairs_.query_features[row].phi);
      d_features += b * transposed_image(call_.initial, g);
      add_flow(0, call_.token_of(i), b * g.dot(pairs_.state_reads.col(i)));
    }
    if (pairs_.query_features.empty()) return;
    const Path& query = pairs_.queries[row];
    add_absolute(query, transposed_image(pairs_.query_features[row].jacobian, d_features), query.pulled(query.token()),
                 result_.Q, i);
  }

  // A logit by steps: x = k_jᵀ A_{j+1} … A_i q'_i; of a later key, x = q'_iᵀ A_{i+1} … A_j k_j.
  void add_pair(Index i, Index j, Wide dx) {
    const Path &query = pairs_.queries[static_cast<std::size_t>(i)], &key = pairs_.keys[static_cast<std::size_t>(j)];
    const Index at = query.token();
    const bool later = j > at;
    const Path &left = later ? query : key, &right = later ? key : query;
    result_.Q.col(i) += dx * (later ? key.pulled(at) : key.pushed(at));
    result_.K.col(j) += dx * (later ? query.pushed(j) : query.pulled(j));
    add_between(
        left.token() + 1, right.token(), dx, [&](Index t) { return left.pushed(t); },
        [&](Index t) { return right.pulled(t); });
    if (call_.action != KeyAction::turn) return;
    add_outer(result_.products[static_cast<std::size_t>(at)], dx, key.absolute(), query.pulled(at));
    add_outer(result_.products[static_cast<std::size_t>(j)], dx, query.absolute(), key.pulled(j));
  }

  // A function of y = A_0 A_1 … A_τ x whose gradient in y is known: x, the steps up to τ and the frame.
  void add_absolute(const Path& path, const Vector<Wide>& dy, const Vector<Wide>& x, Matrix<Wide>& dx, Index column) {
    std::vector<Vector<Wide>> before = {transposed_image(call_.frame, dy)};  // (A_0 … A_t)ᵀ dy from t = -1 on
    for (Index t = 0; t <= path.token(); ++t)
      before.push_back(call_.steps.empty() ? before.back()
                                           : transposed_image(call_.steps[static_cast<std::size_t>(t)], before.back()));
    dx.col(column) += before.back();
    add_between(
        0, path.token(), 1, [&](Index t) { return before[static_cast<std::size_t>(t + 1)]; },
        [&](Index t) { return path.pulled(t); });
    if (call_.action == KeyAction::none) return;
    add_outer(result_.frame, 1, dy, path.pulled(-1));
    if (call_.action == KeyAction::turn) add_outer(result_.products[static_cast<std::size_t>(path.token())], 1, dy, x);
  }

  // [S_T; Z_T] = b_0T [S_0; Z_0] Sym(A_1 … A_T) + Σ_j b_jT [v_j; 1] φ((A_{j+1} … A_T)ᵀ k_j)ᵀ; what turns keeps S_0 as
  // it is and puts k_j into absolute coordinates.
  void add_final_state() {
    const Index last = call_.tokens() - 1;
    for (Index j = 0; j < call_.K.cols(); ++j) {
      const Wide b = std::exp(GradientPairs::log_weight(call_, j + 1, last));
      if (b == 0) continue;
      const Path& key = pairs_.keys[static_cast<std::size_t>(j)];
      const bool turns = call_.action == KeyAction::turn;
      const Embedded at(call_.feature, turns ? key.absolute() : key.pushed(last));
      const Vector<Wide> H_phi = image(call_.d_final, at.phi), v = extended_value(j);
      result_.V.col(j) += b * H_phi.head(call_.V.rows());
      add_flow(j + 1, last, b * v.dot(H_phi));
      const Vector<Wide> d_key = transposed_image(at.jacobian, b * transposed_image(call_.d_final, v));
      if (turns) {
        add_absolute(key, d_key, call_.K.col(j), result_.K, j);
        continue;
      }
      const Path row(call_, d_key, last);
      result_.K.col(j) += row.pulled(j);
      add_between(j + 1, last, 1, [&](Index t) { return key.pushed(t); }, [&](Index t) { return row.pulled(t); });
    }
    const Wide b = std::exp(GradientPairs::log_weight(call_, 0, last));
    if (b == 0) return;
    add_state_to_state(b, last);
  }

  // ⟨[dS_T; dZ_T], b_0T [S_0; Z_0] Sym(A_1 … A_T)⟩, row by row of the two. A diagonal A_1 … A_T multiplies entry α by
  // φ_α(a)/φ_α(1), where a is its diagonal.
  void add_state_to_state(Wide b, Index last) {
    const bool scales = call_.action == KeyAction::scale;
    const Vector<Wide> ones = Vector<Wide>::Ones(call_.Q.rows());
    const Path first(call_, ones, -1), behind(call_, ones, last);
    const Embedded of_ones(call_.feature, ones), at(call_.feature, first.pushed(last));
    Wide coupling = 0;
    for (Index r = 0; r < call_.d_final.rows(); ++r) {
      const Vector<Wide> h = b * call_.d_final.row(r).transpose();
      Vector<Wide> s = Vector<Wide>::Zero(h.size()), d_initial = h;
      if (scales) d_initial = h.cwiseProduct(at.phi).cwiseQuotient(of_ones.phi);
      if (call_.initial.size() > 0) s = call_.initial.row(r).transpose();
      if (call_.action == KeyAction::mix) {
        const Path row(call_, h, last), key(call_, s, -1);
        d_initial = row.pulled(-1);
        add_between(0, last, 1, [&](Index t) { return key.pushed(t); }, [&](Index t) { return row.pulled(t); });
      }
      result_.initial.row(r) += d_initial.transpose();
      coupling += s.dot(d_initial);
      if (!scales) continue;
      const Vector<Wide> d_a = transposed_image(at.jacobian, h.cwiseProduct(s).cwiseQuotient(of_ones.phi));
      for (Index t = 0; t <= last; ++t)
        result_.steps[static_cast<std::size_t>(t)].diagonal() +=
            d_a.cwiseProduct(first.pushed(t - 1)).cwiseProduct(behind.pulled(t));
    }
    add_flow(0, last, coupling);
  }

  const GradientCall& call_;
  const GradientPairs pairs_;
  GradientReference result_;
};

}  // namespace detail

/// All gradients of a call, by sums over the pairs and tokens that each of them is about.
///
///     g_i = [dy_i; -δ_i]/den_i, δ_i = dy_i·y_i   (sums: [dy_i; 0]),   dx_ij = κ'(x_ij) b_ij [v_j; 1]·g_i
///     dA_t = Σ_{j<t≤i} dx_ij ((A_{j+1} … A_{t-1})ᵀ k_j) (A_{t+1} … A_i q'_i)ᵀ,   d log γ_t = Σ_{j<t≤i} c_ij
///
/// No running sum and no difference occurs. A_t are matrices of free entries: the derivative of A_t in its parameters
/// is left to the caller. O(T³ d²) and, with a state, O(T D d): for T up to some 64. Throws
/// `ShapeMismatch`, `InvalidArgument`.
[[nodiscard]] inline GradientReference gradient_reference(const GradientCall& call) {
  return detail::GradientSums(call).sum();
}

}  // namespace SYMPOW_NAMESPACE::verify
