// The gradients of a scalar type and a feature map, compiled in one place for all of a program.
#pragma once

#include <sympow/attention/batch_vjp.hpp>
#include <sympow/attention/compiled_forms.hpp>

/// As `SYMPOW_EXTERN_FORMS` and `SYMPOW_INSTANTIATE_FORMS`, of `attention_vjp`, `chunked_vjp` and `attend_vjp`.
#define SYMPOW_EXTERN_GRADIENTS(Scalar, ...) SYMPOW_GRADIENTS(extern, Scalar, __VA_ARGS__)
#define SYMPOW_INSTANTIATE_GRADIENTS(Scalar, ...) SYMPOW_GRADIENTS(, Scalar, __VA_ARGS__)

#define SYMPOW_GRADIENTS(LINKAGE, Scalar, ...)                               \
  LINKAGE template struct sympow::detail::AttentionVjp<Scalar, __VA_ARGS__>; \
  LINKAGE template struct sympow::detail::ChunkedVjp<Scalar, __VA_ARGS__>;
