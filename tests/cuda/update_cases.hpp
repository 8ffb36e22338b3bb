// The sums of chunks alone, for every power, number of channels and format.
#pragma once

#include "forward_cases.hpp"

namespace sympow::test {

/// All entries within their roundings: w k̂ and products of rows to T, P of them and 2 P - 1 that may meet numbers near
/// 0, w k̂ to float before; off_of_sums of tensor cores, and sums of at most 8 warps; values of floats are factors near
/// 0, too. "" or the first entry that is not.
template <class K>
std::string wrong_sums(const Forward<typename K::T, K::P, K::d>& run) {
  using T = typename K::T;
  constexpr int P = K::P, d = K::d, D = monomial_count(P, d);
  const auto& x = run.x;
  const Batch& batch = run.batch;
  const int chunk = batch.chunk, e = x.how.e;
  std::vector<double> sums(index(D * (e + 1))), sizes(sums.size()), plain(index(e + 1));
  for (int h = 0; h < x.how.heads.state; ++h)
    for (int b = 0; b < batch.size(); ++b)
      for (int n = 0; n < batch.chunks(b); ++n) {
        const int slot = h * batch.slots + batch.slot(b) + n, key_head = h / (x.how.heads.state / x.how.heads.key);
        const int tokens = std::min(chunk, batch.length(b) - n * chunk);
        const int first = std::max(0, int{run.tokens.reset[index(slot * chunk + tokens - 1)]});
        std::fill(sums.begin(), sums.end(), 0), std::fill(sizes.begin(), sizes.end(), 0);
        std::fill(plain.begin(), plain.end(), 0);
        for (int i = first; i < tokens; ++i) {
          const double weight = double{run.tokens.to_end[index(slot * chunk + i)]};
          std::vector<double> key(d), value(index(e + 1), 1);
          for (int c = 0; c < d; ++c)
            key[index(c)] = double{to_float(x.keys.data[x.keys.at(b, n * chunk + i, key_head, c)])} *
                            double{run.tokens.inverse[index(slot * chunk + i)]};
          for (int c = 0; c < e; ++c)
            value[index(c)] = double{to_float(x.values.data[x.values.at(b, n * chunk + i, key_head, c)])};
          for (std::size_t c = 0; c < value.size(); ++c) plain[c] += std::abs(value[c]);
          std::size_t m = 0;
          const auto monomials = [&](auto self, int power, int from, double product) -> void {
            for (int c = from; c < d; ++c) {
              if (power > 1) {
                self(self, power - 1, c, product * key[index(c)]);
                continue;
              }
              for (const double v : value) {
                sums[m] += product * key[index(c)] * v;
                sizes[m++] += std::abs(product * key[index(c)] * v);
              }
            }
          };
          monomials(monomials, P, 0, weight);
        }
        for (int m = 0; m < D; ++m)
          for (int c = 0; c <= e; ++c) {
            const std::size_t entry = index(slot) * index(D) + index(m), at = index(m * (e + 1) + c);
            const double got = double{c < e ? run.own_sums[entry * index(e) + index(c)] : run.own_normaliser[entry]};
            const double roundings = std::pow(1 + u_of<T>, P) * (1 + u_float) - 1;
            const double floats = (off_of_sums<T>((chunk + 15) / 16, x.how.products) + 8 * u_float) * (1 + roundings);
            const double off = (roundings + floats) * sizes[at] + (2 * P - 1) * least_of<T> * plain[index(c)] +
                               (sizeof(T) == 2 ? 0 : least_of<T> * sizes[index(m * (e + 1) + e)]);
            if (std::isnan(sums[at]) ? !std::isnan(got) : !(std::abs(got - sums[at]) <= off)) {
              std::ostringstream text;
              text << "monomial " << m << ", channel " << c << " of slot " << slot << ": " << got << " is not "
                   << sums[at] << " ± " << off;
              return text.str();
            }
          }
      }
  return "";
}

/// Weights and the sums of chunks: their faults and missing entries, else what is wrong in them.
template <class K>
std::string run_update(Forward<typename K::T, K::P, K::d>& forward, const host::Options& options = {}) {
  const host::Report weights = forward.weights(options);
  host::Report report = forward.update(options);
  const std::vector<bool> used = forward.batch.used(forward.heads().state);
  const std::size_t D = index(monomial_count(K::P, K::d)), e = index(forward.x.how.e);
  forward.own_sums.check_stored(report, "sums", [&](std::size_t i) { return bool{used[i / (D * e)]}; });
  forward.own_normaliser.check_stored(report, "normaliser", [&](std::size_t i) { return bool{used[i / D]}; });
  if (!weights.clean()) return weights.text();
  return report.clean() ? wrong_sums<K>(forward) : report.text();
}

/// Ragged and packed chunks, value channels, gates that end in resets, norms, a NaN that is gone and one that is not;
/// the same bits in any order of warps; all sums of an mma.
template <class K>
void check_update(int most) {
  const std::function<double(int)> gates[] = {
      {}, [](int t) { return t % 16 == 5 ? -1.5 : -.02; }, [](int t) { return t == 40 || t == 66 ? -infinity : -.1; }};
  for (const auto& gate : gates)
    for (const int e : {8, 72}) {
      Case how{{1, 0, most, std::min(most, 64)}};
      how.packed = e == 8;
      how.heads = e == 8 ? Heads{2, 2, 1} : Heads{1, 1, 1};
      how.e = e;
      how.chunk = e == 8 ? 64 : 192;
      how.log_gate = gate;
      how.key_decades = 2;
      std::string first;
      for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
        const auto mma = schedule == host::Schedule::forward ? host::MmaSum::nearest : host::MmaSum::hopper;
        ArraysOf<K> x(how);
        if (e == 72) x.set(x.values, 2, std::min(most - 1, 66), 0, 70, not_a_number);
        if (e == 72) x.set(x.keys, 2, 65, 0, 3, not_a_number);
        Forward<typename K::T, K::P, K::d> forward(x);
        CAPTURE(K::P, K::d, e, static_cast<int>(schedule));
        REQUIRE(run_update<K>(forward, {schedule, 5, mma, {}}) == "");
        const std::string all = bits(forward.own_sums, forward.own_normaliser);
        if (schedule == host::Schedule::reverse) first = all;
        if (schedule == host::Schedule::random) REQUIRE(all == first);
      }
    }
}

}  // namespace sympow::test
