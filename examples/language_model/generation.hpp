// Generation: a model goes on with a text, and may stop and go on in another run of the program.
#pragma once

#include "runs.hpp"

#include <sympow/io/commit_to_disk.hpp>

#include <sstream>

namespace language_model {

/// A text in the making. What is remembered of it does not grow, but under softmax.
class Generation {
 public:
  /// Before its first byte. The run must outlive it.
  explicit Generation(const Run& run) : run_(run), memory_(run.training.model().memory()) {}

  /// The text goes on with these words.
  void add(std::string_view words) { unread_ += words; }

  /// The byte after them, which is added, too: drawn by its probability to the power 1/temperature; 0 takes the
  /// likeliest. The draw follows from the seed and the number of bytes before it. Throws `InvalidArgument` if there are
  /// none.
  char next(double temperature, std::uint64_t seed) {
    if (unread_.empty()) refuse("--prompt is empty, must have a byte");
    constexpr std::size_t at_once = 512;
    const auto text = bytes_of(unread_);
    Eigen::VectorXd logits;
    for (std::size_t n = 0; n < text.size(); n += at_once) {
      const auto piece = text.subspan(n, std::min(at_once, text.size() - n));
      logits = run_.training.model()
                   .read(run_.training.weights(), piece, memory_, pass_)
                   .rightCols(1)
                   .template cast<double>();
    }
    if (!logits.allFinite()) refuse(run_.checkpoint.path, ": its weights make logits that are not finite");
    Index byte = 0;
    const double largest = logits.maxCoeff(&byte);
    if (temperature > 0) {
      const Eigen::VectorXd weights = ((logits.array() - largest) / temperature).exp();
      double left = random_of({seed, static_cast<std::uint64_t>(memory_[0].tokens())}).uniform() * weights.sum();
      for (byte = 0; byte + 1 < weights.size() && left >= weights[byte]; ++byte) left -= weights[byte];
    }
    unread_ = static_cast<char>(byte);
    return unread_[0];
  }

  /// Writes a file, in full or not at all: "language_model generation", the checksum of the checkpoint, a line each ·
  /// what the layers remember, as sympow's `save` writes it · the bytes that are not read yet · 8 bytes: the checksum
  /// of all that. Throws `CannotWrite`.
  void save_to(const std::string& path) const {
    std::ostringstream stream;
    stream << head();
    for (const auto& of_layer : memory_) save(of_layer, stream);
    stream << unread_;
    sympow::io::OutputFile file("--state", path);
    file.open() << sealed(std::move(stream).str());
    sympow::io::commit_to_disk(file);
  }

  /// Goes on where the file was written, with the same bits. Throws `InvalidStateFile`, and is as it was then.
  void load_from(const std::string& path) {
    const auto refuse_state = [&](const char* why) {
      sympow::detail::raise<sympow::InvalidStateFile>("--state ", path, ": ", why);
    };
    if (!std::filesystem::is_regular_file(path)) refuse_state("is no regular file");
    const std::string file = text_tokens::read(path), expected = head();
    if (!file.starts_with(expected.substr(0, expected.find('\n')))) refuse_state("is no file of a generation");
    const std::string content = file.substr(0, file.size() - sizeof(std::uint64_t));
    if (sealed(content) != file) refuse_state("is cut or damaged, its checksum does not match");
    if (!content.starts_with(expected)) refuse_state("is of another checkpoint than the newest of --out");
    std::istringstream in(content.substr(expected.size()));
    auto memory = run_.training.model().memory();
    for (auto& of_layer : memory) load(of_layer, in);
    memory_ = std::move(memory);
    unread_.assign(std::istreambuf_iterator<char>(in), {});
  }

 private:
  [[nodiscard]] std::string head() const {
    return "language_model generation\n" + run_.checkpoint.metadata.at("checksum") + '\n';
  }

  static std::string sealed(const std::string& content) {
    const std::uint64_t sum = checksum(std::as_bytes(std::span(content)));
    return content + std::string(reinterpret_cast<const char*>(&sum), sizeof sum);
  }

  const Run& run_;
  Model<float>::Memory memory_;
  Pass<float> pass_;
  std::string unread_;
};

/// Prints a prompt and what the model makes of it. The state moves on when all of it has arrived. Throws
/// `InvalidArgument`, `CannotWrite`.
inline void generate(Options options) {
  const std::string folder = options.take_out();
  std::string prompt, state;
  std::uint64_t count = 400, seed = 1;
  double temperature = .8;
  options.take("prompt", prompt);
  options.take("bytes", count);
  options.take("temperature", temperature);
  options.take("seed", seed);
  options.take("state", state);
  options.end();
  const Run run = trained_run(folder);
  Generation generation(run);
  if (!state.empty() && std::filesystem::exists(state)) generation.load_from(state);
  generation.add(prompt);
  const auto print = [](const std::string& words) {
    std::fwrite(words.data(), 1, words.size(), stdout);
    sympow::io::require_printed();
  };
  print(prompt);
  for (; count > 0; --count) print({generation.next(temperature, seed)});
  print("\n");
  if (!state.empty()) generation.save_to(state);
}

}  // namespace language_model
