// A reference to a callable.
#pragma once

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A non-owning reference to a callable; a function that takes one is compiled once for all callables.
template <class... Arguments>
class Visitor {
 public:
  template <class F>
  Visitor(const F& f)  // NOLINT(google-explicit-constructor)
      : f_(&f), call_([](const void* g, Arguments... arguments) { (*static_cast<const F*>(g))(arguments...); }) {}
  void operator()(Arguments... arguments) const { call_(f_, arguments...); }

 private:
  const void* f_;
  void (*call_)(const void*, Arguments...);
};

}  // namespace SYMPOW_NAMESPACE::detail
