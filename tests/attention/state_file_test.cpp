// State files: what goes in comes out, and what is not one leaves the target as it was.
#include <sympow/attention/state_file.hpp>
#include <sympow/transition/householder.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

#include "catch.hpp"
#include "forms.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

template <class StateType>
std::string file_of(const StateType& state) {
  std::ostringstream out;
  save(state, out);
  return out.str();
}

// A state that has folded tokens and keeps others in its tail.
template <class Scalar, int P>
State<Scalar, SymmetricPower<P>> filled(Index d, Index e, Index tail, Turning turning, std::uint64_t seed = 1) {
  Random random(seed);
  State<Scalar, SymmetricPower<P>> state(d, e, tail);
  (void)run(sequence(random, d, e, 2 * tail + 3, Gates::random, Lengths::mixed, turning), state, 0);
  return state;
}

// The message of loading `bytes` into a copy of `target`, which must not change; empty if it loads.
template <class StateType>
std::string refusal(const StateType& target, const std::string& bytes) {
  StateType state = target;
  std::istringstream in(bytes);
  try {
    load(state, in);
    return "";
  } catch (const InvalidStateFile& error) {
    if (file_of(state) != file_of(target)) FAIL("the target was changed: " << error.what());
    return error.what();
  }
}

// The file with 8 bytes replaced, under a checksum that fits.
template <class Number>
std::string forged(std::string bytes, std::size_t position, Number number) {
  constexpr std::size_t head = 8 + 9 * 8;
  static_assert(sizeof number == 8);
  std::memcpy(bytes.data() + position, &number, 8);
  const std::uint64_t sum = sympow::checksum(std::as_bytes(std::span(bytes).subspan(head)));
  std::memcpy(bytes.data() + head - 8, &sum, 8);
  return bytes;
}

constexpr std::size_t body = 80;  // where the first field stands: tokens, then the log decay

}  // namespace

TEST_CASE("a state that was saved and loaded is the same state", "[attention]") {
  const auto check = []<class Scalar, int P>(Scalar, std::integral_constant<int, P>) {
    for (const Turning turning : {Turning::none, Turning::rotary, Turning::channels})
      for (const Index tail : {0, 1, 7}) {
        const auto state = filled<Scalar, P>(4, 3, tail, turning);
        State<Scalar, SymmetricPower<P>> back(4, 3, tail);
        std::stringstream file(file_of(state));
        load(back, file);
        REQUIRE(file_of(back) == file_of(state));
        REQUIRE(back.tokens() == 2 * tail + 3);
        REQUIRE(back.values() == state.values());
        REQUIRE(back.log_decay() == state.log_decay());
        Random random(2);
        const Tokens next = sequence(random, 4, 3, 20, Gates::slow, Lengths::ordinary, turning);
        auto kept = state;
        REQUIRE(run(next, back, 6).Y == run(next, kept, 6).Y);
      }
  };
  check(double{}, std::integral_constant<int, 2>{});
  check(float{}, std::integral_constant<int, 3>{});
}

TEST_CASE("every file that was cut short is refused", "[attention]") {
  const auto target = filled<double, 2>(2, 1, 3, Turning::rotary, 9);
  const std::string bytes = file_of(filled<double, 2>(2, 1, 3, Turning::rotary));
  REQUIRE(refusal(target, bytes).empty());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    if (refusal(target, bytes.substr(0, size)).empty()) FAIL("the first " << size << " bytes were taken for a state");
}

TEST_CASE("every change of a single byte is seen", "[attention]") {
  const auto target = filled<float, 2>(2, 1, 3, Turning::rotary, 9);
  const std::string bytes = file_of(filled<float, 2>(2, 1, 3, Turning::rotary));
  for (std::size_t position = 0; position < bytes.size(); ++position)
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      std::string damaged = bytes;
      damaged[position] = static_cast<char>(damaged[position] ^ flip);
      if (refusal(target, damaged).empty()) FAIL("byte " << position << " with " << flip << " flipped was taken");
    }
}

TEST_CASE("the key product of a Householder chain is in the file, and damage to it is seen", "[attention]") {
  Random random(3);
  const Index d = 3, T = 9;
  State<double, Linear> state(d, 2, 4), target(d, 2, 4);
  const auto chain = householder(random.matrix(d, T), random.vector(T));
  const Eigen::MatrixXd Q = random.matrix(d, T), V = random.matrix(2, T);
  static_cast<void>(recurrent(Linear{}, chain, Q, Q, V, state));
  const std::string bytes = file_of(state);
  State<double, Linear> back(d, 2, 4);
  std::istringstream file(bytes);
  load(back, file);
  REQUIRE(back.key_product() == state.key_product());
  REQUIRE(file_of(back) == bytes);
  for (std::size_t position = 0; position < bytes.size(); ++position) {
    if (refusal(target, bytes.substr(0, position)).empty()) FAIL("the first " << position << " bytes were taken");
    std::string damaged = bytes;
    damaged[position] = static_cast<char>(damaged[position] ^ 4);
    if (refusal(target, damaged).empty()) FAIL("byte " << position << " flipped was taken");
  }
  constexpr std::size_t product = body + 8 + 8 + 16 + 3 * 8;  // after the tokens, the decay and three channels
  CHECK_THAT(refusal(target, forged(bytes, product, std::int64_t{2})), contains("key product is 2 x 3, must be 0 x 0"));
}

TEST_CASE("a file of another version, type, power or shape is refused by name", "[attention]") {
  const auto target = filled<double, 2>(4, 3, 5, Turning::none);
  const auto other = [&](const auto& state) { return refusal(target, file_of(state)); };
  for (const std::int64_t version : {0, 3, 4, 6})
    REQUIRE_THAT(refusal(target, forged(file_of(target), 8, version)),
                 contains("version is " + std::to_string(version) + ", must be 5"));
  REQUIRE_THAT(other(filled<float, 2>(4, 3, 5, Turning::none)), contains("bytes of a scalar is 4, must be 8"));
  REQUIRE_THAT(other(filled<double, 3>(4, 3, 5, Turning::none)), contains("degree P is 3, must be 2"));
  REQUIRE_THAT(other(filled<double, 2>(5, 3, 5, Turning::none)), contains("key dimension d is 5, must be 4"));
  REQUIRE_THAT(other(filled<double, 2>(4, 2, 5, Turning::none)), contains("value dimension e is 2, must be 3"));
  REQUIRE_THAT(other(filled<double, 2>(4, 3, 6, Turning::none)), contains("tail is 6, must be 5"));
  // At d = 1 every power has one feature.
  REQUIRE_THAT(refusal(filled<double, 2>(1, 3, 5, Turning::none), file_of(filled<double, 4>(1, 3, 5, Turning::none))),
               contains("degree P is 4, must be 2"));
  REQUIRE_THAT(refusal(target, "no state, but long enough to hold a head of a state file, had it been one of those"),
               contains("not one"));
}

TEST_CASE("sizes that no state has are refused before memory is asked for", "[attention]") {
  const auto target = filled<double, 2>(4, 3, 5, Turning::none);
  const std::string bytes = file_of(target);
  for (const std::int64_t size : {std::int64_t{-1}, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()}) {
    REQUIRE_THAT(refusal(target, forged(bytes, 64, size)),
                 contains(size < 0 ? "cannot be this state's" : "ends inside of its body"));
    for (std::size_t field = body + 16; field < body + 32; field += 8)  // rows and columns of the log channels
      REQUIRE_THAT(refusal(target, forged(bytes, field, size)), contains("log_channels is"));
  }
}

TEST_CASE("numbers that no state can hold are refused behind a checksum that fits", "[attention]") {
  const auto target = filled<double, 2>(4, 3, 5, Turning::none);
  const std::string bytes = file_of(target);
  // after the tokens, the decay, four channels, no key product and two frames without kind and angles
  constexpr std::size_t product = body + 16 + 16 + 4 * 8, exponent = product + 16 + 32, table = exponent + 16;
  for (const double lie : {1e12, 1e300, 5 * 1024 + 1.0, std::numeric_limits<double>::infinity()})
    CHECK_THAT(refusal(target, forged(bytes, exponent, lie)), contains("contradict"));
  for (const double possible : {5 * 1024.0, -1e12}) CHECK(refusal(target, forged(bytes, exponent, possible)).empty());
  CHECK_THAT(refusal(target, forged(bytes, body, std::numeric_limits<std::int64_t>::max())), contains("contradict"));
  for (const std::int64_t columns : {std::int64_t{1} << 40, std::int64_t{1} << 61, std::int64_t{-1}, std::int64_t{0}})
    CHECK_THAT(refusal(target, forged(forged(bytes, table, std::int64_t{4}), table + 8, columns)),
               contains("absolute weights of channels is 4 x " + std::to_string(columns) + ", must be 0 x 1"));

  constexpr Index wide = 1 << 20;  // of which a key product takes 8 TB
  const State<double, Linear> empty(wide, 1, 0);
  constexpr std::size_t wide_product = body + 16 + 16 + wide * 8;
  const std::string lie =
      forged(forged(file_of(empty), wide_product, std::int64_t{wide}), wide_product + 8, std::int64_t{wide});
  CHECK_THAT(refusal(empty, lie), contains("ends inside of key product"));
}

TEST_CASE("fields that no state has are refused behind a checksum that fits", "[attention]") {
  const auto target = filled<double, 2>(4, 3, 5, Turning::rotary);
  const std::string bytes = file_of(target);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  REQUIRE_THAT(refusal(target, forged(bytes, body, std::int64_t{-1})), contains("contradict"));
  for (const double log_gate : {nan, infinity, 1e-3})
    REQUIRE_THAT(refusal(target, forged(bytes, body + 8, log_gate)), contains("contradict"));
  REQUIRE(refusal(target, forged(bytes, body + 8, -infinity)).empty());
  const std::size_t product =
      body + 16 + 16 + 4 * 8;  // of a transition that mixes channels: no state of a square has one
  std::string mixed = bytes;
  mixed.insert(product + 16, 16 * 8, '\0');
  mixed = forged(mixed, 64, static_cast<std::int64_t>(mixed.size() - body));
  mixed = forged(forged(mixed, product, std::int64_t{4}), product + 8, std::int64_t{4});
  REQUIRE_THAT(refusal(target, mixed), contains("contradict"));
  // past the channels, no key product, a start frame without kind and angles, and the kind of the other
  const std::size_t kind = body + 16 + 16 + 4 * 8 + 16 + 16, count = kind + 8 + Frame::angles.size(),
                    angles = count + 8;
  for (const std::int64_t size : {std::int64_t{-1}, std::int64_t{1} << 60, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()})
    for (const std::size_t field : {kind, count})
      REQUIRE_THAT(refusal(target, forged(bytes, field, size)), contains("frame has the size"));
  REQUIRE_THAT(refusal(target, forged(bytes, count, std::int64_t{3})),
               contains("frame has 3 angles, must have 2 at most"));
  REQUIRE_THAT(refusal(target, forged(bytes, angles, nan)), contains("contradict"));
  REQUIRE(refusal(target, forged(bytes, angles, 1.5)).empty());
}

TEST_CASE("a file that is not there, and one that cannot be written", "[attention]") {
  auto state = filled<double, 2>(4, 3, 5, Turning::none);
  REQUIRE_THROWS_WITH(load(state, std::string("no/such/file")), contains("cannot read no/such/file"));
  REQUIRE_THROWS_WITH(save(state, std::string("no/such/file")), contains("cannot write no/such/file"));
  const std::string path = "no_state";
  std::ofstream(path) << "something else";
  REQUIRE_THROWS_WITH(load(state, path), contains("no_state: state file: this is not one"));
  std::remove(path.c_str());
  std::ostringstream full;
  full.setstate(std::ios::badbit);
  REQUIRE_THROWS_WITH(save(state, full), contains("cannot be written"));
}
