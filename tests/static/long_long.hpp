// Before all other headers: std::int64_t is `long long` and Index is not, as on macOS. The standard library keeps its
// own.
#include <bits/stdc++.h>

namespace std {
using other_int64_t = long long;
}
#define int64_t other_int64_t
static_assert(!std::is_same_v<std::int64_t, std::ptrdiff_t>);
