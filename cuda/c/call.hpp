// A call of the C interface as sympow::cuda takes it: its problem, its arrays, and what sympow::cuda says of them.
#pragma once

#include <algorithm>
#include <limits>

#include <sympow/c/calls.hpp>
#include <sympow/cuda/gradient.hpp>

namespace SYMPOW_NAMESPACE::c {

/// What sympow::cuda says, in the names of this interface.
inline std::string renamed(const std::string& text) {
  struct Names {
    const char *from, *to;
  };
  constexpr Names names[] = {{"gradients of rows", "d_rows"},
                             {"gradients of queries", "gradients->queries"},
                             {"gradients of keys", "gradients->keys"},
                             {"gradients of values", "gradients->values"},
                             {"gradients of log gates", "gradients->log_gates"},
                             {"gradients of beta", "gradients->beta"},
                             {"gradients of rates", "gradients->theta"},
                             {"log gates", "inputs->log_gates"},
                             {"queries", "inputs->queries"},
                             {"keys", "inputs->keys"},
                             {"values", "inputs->values"},
                             {"beta", "inputs->beta"},
                             {"rates", "inputs->theta"},
                             {"lengths", "inputs->lengths"},
                             {"chunk", "options->chunk"},
                             {"scale", "options->scale"},
                             {"query_heads", "heads of the queries"},
                             {"key_heads", "heads of the keys"},
                             {"gate_heads", "heads of the log gates"},
                             {"batch", "sequences"},
                             {"e is", "e, numbers of a value, is"}};
  for (const Names& x : names) {
    const std::string from = x.from;
    if (text.starts_with(from) && (text.size() == from.size() || text[from.size()] == ':' || text[from.size()] == ' '))
      return x.to + text.substr(from.size());
  }
  return text;
}

/// Throws what a status of sympow::cuda means.
inline void check(const cuda::Status& status) {
  using cuda::Code;
  if (status.ok()) return;
  const std::string text = renamed(status.text());
  switch (status.code()) {
    case Code::not_compiled:
    case Code::device_too_small:
      throw NotBuilt(text);
    case Code::too_large:
      throw DimensionOverflow(text);
    case Code::cuda_error:
      throw DeviceError("CUDA: " + text);
    default:
      throw InvalidArgument(text);
  }
}

inline cuda::Element element_of_cuda(Element x) {
  return x == Element::float16    ? cuda::Element::fp16
         : x == Element::bfloat16 ? cuda::Element::bf16
                                  : cuda::Element::f32;
}

/// A size for sympow::cuda, which refuses what is so large.
inline int size_of_cuda(Index x) { return static_cast<int>(std::min<Index>(x, std::numeric_limits<int>::max())); }

inline cuda::View view_of(const Array& x) {
  return {x.data, element_of_cuda(x.element), x.strides[0], x.strides[1], x.strides[2]};
}
inline cuda::View view_of(const std::optional<Array>& x) { return x ? view_of(*x) : cuda::View{}; }

/// The workspace of a call on a device, of so many bytes. Throws `InvalidArgument`.
inline const DeviceMemory& workspace_in(const sympow_workspace* given, std::size_t bytes, const sympow_device& device) {
  check_handle(given, "workspace");
  if (!given->memory)
    detail::raise<InvalidArgument>("workspace has no memory, must have ", bytes, " bytes on a device");
  check_device("workspace", given->memory->device, device);
  if (given->memory->size() < bytes)
    detail::raise<InvalidArgument>("workspace has ", given->memory->size(), " bytes, must have ", bytes);
  return *given->memory;
}

/// Throws `InvalidArgument` unless entries of one dimension are contiguous.
inline void check_dense(const std::optional<Array>& x) {
  if (x && x->shape[0] > 1 && x->strides[0] != 1)
    detail::raise<InvalidArgument>(x->name, ": strides[0] is ", x->strides[0], ", must be 1 on a device");
}

/// Throws `NotBuilt` for what a GPU does not have.
inline void check_settings(const Settings& settings) {
  const auto check = [](bool has, const char* what) {
    if (!has) detail::raise<NotBuilt>(what);
  };
  check(settings.scores.power > 0,
        "options->scores is not SYMPOW_SCORES_POWER; on a CUDA device there are powers alone");
  check(settings.options.head.mask == causal(),
        "options->mask, offset or window is not the default; on a CUDA device a query sees the keys up to its own");
  check(settings.rotary_dim == 0, "options->rotary_dim is given; on a CUDA device rotary turns all channels");
  check(!settings.options.head.check_finite,
        "options->check_finite is 1, and nothing looks at entries on a CUDA device; must be 0");
}

/// The options of a problem.
inline cuda::Problem problem_of(const Settings& settings) {
  check_settings(settings);
  cuda::Problem p;
  p.power = settings.scores.power;
  p.normalised = settings.normalisation != SYMPOW_UNNORMALISED;
  p.pairing = settings.pairing;
  p.scale = static_cast<float>(settings.options.head.scale);
  p.chunk = size_of_cuda(settings.options.head.chunk);
  p.form = settings.options.form == Form::recurrent ? Form::automatic : settings.options.form;
  return p;
}

/// A call that was read.
struct DeviceCall {
  Inputs in;
  cuda::Problem problem;
  cuda::Inputs inputs = {};

  DeviceCall(const Settings& settings, const sympow_inputs* given)
      : in(inputs_in(given, settings, place_of(given))), problem(problem_of(settings)) {
    check_dense(in.theta);
    check_dense(in.lengths_array);
    if (in.beta && in.beta->shape[2] != in.key_heads())
      detail::raise<NotBuilt>("inputs->beta: shape[2] is ", in.beta->shape[2], "; on a CUDA device it must be ",
                              in.key_heads(), " (heads of the keys)");
    problem.d = size_of_cuda(in.queries.shape[3]);
    problem.e = size_of_cuda(in.values.shape[3]);
    problem.batch = in.sequences();
    problem.tokens = in.queries.shape[1];
    problem.query_heads = in.query_heads();
    problem.key_heads = in.key_heads();
    problem.gate_heads = in.log_gates ? in.log_gates->shape[2] : 0;
    problem.element = element_of_cuda(in.element());
    if (in.lengths_array) problem.lengths = reinterpret_cast<const std::int32_t*>(in.lengths_array->data);
    if (in.theta) problem.rates = reinterpret_cast<const double*>(in.theta->data);
    inputs = {view_of(in.queries), view_of(in.keys), view_of(in.values), view_of(in.log_gates), {}, view_of(in.beta)};
  }

 private:
  static Place place_of(const sympow_inputs* given) {
    static constexpr std::array gates = {Element::float32}, rates = {Element::float64}, lengths = {Element::int32};
    return {given->queries->device, device_numbers, gates, rates, lengths};
  }
};

}  // namespace SYMPOW_NAMESPACE::c
