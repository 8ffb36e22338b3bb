// The library on the host, kernels being noted and not run: what it refuses, at which sizes, before it launches any.
#include <string>
#include <typeindex>
#include <vector>

#include "catch.hpp"
#include "device_test/refusals.cpp"
#include "library/attend.cu"
#include "library/checks.cpp"
#include "library/decode.cu"
#include "library/plan.cu"
#include "library/state.cpp"

namespace sympow::cuda::library {

struct Launched {
  std::type_index kernel;
  Blocks blocks;
};
static std::vector<Launched> launched;
static int shared_memory = 227 << 10;  // of a block

template <class Kernel>
Status launch(const Blocks& blocks, const typename Kernel::Args&, Stream) noexcept {
  launched.push_back({typeid(Kernel), blocks});
  return {};
}
template <class Kernel>
Status allow() noexcept {
  return Kernel::shared_bytes <= shared_memory ? Status() : refuse(Code::device_too_small, "%d", Kernel::shared_bytes);
}

}  // namespace sympow::cuda::library

using namespace sympow::test;
using namespace sympow::cuda;
using block::bf16;
using library::launched;

namespace {

/// The text of a call of `attend` with pointers that lead nowhere; `launched` has its kernels.
Status attend_nowhere(const Problem& problem, bool final_state = false) {
  Call call;
  call.problem = problem;
  const int d = problem.d, e = problem.e;
  const auto dense_at = [&](std::uintptr_t at, std::int64_t heads, int channels, Element element) {
    return dense(address(at << 12), element, problem.tokens, heads, channels);
  };
  call.inputs = {dense_at(1, problem.query_heads, d, problem.element),
                 dense_at(2, problem.key_heads, d, problem.element),
                 dense_at(3, problem.key_heads, e, problem.element),
                 {},
                 {}};
  call.outputs.rows = dense_at(5, problem.query_heads, e, problem.element);
  call.outputs.condition = {};
  if (!final_state) call.outputs.final_state = {};
  launched.clear();
  if (const Status status = attention_workspace(problem, call.bytes); !status.ok()) return status;
  return attend(problem, call.inputs, call.outputs, call.workspace, call.bytes, nullptr);
}

/// Packed sequences without tokens: so a batch is limited by grids, not by memory.
Problem empty_sequences(int power, int d, int e, std::int64_t tokens, Form form, int chunk) {
  Problem p;
  p.power = power, p.d = d, p.e = e;
  p.tokens = tokens;
  p.offsets = address<std::int64_t>(8);
  p.total_tokens = 0;
  p.form = form;
  p.chunk = chunk;
  return p;
}

}  // namespace

TEST_CASE("what is wrong with a call is said before a kernel is launched", "[cuda]") {
  launched.clear();
  test_refusals();
  REQUIRE(failures == 0);
  REQUIRE(launched.empty());
}

TEST_CASE("the largest grid is launched, the next is refused", "[cuda]") {
  struct Border {
    Problem problem;
    std::type_index kernel;
    std::int64_t blocks;  // of a sequence, in the largest grid
  };
  const auto q = Form::quadratic, c = Form::chunked;
  const Border borders[] = {
      // rows of queries × tiles of value channels
      {empty_sequences(2, 64, 64, 256, q, 0), typeid(Attention<bf16, 2, 64>), 1},
      {empty_sequences(2, 64, 72, 256, q, 0), typeid(Attention<bf16, 2, 64>), 2},
      {empty_sequences(2, 64, 256, 257, q, 0), typeid(Attention<bf16, 2, 64>), 2 * 4},
      {empty_sequences(1, 64, 8, 1 << 20, q, 0), typeid(Attention<bf16, 1, 64>), 1 << 13},
      {empty_sequences(2, 16, 256, 1 << 20, c, 1024), typeid(Attention<bf16, 2, 16>), 1024 * 4 * 4},
      // 512 sums and 256 normalisers of a state
      {empty_sequences(2, 64, 64, 65, c, 64), typeid(Scan<bf16>), 2080 * 64 / 512 + 9},
      {empty_sequences(2, 64, 72, 65, c, 64), typeid(Scan<bf16>), 293 + 9},
      {empty_sequences(4, 32, 256, 128, c, 64), typeid(Scan<bf16>), 26180 + 205},
      // chunks × 8 units of 64 monomials × tiles
      {empty_sequences(2, 64, 72, 1 << 20, c, 64), typeid(Update<bf16, 2, 64>), (1 << 14) * 5 * 2},
      {empty_sequences(4, 32, 256, 1 << 20, c, 4096), typeid(Update<bf16, 4, 32>), 256 * 103 * 4},
      {empty_sequences(2, 16, 8, (1 << 20) + 1, c, 64), typeid(Update<bf16, 2, 16>), (1 << 14) + 1},
  };
  for (Border border : borders) {
    Problem& p = border.problem;
    CAPTURE(p.power, p.d, p.e, p.tokens, p.chunk, border.kernel.name());
    p.batch = 0x7fffffff / border.blocks;
    const Status fits = attend_nowhere(p);
    INFO(fits.text());
    REQUIRE(fits.ok());
    REQUIRE(launched.size() == (p.form == q ? 2 : 5));
    std::int64_t largest = 0;
    for (const auto& launch : launched) {
      REQUIRE(launch.blocks.fit());
      if (launch.kernel == border.kernel) largest = launch.blocks.x;
    }
    REQUIRE(largest == p.batch * border.blocks);
    ++p.batch;
    const Status refused = attend_nowhere(p);
    REQUIRE(refused.code() == (border.blocks == 1 ? Code::bad_argument : Code::too_large));
    REQUIRE(launched.empty());
  }
}

TEST_CASE("grids of states count only where there are states", "[cuda]") {
  Problem p = empty_sequences(2, 64, 64, 64, Form::chunked, 64);  // one chunk
  p.batch = 0x7fffffff / (260 + 9) + 1;
  REQUIRE(attend_nowhere(p).ok());
  REQUIRE(launched.size() == 2);
  p.carries_state = true;
  REQUIRE(attend_nowhere(p).code() == Code::too_large);
  --p.batch;
  REQUIRE(attend_nowhere(p).ok());
  REQUIRE(launched.size() == 2);
  REQUIRE(attend_nowhere(p, true).ok());
  REQUIRE(launched.size() == 5);
}

TEST_CASE("chunks and slots are counted in 31 bits", "[cuda]") {
  Problem p = empty_sequences(2, 16, 8, 1 << 30, Form::chunked, 64);
  p.batch = 128;  // 2^24 chunks each
  REQUIRE(attend_nowhere(p).code() == Code::too_large);
  p.batch = 127;
  REQUIRE(attend_nowhere(p).ok());
  p.total_tokens = (std::int64_t{0x7fffffff} - 127) * 64 + 63;
  p.batch = 127;
  p.total_tokens = 127 * p.tokens;
  REQUIRE(attend_nowhere(p).ok());
  std::size_t bytes = 0;
  p = empty_sequences(2, 16, 8, 64, Form::chunked, 64);
  p.batch = 0x7fffffff;
  p.total_tokens = 63;
  REQUIRE(attention_workspace(p, bytes).ok());
  p.total_tokens = 64;
  REQUIRE(attention_workspace(p, bytes).code() == Code::too_large);
}

// 99 KB a block: compute capability 8.6, 8.9, 12.0.
TEST_CASE("kernels that need more than 99 KB are refused by a smaller device", "[cuda]") {
  library::shared_memory = 99 << 10;
  std::string text;
  for (const auto& [power, d, floats] : library::instantiations)
    for (const Form form : {Form::quadratic, Form::chunked}) {
      Problem p;
      p.power = power, p.d = d;
      p.element = floats ? Element::f32 : Element::bf16;
      p.tokens = 100;
      p.form = form;
      p.chunk = 64;
      const Status status = attend_nowhere(p);
      REQUIRE((status.ok() || status.code() == Code::device_too_small));
      REQUIRE(launched.empty() == !status.ok());
      if (!status.ok())
        text += std::to_string(power) + ":" + std::to_string(d) + (form == Form::quadratic ? "q " : " ");
    }
  library::shared_memory = 227 << 10;
  REQUIRE(text == "1:128q 1:128 2:128q 2:128 3:32 ");
}

// Threads of a multiprocessor: 1536 of compute capability 8.6, 8.9, 12.0.
TEST_CASE("blocks that a multiprocessor is asked to hold have threads for all of them", "[cuda]") {
  const auto threads = []<class Kernel>() { return Kernel::threads * Kernel::blocks_per_multiprocessor; };
  REQUIRE(threads.operator()<Weights<bf16>>() <= 1536);
  REQUIRE(threads.operator()<Levels>() <= 1536);
  REQUIRE(threads.operator()<Scan<bf16>>() <= 1536);
  REQUIRE(threads.operator()<Update<bf16, 2, 64>>() <= 1536);
  REQUIRE(threads.operator()<Attention<bf16, 1, 64>>() <= 1536);
  REQUIRE(threads.operator()<Attention<bf16, 2, 64>>() <= 1536);
  REQUIRE(threads.operator()<ReadState<bf16, 2, 64, 1>>() <= 1536);
  REQUIRE(threads.operator()<ReadState<bf16, 2, 64, 8>>() <= 1536);
  REQUIRE(threads.operator()<FinishRows<bf16, 64>>() <= 1536);
}
