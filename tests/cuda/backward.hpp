// A backward pass on the host: all kernels of gradients, of the quadratic form and of the chunked one.
#pragma once

#include "forward.hpp"
#include "gradient/adjoint_weights.hpp"
#include "gradient/flows.hpp"
#include "gradient/key_angles.hpp"
#include "gradient/key_gradients.hpp"
#include "gradient/key_units.hpp"
#include "gradient/passing.hpp"
#include "gradient/passing_angles.hpp"
#include "gradient/peaks.hpp"
#include "gradient/query_gradients.hpp"
#include "gradient/rates.hpp"
#include "gradient/row_units.hpp"
#include "gradient/scale_products.hpp"

namespace sympow::test {

/// The caller's arrays of gradients, dY drawn.
template <class T, int d>
struct GradientBuffers {
  Tokens<T> d_rows, d_queries, d_keys, d_values;
  Tokens<float> d_gates, d_beta;
  std::vector<double> d_rates;  ///< of all calls, as the next
  double d_scale = 0;

  explicit GradientBuffers(const Arrays<T, d>& x, double decades)
      : d_rows(x.batch, x.how.heads.query, x.how.e),
        d_queries(x.batch, x.how.heads.query, d),
        d_keys(x.batch, x.how.heads.key, d),
        d_values(x.batch, x.how.heads.key, x.how.e),
        d_gates(x.batch, x.how.heads.state, 1),
        d_beta(x.batch, x.how.heads.key, 1),
        d_rates(x.how.rotary ? d / 2 : 0) {
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

/// The kernels over tokens from … to - 1 of each sequence, and all that they keep. The quadratic form: a chunk must
/// hold a whole sequence.
template <class T, int P, int d>
struct Backward {
  static constexpr int D = monomial_count(P, d);
  Forward<T, P, d> forward;
  GradientBuffers<T, d>& gradients;
  host::Buffer<T> query_units, row_units, key_units;
  host::Buffer<std::int32_t> values_exponent, unit, ends, exponents;
  host::Buffer<double> exponent, peak;
  host::Buffer<float> factor, offset, inverse, mass, weights;
  host::Buffer<double> row, key, inside, through, later, passing;
  host::Buffer<double> angle_row, angle_key, angle_inside, angle_through, angle_later, angle_passing;
  host::Buffer<double> rate_rows, rate_keys, rate_passing, d_rates, unit_of_rows, unit_of_chunks;
  host::Buffer<float> later_rows, later_chunks;
  host::Buffer<double> products, d_scale;
  ChunkBuffers adjoint_chunks;
  host::Buffer<float> whole, adjoint_own, adjoint_own_normaliser, adjoint_whole;
  host::Buffer<T> adjoint_sums, adjoint_rest;
  bool is_chunked = false;
  Global<const double> gauge = {};  ///< of the gradient of the final state

  explicit Backward(Arrays<T, d>& arrays, GradientBuffers<T, d>& results, int first = 0, int end = 1 << 30)
      : forward(arrays, first, end),
        gradients(results),
        query_units(index(tokens() * heads().query * d)),
        row_units(index(tokens() * heads().query * e())),
        key_units(index(tokens() * heads().key * d)),
        values_exponent(index(heads().key * batch().slots * blocks())),
        unit(index(heads().query * batch().slots)),
        ends(slots()),
        exponents(slots()),
        exponent(rows()),
        peak(rows()),
        factor(rows()),
        offset(rows()),
        inverse(rows()),
        mass(rows()),
        weights(rows()),
        row(rows()),
        key(rows()),
        inside(rows()),
        through(index(heads().query * batch().slots * blocks() * blocks())),
        later(slots() * index(batch().chunk)),
        passing(slots()),
        angle_row(has_angles() ? rows() : 0),
        angle_key(has_angles() ? key_slots() * index(batch().chunk) : 0),
        angle_inside(angle_row.size()),
        angle_through(has_angles() ? through.size() : 0),
        angle_later(angle_key.size()),
        angle_passing(has_angles() ? key_slots() : 0),
        rate_rows(angle_row.size() / 64 * (d / 2)),
        rate_keys(angle_key.size() / 64 * (d / 2)),
        rate_passing(angle_passing.size() * (d / 2)),
        d_rates(d / 2),
        unit_of_rows(angle_key.size()),
        unit_of_chunks(angle_key.size()),
        later_rows(angle_key.size() * d),
        later_chunks(later_rows.size()),
        products(rows() / 64),
        d_scale(1),
        adjoint_chunks(static_cast<int>(slots())),
        whole(slots() * index(state_rows(P, d))),
        adjoint_own(slots() * index(D * e())),
        adjoint_own_normaliser(slots() * index(D)),
        adjoint_whole(slots() * index(state_rows(P, d))),
        adjoint_sums(slots() * index(state_rows(P, d) * e())),
        adjoint_rest(arrays.how.is_split ? adjoint_sums.size() : 0) {}

  /// The quadratic form, from the forward pass on.
  host::Report run(const host::Options& options) {
    host::Report report = forward.run_quadratic(options);
    join(report, units(options));
    join(report, queries(options));
    join(report, keys(options));
    join(report, flows(options));
    join(report, scale(options));
    return report;
  }
  /// The chunked form, after its forward pass: from an initial state and the gradient of the final one to that of the
  /// initial one.
  host::Report run_chunked(const host::Options& options, StateBuffers* initial = nullptr,
                           StateBuffers* d_final = nullptr, StateBuffers* d_initial = nullptr) {
    is_chunked = true;
    forward.whole = whole;
    host::Report report = forward.states(options, initial);
    join(report, units(options));
    join(report, adjoints(options, d_final, d_initial));
    join(report, queries(options));
    join(report, keys(options));
    if (has_flows())
      join(report,
           launch<Passing<T>>(
               Passing<T>::blocks(sequences(), heads()),
               {states(), adjoint_states(), forward.chunks.total, passing, sequences(), heads(), P, d, e()}, options));
    if (has_angles()) {
      using Kernel = PassingAngles<T, P, d>;
      join(report, launch<Kernel>(Kernel::blocks(sequences(), heads()),
                                  {states(), adjoint_states(), forward.chunks.total, gauge, of_angles(), sequences(),
                                   heads(), e()},
                                  options));
    }
    join(report, flows(options));
    join(report, scale(options));
    return report;
  }
  /// What gradients are made of.
  host::Report units(const host::Options& options) {
    auto& x = forward.x;
    host::Report report =
        launch<KeyUnits<T>>(KeyUnits<T>::blocks(sequences(), heads()),
                            {forward.keys(), x.values.template rows<const T>(from()), forward.tokens.arrays(),
                             dense<T>(key_units, d, heads().key), values_exponent, sequences(), heads(), d, e()},
                            options);
    join(report,
         launch<RowUnits<T>>(
             RowUnits<T>::blocks(sequences(), heads()),
             {x.queries.template rows<const T>(from()), x.rows.template rows<const T>(from()),
              gradients.d_rows.template rows<const T>(from()), x.factors.template rows<const float>(from()),
              forward.tokens.arrays(), is_chunked ? Global<const double>(forward.chunks.enter) : Global<const double>{},
              dense<T>(query_units, d, heads().query), dense<T>(row_units, e(), heads().query), of_rows(), sequences(),
              heads(), d, e(), P, x.how.normalised, scale_exponent(), scale_sign(), forward.rotary()},
             options));
    join(report, launch<Peaks>(Peaks::blocks(sequences(), heads()),
                               {forward.tokens.arrays(), of_rows(), values_exponent, sequences(), heads()}, options));
    return report;
  }
  /// The adjoint states.
  host::Report adjoints(const host::Options& options, StateBuffers* d_final, StateBuffers* d_initial) {
    const States before = d_final ? d_final->arrays() : States{}, after = d_initial ? d_initial->arrays() : States{};
    ChunkArrays chunks = adjoint_chunks.arrays();
    chunks.total = forward.chunks.total;
    host::Report report = launch<AdjointWeights>(AdjointWeights::blocks(sequences(), heads()),
                                                 {forward.tokens.arrays(), of_rows(), weights, ends, exponents,
                                                  chunks.end, chunks.own_mass, sequences(), heads()},
                                                 options);
    join(report, launch<Levels>(Levels::blocks(sequences(), heads()),
                                {sequences(), heads(), chunks, before, after, true}, options));
    const Heads turned{heads().query, heads().state, heads().query};
    TokenArrays tokens{};
    tokens.to_end = weights;
    join(report, with_products([&]<Products products>() {
           using Kernel = Update<T, P, d, products>;
           return launch<Kernel>(Kernel::blocks(sequences(), turned, e()),
                                 {dense<const T>(query_units, d, heads().query),
                                  dense<const T>(row_units, e(), heads().query),
                                  tokens,
                                  sequences(),
                                  turned,
                                  {adjoint_own, adjoint_own_normaliser},
                                  e(),
                                  {offset, ends, exponents}},
                                 options);
         }));
    join(report, launch<Scan<T>>(Scan<T>::blocks(sequences(), heads(), P, d, e()),
                                 {{adjoint_own, adjoint_own_normaliser},
                                  chunks,
                                  adjoint_states().prefixes,
                                  before,
                                  after,
                                  sequences(),
                                  heads(),
                                  P,
                                  d,
                                  e(),
                                  true},
                                 options));
    return report;
  }
  host::Report queries(const host::Options& options) {
    return with_products([&]<Products products>() {
      if (has_angles()) return queries<true, products>(options);
      return queries<false, products>(options);
    });
  }
  host::Report keys(const host::Options& options) {
    return with_products([&]<Products products>() {
      if (has_angles()) return keys<true, products>(options);
      return keys<false, products>(options);
    });
  }
  template <bool wanted, Products products>
  host::Report queries(const host::Options& options) {
    using Kernel = QueryGradients<T, P, d, wanted, products>;
    return launch<Kernel>(Kernel::blocks(sequences(), heads()),
                          {dense<const T>(query_units, d, heads().query), dense<const T>(row_units, e(), heads().query),
                           dense<const T>(key_units, d, heads().key), forward.x.values.template rows<const T>(from()),
                           gradients.d_queries.template rows<T>(from()), forward.tokens.arrays(), of_rows(), of_flows(),
                           sequences(), heads(), e(), is_chunked ? states() : StatesOfChunks<T>{}, of_angles()},
                          options);
  }
  template <bool wanted, Products products>
  host::Report keys(const host::Options& options) {
    using Kernel = KeyGradients<T, P, d, wanted, products>;
    host::Report report =
        launch<Kernel>(Kernel::blocks(sequences(), heads(), e()),
                       {dense<const T>(query_units, d, heads().query), dense<const T>(row_units, e(), heads().query),
                        dense<const T>(key_units, d, heads().key), forward.x.values.template rows<const T>(from()),
                        gradients.d_keys.template rows<T>(from()), gradients.d_values.template rows<T>(from()),
                        forward.tokens.arrays(), of_rows(), of_flows(), sequences(), heads(), e(),
                        is_chunked ? adjoint_states() : StatesOfChunks<T>{}, of_angles()},
                       options);
    if constexpr (wanted)
      join(report,
           launch<KeyAngles<T, d>>(
               KeyAngles<T, d>::blocks(sequences(), heads()),
               {dense<const T>(key_units, d, heads().key), of_rows(), of_angles(), sequences(), heads()}, options));
    return report;
  }
  /// Of rows as the forward pass has left them.
  host::Report scale(const host::Options& options) {
    auto& x = forward.x;
    const double degree = x.how.normalised || x.how.scale == 0 ? 0. : P / x.how.scale;
    host::Report report =
        launch<ScaleProducts<T>>(ScaleProducts<T>::blocks(sequences(), heads()),
                                 {x.rows.template rows<const T>(from()),
                                  gradients.d_rows.template rows<const T>(from()), products, sequences(), e(), degree},
                                 options);
    AngleArrays of_products{};
    of_products.rows = products;
    join(report, launch<Rates>(Rates::blocks(), {of_products, d_scale, sequences(), heads(), 1}, options));
    gradients.d_scale += d_scale[0];
    return report;
  }
  host::Report flows(const host::Options& options) {
    host::Report report;
    if (has_flows())
      report =
          launch<Flows>(Flows::blocks(sequences(), heads()),
                        {of_flows(), gradients.d_gates.template rows<float>(from()), sequences(), heads()}, options);
    if (!has_angles()) return report;
    const Heads by_keys{heads().query, heads().key, heads().key};
    join(report,
         launch<Flows>(Flows::blocks(sequences(), by_keys),
                       {of_angles().flows, gradients.d_beta.template rows<float>(from()), sequences(), by_keys, true},
                       options));
    join(report, launch<Rates>(Rates::blocks(), {of_angles(), d_rates, sequences(), heads(), d / 2}, options));
    for (std::size_t u = 0; u < d / 2; ++u) gradients.d_rates[u] += d_rates[u];
    return report;
  }
  /// Faults unless all gradients, and nothing else, were stored.
  void check_stored(host::Report& report) const {
    gradients.d_queries.check_stored(report, "dq");
    gradients.d_keys.check_stored(report, "dk");
    gradients.d_values.check_stored(report, "dv");
    if (has_flows()) gradients.d_gates.check_stored(report, "d log gate");
    if (has_angles()) gradients.d_beta.check_stored(report, "dβ");
  }
  [[nodiscard]] bool has_flows() const { return static_cast<bool>(forward.x.how.log_gate); }
  [[nodiscard]] bool has_angles() const { return forward.x.how.rotary.has_value(); }

 private:
  /// call.operator()<products>()
  template <class Call>
  host::Report with_products(const Call& call) {
    if constexpr (sizeof(T) == 4)
      if (forward.x.how.products == Products::fast) return call.template operator()<Products::fast>();
    return call.template operator()<Products::exact>();
  }
  [[nodiscard]] Batch& batch() { return forward.batch; }
  [[nodiscard]] Sequences sequences() { return forward.batch.sequences(); }
  [[nodiscard]] int from() const { return forward.from; }
  [[nodiscard]] const Heads& heads() const { return forward.heads(); }
  [[nodiscard]] int e() const { return forward.x.how.e; }
  [[nodiscard]] int tokens() const { return forward.batch.tokens(); }
  [[nodiscard]] int blocks() const { return forward.batch.chunk / block_tokens; }
  [[nodiscard]] std::size_t slots() const { return index(forward.slots()); }
  [[nodiscard]] std::size_t key_slots() const { return index(heads().key * forward.batch.slots); }
  [[nodiscard]] std::size_t rows() const { return index(heads().query * forward.batch.slots * forward.batch.chunk); }
  [[nodiscard]] double scale_exponent() const {
    const double scale = std::abs(forward.x.how.scale);
    return forward.x.how.normalised || scale == 0 ? 0 : P * std::log2(scale);
  }
  [[nodiscard]] float scale_sign() const {
    const double scale = forward.x.how.scale;
    return forward.x.how.normalised ? 1.f : scale == 0 ? 0.f : scale < 0 && P % 2 == 1 ? -1.f : 1.f;
  }
  StatesOfChunks<T> states() { return {forward.prefixes(), forward.chunks.arrays()}; }
  StatesOfChunks<T> adjoint_states() {
    Prefixes<T> prefixes;
    prefixes.sums = adjoint_sums;
    if (forward.x.how.is_split) prefixes.rest = adjoint_rest;
    prefixes.whole = adjoint_whole;
    return {prefixes, adjoint_chunks.arrays()};
  }
  RowArrays of_rows() {
    return {exponent, peak, factor, offset, inverse, is_chunked ? Global<float>(mass) : Global<float>{}, unit};
  }
  FlowArrays of_flows() {
    if (!has_flows()) return {};
    FlowArrays flows{row, key, inside, through, {}, {}};
    if (is_chunked) flows.later = later, flows.passing = passing;
    return flows;
  }
  AngleArrays of_angles() {
    if (!has_angles()) return {forward.rotary()};
    FlowArrays flows{angle_row, angle_key, angle_inside, angle_through, {}, {}};
    if (is_chunked) flows.later = angle_later, flows.passing = angle_passing;
    const KeptSums of_chunks{later_chunks, unit_of_chunks};
    return {forward.rotary(),
            flows,
            rate_rows,
            rate_keys,
            rate_passing,
            {later_rows, unit_of_rows},
            is_chunked ? of_chunks : KeptSums{}};
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
