// Rotations and their families, compiled in one place for all of a program; see compiled_forms.hpp.
#pragma once

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/cayley.hpp>
#include <sympow/rotation/commuting_generators.hpp>
#include <sympow/rotation/joint_planes.hpp>
#include <sympow/rotation/skew.hpp>
#include <sympow/rotation/structured_rotation.hpp>

/// What the library `sympow::forms` holds of rotations for a scalar type: with `extern` it is compiled elsewhere, with nothing here.
#define SYMPOW_ROTATIONS(LINKAGE, S)                                                                            \
  namespace sympow {                                                                                            \
  LINKAGE template class BlockRotation<S>;                                                                      \
  LINKAGE template class LinearOperator<BlockRotation<S>>;                                                      \
  LINKAGE template void detail::turn_columns(S*, Index, Index, Index, Pairing, Index, Index, detail::Turns<S>); \
  LINKAGE template class StructuredRotation<S>;                                                                 \
  LINKAGE template class LinearOperator<StructuredRotation<S>>;                                                 \
  LINKAGE template class CommutingGenerators<S>;                                                                \
  LINKAGE template class Cayley<S>;                                                                             \
  LINKAGE template class LinearOperator<Cayley<S>>;                                                             \
  LINKAGE template double detail::distance_of_columns(const Matrix<S>&, const Matrix<S>&);                      \
  }

/// What it holds of the search for joint planes, which is in double.
#define SYMPOW_JOINT_PLANES(LINKAGE)                                                                           \
  namespace sympow::detail {                                                                                   \
  LINKAGE template Eigen::MatrixXd checked_skew(const std::string&, const Eigen::MatrixXd&, double);           \
  LINKAGE template struct SkewTridiagonal<double>;                                                             \
  LINKAGE template struct PlaneBlocks<double>;                                                                 \
  LINKAGE template Matrix<double> skew_planes(const Matrix<double>&);                                          \
  LINKAGE template Matrix<double> joint_planes(const std::vector<Matrix<double>>&, Index, std::uint64_t, int); \
  LINKAGE template Matrix<double> polishing_step(const PlaneBlocks<double>&, Index);                           \
  LINKAGE template Matrix<double> polished_planes(const std::vector<Matrix<double>>&, Matrix<double>, int);    \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_ROTATIONS(extern, float)
SYMPOW_ROTATIONS(extern, double)
SYMPOW_JOINT_PLANES(extern)
#endif
