// A backward pass on the host: the quadratic form's rows, then all kernels of its gradients.
#pragma once

#include "forward.hpp"
#include "gradient/flows.hpp"
#include "gradient/key_gradients.hpp"
#include "gradient/key_units.hpp"
#include "gradient/peaks.hpp"
#include "gradient/query_gradients.hpp"
#include "gradient/row_units.hpp"

namespace sympow::test {

/// The caller's arrays of gradients, dY drawn.
template <class T, int d>
struct GradientBuffers {
  Tokens<T> d_rows, d_queries, d_keys, d_values;
  Tokens<float> d_gates;

  explicit GradientBuffers(const Arrays<T, d>& x, double decades)
      : d_rows(x.batch, x.how.heads.query, x.how.e),
        d_queries(x.batch, x.how.heads.query, d),
        d_keys(x.batch, x.how.heads.key, d),
        d_values(x.batch, x.how.heads.key, x.how.e),
        d_gates(x.batch, x.how.heads.state, 1) {
    std::mt19937 random(11);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (int b = 0; b < x.batch.size(); ++b)
      for (int t = 0; t < x.batch.length(b); ++t)
        for (int h = 0; h < d_rows.heads; ++h) {
          const double size = std::pow(10., decades * uniform(random));
          for (int c = 0; c < d_rows.width; ++c) Arrays<T, d>::set(d_rows, b, t, h, c, size * normal(random));
        }
  }
};

/// The kernels, and all that they keep. A chunk must hold a whole sequence.
template <class T, int P, int d>
struct Backward {
  Forward<T, P, d> forward;
  GradientBuffers<T, d>& gradients;
  host::Buffer<T> query_units, row_units, key_units;
  host::Buffer<std::int32_t> values_exponent, query, unit;
  host::Buffer<double> exponent, peak;
  host::Buffer<float> factor, offset;
  host::Buffer<double> row, key, inside, through;

  Backward(Arrays<T, d>& arrays, GradientBuffers<T, d>& results)
      : forward(arrays),
        gradients(results),
        query_units(index(tokens() * heads().query * d)),
        row_units(index(tokens() * heads().query * e())),
        key_units(index(tokens() * heads().key * d)),
        values_exponent(index(heads().key * batch().slots * blocks())),
        query(rows()),
        unit(index(heads().query * batch().slots)),
        exponent(rows()),
        peak(rows()),
        factor(rows()),
        offset(rows()),
        row(rows()),
        key(rows()),
        inside(rows()),
        through(index(heads().query * batch().slots * blocks() * blocks())) {}

  host::Report run(const host::Options& options) {
    host::Report report = forward.run_quadratic(options);
    join(report, units(options));
    join(report, queries(options));
    join(report, keys(options));
    join(report, flows(options));
    return report;
  }
  /// What gradients are made of.
  host::Report units(const host::Options& options) {
    auto& x = forward.x;
    host::Report report = launch<KeyUnits<T>>(
        KeyUnits<T>::blocks(batch().sequences(), heads()),
        {x.keys.template rows<const T>(), x.values.template rows<const T>(), forward.tokens.arrays(),
         dense<T>(key_units, d, heads().key), values_exponent, batch().sequences(), heads(), d, e()},
        options);
    join(report, launch<RowUnits<T>>(RowUnits<T>::blocks(batch().sequences(), heads()),
                                     {x.queries.template rows<const T>(), x.rows.template rows<const T>(),
                                      gradients.d_rows.template rows<const T>(), x.factors.template rows<const float>(),
                                      forward.tokens.arrays(), dense<T>(query_units, d, heads().query),
                                      dense<T>(row_units, e(), heads().query), of_rows(), batch().sequences(), heads(),
                                      d, e(), P, x.how.normalised},
                                     options));
    join(report,
         launch<Peaks>(Peaks::blocks(batch().sequences(), heads()),
                       {forward.tokens.arrays(), of_rows(), values_exponent, batch().sequences(), heads()}, options));
    return report;
  }
  host::Report queries(const host::Options& options) {
    using Kernel = QueryGradients<T, P, d>;
    return launch<Kernel>(Kernel::blocks(batch().sequences(), heads()),
                          {dense<const T>(query_units, d, heads().query), dense<const T>(row_units, e(), heads().query),
                           dense<const T>(key_units, d, heads().key), forward.x.values.template rows<const T>(),
                           gradients.d_queries.template rows<T>(), forward.tokens.arrays(), of_rows(), of_flows(),
                           batch().sequences(), heads(), e(), scale_exponent(), scale_sign()},
                          options);
  }
  host::Report keys(const host::Options& options) {
    using Kernel = KeyGradients<T, P, d>;
    return launch<Kernel>(
        Kernel::blocks(batch().sequences(), heads(), e()),
        {dense<const T>(query_units, d, heads().query), dense<const T>(row_units, e(), heads().query),
         dense<const T>(key_units, d, heads().key), forward.x.values.template rows<const T>(),
         gradients.d_keys.template rows<T>(), gradients.d_values.template rows<T>(), forward.tokens.arrays(), of_rows(),
         of_flows(), batch().sequences(), heads(), e(), scale_exponent(), scale_sign()},
        options);
  }
  host::Report flows(const host::Options& options) {
    if (!has_flows()) return {};
    return launch<Flows>(Flows::blocks(batch().sequences(), heads()),
                         {of_flows(), gradients.d_gates.template rows<float>(), batch().sequences(), heads(),
                          forward.x.how.normalised ? 1. : std::pow(forward.x.how.scale, P)},
                         options);
  }
  /// Faults unless all gradients, and nothing else, were stored.
  void check_stored(host::Report& report) const {
    gradients.d_queries.check_stored(report, "dq");
    gradients.d_keys.check_stored(report, "dk");
    gradients.d_values.check_stored(report, "dv");
    if (has_flows()) gradients.d_gates.check_stored(report, "d log gate");
  }
  [[nodiscard]] bool has_flows() const { return static_cast<bool>(forward.x.how.log_gate); }

 private:
  [[nodiscard]] Batch& batch() { return forward.batch; }
  [[nodiscard]] const Heads& heads() const { return forward.heads(); }
  [[nodiscard]] int e() const { return forward.x.how.e; }
  [[nodiscard]] int tokens() const { return forward.batch.tokens(); }
  [[nodiscard]] int blocks() const { return forward.batch.chunk / block_tokens; }
  [[nodiscard]] std::size_t rows() const { return index(heads().query * forward.batch.slots * forward.batch.chunk); }
  [[nodiscard]] double scale_exponent() const {
    const double scale = std::abs(forward.x.how.scale);
    return forward.x.how.normalised || scale == 0 ? 0 : P * std::log2(scale);
  }
  [[nodiscard]] float scale_sign() const {
    const double scale = forward.x.how.scale;
    return forward.x.how.normalised ? 1.f : scale == 0 ? 0.f : scale < 0 && P % 2 == 1 ? -1.f : 1.f;
  }
  RowArrays of_rows() { return {exponent, peak, factor, offset, query, unit}; }
  FlowArrays of_flows() {
    if (!has_flows()) return {};
    return {row, key, inside, through};
  }
  template <class U, class Memory>
  Rows<U> dense(Memory& memory, int width, int of) {
    return forward.template dense<U>(memory, width, of);
  }
  template <class Kernel>
  static host::Report launch(const Blocks& blocks, const typename Kernel::Args& args, const host::Options& options) {
    return Forward<T, P, d>::template launch<Kernel>(blocks, args, options);
  }
};

}  // namespace sympow::test
