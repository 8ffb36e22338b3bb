// Catch2, version 2 or 3, under one set of names.
#pragma once

#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#define SYMPOW_TEST_CATCH_CONTAINS Catch::Matchers::ContainsSubstring
#else
#include <catch2/catch.hpp>
#define SYMPOW_TEST_CATCH_CONTAINS Catch::Contains
#endif

namespace sympow::test {

/// For REQUIRE_THROWS_WITH and REQUIRE_THAT: the message contains the text.
inline auto contains(const std::string& text) { return SYMPOW_TEST_CATCH_CONTAINS(text); }

}  // namespace sympow::test

#undef SYMPOW_TEST_CATCH_CONTAINS
