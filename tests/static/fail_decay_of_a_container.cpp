// expect: decay takes the log gates in a vector or array of Eigen's: of a container or of memory give Eigen::Map
#include <sympow/sympow.hpp>

#include <vector>

using namespace sympow;

Decay f(const std::vector<float>& log_gamma) {
#ifdef SYMPOW_CONTROL
  return decay(Eigen::Map<const Eigen::VectorXf>(log_gamma.data(), std::ssize(log_gamma)));
#else
  return decay(log_gamma);
#endif
}
