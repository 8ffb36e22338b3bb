// A step of training: gradients of a batch on several threads, and AdamW.
#pragma once

#include "model.hpp"

#include <sympow/core/parallel.hpp>

#include <algorithm>

namespace language_model {

/// How weights follow their gradients.
struct Descent {
  double rate = 6e-4;   ///< of learning, at its height
  Index steps = 1000;   ///< of the whole training
  Index warmup = 0;     ///< steps in which the rate grows from 0
  bool cosine = false;  ///< then it falls by a half wave of the cosine to a tenth; else it stays
  double beta_1 = .9, beta_2 = .95, epsilon = 1e-8;
  double decay = .1;  ///< of matrices, a step and rate; gains, biases and what recipes learn do not decay
  double clip = 1;    ///< the greatest length of a gradient; longer ones are cut

  /// The rate of a step, counted from 0.
  [[nodiscard]] double rate_of(Index step) const {
    if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (!cosine) return rate;
    const double part = static_cast<double>(step - warmup) / static_cast<double>(std::max<Index>(1, steps - warmup));
    return rate * (.55 + .45 * std::cos(std::numbers::pi * std::min(part, 1.)));
  }
};

/// Weights in training. All that a run has made is in `all`; what it will do follows from that, the number of its steps
/// and its settings.
template <class S>
class Training {
 public:
  Training(Model<S> model, Descent descent, std::uint64_t seed)
      : model_(std::move(model)), descent_(descent), weights_(model_.initial(seed)), m_(weights_.zeros()), v_(m_) {}

  [[nodiscard]] const Model<S>& model() const { return model_; }
  [[nodiscard]] const Weights<S>& weights() const { return weights_; }
  [[nodiscard]] Index steps() const { return steps_; }
  void set_steps(Index steps) { steps_ = steps; }

  /// The weights and both averages of AdamW.
  [[nodiscard]] std::vector<Named<S>> all() {
    std::vector<Named<S>> list = weights_.all();
    for (Named<S>& m : m_.all()) list.push_back({"adam_m." + m.name, m.numbers});
    for (Named<S>& v : v_.all()) list.push_back({"adam_v." + v.name, v.numbers});
    return list;
  }

  /// What a step has seen.
  struct Report {
    double loss = 0;             ///< mean of the batch
    double gradient_length = 0;  ///< before it was cut
    double rate = 0;
  };

  /// Learns from some texts, each a byte longer than what is read of it. Throws `NotFinite`, and has not learned then.
  /// The same bits for any number of threads: the texts of a lane go one after the other, and the gradients of lanes
  /// are added up in order.
  Report step(const std::vector<std::span<const std::uint8_t>>& texts, int threads) {
    constexpr std::size_t most_lanes = 8;
    const std::size_t lanes = std::min(texts.size(), most_lanes);
    while (of_lanes_.size() < lanes) of_lanes_.push_back(weights_.zeros());
    std::vector<double> losses(texts.size());
    const double weight = 1 / static_cast<double>(texts.size());
    sympow::detail::parallel_for(static_cast<Index>(lanes), sympow::detail::threads_of_program(threads), passes_,
                                 [&](Index n, Pass<S>& pass) {
                                   const auto lane = static_cast<std::size_t>(n);
                                   for (auto& [name, g] : of_lanes_[lane].all()) g.setZero();
                                   for (std::size_t t = lane; t < texts.size(); t += lanes)
                                     losses[t] = model_.train(weights_, texts[t], weight, of_lanes_[lane], pass);
                                 });
    std::vector<Named<S>> gradients = of_lanes_[0].all();
    for (std::size_t lane = 1; lane < lanes; ++lane) {
      const std::vector<Named<S>> more = of_lanes_[lane].all();
      for (std::size_t n = 0; n < more.size(); ++n) gradients[n].numbers += more[n].numbers;
    }

    Report report{.rate = descent_.rate_of(steps_)};
    for (const double loss : losses) report.loss += loss * weight;
    double square = 0;
    for (const auto& [name, g] : gradients) square += static_cast<double>(g.squaredNorm());
    report.gradient_length = std::sqrt(square);
    if (!std::isfinite(report.loss + report.gradient_length))
      sympow::detail::raise<sympow::NotFinite>("step ", steps_, ": the loss is ", report.loss,
                                               ", its gradient's length ", report.gradient_length,
                                               "; a lower --rate may help");
    descend(gradients, report.rate, std::min(1., descent_.clip / report.gradient_length));
    return report;
  }

 private:
  // m and v are running means of g and g²; w goes by their unbiased m / √v.
  void descend(std::vector<Named<S>>& gradients, double rate, double cut) {
    ++steps_;
    const auto unbiased = [&](double beta) { return 1 - std::pow(beta, static_cast<double>(steps_)); };
    const auto b1 = static_cast<S>(descent_.beta_1), b2 = static_cast<S>(descent_.beta_2);
    const auto step = static_cast<S>(rate / unbiased(descent_.beta_1));
    const auto to_variance = static_cast<S>(1 / std::sqrt(unbiased(descent_.beta_2)));
    std::vector<Named<S>> weights = weights_.all(), ms = m_.all(), vs = v_.all();
    for (std::size_t n = 0; n < gradients.size(); ++n) {
      auto& [name, w] = weights[n];
      Batch<S>&g = gradients[n].numbers, &m = ms[n].numbers, &v = vs[n].numbers;
      if (!(name.ends_with("gain") || name.ends_with("bias") || name.ends_with("recipe")))
        w *= static_cast<S>(1 - rate * descent_.decay);
      g *= static_cast<S>(cut);
      m = b1 * m + (1 - b1) * g;
      v = b2 * v + (1 - b2) * g.cwiseAbs2();
      w.array() -= step * m.array() / (to_variance * v.array().sqrt() + static_cast<S>(descent_.epsilon));
    }
  }

  Model<S> model_;
  Descent descent_;
  Weights<S> weights_, m_, v_;
  Index steps_ = 0;
  std::vector<Weights<S>> of_lanes_;  // gradients
  std::vector<Pass<S>> passes_;
};

}  // namespace language_model
