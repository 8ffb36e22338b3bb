// Random arrays with a Householder chain, and the rows that they must give by the definition.
#pragma once

#include <sympow/transition/householder.hpp>

#include "problem.hpp"

namespace sympow::test {

/// Arrays with a vector and a strength for every token.
class Chain {
 public:
  Chain(const Choice& choice, std::uint64_t seed, bool delta_rule = false)
      : arrays(choice, seed), choice_(choice), delta_rule_(delta_rule) {
    const Arrays more(choice, seed + 1000);
    W = more.K;
    strength = more.beta;  // in (0, 2)
    for (std::size_t n = 0; n < W.entries.size(); n += static_cast<std::size_t>(W.width)) {
      Eigen::Map<Eigen::VectorXd> w(W.entries.data() + n, W.width);
      w.normalize();
      if (choice.single) w = w.cast<float>().cast<double>().eval();
    }
  }

  /// Files of some tokens, and the words that name them.
  [[nodiscard]] std::string save(const ProgramFolder& folder, Index begin, Index count) const {
    if (choice_.single)
      W.save<float>(folder, "w.npy", choice_.axes, begin, count);
    else
      W.save<double>(folder, "w.npy", choice_.axes, begin, count);
    strength.save<double>(folder, "st.npy", choice_.axes, begin, count, false);
    return arrays.save(folder, begin, count) + " --householder w.npy --strength st.npy" +
           (delta_rule_ ? " --delta-rule" : "");
  }
  [[nodiscard]] std::string save(const ProgramFolder& folder) const { return save(folder, 0, choice_.tokens); }

  /// Values of a head as the program takes them, in the type of the files.
  [[nodiscard]] Eigen::MatrixXd values(Index b, Index h) const {
    Eigen::MatrixXd V = head(arrays.V, b, h);
    if (!delta_rule_) return V;
    const Eigen::RowVectorXd beta = head(strength, b, h);
    if (choice_.single) return (V.cast<float>() * beta.cast<float>().asDiagonal()).cast<double>();
    return V * beta.asDiagonal();
  }

  [[nodiscard]] auto transition(Index b, Index h) const {
    const Eigen::VectorXd gates = choice_.gates ? Eigen::VectorXd(head(arrays.log_gate, b, h).transpose())
                                                : Eigen::VectorXd(Eigen::VectorXd::Zero(choice_.tokens));
    return decay(gates) * householder(head(W, b, h), head(strength, b, h).row(0));
  }

  /// S_i = γ_i S_{i-1} (I - β_i w_i w_iᵀ) + v_i k_iᵀ, y_i = scale S_i q_i, token after token.
  [[nodiscard]] Eigen::MatrixXd by_hand(Index b, Index h) const {
    const Eigen::MatrixXd Q = head(arrays.Q, b, h), K = head(arrays.K, b, h), w = head(W, b, h), V = values(b, h);
    Eigen::MatrixXd S = Eigen::MatrixXd::Zero(choice_.e, choice_.d), Y(choice_.e, choice_.tokens);
    for (Index t = 0; t < choice_.tokens; ++t) {
      const Eigen::VectorXd erased = S * w.col(t);
      S -= head(strength, b, h)(0, t) * erased * w.col(t).transpose();
      if (choice_.gates) S *= std::exp(head(arrays.log_gate, b, h)(0, t));
      S += V.col(t) * K.col(t).transpose();
      Y.col(t) = choice_.scale * (S * Q.col(t));
    }
    return Y;
  }

  /// How far rows of all tokens are from the definition, and from the recurrence by hand where the feature is linear.
  template <class F>
  [[nodiscard]] double distance(const F& feature, const Numbers& Y) const {
    double worst = 0;
    for (Index b = 0; b < Y.batches; ++b)
      for (Index h = 0; h < Y.heads; ++h) {
        const verify::DirectRows<double> rows =
            verify::direct_attention(feature, transition(b, h), head(arrays.Q, b, h), head(arrays.K, b, h),
                                     values(b, h), {.scale = choice_.scale});
        const Eigen::MatrixXd mine = Y.head(b, h, 0, Y.tokens);
        const auto apart = [&](const auto& other) {
          return verify::row_rule<DefaultNormalization, F>(rows, mine, other, arrays.unit());
        };
        worst = std::max(worst, apart(rows.Y));
        if constexpr (std::is_same_v<F, Linear>) worst = std::max(worst, apart(by_hand(b, h)));
      }
    return worst;
  }

  Arrays arrays;
  Numbers W{}, strength{};

 private:
  [[nodiscard]] Eigen::MatrixXd head(const Numbers& x, Index b, Index h) const {
    return x.head(b, h, 0, choice_.tokens);
  }

  Choice choice_;
  bool delta_rule_;
};

/// Calls `visit` with the feature map of a choice.
template <class Visitor>
void with_feature_of(const Choice& choice, Visitor&& visit) {
  if (choice.feature == "exponential") return visit(Exponential{});
  if (choice.degree() == 1) return visit(Linear{});
  if (choice.degree() == 3) return visit(SymmetricPower<3>{});
  visit(SymmetricPower<2>{});
}

}  // namespace sympow::test
