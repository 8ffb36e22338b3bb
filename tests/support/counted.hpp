// A double that counts the arithmetic done with it, so that a test can state what an algorithm of the library costs.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <ostream>

namespace sympow::test {

/// How often each kind of operation ran. A subtraction counts as an addition; a change of sign is free.
struct Operations {
  Eigen::Index multiplications = 0, additions = 0, divisions = 0, roots = 0;

  friend bool operator==(const Operations&, const Operations&) = default;
  friend Operations operator-(const Operations& a, const Operations& b) {
    return {a.multiplications - b.multiplications, a.additions - b.additions, a.divisions - b.divisions,
            a.roots - b.roots};
  }
  friend std::ostream& operator<<(std::ostream& out, const Operations& n) {
    return out << n.multiplications << " multiplications, " << n.additions << " additions, " << n.divisions
               << " divisions, " << n.roots << " roots";
  }
};

/// See the head of this file. Every operation is counted in `Counted::done`, one tally for each thread.
class Counted {
 public:
  static inline thread_local Operations done;

  Counted() = default;
  Counted(double value) : value_(value) {}  // NOLINT(google-explicit-constructor): numbers are written as numbers

  explicit operator double() const { return value_; }
  [[nodiscard]] double value() const { return value_; }

  Counted& operator+=(Counted b) { return *this = *this + b; }
  Counted& operator-=(Counted b) { return *this = *this - b; }
  Counted& operator*=(Counted b) { return *this = *this * b; }
  Counted& operator/=(Counted b) { return *this = *this / b; }
  friend Counted operator-(Counted a) { return -a.value_; }
  friend Counted operator+(Counted a, Counted b) {
    ++done.additions;
    return a.value_ + b.value_;
  }
  friend Counted operator-(Counted a, Counted b) {
    ++done.additions;
    return a.value_ - b.value_;
  }
  friend Counted operator*(Counted a, Counted b) {
    ++done.multiplications;
    return a.value_ * b.value_;
  }
  friend Counted operator/(Counted a, Counted b) {
    ++done.divisions;
    return a.value_ / b.value_;
  }
  friend Counted sqrt(Counted a) {
    ++done.roots;
    return std::sqrt(a.value_);
  }
  friend Counted abs(Counted a) { return std::abs(a.value_); }
  friend Counted abs2(Counted a) { return a * a; }
  friend Counted pow(Counted a, Counted b) { return std::pow(a.value_, b.value_); }
  friend bool operator==(Counted a, Counted b) { return a.value_ == b.value_; }
  friend auto operator<=>(Counted a, Counted b) { return a.value_ <=> b.value_; }
  friend std::ostream& operator<<(std::ostream& out, Counted a) { return out << a.value_; }

 private:
  double value_ = 0;
};

/// The operations with `Counted` that f does.
template <class F>
[[nodiscard]] Operations operations_of(F&& f) {
  const Operations before = Counted::done;
  f();
  return Counted::done - before;
}

}  // namespace sympow::test

template <>
struct Eigen::NumTraits<sympow::test::Counted> : Eigen::NumTraits<double> {
  using Real = sympow::test::Counted;
  using NonInteger = sympow::test::Counted;
  using Nested = sympow::test::Counted;
  using Literal = sympow::test::Counted;
  enum { RequireInitialization = 1 };

  static Real epsilon() { return Eigen::NumTraits<double>::epsilon(); }
  static Real dummy_precision() { return Eigen::NumTraits<double>::dummy_precision(); }
  static Real highest() { return Eigen::NumTraits<double>::highest(); }
  static Real lowest() { return Eigen::NumTraits<double>::lowest(); }
};
