// A turning transition of one's own: tokens that were seen by a camera which turns, so that vectors in space turn with
// it.
#include <Eigen/Geometry>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <sympow/sympow.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using Eigen::MatrixXd, Eigen::Quaterniond;

/// A_i turns every three channels by the unit quaternion g_i. These do not commute.
class CameraTurns {
 public:
  static constexpr KeyAction key_action = KeyAction::turn;  // queries and keys turn, a state stands still

  CameraTurns(std::vector<Quaterniond> turns, Index d) : turns_(std::move(turns)), d_(d) {
    if (d % 3 != 0) throw ShapeMismatch("camera: d is " + std::to_string(d) + ", must be a multiple of 3");
  }

  [[nodiscard]] Index length() const { return std::ssize(turns_); }  // T
  [[nodiscard]] Index key_dimension() const { return d_; }
  [[nodiscard]] double log_decay(Index) const { return 0; }    // nothing is forgotten
  [[nodiscard]] MatrixXd key_matrix(Index i, Index d) const {  // A_i, the definition: only the laws ask for it
    MatrixXd A = MatrixXd::Zero(d, d);
    for (Index c = 0; c < d; c += 3) A.block<3, 3>(c, c) = at(i).toRotationMatrix();
    return A;
  }

  // The frame holds A_1 … A_i as one quaternion; states of other kinds are refused.
  void check_frame(const Frame& frame, Index) const { frame.require(kind, 4); }

  // Queries and keys of token i turn by A_1 … A_i: then q̃ᵀk̃ is the logit of any two tokens.
  template <class S>
  void to_segment_frame(Frame& frame, Segment s, Batch<S> Q, Batch<S> K, Batch<S> logits) const {
    if (frame.empty()) frame.begin(kind, Quaterniond::Identity().coeffs());
    Eigen::Map<Quaterniond> G(frame.numbers().data());
    for (Index t = 0; t < s.size; ++t) {
      G = (G * at(s.begin + t)).normalized();
      const Eigen::Matrix<S, 3, 3> R = G.toRotationMatrix().cast<S>();
      for (auto* X : {&Q, &K}) {
        Eigen::Map<Eigen::Matrix<S, 3, Dynamic>> vectors(X->col(t).data(), 3, d_ / 3);
        vectors = (R * vectors).eval();
      }
    }
    if (logits.size() != 0) logits = K.transpose() * Q;
  }
  template <class S>
  void apply_to_queries(Segment, Batch<S>) const {}  // nothing lies between absolute coordinates

 private:
  static constexpr auto kind = "quaternion parts";
  [[nodiscard]] const Quaterniond& at(Index i) const { return turns_[static_cast<std::size_t>(i)]; }

  std::vector<Quaterniond> turns_;
  Index d_;
};

int main() {
  const Index d = 6, e = 4, T = 200;
  const SymmetricPower<2> feature;
  const MatrixXd Q = MatrixXd::Random(d, T), K = MatrixXd::Random(d, T), V = MatrixXd::Random(e, T);
  std::vector<Quaterniond> turns;
  for (Index i = 0; i < T; ++i)
    turns.emplace_back(Eigen::AngleAxisd(.2, Eigen::Vector3d(1, std::sin(.1 * double(i)), 0).normalized()));

  // The transition of some tokens; decays multiply it.
  const auto of = [&](Segment s) {
    return constant_decay(.99) * CameraTurns({turns.begin() + s.begin, turns.begin() + s.end()}, d);
  };
  const auto forms = verify::three_forms_law(feature, of({0, T}), Q, K, V);
  const auto split = verify::splitting_law(feature, of, Q, K, V, 77);
  std::cout << "forms: " << forms << ", split: " << split << '\n';

  // The other laws.
  const auto merged = verify::merge_law(feature, of, Q, K, V, {40, 77, 130});
  const auto saved = verify::saved_state_law(feature, of, Q, K, V, 77);
  std::vector<Quaterniond> elsewhere = turns;
  elsewhere[0] = Quaterniond(.8, 0, .6, 0) * turns[0];  // it is in every product A_1 … A_i: all positions are shifted
  const auto shifted =
      verify::relative_position_law(feature, CameraTurns(turns, d), CameraTurns(elsewhere, d), Q, K, V);
  const auto heads = [&](const MatrixXd& X) { return Heads<const double>::bthd(X.data(), 1, T, 1, X.rows()); };
  const auto batch =
      verify::attend_law(feature, [&](Index, Index) { return of({0, T}); }, heads(Q), heads(K), heads(V));
  const auto plain = verify::three_forms_law(Linear{}, of({0, T}), Q, K, V);  // even powers do not see a sign
  std::cout << "merged: " << merged << ", saved: " << saved << ", shifted: " << shifted << ", batch: " << batch
            << ", linear: " << plain << '\n';

  // A state keeps the quaternion, in files and merges as well.
  State left(feature, d, e), whole(feature, d, e), loaded(feature, d, e);
  (void)chunked(feature, of({0, 77}), Q.leftCols(77), K.leftCols(77), V.leftCols(77), left);
  State right(feature, d, e, 32, left.frame());
  (void)chunked(feature, of({77, T - 77}), Q.rightCols(T - 77), K.rightCols(T - 77), V.rightCols(T - 77), right);
  (void)chunked(feature, of({0, T}), Q, K, V, whole);
  std::stringstream file;
  save(right, file);
  load(loaded, file);
  const double apart = (merge(left, loaded).values() - whole.values()).norm() / whole.values().norm();
  std::cout << "merged, one of them from a file: " << apart << " apart, in the frame "
            << loaded.frame().numbers().transpose() << '\n';
  const bool lawful = forms.holds() && split.holds() && merged.holds() && saved.holds() && shifted.holds() &&
                      batch.holds() && plain.holds();
  return lawful && apart <= 1e-13 ? 0 : 1;
}
