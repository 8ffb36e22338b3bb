// An argument that may be left out.
#pragma once

namespace sympow {

/// A reference to a T, or nothing: the type of a field or parameter that a call need not give. It owns nothing.
template <class T>
class OptionalRef {
 public:
  constexpr OptionalRef() = default;
  /// To x.
  constexpr OptionalRef(T& x) : x_(&x) {}  // NOLINT(google-explicit-constructor): a T stands where it is asked for

  [[nodiscard]] constexpr explicit operator bool() const { return x_ != nullptr; }  ///< whether it is given
  [[nodiscard]] constexpr T& operator*() const { return *x_; }
  [[nodiscard]] constexpr T* operator->() const { return x_; }

 private:
  T* x_ = nullptr;
};

}  // namespace sympow
