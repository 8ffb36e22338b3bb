// Prints the bits of what long heads give, on as many threads as the first argument says. The tests compile it with
// OpenMP and without.
#include "long_heads.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

using namespace sympow;
using namespace sympow::test;

namespace {

// FNV-1a over the bytes of a matrix.
template <class M>
std::uint64_t digest(const M& x) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(x.data());
  std::uint64_t hash = 14695981039346656037u;
  for (std::size_t n = 0; n < static_cast<std::size_t>(x.size()) * sizeof(x(0)); ++n)
    hash = (hash ^ bytes[n]) * 1099511628211u;
  return hash;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 0;
  LongHead<float> head(1009);
  head.each_kind([&](const char* kind, const auto& feature, const auto& transition_of) {
    const auto state = head.run(feature, transition_of, threads);
    std::printf("%-24s %016llx %016llx\n", kind, static_cast<unsigned long long>(digest(head.Y)),
                static_cast<unsigned long long>(digest(state.values())));
  });
}
