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

/// Weights in training. All that a run has made is in `for_each`; what it will do follows from that and its settings.
template <class S>
class Training {
 public:
  Training(const Model<S>& model, Descent descent, std::uint64_t seed)
      : model_(model), descent_(descent), weights_(model.initial(seed)), m_(model.zeros()), v_(model.zeros()) {}

  [[nodiscard]] const Weights<S>& weights() const { return weights_; }
  [[nodiscard]] Index steps() const { return steps_; }
  void set_steps(Index steps) { steps_ = steps; }

  /// f(name, matrix) of the weights and of both averages of AdamW.
  void for_each(const std::function<void(const std::string&, Batch<S>)>& f) {
    for (const auto& [name, of] : {std::pair{"", &weights_}, {"adam_m.", &m_}, {"adam_v.", &v_}})
      model_.for_each(*of, [&](const std::string& what, Batch<S> x) { f(name + what, x); });
  }

  /// What a step has seen.
  struct Report {
    double loss = 0;             ///< mean of the batch
    double gradient_length = 0;  ///< before it was cut
    double rate = 0;
  };

  /// Learns from some texts, each a byte longer than what is read of it. Throws `NotFinite`, and has not learned then.
  /// The same bits for any number of threads: the texts of a lane go one after the other, and lanes are added up in
  /// order.
  Report step(const std::vector<std::span<const std::uint8_t>>& texts, int threads) {
    constexpr std::size_t most_lanes = 8;
    lanes_.resize(std::min(texts.size(), most_lanes));
    std::vector<double> losses(texts.size());
    const double weight = 1 / static_cast<double>(texts.size());
    sympow::detail::parallel_for(std::ssize(lanes_), threads, passes_, [&](Index n, Pass<S>& pass) {
      Lane& lane = lanes_[static_cast<std::size_t>(n)];
      if (lane.gradients.blocks.empty())
        lane.gradients = model_.zeros();
      else
        for (Batch<S>& g : all(lane.gradients)) g.setZero();
      for (auto t = static_cast<std::size_t>(n); t < texts.size(); t += lanes_.size())
        losses[t] = model_.train(weights_, texts[t], weight, lane.gradients, pass, lane.losses);
    });
    for (std::size_t n = 1; n < lanes_.size(); ++n) add(lanes_[n].gradients, lanes_[0].gradients);

    Report report{.rate = descent_.rate_of(steps_)};
    for (const double loss : losses) report.loss += loss * weight;
    double square = 0;
    model_.for_each(lanes_[0].gradients,
                    [&](const std::string&, Batch<S> g) { square += static_cast<double>(g.squaredNorm()); });
    report.gradient_length = std::sqrt(square);
    if (!std::isfinite(report.loss + report.gradient_length))
      sympow::detail::raise<sympow::NotFinite>("step ", steps_, ": the loss is ", report.loss,
                                               ", its gradient's length ", report.gradient_length,
                                               "; a lower --rate may help");
    descend(report.rate, std::min(1., descent_.clip / report.gradient_length));
    return report;
  }

 private:
  struct Lane {
    Weights<S> gradients;
    Vector<double> losses;
  };

  std::vector<Batch<S>> all(Weights<S>& w) const {
    std::vector<Batch<S>> list;
    model_.for_each(w, [&](const std::string&, Batch<S> x) { list.push_back(x); });
    return list;
  }
  void add(Weights<S>& from, Weights<S>& to) const {
    const auto x = all(from);
    auto y = all(to);
    for (std::size_t n = 0; n < x.size(); ++n) y[n] += x[n];
  }

  // m and v are running means of g and g²; w goes by their unbiased m / √v.
  void descend(double rate, double cut) {
    ++steps_;
    const auto t = static_cast<double>(steps_);
    const auto unbiased = [&](double beta) { return 1 - std::pow(beta, t); };
    const auto b1 = static_cast<S>(descent_.beta_1), b2 = static_cast<S>(descent_.beta_2);
    const auto step = static_cast<S>(rate / unbiased(descent_.beta_1));
    const auto to_variance = static_cast<S>(1 / std::sqrt(unbiased(descent_.beta_2)));
    auto m = all(m_), v = all(v_), g = all(lanes_[0].gradients);
    std::size_t n = 0;
    model_.for_each(weights_, [&](const std::string& name, Batch<S> w) {
      const auto ends_with = [&](const char* end) { return name.ends_with(end); };
      const bool decays = !(ends_with("gain") || ends_with("bias") || ends_with("recipe"));
      if (decays) w *= static_cast<S>(1 - rate * descent_.decay);
      g[n] *= static_cast<S>(cut);
      m[n] = b1 * m[n] + (1 - b1) * g[n];
      v[n] = b2 * v[n] + (1 - b2) * g[n].cwiseAbs2();
      w.array() -= step * m[n].array() / (to_variance * v[n].array().sqrt() + static_cast<S>(descent_.epsilon));
      ++n;
    });
  }

  const Model<S>& model_;
  Descent descent_;
  Weights<S> weights_, m_, v_;
  Index steps_ = 0;
  std::vector<Lane> lanes_;
  std::vector<Pass<S>> passes_;
};

}  // namespace language_model
