// Plans: form, chunks, whether every grid fits, and what the workspace holds.
#include "plan.hpp"

#include <algorithm>

#include "arguments.hpp"
#include "checks.hpp"
#include "cost_model.hpp"
#include "dispatch.hpp"
#include "grids.hpp"

namespace sympow::cuda {

std::int64_t monomials(int power, int d) noexcept {
  if (power < 1 || d < 1) return 0;
  constexpr std::int64_t most = std::int64_t{1} << 31;
  std::int64_t count = 1;
  for (std::int64_t i = 1; i <= power; ++i) {  // C(d - 1 + i, i), which grows
    count = count * (d - 1 + i) / i;
    if (count > most) return 0;
  }
  return count;
}

namespace library {

bool splits(const Problem& p) noexcept { return p.states == Precision::split && p.element != Element::f32; }

std::uint64_t all_tokens(const Problem& p) noexcept {
  return p.offsets ? static_cast<std::uint64_t>(p.total_tokens) : product(p.batch, p.tokens);
}

bool rows_go_along(const Problem& p, Form form) noexcept {
  return form == Form::chunked && goes_along_chunks(p.power, p.d, bytes_of(p.element));
}

Status plan_attention(const Problem& p, Plan& plan, bool backward) noexcept {
  SYMPOW_CUDA_TRY(check_problem(p));
  const auto all = static_cast<std::int64_t>(all_tokens(p));
  plan.D = monomials(p.power, p.d);
  const auto real = [](std::int64_t x) { return static_cast<double>(x); };
  Shape shape{real(p.tokens),
              real(all),
              real(p.query_heads),
              real(p.state_heads()),
              static_cast<double>(p.d),
              static_cast<double>(p.e),
              real(plan.D),
              real(state_rows(p.power, p.d)),
              splits(p) ? 2. : 1.,
              rows_go_along(p, Form::chunked)};
  plan.form = p.form != Form::automatic ? p.form : p.carries_state ? Form::chunked : cheapest_form(shape);
  shape.along = shape.along && !backward;
  const std::int64_t whole = std::max<std::int64_t>((p.tokens + 63) / 64 * 64, 64);
  const int chunk = p.chunk > 0 ? p.chunk : cheapest_chunk(shape);
  plan.chunk = static_cast<int>(plan.form == Form::attention ? whole : std::min<std::int64_t>(chunk, whole));
  plan.chunks = (p.tokens + plan.chunk - 1) / plan.chunk;
  plan.slots = all / plan.chunk + p.batch;
  const bool states = has_states(p, plan);
  bool fits = plan.slots <= 0x7fffffff && product(p.batch, plan.chunks) <= 0x7fffffff;  // kernels count them in int
  if (fits)
    SYMPOW_CUDA_TRY(dispatch(p, [&]<class T, int P, int d, block::Products products>() -> Status {
      fits = grids_of<T, P, d, products>(sequences_of(p, plan), heads_of(p), p.e, plan.form).fit(states);
      return {};
    }));
  if (!fits)
    return refuse(Code::too_large, "%lld sequences of %lld tokens are more blocks than a grid has",
                  static_cast<long long>(p.batch), static_cast<long long>(p.tokens));
  return {};
}

AttentionMemory::AttentionMemory(const Problem& p, const Plan& plan, Pieces& pieces) noexcept {
  const std::uint64_t slots = product(p.state_heads(), plan.slots), tokens = product(slots, plan.chunk);
  const bool states = plan.form == Form::chunked;
  const std::uint64_t rows = states ? product(slots, plan.D) : 0;
  pieces.take(sum, tokens);
  pieces.take(key, tokens);
  pieces.take(level, tokens);
  pieces.take(inverse, tokens);
  pieces.take(to_end, tokens);
  pieces.take(reset, tokens);
  key_mass = nullptr;
  if (rows_go_along(p, plan.form)) pieces.take(key_mass, tokens);
  pieces.take(total, slots);
  pieces.take(end, slots);
  pieces.take(own_mass, slots);
  pieces.take(enter, slots);
  pieces.take(mass, slots);
  pieces.take(keep, slots);
  pieces.take(add, slots);
  pieces.take(shift, slots);
  pieces.take(own_sums, product(rows, p.e));
  pieces.take(own_normaliser, rows);
  const std::uint64_t padded = states ? product(slots, state_rows(p.power, p.d)) : 0;
  pieces.take(prefix_sums, product(padded, p.e, bytes_of(p.element)));
  pieces.take(prefix_normaliser, product(padded, 4, bytes_of(p.element)));
  prefix_rest = nullptr;
  if (splits(p)) pieces.take(prefix_rest, product(padded, p.e, bytes_of(p.element)));
  const std::uint64_t turning = p.rates ? product(p.key_heads, all_tokens(p)) : 0;
  pieces.take(paths, turning);
  pieces.take(begin, p.rates ? product(p.batch, p.key_heads, p.d / 2) : 0);
  pieces.take(turned, product(turning, p.d, bytes_of(p.element)));
}

}  // namespace library

Status attention_form(const Problem& problem, Form& form, int& chunk) noexcept {
  library::Plan plan;
  SYMPOW_CUDA_TRY(library::plan_attention(problem, plan));
  form = plan.form;
  chunk = plan.chunk;
  return {};
}

Status attention_workspace(const Problem& problem, std::size_t& bytes) noexcept {
  library::Plan plan;
  SYMPOW_CUDA_TRY(library::plan_attention(problem, plan));
  library::Pieces pieces;
  const library::AttentionMemory counted_only(problem, plan, pieces);
  return library::counted(pieces, "workspace", bytes);
}

}  // namespace sympow::cuda
