// What counts as measured, and that a column of the page is read as it was written.
#include "page.hpp"

#include "catch.hpp"

using namespace sympow::bench;

TEST_CASE("A number that cannot have been measured fails, whatever is asked of it") {
  const double none[] = {0, -1, never, -never, std::nan("")};
  for (const double value : none) {
    CAPTURE(value);
    enter({.name = "a bar", .value = value, .holds = true});
    CHECK(bars().back().failed);
    CHECK(verdict(bars().back()) == failed);
  }
  enter({.name = "a bar", .value = .5, .holds = true});
  CHECK(verdict(bars().back()) == pass);
  enter({.name = "a bar", .value = .5, .holds = false});
  CHECK(verdict(bars().back()) == "**short**");
  CHECK(bars().size() == 1);
}

TEST_CASE("More than the peak was not measured") {
  CHECK_FALSE(is_impossible(.8));
  CHECK_FALSE(is_impossible(1.02));
  CHECK(is_impossible(1.03));
  CHECK(is_impossible(std::nan("")));
  const Times times{.own = 1, .reference = Product::operations(), .peak = 1};  // the product makes as good as nothing
  CHECK_FALSE(is_impossible(times, FmaPeak::operations));
  CHECK(is_impossible(times, 1.03 * FmaPeak::operations));
  const Times quick_product{.own = 1, .reference = .5 * Product::operations() / FmaPeak::operations, .peak = 1};
  CHECK(is_impossible(quick_product, 1));
}

TEST_CASE("Times are above 0") {
  for (int n = 0; n < 1000; ++n) CHECK(seconds([] {}) > 0);
}

TEST_CASE("A column is read as it was written, and its bars are counted by what they say") {
  const std::string file = "bench_column.tsv";
  const Column column{
      .title = "some code",
      .origin = "measured somewhere",
      .bars = {{.name = "a", .measured = "0.50", .asked = "at least 0.40", .holds = true, .speed = .5, .least = .4},
               {.name = "b", .measured = "0.30", .asked = "at least 0.40", .holds = false, .note = "x; y"},
               {.name = "c", .measured = "inf", .failed = true},
               {.name = "d", .measured = "1"}}};
  REQUIRE(write_column(file, column));
  const Column read = read_column(file, "some code");
  std::filesystem::remove(file);
  REQUIRE(read.bars.size() == 4);
  for (std::size_t n = 0; n < 4; ++n) {
    const Bar &wrote = column.bars[n], &got = read.bars[n];
    CHECK(got.name == wrote.name);
    CHECK(got.measured == wrote.measured);
    CHECK(got.asked == wrote.asked);
    CHECK(got.note == wrote.note);
    CHECK(verdict(got) == verdict(wrote));
    CHECK(got.speed == wrote.speed);
    CHECK(got.least == wrote.least);
  }
  CHECK(table({column}) == table({read}));
  CHECK(table({read}).find("1 bars hold, 1 are short, 1 were not measured") != std::string::npos);
}
