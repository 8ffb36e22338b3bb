// States from a CPU to a GPU and back.
#include <sympow/c/handles.hpp>

#include <new>

#include "call.hpp"
#include "states.hpp"

namespace SYMPOW_NAMESPACE::c {

namespace {

/// Memory of the host, laid out as that of a device.
struct HostMemory {
  static constexpr std::align_val_t alignment{256};
  explicit HostMemory(std::size_t bytes) : data(static_cast<std::byte*>(::operator new(bytes, alignment))) {}
  ~HostMemory() { ::operator delete(data, alignment); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::byte* const data;
};

/// visit(n, first entry of S, of Z, of angles): those of a key head are of all its state heads.
void each_part(const DeviceShape& shape, const auto& visit) {
  const auto D = static_cast<std::size_t>(cuda::monomials(shape.power, size_of_cuda(shape.d)));
  const auto e = static_cast<std::size_t>(shape.e), pairs = static_cast<std::size_t>(shape.d / 2);
  std::size_t n = 0;
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h, ++n) {
      const auto key_head = static_cast<std::size_t>(b * shape.key_heads + h * shape.key_heads / shape.heads);
      visit(n, n * D * e, n * D, key_head * pairs);
    }
}

void check_sizes(const StateShape& on_cpu, const DeviceShape& on_device) {
  if (on_cpu.scores.power != on_device.power)
    detail::raise<InvalidArgument>("from and to are of ", name_of(on_cpu.scores), " on the CPU and power ",
                                   on_device.power, " on the device, must be of the same");
  detail::check_size("sequences on the CPU", on_cpu.batch, on_device.batch, "those on the device");
  detail::check_size("heads on the CPU", on_cpu.heads, on_device.heads, "those on the device");
  detail::check_size("d on the CPU", on_cpu.d, on_device.d, "that on the device");
  detail::check_size("e on the CPU", on_cpu.e, on_device.e, "that on the device");
}

/// The angles of a state, where a first one of its key head has left others.
void write_turns(double* to, const DeviceState& state, Index pairs, bool is_first) {
  for (Index j = 0; j < pairs; ++j) {
    const double turn = state.turns.empty() ? 0. : std::remainder(state.turns[static_cast<std::size_t>(j)], 1.);
    if (is_first)
      to[j] = turn;
    else if (!(std::abs(std::remainder(to[j] - turn, 1.)) <= 1e-9))
      detail::raise<FrameMismatch>("from: states of one key head have turned by different angles, by ", to[j], " and ",
                                   turn, " turns; on a device they turn alike");
  }
}

void to_device(const States& from, StatesOnDevice& to, std::vector<Index> tokens, cuda::Stream stream) {
  const DeviceShape& shape = to.shape();
  const std::vector<DeviceState> states = from.device_states();
  const HostMemory memory(to.state_bytes());
  std::fill_n(memory.data, to.state_bytes(), std::byte{0});
  const cuda::State all = to.state_in(memory.data);
  each_part(shape, [&](std::size_t n, std::size_t sums, std::size_t normaliser, std::size_t turns) {
    const DeviceState& one = states[n];
    std::copy(one.sums.begin(), one.sums.end(), all.sums + sums);
    std::copy(one.normaliser.begin(), one.normaliser.end(), all.normaliser + normaliser);
    all.level[n] = one.level;
    all.mass[n] = one.mass;
    write_turns(all.turns + turns, one, shape.d / 2, static_cast<Index>(n) % (shape.heads / shape.key_heads) == 0);
  });
  const CurrentDevice current(shape.device.id);
  to.guarded([&] { to.write(memory.data, tokens, stream); });
}

void to_cpu(const StatesOnDevice& from, States& to, const std::vector<Index>& tokens, cuda::Stream stream) {
  const DeviceShape& shape = from.shape();
  const HostMemory memory(from.state_bytes());
  from.read(memory.data, stream);
  const cuda::State all = from.state_in(memory.data);
  const auto D = static_cast<std::ptrdiff_t>(cuda::monomials(shape.power, size_of_cuda(shape.d)));
  std::vector<DeviceState> states;
  each_part(shape, [&](std::size_t n, std::size_t sums, std::size_t normaliser, std::size_t turns) {
    const auto part = [](const auto* begin, std::ptrdiff_t count) { return std::vector(begin, begin + count); };
    states.push_back({part(all.sums + sums, D * shape.e), part(all.normaliser + normaliser, D), all.level[n],
                      all.mass[n], part(all.turns + turns, shape.d / 2)});
    auto& angles = states.back().turns;  // of what has never turned: none
    if (std::all_of(angles.begin(), angles.end(), [](double x) { return x == 0; })) angles.clear();
  });
  to.set(states, tokens);
}

}  // namespace

void move_states(const sympow_states& from, const sympow_states& to, const std::optional<Array>& given_tokens,
                 const sympow_workspace* workspace, void* given_stream) {
  const auto stream = static_cast<cuda::Stream>(given_stream);
  const bool goes_to_device = to.on_device != nullptr;
  auto& device = static_cast<StatesOnDevice&>(goes_to_device ? *to.on_device : *from.on_device);
  States& cpu_states = goes_to_device ? *from.states : *to.states;
  const DeviceShape& shape = device.shape();
  check_sizes(cpu_states.shape(), shape);
  std::vector<Index> tokens;
  if (given_tokens) {
    check_axis(*given_tokens, 0, shape.batch, "sequences of the states");
    tokens = lengths_in(*given_tokens, std::numeric_limits<Index>::max());
  }
  for (Index b = 0; !given_tokens && b < shape.batch; ++b)
    tokens.push_back(goes_to_device ? (shape.heads == 0 ? 0 : cpu_states.tokens(b, 0)) : device.tokens(b));
  if (goes_to_device) return to_device(cpu_states, device, std::move(tokens), stream);

  device.check_whole();
  const CurrentDevice current(shape.device.id);
  if (device.is_empty()) {
    cpu_states.clear();
    return;
  }
  if (device.has_tail()) {
    const DeviceMemory& memory = workspace_in(workspace, device.fold_bytes(), shape.device);
    device.guarded([&] { device.fold(memory, stream); });
  }
  to_cpu(device, cpu_states, tokens, stream);
}

}  // namespace SYMPOW_NAMESPACE::c
