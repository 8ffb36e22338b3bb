// One long head under every kind of transition, as outputs and state.
#pragma once

#include <sympow/attention/batch.hpp>
#include <sympow/attention/forms.hpp>
#include <sympow/core/random.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

namespace sympow::test {

/// A head of T tokens after others that went through its state alone.
template <class Scalar>
struct LongHead {
  static constexpr Index d = 4, e = 3, chunk = 8, before = 21;
  static constexpr Costs dear{.segment = 1e9};  // so that short heads are worth threads

  Index T;
  Random random{1};
  Matrix<Scalar> Q = random.matrix<Scalar>(d, before + T), K = random.matrix<Scalar>(d, before + T);
  Matrix<Scalar> V = random.matrix<Scalar>(e, before + T), Y = Matrix<Scalar>::Zero(e, before + T);
  Eigen::VectorXd log_gamma = -.01 * random.vector(before + T).cwiseAbs();
  Eigen::VectorXd beta = 1 + random.vector(before + T).array().tanh();
  Eigen::VectorXd theta = rotary_frequencies<double>(d, 64);
  Eigen::MatrixXd log_a = -.002 * random.matrix(d, before + T).cwiseAbs();
  Matrix<Scalar> w = random.matrix<Scalar>(d, before + T).colwise().normalized();

  explicit LongHead(Index tokens) : T(tokens) {}

  /// Calls f(name, feature, transition_of) for every kind; transition_of(segment).
  template <class Function>
  void each_kind(const Function& f) const {
    const auto gates = [this](Segment s) { return decay(log_gamma.segment(s.begin, s.size)); };
    f("decay", SymmetricPower<2>{}, gates);
    f("rotary at fixed rates", SymmetricPower<2>{}, [this](Segment) { return rotary(theta, Pairing::interleaved); });
    f("conformal", SymmetricPower<2>{},
      [=, this](Segment s) { return gates(s) * rotary(theta, beta.segment(s.begin, s.size), Pairing::interleaved); });
    f("channels", SymmetricPower<2>{}, [this](Segment s) { return channel_decay(log_a.middleCols(s.begin, s.size)); });
    f("decay of an odd power", SymmetricPower<3>{}, gates);
    f("gated delta rule", Linear{}, [=, this](Segment s) {
      return gates(s) * householder(w.middleCols(s.begin, s.size), beta.segment(s.begin, s.size));
    });
  }

  /// Fills Y and returns the state that is left; the tail of the state may be full of earlier tokens.
  template <class F, class TransitionOf>
  State<Scalar, F> run(const F& feature, const TransitionOf& transition_of, int threads) {
    std::vector<State<Scalar, F>> states(1, State<Scalar, F>(d, e));
    Workspaces<Scalar> workspaces(1);
    const Segment first{0, before}, rest{before, T};
    recurrent(feature, transition_of(first), Q.leftCols(before), K.leftCols(before), V.leftCols(before), states[0],
              Y.leftCols(before), workspaces[0]);
    const auto heads = [&](auto& x) { return Heads<Scalar>::bhtd(x.data() + before * x.rows(), 1, 1, T, x.rows()); };
    attend(feature, transition_of(rest),
           {.Q = heads(Q),
            .K = heads(K),
            .V = heads(V),
            .states = states,
            .Y = heads(Y),
            .workspaces = workspaces,
            .options = {.form = Form::chunked, .threads = threads, .head = {.chunk = chunk, .costs = dear}}});
    return states[0];
  }
};

}  // namespace sympow::test
