// One sequence cut over the ranks of an MPI job: each rank attends for its own tokens, two prefix scans tell it all
// that came before.
//
//     mpiexec -n 4 sequence_parallel_mpi [--tokens 8191] [--d 32] [--seed 1]
//
// 1. Totals. A segment turns by Σ β_i θ. The sum of the angles before a rank (MPI_Exscan) is the frame where its
// segment starts.
// 2. First pass: every rank runs its segment from an empty state in that frame.
// 3. States. `merge` joins the states of adjacent segments and is associative, so a second MPI_Exscan, with merge as
// its operator, gives
//    every rank the state before its first token. One state travels, of the same size for any number of tokens.
// 4. Second pass: every rank runs its segment from that state, for its outputs.
//
// Why two passes: a row is a quotient, and what came before enters both its halves, so the rows of the first pass
// cannot be corrected when the state arrives. The first rank has nothing before it and keeps them; nobody waits for the
// last rank's state, so it leaves the first pass out. That is two passes over T/ranks tokens where one rank makes one
// pass over T.
//
// Rank 0 gathers the outputs and compares them with one rank's run over the whole sequence, by the row rule of
// docs/numerics.md. Exit status: 0 they agree, 1 they do not, 2 bad arguments, with one line that says what.
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>
#include <sympow/verify/proposition.hpp>

#include <mpi.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "double_rows.hpp"

using namespace sympow;

namespace {

using Feature = SymmetricPower<2>;
using FeatureState = State<float, Feature>;

constexpr Options options{.chunk = 64};

constexpr const char* usage =
    R"(One sequence cut over the ranks of an MPI job, against one rank's run.

  mpiexec -n RANKS sequence_parallel_mpi [--tokens T] [--d D] [--seed N]

  --tokens   T, 1 to 131072, default 8191; it need not be divisible by the ranks. The comparison takes T^2 D operations
  --d        D, an even number of 2 to 128, default 32: entries of a query, a key and a value
  --seed     N, 0 to 4294967295, default 1

Exit status: 0 the outputs agree by the row rule, 1 they do not, 2 bad arguments, with one line that says what.
)";

struct Arguments {
  Index tokens = 8191, d = 32, seed = 1;
  bool help = false;
};

Index number(const std::string& option, const std::string& text, Index least, Index most) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw std::runtime_error(option + " is " + text + ", must be a whole number of " + std::to_string(least) + " to " +
                             std::to_string(most));
  return value;
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t n = 0; n < words.size(); n += 2) {
    const std::string& option = words[n];
    if (option == "--help") {
      arguments.help = true;
      return arguments;
    }
    if (option != "--tokens" && option != "--d" && option != "--seed")
      throw std::runtime_error("unknown option " + option + "; see --help");
    if (n + 1 == words.size()) throw std::runtime_error(option + " needs a value");
    const std::string& value = words[n + 1];
    if (option == "--tokens") arguments.tokens = number(option, value, 1, 131072);
    if (option == "--d") arguments.d = number(option, value, 2, 128);
    if (option == "--seed") arguments.seed = number(option, value, 0, 4294967295);
  }
  if (arguments.d % 2 != 0)
    throw std::runtime_error("--d is " + std::to_string(arguments.d) + ", must be even: coordinates turn in pairs");
  return arguments;
}

/// Consecutive tokens of the sequence that a seed names. Every token has a source of its own, so a rank makes its piece
/// without the rest.
struct Piece {
  Matrix<float> Q, K, V;
  Eigen::VectorXd log_gamma, beta, theta;

  Piece(const Arguments& of, Segment segment)
      : Q(of.d, segment.size),
        K(Q),
        V(Q),
        log_gamma(segment.size),
        beta(segment.size),
        theta(rotary_frequencies<double>(of.d, 4096)) {
    for (Index t = 0; t < segment.size; ++t) {
      Random random(static_cast<std::uint64_t>(of.seed) << 32 | static_cast<std::uint64_t>(segment.begin + t));
      Q.col(t) = random.vector<float>(of.d);
      K.col(t) = random.vector<float>(of.d);
      V.col(t) = random.vector<float>(of.d);
      log_gamma[t] = -.001 * random.uniform(0, 2);  // windows of a thousand tokens: a state that is lost is seen
      beta[t] = 1 + std::tanh(random.normal());
    }
  }

  [[nodiscard]] auto transition() const { return decay(log_gamma) * rotary(theta, beta, Pairing::interleaved); }

  [[nodiscard]] Matrix<float> outputs(FeatureState& state) const {
    return chunked(Feature{}, transition(), Q, K, V, state, options);
  }
};

Segment share(Index tokens, Index rank, Index ranks) {
  const Index begin = tokens * rank / ranks;
  return {begin, tokens * (rank + 1) / ranks - begin};
}

/// The frame where a rank's segment starts: the first scan.
Frame start_of(const Piece& piece, int rank) {
  const Index pairs = piece.theta.size();
  Eigen::VectorXd own = Eigen::VectorXd::Zero(pairs), before = own;
  for (Index t = 0; t < piece.beta.size(); ++t) own = (own + piece.beta[t] * piece.theta).unaryExpr(&reduced_angle);
  MPI_Exscan(own.data(), before.data(), static_cast<int>(pairs), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) before.setZero();  // MPI leaves it undefined
  return {Frame::angles, before.unaryExpr(&reduced_angle)};
}

std::string bytes_of(const FeatureState& state) {
  std::ostringstream out;
  save(state, out);
  return out.str();
}

FeatureState state_of(const char* bytes, int size, Index d) {
  std::istringstream in(std::string(bytes, static_cast<std::size_t>(size)));
  FeatureState state(d, d);
  load(state, in);
  return state;
}

Index key_dimension = 0;  // an MPI operator sees the bytes and nothing else

/// merge as an MPI operator, not commutative: `earlier` is of the lower ranks; the result replaces `later`.
extern "C" void merge_bytes(void* earlier, void* later, int* count, MPI_Datatype* type) {
  try {
    int size = 0;
    MPI_Type_size(*type, &size);
    for (int n = 0; n < *count; ++n) {
      const std::ptrdiff_t offset = static_cast<std::ptrdiff_t>(n) * size;
      const char* left = static_cast<const char*>(earlier) + offset;
      char* right = static_cast<char*>(later) + offset;
      const std::string both =
          bytes_of(merge(state_of(left, size, key_dimension), state_of(right, size, key_dimension)));
      both.copy(right, static_cast<std::size_t>(size));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sequence_parallel_mpi: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

/// The state before a rank's first token: the second scan. Saved states of one shape have one size.
FeatureState state_before(const FeatureState& own, int rank) {
  std::string bytes = bytes_of(own), before = bytes;
  const int size = static_cast<int>(bytes.size());
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(size, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  MPI_Op merging = MPI_OP_NULL;
  constexpr int commutative = 0;
  MPI_Op_create(&merge_bytes, commutative, &merging);
  MPI_Exscan(bytes.data(), before.data(), 1, type, merging, MPI_COMM_WORLD);
  MPI_Op_free(&merging);
  MPI_Type_free(&type);
  const Index d = own.key_dimension();
  return rank == 0 ? FeatureState(d, d) : state_of(before.data(), size, d);
}

/// The outputs of all ranks, on rank 0.
Matrix<float> gather(const Matrix<float>& own, const Arguments& arguments, int rank, int ranks) {
  std::vector<int> sizes, offsets;
  for (int other = 0; other < ranks; ++other) {
    const Segment segment = share(arguments.tokens, other, ranks);
    sizes.push_back(static_cast<int>(segment.size * arguments.d));
    offsets.push_back(static_cast<int>(segment.begin * arguments.d));
  }
  Matrix<float> all(arguments.d, rank == 0 ? arguments.tokens : 0);
  MPI_Gatherv(own.data(), static_cast<int>(own.size()), MPI_FLOAT, all.data(), sizes.data(), offsets.data(), MPI_FLOAT,
              0, MPI_COMM_WORLD);
  return all;
}

/// Milliseconds of a rank's own work in the two passes, and of its waiting and merging between them.
struct Times {
  double first = 0, states = 0, second = 0;
};

std::vector<Times> gather(const Times& own, int rank, int ranks) {
  std::vector<Times> all(rank == 0 ? static_cast<std::size_t>(ranks) : 0);
  MPI_Gather(&own, 3, MPI_DOUBLE, all.data(), 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return all;
}

template <class F>
double milliseconds(F&& f) {
  const double start = MPI_Wtime();
  f();
  return (MPI_Wtime() - start) * 1e3;
}

/// Whether outputs agree with one rank's run over the whole sequence. Prints the last two lines.
bool agree(const Arguments& arguments, const Matrix<float>& Y) {
  const Piece whole(arguments, {0, arguments.tokens});
  FeatureState state(arguments.d, arguments.d);
  Matrix<float> alone;
  const double time = milliseconds([&] { alone = whole.outputs(state); });
  const auto rows = verify::double_rows(Feature{}, whole.transition(), whole.Q, whole.K, whole.V);
  const double ratio = verify::row_rule<DefaultNormalization, Feature>(rows, Y, alone, verify::unit_roundoff<float>,
                                                                       static_cast<double>(options.chunk));
  std::printf("%-6s%10td%40.1f\n", "alone", arguments.tokens, time);
  std::printf("largest difference by the row rule %.3f: %s\n", ratio, ratio <= 1 ? "holds" : "BROKEN");
  return ratio <= 1;
}

int run(const Arguments& arguments, int rank, int ranks) {
  const Piece piece(arguments, share(arguments.tokens, rank, ranks));
  const Index d = key_dimension = arguments.d;
  const bool is_first = rank == 0, is_last = rank == ranks - 1;

  MPI_Barrier(MPI_COMM_WORLD);
  Matrix<float> Y;
  FeatureState own(d, d, FeatureState::default_tail, start_of(piece, rank)), before = own;
  Times times;
  if (is_first || !is_last) times.first = milliseconds([&] { Y = piece.outputs(own); });
  times.states = milliseconds([&] { before = state_before(own, rank); });
  if (!is_first) times.second = milliseconds([&] { Y = piece.outputs(before); });

  const Matrix<float> all = gather(Y, arguments, rank, ranks);
  const std::vector<Times> of_ranks = gather(times, rank, ranks);
  int holds = 1;
  if (is_first) {
    std::printf("%td tokens on %d %s, P = 2, d = e = %td, float; a state of %td bytes; times in ms\n\n",
                arguments.tokens, ranks, ranks == 1 ? "rank" : "ranks", d, own.bytes());
    std::printf("%-6s%10s%14s%12s%14s\n", "rank", "tokens", "first pass", "states", "second pass");
    for (int n = 0; n < ranks; ++n) {
      const Times& time = of_ranks[static_cast<std::size_t>(n)];
      std::printf("%-6d%10td%14.1f%12.1f%14.1f\n", n, share(arguments.tokens, n, ranks).size, time.first, time.states,
                  time.second);
    }
    holds = agree(arguments, all) ? 1 : 0;
  }
  MPI_Bcast(&holds, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return holds == 1 ? 0 : 1;
}

/// Exit status. Every rank reads the same arguments and comes to the same answer; rank 0 speaks.
int start(const std::vector<std::string>& words, int rank, int ranks) {
  Arguments arguments;
  try {
    arguments = parse(words);
  } catch (const std::exception& error) {
    if (rank == 0) std::fprintf(stderr, "sequence_parallel_mpi: %s\n", error.what());
    return 2;
  }
  if (arguments.help) {
    if (rank == 0) std::fputs(usage, stdout);
    return 0;
  }
  try {
    return run(arguments, rank, ranks);
  } catch (const std::exception& error) {  // the others wait for this rank
    std::fprintf(stderr, "sequence_parallel_mpi: rank %d: %s\n", rank, error.what());
    return MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int status = start({argv + 1, argv + argc}, rank, ranks);
  MPI_Finalize();
  return status;
}
