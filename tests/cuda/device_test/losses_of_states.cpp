// Gradients of a loss that sees the final state itself, S, Z and the angles: against their definition in double.
#include <cstring>
#include <numeric>
#include <random>
#include <span>

#include <sympow/cuda/gradient.hpp>

#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

/// What must come out, and the sizes of what it is the sum of.
struct Expected {
  std::vector<double> exact, size;
  explicit Expected(std::int64_t n) : exact(static_cast<std::size_t>(n)), size(exact.size()) {}
  void add(std::int64_t i, double term, double absolute) {
    exact[static_cast<std::size_t>(i)] += term;
    size[static_cast<std::size_t>(i)] += absolute;
  }
  /// The largest error in units of `rounding` times the size.
  [[nodiscard]] double worst(const std::vector<double>& got, double rounding) const {
    double all = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double off = std::abs(got[i] - exact[i]), bound = rounding * size[i];
      all = std::max(all, off == 0 ? 0. : off <= bound ? off / bound : std::max(2., off / bound));  // NaN: 2
    }
    return all;
  }
};

/// ⟨dS, S⟩ + ⟨dZ, Z⟩ + dμ·μ of the state behind all tokens, of P 2, by calls up to token `cut` and behind it. Of
/// positive values and keys that turn little: only products of first channels have a part in it, so that all that they
/// change by has one sign, and no error hides behind a large bound.
class Loss {
 public:
  Loss(cuda::Problem problem, const Tokens& tokens, std::int64_t first_cut)
      : p(problem),
        x(tokens),
        cut(first_cut),
        D(cuda::monomials(2, p.d)),
        states(p.batch * p.state_heads()),
        pairs(p.d / 2),
        beta(p.batch * x.tokens * p.key_heads),
        rates(pairs),
        angles(states * pairs) {
    std::mt19937 random(9);
    std::uniform_real_distribution<float> unit(.5, 1.5);
    const auto is_first = [&](int c) { return x.rotary->halves ? c < pairs : c % 2 == 0; };
    for (std::int64_t n = 0; n < states; ++n)
      for (int i = 0; i < p.d; ++i)
        for (int j = i; j < p.d; ++j) {
          const float factor = is_first(i) && is_first(j) ? 1 : 0;
          for (int c = 0; c < p.e; ++c) of_S.push_back(factor * unit(random));
          of_Z.push_back(factor * unit(random));
        }
    const double of_terms = static_cast<double>(x.tokens * pairs * p.e);  // about as much as S changes by
    for (std::int64_t i = 0; i < states * pairs; ++i)
      of_angles.push_back(-of_terms * static_cast<double>(unit(random)));
    expect();
  }

  void check(const std::string& what) {
    const Arrays arrays(x, Layout::dense);
    arrays.set_rotary(p);
    const Array<float> S(of_S), Z(of_Z);
    const Array<double> mu(of_angles);
    const OwnState before(p), after(p), gradient(p);
    const std::size_t entries = x.queries.size() / static_cast<std::size_t>(p.d) * static_cast<std::size_t>(p.e);
    const Array<std::byte> zeros(arrays.bytes(std::vector<double>(entries), x.query_heads, p.e));  // dY
    const auto array = [&](std::int64_t heads, std::int64_t channels) {
      return Array<std::byte>(static_cast<std::size_t>(p.batch * x.tokens * heads * channels) * x.format.bytes());
    };
    const Array<std::byte> q = array(p.query_heads, p.d), k = array(p.key_heads, p.d), v = array(p.key_heads, p.e);
    const Array<float> factors(static_cast<std::size_t>(p.batch * x.tokens * p.query_heads)), d_beta(beta.exact.size());
    const Array<double> d_rates(rates.exact.size());
    std::vector<double> of_rates(rates.exact.size()), of_beta, back;
    for (const std::int64_t first : {std::int64_t{0}, cut}) {
      cuda::Problem part = p;
      part.tokens = first == 0 ? cut : x.tokens - cut;
      cuda::Inputs inputs = arrays.inputs(first);
      cuda::Outputs outputs = arrays.outputs(first);
      if (first > 0) inputs.initial_state = before.state;
      outputs.final_state = first > 0 ? after.state : before.state;
      if (!run(part, inputs, outputs, nullptr)) return;
    }
    const cuda::StateArrays of_arrays{S.data(), Z.data(), mu.data()};
    for (const std::int64_t first : {cut, std::int64_t{0}}) {
      cuda::Problem part = p;
      part.tokens = first == 0 ? cut : x.tokens - cut;
      const auto from = [&](const auto& memory, cuda::Element element, std::int64_t heads, std::int64_t channels) {
        cuda::View view = arrays.places.view(memory.data(), element, heads, channels);
        const std::size_t bytes = element == cuda::Element::f32 ? 4 : 2;
        view.data = static_cast<std::byte*>(view.data) + static_cast<std::size_t>(first * view.token) * bytes;
        return view;
      };
      cuda::Inputs inputs = arrays.inputs(first);
      if (first > 0) inputs.initial_state = before.state;
      cuda::Outputs outputs = arrays.outputs(first);
      outputs.factors = from(factors, cuda::Element::f32, p.query_heads, 1);
      if (!run(part, inputs, outputs, nullptr)) return;
      const cuda::RowGradients rows{from(zeros, p.element, p.query_heads, p.e), outputs.rows, outputs.factors,
                                    gradient.state};
      const cuda::Gradients gradients{from(q, p.element, p.query_heads, p.d),
                                      from(k, p.element, p.key_heads, p.d),
                                      from(v, p.element, p.key_heads, p.e),
                                      {},
                                      first > 0 ? gradient.state : cuda::State{},
                                      from(d_beta, cuda::Element::f32, p.key_heads, 1),
                                      d_rates.data(),
                                      nullptr};
      std::size_t bytes = 0;
      done(cuda::attention_vjp_workspace(part, bytes));
      const Array<std::byte> workspace(bytes);
      done(cuda::gradient_of_arrays(p, of_arrays, first > 0 ? after.state : before.state, gradient.state, nullptr));
      if (!done(cuda::attend_vjp(part, inputs, rows, gradients, workspace.data(), bytes, nullptr))) return;
      if (first > 0) {
        done(cuda::gradient_to_arrays(p, gradient.state, before.state, of_arrays, nullptr));
        runtime(cudaStreamSynchronize(nullptr));
        back = mu.values();
      }
      runtime(cudaStreamSynchronize(nullptr));
      const std::vector<double> more = d_rates.values();
      std::transform(of_rates.begin(), of_rates.end(), more.begin(), of_rates.begin(), std::plus<>());
    }
    for (const float one : d_beta.values()) of_beta.push_back(static_cast<double>(one));
    const double rounding = (4 * 2 + 5) * x.format.u();
    const double errors[] = {beta.worst(of_beta, rounding), rates.worst(of_rates, rounding),
                             angles.worst(back, rounding)};
    const char* names[] = {"dβ", "d rates", "dμ"};
    for (int n = 0; n < 3; ++n)
      require(errors[n] <= 1, "%s: %s is %g times its bound off", what.c_str(), names[n], errors[n]);
    std::printf("  %-52s %.1e %.1e %.1e of the bounds, bits %016llx\n", what.c_str(), errors[0], errors[1], errors[2],
                digest(of_beta));
  }

 private:
  /// Angle μ_u of token t turns what later tokens and itself have brought to S and Z, and μ.
  void expect() {
    const std::int64_t Hs = p.state_heads(), shared = Hs / p.key_heads;
    const std::vector<double> theta = x.rates();
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < Hs; ++h) {
        const std::int64_t key = h / shared, state = b * Hs + h;
        std::vector<double> turned(theta.size()), sizes(theta.size());  // by the tokens from t on
        std::vector<double> all(theta.size());                          // sizes of all tokens
        for (int pass = 0; pass < 2; ++pass) {                          // the first one only looks at sizes
          double gate = 0, path = total(b, key);
          std::fill(turned.begin(), turned.end(), 0);
          for (std::int64_t t = x.tokens - 1; t >= 0; --t) {
            const double step = static_cast<double>(x.step(t, key));
            add_token(b, t, state, key, std::exp(gate), path, turned, pass == 0 ? all : sizes);
            path -= step;
            gate += static_cast<double>(x.log_gates[x.row(b, t, h, Hs)]);
            if (pass == 0) continue;
            for (int u = 0; u < pairs; ++u) {
              const auto at = static_cast<std::size_t>(u);
              const double mu = of_angles[static_cast<std::size_t>(state * pairs + u)], flow = mu + turned[at],
                           size = std::abs(mu) + 2 * all[at];
              beta.add((b * x.tokens + t) * p.key_heads + key, theta[at] * flow, theta[at] * size);
              rates.add(u, step * flow, std::abs(step) * size);
              if (t == cut)
                angles.add((b * Hs + key * shared) * pairs + u, flow, size);  // the first state has them all
            }
          }
        }
      }
  }
  [[nodiscard]] double total(std::int64_t b, std::int64_t key) const {
    double path = 0;
    for (std::int64_t t = 0; t < x.lengths[static_cast<std::size_t>(b)]; ++t)
      path += static_cast<double>(x.step(t, key));
    return path;
  }
  /// What ⟨dS, S⟩ + ⟨dZ, Z⟩ changes by as the key of a token turns.
  void add_token(std::int64_t b, std::int64_t t, std::int64_t state, std::int64_t key, double weight, double path,
                 std::vector<double>& turned, std::vector<double>& sizes) const {
    const std::vector<double> theta = x.rates();
    const double* given = &x.keys[x.row(b, t, key, p.key_heads) * static_cast<std::size_t>(p.d)];
    const double* v = &x.values[x.row(b, t, key, p.key_heads) * static_cast<std::size_t>(p.e)];
    std::vector<double> k(given, given + p.d);
    const auto first = [&](int u) { return x.rotary->halves ? u : 2 * u; };
    const auto second = [&](int u) { return x.rotary->halves ? u + static_cast<int>(pairs) : 2 * u + 1; };
    std::vector<int> pair(k.size()), partner(k.size());
    std::vector<double> sign(k.size());
    for (int u = 0; u < pairs; ++u) {
      const auto i = static_cast<std::size_t>(first(u)), j = static_cast<std::size_t>(second(u));
      const double angle = path * theta[static_cast<std::size_t>(u)];
      k[i] = std::cos(angle) * given[i] - std::sin(angle) * given[j];
      k[j] = std::sin(angle) * given[i] + std::cos(angle) * given[j];
      pair[i] = pair[j] = u;
      partner[i] = second(u), partner[j] = first(u);
      sign[i] = -1, sign[j] = 1;
    }
    std::int64_t m = state * D;
    for (std::size_t i = 0; i < k.size(); ++i)
      for (std::size_t j = i; j < k.size(); ++j, ++m) {
        double factor = static_cast<double>(of_Z[static_cast<std::size_t>(m)]), size = std::abs(factor);
        for (int c = 0; c < p.e; ++c) {
          const double term = static_cast<double>(of_S[static_cast<std::size_t>(m * p.e + c)]) * v[c];
          factor += term, size += std::abs(term);
        }
        const double root = weight * (i == j ? 1 : std::sqrt(2.));
        const auto add = [&](std::size_t turns, double other) {
          const double term = root * sign[turns] * k[static_cast<std::size_t>(partner[turns])] * other;
          turned[static_cast<std::size_t>(pair[turns])] += term * factor;
          sizes[static_cast<std::size_t>(pair[turns])] += std::abs(term) * size;
        };
        add(i, k[j]);
        add(j, k[i]);
      }
  }

  cuda::Problem p;
  const Tokens& x;
  std::int64_t cut, D, states, pairs;
  std::vector<float> of_S, of_Z;
  std::vector<double> of_angles;
  Expected beta, rates, angles;
};

/// Turns of a gradient are made of a state; and of no sequences all sums are 0.
void check_ends() {
  cuda::Problem p;
  p.power = 2, p.d = 16, p.e = 24, p.tokens = 10;
  p.carries_state = true;
  if (!can_run("ends of losses of states", p)) return;
  const Array<double> theta(std::vector<double>(8, .5)), d_rates(8), d_scale(1);
  p.rates = theta.data();
  p.pairing = cuda::Pairing::interleaved;
  const OwnState gradient(p);
  const Array<float> S(static_cast<std::size_t>(136 * p.e)), Z(136);
  const cuda::Status status = cuda::gradient_of_arrays(p, {S.data(), Z.data()}, {}, gradient.state, nullptr);
  require(
      status.code() == cuda::Code::bad_argument && std::strstr(status.text(), "state: its arrays are null pointers"),
      "a gradient with turns and no state: %s", status.text());
  p.batch = 0;
  cuda::Gradients gradients{};
  gradients.rates = d_rates.data(), gradients.scale = d_scale.data();
  if (!done(cuda::attend_vjp(p, {}, {}, gradients, nullptr, 0, nullptr))) return;
  runtime(cudaStreamSynchronize(nullptr));
  for (const auto* sums : {&d_rates, &d_scale})
    for (const double sum : sums->values()) require(sum == 0, "of no sequences a sum is %g", sum);
  done(cuda::state_of_arrays(p, {}, gradient.state, nullptr));
}

}  // namespace

void test_losses_of_states() {
  check_ends();
  for (const bool halves : {false, true}) {
    cuda::Problem p;
    p.power = 2, p.d = 16, p.e = 24;
    p.batch = 2, p.tokens = 150;
    p.query_heads = p.gate_heads = halves ? 4 : 2;
    p.key_heads = 2;
    p.element = halves ? cuda::Element::bf16 : cuda::Element::fp16;
    p.chunk = 64;
    p.carries_state = true;
    const std::string what = std::string("a loss of the state, ") + Format{p.element}.name() +
                             (halves ? ", rotary of halves" : ", rotary of neighbours");
    if (!can_run(what, p)) continue;
    Tokens x = Tokens(p, Gates::slow, 7).turned({halves, [](int t) { return .002 * (1 + .9 * std::sin(t)); }, 0});
    for (double& v : x.values) v = std::abs(v);
    Loss(p, x, halves ? 64 : 100).check(what);
  }
}

}  // namespace sympow::test
