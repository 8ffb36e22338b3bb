// A batch on the device as the C interface and sympow::cuda take it, side by side.
#pragma once

#include <random>
#include <utility>

#include <sympow/cuda/gradient.hpp>

#include "c/tensors.hpp"
#include "cuda/device_test/device.hpp"

namespace sympow::test {

/// The status must be OK.
inline bool fine(sympow_status status) {
  return require(status == SYMPOW_OK, "status %d: %s", static_cast<int>(status), sympow_error());
}

/// A dense tensor on the device, which begins as bytes 0xff.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  DeviceTensor(std::vector<std::int64_t> shape, sympow_dtype type)
      : shape_(std::move(shape)), type_(type), memory_(count() * type.bits / 8) {}
  template <class T>
  DeviceTensor(std::vector<std::int64_t> shape, const std::vector<T>& numbers)
      : DeviceTensor(std::move(shape), dtype_of<T>()) {
    runtime(cudaMemcpy(memory_.data(), numbers.data(), memory_.size(), cudaMemcpyHostToDevice));
  }
  DeviceTensor(DeviceTensor&&) = default;

  /// From token t of axis 1 on, so many of them; all without an argument.
  const sympow_tensor* view(std::int64_t t = 0, std::int64_t tokens = -1) {
    strides_.assign(shape_.size(), 1);
    for (std::size_t n = shape_.size() - 1; n-- > 0;) strides_[n] = strides_[n + 1] * shape_[n + 1];
    part_ = shape_;
    if (tokens >= 0) part_[1] = tokens;
    const std::int64_t entry = shape_.size() > 1 ? t * strides_[1] : 0;
    view_ = {memory_.data(), {SYMPOW_CUDA, 0}, static_cast<std::int32_t>(shape_.size()),          type_,
             part_.data(),   strides_.data(),  static_cast<std::uint64_t>(entry * type_.bits / 8)};
    return &view_;
  }
  cuda::View cuda_view(std::int64_t t = 0) {
    const sympow_tensor x = *view(t);
    const auto element = type_.bits == 32              ? cuda::Element::f32
                         : type_.code == SYMPOW_BFLOAT ? cuda::Element::bf16
                                                       : cuda::Element::fp16;
    return {memory_.data() + x.byte_offset, element, strides_[0], strides_[1], strides_[2]};
  }
  template <class T = std::byte>
  T* data() {
    return reinterpret_cast<T*>(memory_.data());
  }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::vector<std::byte> bytes() const { return memory_.values(); }
  /// Of float32.
  std::vector<float> numbers() const {
    const std::vector<std::byte> raw = bytes();
    std::vector<float> x(raw.size() / sizeof(float));
    std::memcpy(x.data(), raw.data(), raw.size());
    return x;
  }

 private:
  std::size_t count() const {
    std::size_t n = 1;
    for (const auto size : shape_) n *= static_cast<std::size_t>(size);
    return n;
  }
  std::vector<std::int64_t> shape_, strides_, part_;
  sympow_dtype type_ = {};
  Array<std::byte> memory_{0};
  sympow_tensor view_ = {};
};

constexpr sympow_dtype bf16_type = {SYMPOW_BFLOAT, 16, 1}, fp16_type = {SYMPOW_FLOAT, 16, 1},
                       f32_type = {SYMPOW_FLOAT, 32, 1};

/// Numbers of size ½ to 2, of either sign.
inline DeviceTensor random_tensor(std::mt19937& random, std::vector<std::int64_t> shape, sympow_dtype type) {
  std::size_t count = 1;
  for (const auto n : shape) count *= static_cast<std::size_t>(n);
  std::vector<std::uint32_t> wide(count);
  std::vector<std::uint16_t> narrow(count);
  for (std::size_t n = 0; n < count; ++n) {
    const std::uint32_t r = static_cast<std::uint32_t>(random()), sign = r >> 31, exponent = r % 2, digits = r >> 3;
    wide[n] = sign << 31 | (126 + exponent) << 23 | (digits & 0x7fffff);
    narrow[n] = static_cast<std::uint16_t>(
        type.code == SYMPOW_BFLOAT ? wide[n] >> 16 : sign << 15 | (14 + exponent) << 10 | (digits & 0x3ff));
  }
  DeviceTensor x(std::move(shape), type);
  const void* from = type.bits == 32 ? static_cast<const void*>(wide.data()) : narrow.data();
  runtime(cudaMemcpy(x.data(), from, count * type.bits / 8, cudaMemcpyHostToDevice));
  return x;
}

/// What a batch has.
struct Sizes {
  sympow_dtype type = bf16_type;
  std::int64_t B = 2, T = 70, H = 2, Hk = 1, Hg = 1, d = 16, e = 16;  ///< Hg 0: no gates
  bool rotary = false, beta = false;
  std::vector<std::int32_t> lengths = {};
};

/// The arrays of a call; those that it does not have are not given.
class Batch {
 public:
  const Sizes of;

 private:
  std::mt19937 random_;

 public:
  DeviceTensor q, k, v, gates, theta, beta, lengths, rows, expected;

  explicit Batch(const Sizes& x, unsigned seed = 1)
      : of(x),
        random_(seed),
        q(random_tensor(random_, {x.B, x.T, x.H, x.d}, x.type)),
        k(random_tensor(random_, {x.B, x.T, x.Hk, x.d}, x.type)),
        v(random_tensor(random_, {x.B, x.T, x.Hk, x.e}, x.type)),
        gates({x.B, x.T, std::max<std::int64_t>(x.Hg, 1)},
              uniform(x.B * x.T * std::max<std::int64_t>(x.Hg, 1), -.1f, 0)),
        theta({x.d / 2}, rates(x.d / 2)),
        beta({x.B, x.T, x.Hk}, uniform(x.B * x.T * x.Hk, .5f, 1.5f)),
        lengths({x.B}, x.lengths.empty() ? std::vector<std::int32_t>(static_cast<std::size_t>(x.B)) : x.lengths),
        rows({x.B, x.T, x.H, x.e}, x.type),
        expected({x.B, x.T, x.H, x.e}, x.type) {}

  /// From token t on.
  sympow_inputs inputs(std::int64_t t = 0, std::int64_t tokens = -1) {
    sympow_inputs in = SYMPOW_INPUTS_INIT;
    in.queries = q.view(t, tokens), in.keys = k.view(t, tokens), in.values = v.view(t, tokens);
    if (of.Hg > 0) in.log_gates = gates.view(t, tokens);
    if (of.rotary) in.theta = theta.view();
    if (of.beta) in.beta = beta.view(t, tokens);
    if (!of.lengths.empty()) in.lengths = lengths.view();
    return in;
  }
  cuda::Problem problem(int power, std::int64_t tokens = -1) {
    cuda::Problem p;
    p.power = power, p.d = static_cast<int>(of.d), p.e = static_cast<int>(of.e);
    p.batch = of.B, p.tokens = tokens < 0 ? of.T : tokens;
    p.query_heads = of.H, p.key_heads = of.Hk, p.gate_heads = of.Hg;
    p.element = q.cuda_view().element;
    if (of.rotary) p.rates = theta.data<double>();
    p.pairing = cuda::Pairing::interleaved;
    if (!of.lengths.empty()) p.lengths = lengths.data<std::int32_t>();
    return p;
  }
  cuda::Inputs cuda_inputs(std::int64_t t = 0) {
    cuda::Inputs in{q.cuda_view(t), k.cuda_view(t), v.cuda_view(t), {}, {}, {}};
    if (of.Hg > 0) in.log_gates = gates.cuda_view(t);
    if (of.beta) in.beta = beta.cuda_view(t);
    return in;
  }
  DeviceTensor more(std::vector<std::int64_t> shape, sympow_dtype type) {
    return random_tensor(random_, std::move(shape), type);
  }

 private:
  std::vector<float> uniform(std::int64_t count, float low, float high) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& number : x) number = low + (high - low) * static_cast<float>(random_() >> 8) * 0x1p-24f;
    return x;
  }
  static std::vector<double> rates(std::int64_t pairs) {
    std::vector<double> x;
    for (std::int64_t j = 0; j < pairs; ++j) x.push_back(std::pow(.5, static_cast<double>(j)));
    return x;
  }
};

/// Memory on the device as the C interface takes it.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) : memory_(bytes), size_(static_cast<std::int64_t>(bytes)) {}
  const sympow_tensor* view() {
    view_ = {memory_.data(), {SYMPOW_CUDA, 0}, 1, {SYMPOW_UINT, 8, 1}, &size_, nullptr, 0};
    return &view_;
  }
  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }

 private:
  Array<std::byte> memory_;
  std::int64_t size_;
  sympow_tensor view_ = {};
};

/// A workspace for calls of a kind.
struct DeviceWorkspace {
  DeviceBytes memory;
  CWorkspace handle;

  DeviceWorkspace(const sympow_attention* attention, const sympow_inputs& inputs, std::int32_t call)
      : memory(bytes(attention, inputs, call)) {
    fine(sympow_workspace_create(memory.view(), &handle));
  }
  static std::size_t bytes(const sympow_attention* attention, const sympow_inputs& inputs, std::int32_t call) {
    std::size_t n = 0;
    fine(sympow_workspace_bytes(attention, &inputs, call, &n));
    return n;
  }
};

inline void require_same(const std::string& what, const DeviceTensor& a, const DeviceTensor& b) {
  runtime(cudaDeviceSynchronize());
  const std::vector<std::byte> x = a.bytes(), y = b.bytes();
  std::size_t differ = 0;
  for (std::size_t n = 0; n < x.size(); ++n) differ += x[n] != y[n];
  require(x.size() == y.size() && differ == 0, "%s: %d bytes differ", what.c_str(), static_cast<int>(differ));
  std::printf("  %s\n", what.c_str());
}

}  // namespace sympow::test
