// The library on the host: what it launches runs there, every instruction of it checked. Sums of an mma are cut toward
// zero, as an interpreter of PTX can have them, too.
#include <cstdio>

#include "library/attend.cu"
#include "library/attend_vjp.cu"
#include "library/checks.cpp"
#include "library/clear.cu"
#include "library/copy.cu"
#include "library/copy_slots.cu"
#include "library/decode.cu"
#include "library/fold.cu"
#include "library/plan.cu"
#include "library/state.cpp"
#include "library/state_arrays.cu"

namespace sympow::cuda::library {

template <class Kernel>
Status launch(const Blocks& blocks, const typename Kernel::Args& args, Stream) noexcept {
  namespace host = block::host;
  const host::Grid grid{static_cast<int>(blocks.x), blocks.y, blocks.z};
  const host::Report report =
      host::launch<Kernel>(grid, args, {host::Schedule::forward, 0, host::MmaSum::toward_zero, {}});
  if (report.clean()) return {};
  for (const auto& [what, times] : report.faults) std::printf("  %s (%ld times)\n", what.c_str(), times);
  return refuse(Code::cuda_error, "a kernel has faults");
}
template <class Kernel>
Status allow() noexcept {
  return {};
}
template <class Kernel>
Status multiprocessors_of(int& count) noexcept {
  count = 0;
  return {};
}

}  // namespace sympow::cuda::library
