// Decoding for a server: requests that come, leave, fork and reject drafts, in the slots of one pool.
#include <algorithm>
#include <functional>
#include <memory>

#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

/// `step` new tokens of a request from token `first` on, of which `accepted` are its own, the others drafts that are
/// dropped; or a prefill of `accepted` tokens.
struct Event {
  std::int64_t first, accepted;
  bool is_prefill;
};
/// A request in a slot.
struct Place {
  int slot;
  std::size_t request;
};

/// Slots on the device, and the rows of every request.
class Server {
 public:
  static constexpr std::int64_t draft_tokens = 8;  // behind the last token of each request

  Server(const cuda::Problem& sizes, const Tokens& tokens, const Tokens& drafts, std::int64_t step, std::int64_t slots)
      : rows(static_cast<std::size_t>(tokens.batch)),
        tokens_(tokens),
        drafts_(drafts),
        rates_(tokens.rates()),
        p_(sizes),
        step_(step),
        slots_(slots),
        state_(of_batch(slots)),
        tail_(of_batch(slots), 64),
        counts_(static_cast<std::size_t>(slots)) {
    tail_.tail.counts = counts_.data();
    done(cuda::copy_slots(of_batch(slots), state_.state, {}, {}, state_.state, tail_.tail, {slots}, nullptr));
    for (auto& of : rows) of.resize(static_cast<std::size_t>(tokens.tokens * tokens.query_heads * tokens.e));
  }

  /// A slot begins anew: with a prefill, or empty.
  void begin(const Place& place, std::int64_t prefill) {
    if (prefill == 0) return copy({-1}, state_.state, tail_.tail, {place.slot});
    cuda::Problem p = of_batch(1);
    p.tokens = prefill;
    const OwnState staging(p);
    const Call call(*this, p, {place}, [&](std::int64_t t) { return Token{&tokens_, t}; });
    cuda::Outputs outputs = call.outputs();
    outputs.final_state = staging.state;
    if (run(p, call.inputs, outputs, nullptr)) copy({0}, staging.state, {}, {place.slot}, 1);
  }
  void fork(int from, int to) { copy({from}, state_.state, tail_.tail, {to}); }

  /// Decodes and drops. Places with a slot below 0 are inactive.
  void advance(const std::vector<Place>& places, const std::vector<Event>& events) {
    cuda::Problem p = of_batch(static_cast<std::int64_t>(places.size()));
    p.tokens = step_;
    std::size_t n = 0;
    const Call call(*this, p, places, [&](std::int64_t t) {
      const Event& event = events[n++ / static_cast<std::size_t>(step_)];
      return Token{t < event.accepted ? &tokens_ : &drafts_, event.first + t};
    });
    std::vector<std::int32_t> dropped;
    for (const Event& event : events) dropped.push_back(static_cast<std::int32_t>(step_ - event.accepted));
    const Array<std::int32_t> dropped_on_device(dropped);
    std::size_t bytes = 0;
    if (!done(cuda::decode_workspace(p, tail_.tail, call.slots, bytes))) return;
    const Array<std::byte> workspace(bytes);
    done(cuda::decode(p, state_.state, tail_.tail, call.slots, call.inputs, call.outputs(), workspace.data(), bytes,
                      nullptr));
    call.require_no_fault("decoding");
    done(cuda::drop(p, tail_.tail, call.slots, dropped_on_device.data(), nullptr));
    call.require_no_fault("a drop");
    keep(call, places, events);
  }

  std::vector<std::vector<std::uint32_t>> rows;  // of each request [T, H, e], as bits

  [[nodiscard]] std::vector<std::byte> memory() const {
    std::vector<std::byte> all = state_.memory.values();
    const std::vector<std::byte> tail = tail_.memory.values();
    all.insert(all.end(), tail.begin(), tail.end());
    return all;
  }
  [[nodiscard]] std::vector<std::int32_t> counts() const { return counts_.values(); }
  void set_counts(const std::vector<std::int32_t>& counts) {
    runtime(cudaMemcpy(counts_.data(), counts.data(), counts.size() * sizeof counts[0], cudaMemcpyHostToDevice));
  }
  [[nodiscard]] const cuda::Tail& tail() const { return tail_.tail; }
  [[nodiscard]] const cuda::State& state() const { return state_.state; }
  [[nodiscard]] cuda::Problem of_batch(std::int64_t batch) const {
    cuda::Problem p = p_;
    p.batch = batch;
    p.tokens = 0;
    p.carries_state = true;
    if (tokens_.rotary) {
      p.rates = rates_.data();
      p.pairing = tokens_.rotary->halves ? cuda::Pairing::half_split : cuda::Pairing::interleaved;
    }
    return p;
  }
  /// Slots `from` of a pool to slots `to` of this one.
  void copy(const std::vector<std::int32_t>& from, const cuda::State& state, const cuda::Tail& tail,
            const std::vector<std::int32_t>& to, std::int64_t slots = 0) {
    const Array<std::int32_t> from_indices(from), to_indices(to);
    const Array<cuda::SlotFault> faults(to.size());
    const cuda::Problem p = of_batch(static_cast<std::int64_t>(to.size()));
    done(cuda::copy_slots(p, state, tail, {slots == 0 ? slots_ : slots, from_indices.data()}, state_.state, tail_.tail,
                          {slots_, to_indices.data(), faults.data()}, nullptr));
    require(faults.values() == std::vector(to.size(), cuda::SlotFault::none), "a copy has a fault");
  }

 private:
  struct Token {
    const Tokens* of;
    std::int64_t t;
  };
  /// The arrays of a call, gathered on the host.
  struct Call {
    template <class F>
    Call(const Server& server, const cuda::Problem& p, const std::vector<Place>& places, const F& token_of)
        : x(server.tokens_),
          tokens(p.tokens),
          row_bytes(static_cast<std::size_t>(p.batch * p.tokens * x.query_heads * x.e) * x.format.bytes()),
          indices(indices_of(places)),
          faults(places.size()) {
      std::vector<double> q, k, v;
      std::vector<float> g, b;
      for (const Place& place : places)
        for (std::int64_t t = 0; t < tokens; ++t) {
          const Token token = token_of(t);
          const auto append = [&](auto& to, const auto& from, std::int64_t heads, int channels) {
            const auto row =
                static_cast<std::ptrdiff_t>(x.row(static_cast<std::int64_t>(place.request), token.t, 0, heads) *
                                            static_cast<std::size_t>(channels));
            to.insert(to.end(), from.begin() + row, from.begin() + row + heads * channels);
          };
          append(q, token.of->queries, x.query_heads, x.d);
          append(k, token.of->keys, x.key_heads, x.d);
          append(v, token.of->values, x.key_heads, x.e);
          if (!x.log_gates.empty()) append(g, token.of->log_gates, x.gate_heads, 1);
          for (std::int64_t h = 0; h < x.key_heads && x.rotary && x.rotary->beta; ++h) b.push_back(x.step(token.t, h));
        }
      memory.reserve(4);
      inputs = {dense(bytes(q), x.query_heads, x.d),
                dense(bytes(k), x.key_heads, x.d),
                dense(bytes(v), x.key_heads, x.e),
                {},
                {},
                {}};
      gates = std::make_unique<Array<float>>(g);
      beta = std::make_unique<Array<float>>(b);
      if (!g.empty()) inputs.log_gates = cuda::dense(gates->data(), cuda::Element::f32, tokens, x.gate_heads, 1);
      if (!b.empty()) inputs.beta = cuda::dense(beta->data(), cuda::Element::f32, tokens, x.key_heads, 1);
      slots = {server.slots_, indices.data(), faults.data()};
    }
    static std::vector<std::int32_t> indices_of(const std::vector<Place>& places) {
      std::vector<std::int32_t> all;
      for (const Place& place : places) all.push_back(place.slot);
      return all;
    }
    [[nodiscard]] std::vector<std::byte> bytes(const std::vector<double>& numbers) const {
      std::vector<std::byte> all(numbers.size() * x.format.bytes());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::uint32_t bits = x.format.bits(numbers[i]);
        std::memcpy(&all[i * x.format.bytes()], &bits, x.format.bytes());
      }
      return all;
    }
    cuda::ConstView dense(const std::vector<std::byte>& all, std::int64_t heads, int channels) {
      memory.emplace_back(all);
      return cuda::dense(memory.back().data(), x.format.element, tokens, heads, channels);
    }
    void require_no_fault(const char* what) const {
      require(faults.values() == std::vector(faults.size(), cuda::SlotFault::none), "%s has a fault", what);
    }
    [[nodiscard]] cuda::Outputs outputs() const {
      return {cuda::dense(rows.data(), x.format.element, tokens, x.query_heads, x.e), {}, {}};
    }

    const Tokens& x;
    std::int64_t tokens;
    std::size_t row_bytes;
    Array<std::int32_t> indices;
    Array<cuda::SlotFault> faults;
    std::vector<Array<std::byte>> memory;
    std::unique_ptr<Array<float>> gates, beta;
    Array<std::byte> rows{row_bytes};
    cuda::Inputs inputs;
    cuda::Slots slots;
  };

  /// Rows of accepted tokens; those of inactive sequences must be as before.
  void keep(const Call& call, const std::vector<Place>& places, const std::vector<Event>& events) {
    const std::vector<std::byte> bytes = call.rows.values();
    const auto width = static_cast<std::size_t>(tokens_.query_heads * tokens_.e);
    const std::size_t size = tokens_.format.bytes();
    for (std::size_t n = 0; n < places.size(); ++n)
      for (std::int64_t t = 0; t < step_; ++t)
        for (std::size_t c = 0; c < width; ++c) {
          const std::size_t at = (n * static_cast<std::size_t>(step_) + static_cast<std::size_t>(t)) * width + c;
          std::uint32_t bits = 0;
          std::memcpy(&bits, &bytes[at * size], size);
          if (places[n].slot < 0) {
            if (!require(bits == tokens_.format.unset(), "a row of an inactive sequence was written")) return;
          } else if (t < events[n].accepted) {
            rows[places[n].request][static_cast<std::size_t>(events[n].first + t) * width + c] = bits;
          }
        }
  }

  const Tokens &tokens_, &drafts_;
  Array<double> rates_;
  cuda::Problem p_;
  std::int64_t step_, slots_;
  OwnState state_;
  OwnTail tail_;
  Array<std::int32_t> counts_;
};

/// The first `count` tokens of a request become those of another one.
void copy_tokens(Tokens& x, std::size_t from, std::size_t to, std::int64_t count) {
  const auto copy = [&](auto& numbers, std::int64_t heads, int channels) {
    if (numbers.empty()) return;
    const auto at = [&](std::size_t b) {
      return numbers.begin() + static_cast<std::ptrdiff_t>(x.row(static_cast<std::int64_t>(b), 0, 0, heads)) * channels;
    };
    std::copy(at(from), at(from) + count * heads * channels, at(to));
  };
  copy(x.queries, x.query_heads, x.d);
  copy(x.keys, x.key_heads, x.d);
  copy(x.values, x.key_heads, x.e);
  copy(x.log_gates, x.gate_heads, 1);
}

/// Requests in random slots, orders and companies. Each has the bits that it has alone, and rows within the rule.
void serve(const std::string& what, cuda::Problem p, Gates gates, std::optional<Rotation> rotary, std::int64_t step) {
  constexpr std::int64_t slots = 3, length = 84;
  constexpr std::size_t requests = 4;
  p.batch = requests;
  p.tokens = length + Server::draft_tokens;
  if (!can_run(what, p)) return;
  Tokens x(p, gates, 7), drafts(p, gates, 8);
  x.rotary = drafts.rotary = std::move(rotary);
  Server server(p, x, drafts, step, slots);
  std::vector<std::vector<Event>> histories(requests);
  std::vector<std::int64_t> next(requests);
  std::vector<int> slot_of(requests, -1);
  std::mt19937 random(5);
  const auto one_of = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  std::size_t begun = 0;
  const auto is_free = [&](int slot) { return std::find(slot_of.begin(), slot_of.end(), slot) == slot_of.end(); };
  const auto admit = [&] {
    const auto slot = static_cast<int>(one_of(slots));
    if (begun == requests || !is_free(slot)) return;
    const std::size_t r = begun, parent = r - 1;
    if (r == 2 && slot_of[parent] < 0) return;  // it has ended, or is about to: the next one forks nothing
    if (r == 2 && next[parent] > 0) {
      copy_tokens(x, parent, r, next[parent]);
      server.fork(slot_of[parent], slot);
      histories[r] = histories[parent], next[r] = next[parent];
      server.rows[r] = server.rows[parent];
    } else {
      const std::int64_t prefill = r % 2 == 0 ? 0 : 20 + one_of(20);
      server.begin({slot, r}, prefill);
      histories[r] = {{0, prefill, true}}, next[r] = prefill;
    }
    slot_of[r] = slot, ++begun;
  };
  while (begun < requests || std::any_of(slot_of.begin(), slot_of.end(), [](int slot) { return slot >= 0; })) {
    admit();
    std::vector<Place> places;
    std::vector<Event> events;
    for (std::size_t r = 0; r < requests; ++r)
      if (slot_of[r] >= 0 && one_of(4) > 0) places.push_back({slot_of[r], r});
    if (one_of(3) == 0) places.push_back({-1 - static_cast<int>(one_of(9)), 0});
    std::shuffle(places.begin(), places.end(), random);
    if (places.empty()) continue;
    for (const Place& place : places) {
      const std::int64_t from = next[place.request], most = std::min(step, length - from);
      events.push_back(
          {place.slot < 0 ? 0 : from, one_of(2) == 0 ? std::min<std::int64_t>(most, one_of(step) + 1) : most, false});
    }
    server.advance(places, events);
    for (std::size_t n = 0; n < places.size(); ++n) {
      if (places[n].slot < 0) continue;
      const std::size_t r = places[n].request;
      histories[r].push_back(events[n]);
      next[r] += events[n].accepted;
      if (next[r] == length) slot_of[r] = -1;
    }
  }

  double worst = 0;
  for (std::size_t r = 0; r < requests; ++r) {
    Server alone(p, x, drafts, step, slots);
    const Place place{static_cast<int>(r % slots), r};
    for (const Event& event : histories[r]) {
      if (event.is_prefill)
        alone.begin(place, event.accepted);
      else
        alone.advance({place}, {event});
    }
    require(alone.rows[r] == server.rows[r], "%s: request %d has other bits alone", what.c_str(), static_cast<int>(r));
    const std::int64_t first = histories[r][0].accepted;
    for (std::int64_t t = first; t < length; ++t)
      for (std::int64_t h = 0; h < x.query_heads; ++h) {
        const ReferenceRow row(x, static_cast<std::int64_t>(r), t, h,
                               p.is_normalised() ? 1 : static_cast<double>(p.scale));
        for (std::size_t c = 0; c < row.numerator.size(); ++c) {
          const std::size_t at = static_cast<std::size_t>(t * x.query_heads + h) * row.numerator.size() + c;
          const double y = x.format.number(server.rows[r][at]);
          const double error =
              row.error(c, y, p.is_normalised(), {64, static_cast<double>(cuda::monomials(p.power, p.d)), 10});
          worst = std::max(worst, error);
          if (!require(error <= 1, "%s: row %d of request %d, channel %d is %g, %g times its bound off", what.c_str(),
                       static_cast<int>(t), static_cast<int>(r), static_cast<int>(c), y, error))
            return;
        }
      }
  }
  std::printf("  %-52s %4.2f of the bound\n", what.c_str(), worst);
}

/// An index or count out of range sets a fault and changes nothing.
void faults_of_slots(cuda::Problem p) {
  constexpr std::int64_t slots = 3, step = 2;
  p.batch = 1, p.tokens = 16;
  if (!can_run("faults of slots", p)) return;
  const Tokens x(p, Gates::slow, 7);
  Server server(p, x, x, step, slots);
  for (int slot = 0; slot < slots; ++slot) server.begin({slot, 0}, 0);
  for (int slot = 0; slot < slots; ++slot) server.advance({{slot, 0}}, {{0, step, false}});
  const std::vector<std::byte> before = server.memory();
  using enum cuda::SlotFault;
  const auto check = [&](const char* what, const std::vector<std::int32_t>& counts,
                         const std::vector<std::int32_t>& slot, const std::vector<cuda::SlotFault>& expected,
                         const auto& call) {
    server.set_counts(counts);
    const Array<std::int32_t> indices(slot);
    const Array<cuda::SlotFault> faults(slot.size());
    cuda::Problem batch = server.of_batch(static_cast<std::int64_t>(slot.size()));
    done(call(batch, cuda::Slots{slots, indices.data(), faults.data()}));
    require(faults.values() == expected, "%s: other faults", what);
    require(server.counts() == counts, "%s: the counts have changed", what);
    require(server.memory() == before, "%s: a slot has changed", what);
  };
  const auto drop = [&](const std::vector<std::int32_t>& tokens) {
    return
        [&server, on_device = std::make_shared<Array<std::int32_t>>(tokens)](const auto& batch, const auto& slots_of) {
          return cuda::drop(batch, server.tail(), slots_of, on_device->data(), nullptr);
        };
  };
  check("a drop of too many, of fewer than none, beyond the slots, of none that is there", {2, 1, 65},
        {0, 1, 3, 2, -1, 1 << 30}, {tokens, tokens, slot, tokens, none, slot}, drop({3, -1, 1, 1, 1, 1}));
  const auto decode = [&](const auto& batch, const auto& slots_of) {
    cuda::Problem q = batch;
    q.tokens = step;
    const Array<std::byte> inputs(std::vector<std::byte>(1 << 16)), rows(1 << 16);
    const Array<float> gates(std::vector<float>(1 << 10));
    const auto of = [&](std::int64_t heads, int channels) {
      return cuda::dense(inputs.data(), q.element, step, heads, channels);
    };
    cuda::Tail tail = server.tail();
    std::size_t bytes = 0;
    done(cuda::decode_workspace(q, tail, slots_of, bytes));
    const Array<std::byte> workspace(bytes);
    const cuda::Inputs all{of(q.query_heads, q.d),
                           of(q.key_heads, q.d),
                           of(q.key_heads, q.e),
                           cuda::dense(gates.data(), cuda::Element::f32, step, q.gate_heads, 1),
                           {},
                           {}};
    const cuda::Status status = cuda::decode(q, server.state(), tail, slots_of, all,
                                             {cuda::dense(rows.data(), q.element, step, q.query_heads, q.e), {}, {}},
                                             workspace.data(), bytes, nullptr);
    const std::vector<std::byte> written = rows.values();
    require(std::all_of(written.begin(), written.end(), [](std::byte x_) { return x_ == std::byte{0xff}; }),
            "a row of a sequence with a fault was written");
    return status;
  };
  check("decoding beyond the slots, and where counts are not", {-1, 65, 2}, {3, 0, 1, -7, 1 << 30},
        {slot, tokens, tokens, none, slot}, decode);
  // The bound is too low: no fold is on the stream.
  check("decoding into a tail that is full, against the bound", {63, 64, 2}, {1, 0}, {tokens, tokens}, decode);
  const auto copy = [&](const std::vector<std::int32_t>& from) {
    return [&server, on_device = std::make_shared<Array<std::int32_t>>(from)](const auto& batch, const auto& slots_of) {
      cuda::Tail tail = server.tail();
      return cuda::copy_slots(batch, server.state(), tail, {slots, on_device->data()}, server.state(), tail, slots_of,
                              nullptr);
    };
  };
  check("copies beyond the slots, and where counts are not", {2, 65, -1}, {0, 3, 0, 0, -1, 0},
        {slot, slot, tokens, tokens, none, slot}, copy({3, 0, 1, 2, 5, 1 << 30}));
}

/// Slots in another order have the bits of sequences in order, without counts on the device.
void slots_in_order(cuda::Problem p) {
  constexpr std::int64_t length = 70;
  p.batch = 3;
  p.tokens = length;
  if (!can_run("slots in order", p)) return;
  const Tokens x(p, Gates::slow, 9);
  Server server(p, x, x, 1, p.batch);
  for (std::int64_t t = 0; t < length; ++t) {
    const Event event{t, 1, false};
    server.advance({{0, 2}, {2, 0}, {1, 1}}, {event, event, event});
  }
  const Arrays arrays(x, Layout::dense);
  const OwnState own(p);
  OwnTail tail(p, 64);
  done(cuda::clear(p, own.state, nullptr));
  p.tokens = 1;
  std::size_t bytes = 0, fold_bytes = 0;
  done(cuda::decode_workspace(p, bytes));
  done(cuda::fold_workspace(p, 64, fold_bytes));
  const Array<std::byte> workspace(std::max(bytes, fold_bytes));
  for (std::int64_t t = 0; t < length; ++t) {
    if (tail.tail.count == 64) done(cuda::fold(p, own.state, tail.tail, workspace.data(), workspace.size(), nullptr));
    done(cuda::decode(p, own.state, tail.tail, arrays.inputs(t), arrays.outputs(t), workspace.data(), workspace.size(),
                      nullptr));
  }
  const std::vector<std::uint32_t> rows = arrays.row_bits();
  std::vector<std::uint32_t> in_slots;
  for (const auto& of : server.rows) in_slots.insert(in_slots.end(), of.begin(), of.end());
  require(rows == in_slots, "slots in another order have other bits than sequences in order");
}

}  // namespace

void test_slots() {
  cuda::Problem p;
  p.power = 2, p.d = 16, p.e = 8;
  p.query_heads = 2, p.key_heads = p.gate_heads = 1;
  p.chunk = 64;
  slots_in_order(p);
  faults_of_slots(p);
  serve("bf16, gates", p, Gates::slow, {}, 3);
  p.query_heads = p.gate_heads = 4, p.key_heads = 2;
  p.element = cuda::Element::fp16;
  serve("fp16, gates of 0 of query heads, a token a call", p, Gates::any, {}, 1);
  p.query_heads = p.key_heads = p.gate_heads = 2;
  const auto steps = [](int t) { return 1 + .9 * std::sin(t); };
  serve("fp16, rotary by beta", p, Gates::slow, Rotation{true, steps, 0}, 5);
  p.element = cuda::Element::f32;
  p.gate_heads = 0;
  serve("f32, rotary, no gates", p, Gates::none, Rotation{false, {}, 0}, 4);
}

}  // namespace sympow::test
