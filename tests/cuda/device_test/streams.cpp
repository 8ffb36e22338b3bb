// Two runs give the same bits: on a stream, on two at once, and from two threads with one problem.
#include <thread>

#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

void test_streams() {
  cuda::Problem p;
  p.d = p.e = 32;
  p.tokens = 300;
  p.query_heads = p.key_heads = p.gate_heads = 2;
  p.form = cuda::Form::chunked;
  p.chunk = 128;
  if (!can_run("streams", p)) return;
  const Tokens x(p, Gates::slow, 9);
  const Arrays expected(x, Layout::dense);
  if (!run(p, expected.inputs(), expected.outputs(), nullptr)) return;
  expected.check_rows("on the null stream", p, way_of(p));

  std::size_t bytes = 0;
  if (!done(cuda::attention_workspace(p, bytes))) return;
  struct Lane {
    Arrays arrays;
    Array<std::byte> workspace;
    OwnStream stream;
    cuda::Status status;
  };
  Lane lanes[2] = {{Arrays(x, Layout::dense), Array<std::byte>(bytes), {}, {}},
                   {Arrays(x, Layout::dense), Array<std::byte>(bytes), {}, {}}};
  runtime(cudaDeviceSynchronize());
  const auto call = [&](Lane& lane) {
    lane.status =
        cuda::attend(p, lane.arrays.inputs(), lane.arrays.outputs(), lane.workspace.data(), bytes, lane.stream);
  };
  std::thread other([&] { call(lanes[1]); });
  call(lanes[0]);
  other.join();
  for (const Lane& lane : lanes) {
    done(lane.status);
    lane.stream.wait();
    require(lane.arrays.row_bits() == expected.row_bits(), "a run on another stream has other bits");
  }
}

}  // namespace sympow::test
