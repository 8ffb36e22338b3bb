// Memory of a run, as the system tells it.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sympow::bench {

/// An entry of /proc/self/status in MiB; -1 where there is none.
inline double status_mebibytes(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (double kibibytes = 0; word == name + ":" && in >> kibibytes) return kibibytes / 1024;
  return -1;
}

/// Resident memory at its peak during a run, in MiB, beyond what there was before; nothing where the system does not
/// tell.
template <class Run>
std::optional<double> peak_mebibytes(Run&& run) {
#ifdef __GLIBC__
  malloc_trim(0);  // what earlier benchmarks have left must not be used again unseen
#endif
  std::ofstream("/proc/self/clear_refs") << 5;  // forget the peak
  const double before = status_mebibytes("VmRSS"), highest = status_mebibytes("VmHWM");
  if (!(before > 0 && highest < before + 1)) return {};
  run();
  return status_mebibytes("VmHWM") - before;
}

}  // namespace sympow::bench
