// Many sequences through a few states: they join, their prompts go in by pieces while others decode, and they leave.
//
//     serving FILE        FILE may be - for standard input
//
// A pool is a vector of states, one for every key head of a slot. A call takes the states of whichever slots take part
// in it, as a view: what joins or leaves moves nothing. Tokens are bytes of a text through fixed random projections, as
// a layer's weights would make them. Served together, every row has the same bits as alone.
#include <sympow/sympow.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <iostream>
#include <ranges>
#include <string>
#include <vector>

#include "text_tokens.hpp"

using namespace sympow;

namespace {

using Feature = SymmetricPower<2>;
constexpr Index H = 4, H_kv = 2, d = 32, e = 32;  // query heads of a pair share a state
constexpr Index slots = 16, piece = 64;           // tokens of a prompt at a time, between two steps of the others

/// A sequence: a part of the text, of which the first tokens are its prompt.
struct Request {
  Index begin, prompt, tokens;
  Matrix<float> rows = Matrix<float>::Zero(H * e, tokens);
};

/// What a layer makes of the text, a token a column: heads one below the other.
struct Layer {
  Matrix<float> Q, K, V;
  Eigen::MatrixXd log_gates;  // H_kv of them
  Eigen::VectorXd theta = rotary_frequencies<double>(d, 4096);

  explicit Layer(const std::string& text)
      : Q(text_tokens::project<float>(text, H * d, 1)),
        K(text_tokens::project<float>(text, H_kv * d, 2)),
        V(text_tokens::project<float>(text, H_kv * e, 3)),
        log_gates((-text_tokens::project<float>(text, H_kv, 4).cast<double>().array() - 6).exp().log1p() * -1) {}
};

class Server {
 public:
  explicit Server(const Layer& layer) : layer_(layer) { states_.assign(slots * H_kv, State<float, Feature>(d, e)); }

  void run(std::deque<Request*> waiting) {
    std::vector<Active> active;
    while (!waiting.empty() || !active.empty()) {
      for (; !waiting.empty() && std::ssize(active) < slots; waiting.pop_front())
        active.push_back({waiting.front(), free_slot(active), 0});
      // A piece of every prompt that is not done, then one token of all others.
      std::vector<Active*> decoding;
      for (Active& one : active)
        if (one.done < one.request->prompt)
          take({&one}, std::min(piece, one.request->prompt - one.done));
        else
          decoding.push_back(&one);
      if (!decoding.empty()) take(decoding, 1);
      most_ = std::max(most_, std::ssize(decoding));
      std::erase_if(active, [](const Active& one) { return one.done == one.request->tokens; });
    }
  }

  [[nodiscard]] Index most() const { return most_; }  ///< sequences that decoded together
  [[nodiscard]] Index bytes() const { return std::ssize(states_) * states_.front().bytes(); }

 private:
  struct Active {
    Request* request;
    Index slot, done;
  };

  State<float, Feature>& state(Index slot, Index key_head) { return states_.begin()[slot * H_kv + key_head]; }

  // A slot that no sequence has, with empty states.
  Index free_slot(const std::vector<Active>& active) {
    Index slot = 0;
    while (std::ranges::any_of(active, [&](const Active& one) { return one.slot == slot; })) ++slot;
    for (Index g = 0; g < H_kv; ++g) state(slot, g) = State<float, Feature>(d, e);
    return slot;
  }

  // The next n tokens of some sequences, [B, n, H, d].
  void take(const std::vector<Active*>& some, Index n) {
    const Index B = std::ssize(some);
    const auto one = [&](Index b) -> Active& { return *some.begin()[b]; };
    const auto at = [&](Index b) { return one(b).request->begin + one(b).done; };
    Matrix<float> q(H * d, B * n), k(H_kv * d, B * n), v(H_kv * e, B * n), y(H * e, B * n);
    for (Index b = 0; b < B; ++b) {
      q.middleCols(b * n, n) = layer_.Q.middleCols(at(b), n);
      k.middleCols(b * n, n) = layer_.K.middleCols(at(b), n);
      v.middleCols(b * n, n) = layer_.V.middleCols(at(b), n);
    }
    const auto states = std::views::iota(Index(0), B * H_kv) |
                        std::views::transform([&](Index i) -> auto& { return state(one(i / H_kv).slot, i % H_kv); });
    const auto transitions = [&](Index b, Index g) {
      return decay(layer_.log_gates.row(g).segment(at(b), n).transpose()) * rotary(layer_.theta, Pairing::interleaved);
    };
    attend(Feature{}, transitions,
           {.Q = Heads<float>::bthd(q.data(), B, n, H, d),
            .K = Heads<float>::bthd(k.data(), B, n, H_kv, d),
            .V = Heads<float>::bthd(v.data(), B, n, H_kv, e),
            .states = states,
            .Y = Heads<float>::bthd(y.data(), B, n, H, e),
            .workspaces = workspaces_,
            .options = {.form = n == 1 ? Form::recurrent : Form::chunked}});
    for (Index b = 0; b < B; ++b) {
      one(b).request->rows.middleCols(one(b).done, n) = y.middleCols(b * n, n);
      one(b).done += n;
    }
  }

  const Layer& layer_;
  std::vector<State<float, Feature>> states_;
  Workspaces<float> workspaces_;
  Index most_ = 0;
};

int run(const std::string& path) {
  std::string text = text_tokens::read(path);
  text.resize(std::min<std::size_t>(text.size(), 1 << 14));
  if (text.size() < 1024) throw std::runtime_error(path + " must hold at least 1024 bytes");
  const Layer layer(text);
  Random random(1);
  std::vector<Request> together;
  for (Index n = 0; n < 40; ++n) {
    const Index tokens = 60 + static_cast<Index>(random.uniform() * 400),
                prompt = 1 + static_cast<Index>(random.uniform() * 200);
    const auto last = static_cast<double>(std::ssize(text) - tokens);
    together.push_back({static_cast<Index>(random.uniform() * last), std::min(prompt, tokens), tokens});
  }
  std::vector<Request> alone = together;

  Server server(layer);
  std::deque<Request*> waiting;
  for (Request& one : together) waiting.push_back(&one);
  const auto begin = std::chrono::steady_clock::now();
  server.run(waiting);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Index tokens = 0, same = 0;
  for (std::size_t n = 0; n < together.size(); ++n) {
    Server(layer).run({&alone[n]});
    same += alone[n].rows == together[n].rows;
    tokens += together[n].tokens;
  }
  std::printf(
      "%zu sequences, %td tokens, %.0f tokens a second; at most %td decoded together, in %td slots of %td bytes\n",
      together.size(), tokens, static_cast<double>(tokens) / seconds, server.most(), slots, server.bytes() / slots);
  std::printf("%td of %zu have the same bits as alone\n", same, together.size());
  return same == std::ssize(together) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: serving FILE   (- for standard input)\n";
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "serving: " << error.what() << '\n';
    return 2;
  }
}
