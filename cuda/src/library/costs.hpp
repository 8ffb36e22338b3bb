// What kernels cost on a GPU: the constants of the cost model.
#pragma once

namespace sympow::cuda::library {

/// Rates as measured on an H100 (132 multiprocessors, some 1.8 GHz) at P 2, d = e = 64, 65,536 tokens of eight heads;
/// `pass`, `launch` and `tile` are predictions.
struct Costs {
  double multiprocessors = 132;
  double update = 315e12;  ///< operations a second that bring tokens into states
  double query = 580e12;   ///< that read states
  double pair = 300e12;    ///< of queries with keys of their chunk
  double memory = 2.4e12;  ///< bytes a second
  double pass = 1.5e-6;    ///< seconds for the weights of 256 tokens of a chunk
  double launch = 4e-6;    ///< seconds between two kernels
  double tile = 2e-6;      ///< seconds of a multiprocessor for 64 tokens of LinearAttention, d 64, 64 value channels
};

}  // namespace sympow::cuda::library
