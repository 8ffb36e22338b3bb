// What the 32 lanes of a warp hold in one register, on the host.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace sympow::cuda::block {

/// 32 values, and which of them were ever set. There is no way from a `Lanes<bool>` to a `bool`: lanes cannot branch.
template <class T>
class Lanes {
 public:
  Lanes() = default;
  Lanes(T x) : set_(~0u) { values_.fill(x); }
  template <class U>
    requires(!std::same_as<T, U> && requires(U u) { T{u}; })  // no narrowing
  Lanes(const Lanes<U>& other) {
    for (int l = 0; l < 32; ++l)
      if (other.is_set(l)) set(l, other[l]);
  }

  const T& operator[](int lane) const { return values_[static_cast<std::size_t>(lane)]; }
  void set(int lane, T x) {
    values_[static_cast<std::size_t>(lane)] = x;
    set_ |= 1u << lane;
  }
  [[nodiscard]] bool is_set(int lane) const { return (set_ >> lane & 1u) != 0; }
  [[nodiscard]] std::uint32_t set_lanes() const { return set_; }  ///< bit l: lane l was set

 private:
  std::array<T, 32> values_{};
  std::uint32_t set_ = 0;
};

namespace detail {

template <class T>
inline constexpr bool is_lanes = false;
template <class T>
inline constexpr bool is_lanes<Lanes<T>> = true;

template <class T>
inline const T& at(const Lanes<T>& x, int lane) {
  return x[lane];
}
template <class T>
inline const T& at(const T& x, int) {
  return x;
}
template <class T>
std::uint32_t set_lanes(const Lanes<T>& x) {
  return x.set_lanes();
}
template <class T>
std::uint32_t set_lanes(const T&) {
  return ~0u;
}

/// f lane by lane. What is made of a value that was never set is not set.
template <class F, class... X>
auto map(F f, const X&... x) {
  Lanes<std::remove_cvref_t<decltype(f(at(x, 0)...))>> result;
  const std::uint32_t set = (set_lanes(x) & ... & ~0u);
  for (int l = 0; l < 32; ++l)
    if (set >> l & 1u) result.set(l, f(at(x, l)...));
  return result;
}

template <class A, class B>
concept SomeLanes = is_lanes<A> || is_lanes<B>;

}  // namespace detail

#define SYMPOW_LANES_OPERATOR(op)                                    \
  template <class A, class B>                                        \
    requires detail::SomeLanes<A, B>                                 \
  auto operator op(const A& a, const B& b) {                         \
    return detail::map([](auto x, auto y) { return x op y; }, a, b); \
  }
SYMPOW_LANES_OPERATOR(+)
SYMPOW_LANES_OPERATOR(-)
SYMPOW_LANES_OPERATOR(*)
SYMPOW_LANES_OPERATOR(/)
SYMPOW_LANES_OPERATOR(%)
SYMPOW_LANES_OPERATOR(&)
SYMPOW_LANES_OPERATOR(|)
SYMPOW_LANES_OPERATOR(^)
SYMPOW_LANES_OPERATOR(<<)
SYMPOW_LANES_OPERATOR(>>)
SYMPOW_LANES_OPERATOR(<)
SYMPOW_LANES_OPERATOR(<=)
SYMPOW_LANES_OPERATOR(>)
SYMPOW_LANES_OPERATOR(>=)
SYMPOW_LANES_OPERATOR(==)
SYMPOW_LANES_OPERATOR(!=)
SYMPOW_LANES_OPERATOR(&&)
SYMPOW_LANES_OPERATOR(||)
#undef SYMPOW_LANES_OPERATOR

template <class T>
auto operator-(const Lanes<T>& a) {
  return detail::map([](T x) { return -x; }, a);
}
inline auto operator!(const Lanes<bool>& a) {
  return detail::map([](bool x) { return !x; }, a);
}
template <class T, class B>
Lanes<T>& operator+=(Lanes<T>& a, const B& b) {
  return a = a + b;
}
template <class T, class B>
Lanes<T>& operator*=(Lanes<T>& a, const B& b) {
  return a = a * b;
}

/// Lane by lane `yes` where the condition holds, else `no`.
template <class T>
Lanes<T> where(const Lanes<bool>& condition, const std::type_identity_t<Lanes<T>>& yes, const Lanes<T>& no) {
  Lanes<T> result;
  for (int l = 0; l < 32; ++l)
    if (condition.is_set(l) && (condition[l] ? yes : no).is_set(l)) result.set(l, (condition[l] ? yes : no)[l]);
  return result;
}
template <class T>
  requires std::is_arithmetic_v<T>
Lanes<T> where(const Lanes<bool>& condition, const Lanes<T>& yes, T no) {
  return where(condition, yes, Lanes<T>(no));
}
template <class T>
  requires std::is_arithmetic_v<T>
Lanes<T> where(const Lanes<bool>& condition, T yes, T no) {
  return where(condition, Lanes<T>(yes), Lanes<T>(no));
}

}  // namespace sympow::cuda::block
