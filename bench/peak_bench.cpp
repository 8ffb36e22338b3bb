// What cases are compared with: the product, as a share of the peak.
#include "bars.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

void product(benchmark::State& bench) {
  Times times = in_turns(bench, [] {}, Product());
  const double of_peak = share(times.own, times, Product::operations());
  enter({.name = text("Eigen's product, %d x %d", static_cast<int>(Product::size()), static_cast<int>(Product::size())),
         .value = of_peak,
         .measured = text("%.2f", of_peak),
         .asked = "of the FMA peak",
         .note = text("%.1f of %.1f GFLOP/s", Product::operations() / times.own / 1e9,
                      FmaPeak::operations / times.peak / 1e9),
         .failed = is_impossible(of_peak)});
}
BENCHMARK(product)->Iterations(30)->UseManualTime();

}  // namespace
