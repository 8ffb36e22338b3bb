// The speed of the CUDA library beside what the device can do: a product of cuBLAS and a copy, in the same run.
//
//   sympow_cuda_bench [--quick] [--order GROUPS] [--only TEXT] [--tokens N] [--limit SECONDS] [--once] [--general]
//                     [--json FILE]
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cases.hpp"

namespace {

using namespace sympow::cuda;
using namespace sympow::cuda::bench;

struct Options {
  bool quick = false;                                          ///< only the cases with a bar, and shorter
  std::string order = "ceilings,attention,training,decoding";  ///< the groups that run, in this order
  std::string only;                                            ///< only cases whose name contains it
  std::int64_t tokens = 0;                                     ///< no case is longer; 0: no limit
  double limit = 1e9;                                          ///< seconds after which no case begins
  bool once = false;                                           ///< one call of each case, untimed, for a profiler
  bool general = false;                                        ///< only kernels for every architecture
  std::string json;
};

constexpr const char* usage =
    "sympow_cuda_bench [--quick] [--order GROUPS] [--only TEXT] [--tokens N] [--limit SECONDS] [--once] [--general]\n"
    "                  [--json FILE]\n"
    "  --quick          only the cases that have a bar\n"
    "  --order GROUPS   which groups run and in which order, by default ceilings,attention,training,decoding\n"
    "  --only TEXT      only cases whose name contains TEXT\n"
    "  --tokens N       no sequence longer than N\n"
    "  --limit SECONDS  begin no case after that time\n"
    "  --once           call each case once, untimed, for a profiler\n"
    "  --general        only kernels for every architecture\n"
    "  --json FILE      write the measurements as JSON, after every case\n";

class Bench {
 public:
  Bench(const Options& options, Report& report) : options_(options), report_(report), stream_(new_stream()) {
    effort_.l2_bytes = report.device.l2_bytes;
  }

  void ceilings() {
    if (options_.once) return;
    const bool small = options_.tokens > 0;
    measure_copy(stream_.get(), report_.ceilings, small ? 1 << 20 : std::size_t{1} << 30);
    measure_l2(stream_.get(), report_.ceilings, small ? 1 << 16 : std::size_t{32} << 20,
               report_.device.multiprocessors);
    measure_product(stream_.get(), report_.ceilings, small ? 64 : 8192);
    print_header(report_);
    write();
  }

  void attention() {
    const Problem headline = problem(2, 64, 65536);
    const std::string name = name_of(headline);
    if (const Result* r = run(name, headline, true, true))
      bar({name + ", forward", "ms", r->times.median, 1.3, true}, headline.tokens == 65536);
    for (int d : {64, 128}) {
      Problem p = problem(1, d, 65536);
      const std::string linear = name_of(p);
      if (const Result* r = run(linear, p, true, true))
        bar({linear + ", 4 d e + 64 (d + e) a token", "TFLOP/s", linear_operations(p) / r->times.median / 1e9, 94,
             false},
            p.tokens == 65536);
    }
    if (options_.quick) return;
    for (int chunk : {256, 512, 1024, 2048, 4096})
      for (Problem p : {headline, problem(1, 64, 65536)}) {
        p.form = Form::chunked, p.chunk = chunk;
        run(name_of(p) + ", chunk " + std::to_string(chunk), p);
      }
    for (std::int64_t T = 1024; T <= 65536; T *= 2)
      for (Form form : {Form::automatic, Form::attention, Form::chunked}) {
        Problem p = problem(2, 64, T);
        p.form = form;
        const char* names[] = {"automatic", "attention", "recurrent", "chunked"};
        run(name_of(p) + ", " + names[static_cast<int>(form)], p, T == 1024 || T == 8192);
      }
    for (const Problem& p : {problem(2, 32, 65536), problem(2, 128, 65536), problem(4, 16, 65536)})
      run(name_of(p), p, true);
    others(headline);
  }

  void training() {
    const Problem headline = problem(2, 64, 65536);
    const auto train = [&](const Problem& p, bool parts) {
      return keep(name_of(p) + ", forward and backward",
                  [&](const std::string& full) { return time_training(full, p, effort(parts), stream_.get()); });
    };
    if (const Result* r = train(headline, true))
      bar({r->name, "ms", r->times.median, 4.2, true}, headline.tokens == 65536);
    if (options_.quick) return;
    for (const Problem& p : {problem(2, 64, 1024), problem(2, 64, 8192), problem(1, 64, 65536), problem(2, 32, 65536),
                             problem(2, 128, 65536), problem(4, 16, 65536)})
      train(p, true);
    for (int chunk : {256, 512, 2048, 4096}) {
      Problem p = headline;
      p.form = Form::chunked, p.chunk = chunk;
      keep(name_of(p) + ", chunk " + std::to_string(chunk) + ", forward and backward",
           [&](const std::string& full) { return time_training(full, p, effort(false), stream_.get()); });
    }
    for (const auto& [what, element] : {std::pair(", fp16", Element::fp16), std::pair(", float", Element::f32)}) {
      Problem p = problem(2, 64, 8192);
      p.element = element;
      keep(name_of(p) + what + ", forward and backward",
           [&](const std::string& full) { return time_training(full, p, effort(true), stream_.get()); });
    }
  }

  void decoding() {
    Problem p = problem(2, 64, 1);
    p.batch = 64, p.tokens = 1, p.element = Element::fp16;
    if (options_.tokens > 0) p.batch = 2;
    const std::string name = "P 2, d 64, 64 sequences";
    const auto decoding = [&](const char* what, int count, bool folds, bool parts) -> const Result* {
      return keep(name + what, [&](const std::string& full) {
        return time_decoding(full, p, count, folds, effort(parts), stream_.get());
      });
    };
    if (const Result* r = decoding(", decode, tail 32", 32, false, true))
      bar({name + ", decode, of the copy's rate", "", r->bytes / (r->times.median * 1e-3) / report_.ceilings.copy, .85,
           false},
          p.batch == 64);
    if (options_.quick) return;
    decoding(", decode, tail 0", 0, false, false);
    decoding(", decode, tail 63", 63, false, false);
    decoding(", fold of 64", 64, true, true);
    p.tokens = 8;
    decoding(", decode of 8 tokens, tail 32", 32, false, true);
    p.tokens = 1, p.element = Element::bf16;
    decoding(", decode, tail 32, bf16", 32, false, false);
    p.query_heads = 32;
    decoding(", decode, tail 32, bf16, 32 query heads", 32, false, false);
  }

  /// Writes the cases so far, so that a run that is cut off leaves them.
  void write() const {
    if (!options_.json.empty() && !write_json(report_, options_.json))
      throw std::runtime_error(options_.json + " cannot be written");
  }

 private:
  /// b 1 × h 8, d = e, gated, bf16; P 1 is not normalised.
  Problem problem(int power, int d, std::int64_t tokens) const {
    Problem p;
    p.power = power, p.d = p.e = d;
    p.tokens = options_.tokens > 0 ? std::min(tokens, options_.tokens) : tokens;
    p.query_heads = p.key_heads = p.gate_heads = 8;
    p.element = Element::bf16;
    if (options_.general) p.kernels = Kernels::general;
    return p;
  }

  static std::string name_of(const Problem& p) {
    return "P " + std::to_string(p.power) + ", d " + std::to_string(p.d) + ", T " + std::to_string(p.tokens);
  }

  /// Variations on the headline.
  void others(const Problem& headline) {
    const std::string name = name_of(headline) + ", ";
    const auto vary = [&](const char* what, const auto& change, bool parts = false) {
      Problem p = headline;
      change(p);
      run(name + what, p, parts);
    };
    vary("fp16", [](Problem& p) { p.element = Element::fp16; });
    vary("float", [](Problem& p) { p.element = Element::f32; }, true);
    vary("float, fast products", [](Problem& p) { p.element = Element::f32, p.products = Products::fast; });
    vary("states in two terms", [](Problem& p) { p.states = Precision::split; });
    std::vector<double> theta(static_cast<std::size_t>(headline.d) / 2);
    for (std::size_t i = 0; i < theta.size(); ++i)
      theta[i] = std::pow(1e4, -static_cast<double>(i) / static_cast<double>(theta.size()));
    const Memory rates(theta.size() * sizeof(double));
    check(cudaMemcpy(rates.get(), theta.data(), rates.bytes(), cudaMemcpyHostToDevice), "rates");
    vary(
        "rotary",
        [&](Problem& p) { p.rates = static_cast<const double*>(rates.get()), p.pairing = Pairing::interleaved; }, true);
    vary("no gates", [](Problem& p) { p.gate_heads = 0; });
    vary("not normalised", [](Problem& p) { p.normalised = false; });
    vary("e 128", [](Problem& p) { p.e = 128; });
    vary("2 key heads", [](Problem& p) { p.key_heads = p.gate_heads = 2; });
    vary("as 16 sequences", [](Problem& p) { p.batch = 16, p.tokens = std::max<std::int64_t>(p.tokens / 16, 1); });
  }

  Effort effort(bool parts) const {
    Effort e = effort_;
    e.parts = parts;
    e.once = options_.once;
    e.seconds = options_.quick ? .15 : .25;
    return e;
  }

  /// The result of a case that is wanted, or null.
  template <class Measure>
  const Result* keep(const std::string& name, const Measure& measure) {
    if (!options_.only.empty() && name.find(options_.only) == std::string::npos) return nullptr;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count() > options_.limit) {
      report_.left_out.push_back(name);
      return nullptr;
    }
    report_.results.push_back(measure(name));
    print(report_.results.back(), report_.ceilings);
    write();
    if (options_.once) return nullptr;
    return report_.results.back().error.empty() ? &report_.results.back() : nullptr;
  }

  const Result* run(const std::string& name, const Problem& p, bool parts = false, bool longer = false) {
    return keep(name, [&](const std::string& full) {
      Effort e = effort(parts);
      if (longer) e.seconds *= 2;
      return time_attention(full, p, e, stream_.get());
    });
  }

  void bar(const Bar& b, bool of_this_case) {
    if (of_this_case) report_.bars.push_back(b);
  }

  const Options& options_;
  Report& report_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  OwnedStream stream_;
  Effort effort_;
};

int run(const Options& options) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("There is no GPU here: nothing is measured.\n");
    return 0;
  }
  Report report;
  report.device = this_device();
  Bench bench(options, report);
  std::istringstream groups(options.order);
  for (std::string group; std::getline(groups, group, ',');) {
    if (group == "ceilings")
      bench.ceilings();
    else if (group == "attention")
      bench.attention();
    else if (group == "training")
      bench.training();
    else if (group == "decoding")
      bench.decoding();
    else
      throw std::invalid_argument("--order has the group " + group +
                                  ", must be of ceilings, attention, training, decoding");
  }
  print(report.bars);
  for (const std::string& name : report.left_out)
    std::printf("%s: not begun within %g s\n", name.c_str(), options.limit);
  bench.write();
  for (const Result& r : report.results)
    if (r.failed) return 1;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool more = i + 1 < argc;
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--once") {
      options.once = true;
    } else if (argument == "--order" && more) {
      options.order = argv[++i];
    } else if (argument == "--general") {
      options.general = true;
    } else if (argument == "--limit" && more) {
      options.limit = std::atof(argv[++i]);
    } else if (argument == "--only" && more) {
      options.only = argv[++i];
    } else if (argument == "--tokens" && more) {
      options.tokens = std::atoll(argv[++i]);
    } else if (argument == "--json" && more) {
      options.json = argv[++i];
    } else {
      std::fprintf(argument == "--help" ? stdout : stderr, "%s", usage);
      return argument == "--help" ? 0 : 2;
    }
  }
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sympow_cuda_bench: %s\n", error.what());
    return 2;
  }
}
