// The automatic form against every fixed choice, on shapes around all crossovers; and what the costs of its model are
// on this machine.
#include <array>
#include <span>
#include <utility>

#include "sequences.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

ProblemShape shape_of(Index T, Index d, int P) {
  return {.T = T, .d = d, .e = d, .D = static_cast<double>(symmetric_dimension(d, P))};
}

// ---- the costs ----

constexpr Costs none{.score = 0, .segment = 0};

// Operations in the time of a run: those that the chunked form does of d = e = 64 and P = 2, which are nearly all in
// products.
template <class Run>
double operations(Run&& run) {
  const Index T = unless_smoke(1536, 192), d = 64, chunk = 192;
  ConformalTokens x(d, T);
  State<float, SymmetricPower<2>> state(d, d);
  Times best;
  for (int round = 0; round < unless_smoke(5, 1); ++round) {
    best.reference =
        std::min(best.reference, seconds([&] {
                   chunked(SymmetricPower<2>{}, x.transition, x.Q, x.K, x.V, state, x.Y, x.workspace, {.chunk = chunk});
                   benchmark::DoNotOptimize(x.Y.data());
                 }));
    best.own = std::min(best.own, seconds(run));
  }
  ProblemShape shape = shape_of(T, d, 2);
  shape.from_nothing = false;
  return best.own / best.reference * detail::cost_of_chunks(shape, static_cast<double>(chunk), none);
}

// What the model without costs leaves over, for each score and for each entry of φ of a segment.
struct Leftovers {
  double score, segment;
};

template <int P>
Leftovers leftovers(Index d) {
  const Index T = unless_smoke(3072, 384), few = unless_smoke(512, 96), small = 48, large = 192;
  const SymmetricPower<P> feature;
  ConformalTokens x(d, T), y(d, few);
  State<float, SymmetricPower<P>> state(d, d);
  const ProblemShape shape = shape_of(T, d, P);
  const auto excess = [&](Index chunk) {
    return operations([&] {
             chunked(feature, x.transition, x.Q, x.K, x.V, state, x.Y, x.workspace, {.chunk = chunk});
             benchmark::DoNotOptimize(x.Y.data());
           }) -
           detail::cost_of_chunks(shape, static_cast<double>(chunk), none);
  };
  const auto pairs = [&](ConformalTokens& some) {
    return operations([&] {
             attention(feature, some.transition, some.Q, some.K, some.V, some.Y, some.workspace);
             benchmark::DoNotOptimize(some.Y.data());
           }) -
           detail::cost_of_pairs(shape_of(some.T, d, P), static_cast<double>(some.T), none);
  };
  const auto all = static_cast<double>(T), some = static_cast<double>(few);
  return {(pairs(x) - pairs(y)) / ((all * all - some * some) / 2),
          (excess(small) - excess(large)) / (all / small - all / large) / (shape.D + detail::segment_overhead(d))};
}

// The costs that the automatic form goes by: the library's, or with --calibrate those found.
Costs costs;

void calibrate(benchmark::State& bench) {
  std::array<Leftovers, 4> of_shapes{};
  for (auto _ : bench)
    bench.SetIterationTime(
        seconds([&] { of_shapes = {leftovers<2>(32), leftovers<2>(64), leftovers<3>(32), leftovers<4>(16)}; }));
  const auto mean = [&](double Leftovers::* cost) {
    double sum = 0;
    for (const Leftovers& shape : of_shapes) sum += std::max(shape.*cost, 0.) / static_cast<double>(of_shapes.size());
    return sum;
  };
  const Costs found{mean(&Leftovers::score), mean(&Leftovers::segment)};
  enter({.name = "costs of this machine",
         .value = found.score + found.segment,
         .measured = text("Costs{%.0f, %.0f}", found.score, found.segment),
         .asked = text("the library's: Costs{%.0f, %.0f}", costs.score, costs.segment),
         .note = "score, segment"});
  if (calibrating()) costs = found;
}
BENCHMARK(calibrate)->Iterations(1)->UseManualTime()->Unit(benchmark::kSecond);

// ---- the choice ----

// What a call begins with, and whether it leaves it behind.
enum class From { no_state, empty_state, tokens };
constexpr const char* names[] = {"without a state", "from an empty state", "going on"};

// How much slower the automatic form of T tokens is than the fastest. Calls of microseconds take many rounds: of ten,
// the best of two names for the same work came out 1.4 apart. Where it looks slower, they take more.
template <int P>
double slower(Index d, Index T, From from) {
  using Choice = std::pair<Form, Index>;
  std::vector<Choice> choices{{Form::automatic, 0}, {Form::chunked, 96}, {Form::chunked, 192}, {Form::chunked, 384}};
  if (T <= 512) choices.insert(choices.end(), {{Form::chunked, T}, {Form::recurrent, 0}});
  if (from == From::no_state) choices.push_back({Form::attention, 0});

  // Longer than the clock's own time; and a tail that one call leaves is the next one's work.
  const Index least = from == From::tokens && T <= 512 ? 4 : 1, most = from == From::empty_state ? 8 : 64;
  const Index calls = std::clamp<Index>(64 / T, least, most);
  const Index own_states = from == From::tokens ? 1 : calls;
  ConformalTokens x(d, T * calls);
  Workspaces<float> workspaces(1);
  std::vector<State<float, SymmetricPower<P>>> states(static_cast<std::size_t>(own_states),
                                                      State<float, SymmetricPower<P>>(d, d));
  const auto run = [&](Choice choice) {
    const BatchOptions options{.form = choice.first, .threads = 1, .head = {.chunk = choice.second, .costs = costs}};
    for (Index n = 0; n < calls; ++n) {
      const Index begin = n * T;
      const auto view = [&](Matrix<float>& all) { return Heads<float>::bhtd(all.col(begin).data(), 1, 1, T, d); };
      const auto transition =
          decay(x.log_gamma.segment(begin, T)) * rotary(x.theta, x.beta.segment(begin, T), Pairing::interleaved);
      const std::span state(&states[static_cast<std::size_t>(n % own_states)], 1);
      attend(SymmetricPower<P>{}, transition,
             {.Q = view(x.Q),
              .K = view(x.K),
              .V = view(x.V),
              .states = from == From::no_state ? RangeRef<State<float, SymmetricPower<P>>>() : state,
              .Y = view(x.Y),
              .workspaces = workspaces,
              .options = options});
    }
    benchmark::DoNotOptimize(x.Y.data());
  };
  std::vector<double> best(choices.size(), never);
  if (from == From::tokens) run(choices[0]);
  const auto before = states;
  run(choices[0]);
  const auto ratio = [&] { return best[0] / *std::min_element(best.begin(), best.end()); };
  const double start = wall_clock(), enough = smoke() ? 0 : .3, most_seconds = smoke() ? 0 : 1.5;
  const auto goes_on = [&](int round) {
    const double spent = wall_clock() - start;
    return round < 3 || spent < enough || (spent < most_seconds && !(ratio() < 1.08));
  };
  for (int round = 0; goes_on(round); ++round)
    for (std::size_t turn = 0; turn < choices.size(); ++turn) {
      // A copy of states lies where the one before the last lay. The order changes, so that no form is always favored.
      const std::size_t n = (turn + static_cast<std::size_t>(round)) % choices.size();
      if (from != From::no_state) states = before;
      best[n] = std::min(best[n], seconds([&] { run(choices[n]); }));
    }
  return ratio();
}

void automatic_form(benchmark::State& bench) {
  double worst = 0;
  std::string of;
  int shapes = 0;
  const auto try_all = [&]<int P>(std::integral_constant<int, P>, Index d, Index longest) {
    if (d > unless_smoke(d, 16)) return;
    for (const From from : {From::no_state, From::empty_state, From::tokens})
      for (const Index T : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}) {
        if (T > unless_smoke(longest, 2)) break;
        const double ratio = slower<P>(d, T, from);
        ++shapes;
        if (ratio > 1.08)
          std::printf("P = %d, d = %d, T = %d, %s: %.2f\n", P, static_cast<int>(d), static_cast<int>(T),
                      names[static_cast<int>(from)], ratio);
        if (ratio <= worst || !std::isfinite(worst)) continue;  // what was not measured is the worst
        worst = ratio;
        of = text("P = %d, d = %d, T = %d, %s", P, static_cast<int>(d), static_cast<int>(T),
                  names[static_cast<int>(from)]);
      }
  };
  for (auto _ : bench)
    bench.SetIterationTime(seconds([&] {
      try_all(std::integral_constant<int, 2>{}, 16, 4096);
      try_all(std::integral_constant<int, 2>{}, 32, 4096);
      try_all(std::integral_constant<int, 2>{}, 64, 8192);
      try_all(std::integral_constant<int, 2>{}, 128, 16384);
      try_all(std::integral_constant<int, 3>{}, 16, 4096);
      try_all(std::integral_constant<int, 3>{}, 32, 8192);
      try_all(std::integral_constant<int, 4>{}, 16, 8192);
    }));
  enter({text("the automatic form, the worst of %d shapes", shapes), worst, text("%.2f", worst),
         "at most 1.15 times as slow as the fastest form and chunk", worst <= 1.15, of});
}
BENCHMARK(automatic_form)->Iterations(1)->UseManualTime()->Unit(benchmark::kSecond);

}  // namespace
