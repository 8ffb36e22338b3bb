// What kernels cost on a GPU: the constants of the cost model.
#pragma once

namespace sympow::cuda::library {

/// Predictions for an H100 (132 multiprocessors, 1.755 GHz), to be replaced by what a calibration measures.
struct Costs {
  double multiprocessors = 132;
  double update = 380e12;  ///< operations a second that bring tokens into states
  double query = 420e12;   ///< that read states
  double pair = 350e12;    ///< of queries with keys of their chunk
  double memory = 2.8e12;  ///< bytes a second
  double pass = 1.5e-6;    ///< seconds for the weights of 256 tokens of a chunk
  double launch = 4e-6;    ///< seconds between two kernels
};

}  // namespace sympow::cuda::library
