// Promises that the forms of a feature map are compiled elsewhere; with SYMPOW_CONTROL keeps the promise.
#include <sympow/attention/forms.hpp>

struct Shifted {  // φ(x) = [1; x]
  static constexpr sympow::Score score = sympow::Score::embedded;
  static constexpr bool nonnegative = false;
  sympow::Index dimension(sympow::Index d) const { return d + 1; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y.topRows(1).setOnes();
    y.bottomRows(x.rows()) = x;
  }
};

SYMPOW_EXTERN_FORMS(float, Shifted)
#ifdef SYMPOW_CONTROL
SYMPOW_INSTANTIATE_FORMS(float, Shifted)
#endif

int main() {
  const Eigen::MatrixXf x = Eigen::MatrixXf::Ones(3, 5);
  const Eigen::MatrixXf y = sympow::chunked(Shifted{}, sympow::stationary(), x, x, x);
  return y(0, 0) == 4 ? 0 : 1;  // (1 + 3) · 1
}
