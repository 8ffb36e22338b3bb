// Two requests on a GPU: one decodes on a stream of its own while the prompt of the other is read on another. Then
// states move between GPU and CPU, and the next tokens are decoded on both.
#include <algorithm>
#include <cstdio>

#include <sympow/sympow.hpp>

#include "request.hpp"

namespace cuda_decode {
namespace {

/// States of all sequences and heads, from the device or to it.
std::vector<sympow::DeviceState> states_from(const sympow::cuda::State& state) {
  const std::size_t D = static_cast<std::size_t>(sympow::symmetric_dimension(d, power)), n = batch * heads;
  const auto sums = copy_to_host(state.sums, n * D * d), normaliser = copy_to_host(state.normaliser, n * D);
  const auto level = copy_to_host(state.level, n);
  const auto mass = copy_to_host(state.mass, n);
  std::vector<sympow::DeviceState> states(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto part = [&](const std::vector<float>& all, std::size_t size) {
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(i * size),
                                all.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
    };
    states[i] = {part(sums, D * d), part(normaliser, D), level[i], mass[i]};
  }
  return states;
}
void states_to(const sympow::cuda::State& state, const std::vector<sympow::DeviceState>& states) {
  std::vector<float> sums, normaliser, mass;
  std::vector<double> level;
  for (const auto& one : states) {
    sums.insert(sums.end(), one.sums.begin(), one.sums.end());
    normaliser.insert(normaliser.end(), one.normaliser.begin(), one.normaliser.end());
    level.push_back(one.level), mass.push_back(one.mass);
  }
  copy_to_device(state.sums, sums), copy_to_device(state.normaliser, normaliser);
  copy_to_device(state.level, level), copy_to_device(state.mass, mass);
}

/// The rows of tokens first … first + count - 1 on the CPU, which moves the state on.
Eigen::MatrixXd rows_on_cpu(const Request& r, Index b, Index h, Index first, Index count, CpuState& state) {
  const auto transition = sympow::decay(r.gates.head(b, h, first, count));
  return sympow::recurrent(sympow::SymmetricPower<power>{}, transition, r.queries.head(b, h, first, count),
                           r.keys.head(b, h, first, count), r.values.head(b, h, first, count), state);
}

/// The largest difference of the device's rows from those of CPU states, in units of what the row rule allows:
///
///     |ΔY_i| ≤ 2^-8 |Y_i| + 4 u (1 + √n) κ_i max|V|      n the tokens that were read
///
/// where the first term is the rounding of Y to bf16, and u the unit roundoff of what the states were made of.
double worst_row(const Request& r, Index first, Index count, std::vector<CpuState>& states, double u) {
  const Array rows = r.rows();
  const std::vector<float> condition = r.condition();
  double worst = 0;
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h) {
      auto& state = states[static_cast<std::size_t>(b * heads + h)];
      const Eigen::MatrixXd expected = rows_on_cpu(r, b, h, first, count, state);
      const Eigen::MatrixXd actual = rows.head(b, h, first, count);
      const double largest = r.values.head(b, h, 0, first + count).cwiseAbs().maxCoeff();
      for (Index t = 0; t < count; ++t) {
        const double kappa = condition[static_cast<std::size_t>((b * tokens + first + t) * heads + h)];
        const double noise = 4 * u * (1 + std::sqrt(static_cast<double>(first + t + 1))) * kappa * largest;
        const auto allowed = expected.col(t).cwiseAbs().array() * 0x1p-8 + noise;
        const double ratio = ((actual - expected).col(t).cwiseAbs().array() / allowed).maxCoeff();
        worst = ratio <= worst ? worst : ratio;  // NaN, too
      }
    }
  return worst;
}

bool report(const char* what, double worst) {
  std::printf("%-42s %.2g of what the row rule allows\n", what, worst);
  return worst <= 1;
}

int run() {
  std::mt19937 random(1);
  Pool pool(std::size_t{256} << 20);
  Request first(random, pool), second(random, pool);
  const Stream prefill, decode;

  // The first request decodes while the prompt of the second one is read.
  constexpr Index moved = tokens - 10;  // the states of the first go to the CPU after so many tokens
  first.prefill(prefill);
  decode.wait_for(prefill);
  second.prefill(prefill);
  first.decode(decode, prompt, moved);
  decode.wait_for(prefill);
  second.decode(decode, prompt, tokens);

  // The first one's states come to the CPU, go on there, and on the GPU.
  first.fold(decode);
  decode.wait();
  constexpr double bf16 = 0x1p-8, single = 0x1p-24;  // unit roundoffs
  std::vector<CpuState> from_gpu, own;
  for (const auto& one : states_from(first.state))
    from_gpu.push_back(sympow::state_of_device<double, power>(one, d, d, moved));
  first.decode(decode, moved, tokens);
  decode.wait();
  bool holds =
      report("states from the GPU, decoded on both:", worst_row(first, moved, tokens - moved, from_gpu, single));

  // The second one, all of it on the CPU; a fold makes products of bf16 of its keys.
  std::vector<sympow::DeviceState> to_gpu;
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h) {
      own.emplace_back(d, d);
      static_cast<void>(rows_on_cpu(second, b, h, 0, prompt, own.back()));
      to_gpu.push_back(sympow::device_state(own.back()));
    }
  auto after_prompt = own;
  holds &= report("prompt read and tokens decoded on both:", worst_row(second, prompt, generated, after_prompt, bf16));

  // Its states after the prompt go from the CPU to the GPU, which decodes anew, as far as the tail reaches.
  second.fold(decode);
  decode.wait();
  states_to(second.state, to_gpu);
  second.decode(decode, prompt, prompt + 64);
  decode.wait();
  holds &= report("states from the CPU, decoded on both:", worst_row(second, prompt, 64, own, single));
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace cuda_decode

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("There is no GPU here: nothing was decoded.\n");
    return 0;
  }
  try {
    return cuda_decode::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_decode: %s\n", error.what());
    return 2;
  }
}
