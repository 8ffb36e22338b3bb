// What a run is told: one list for the command line, the help, and the checkpoints.
#pragma once

#include "optimizer.hpp"

#include <sympow/core/checks.hpp>
#include <sympow/io/machine_memory.hpp>

#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace language_model {

/// Throws `InvalidArgument` with these words.
template <class... Words>
[[noreturn]] void refuse(const Words&... words) {
  sympow::detail::raise<sympow::InvalidArgument>(words...);
}

struct Settings {
  Config model;
  Descent descent;
  Index context = 512, batch = 8, checkpoint_every = 100, keep = 2;
  std::uint64_t seed = 1;
  int threads = 0;
  std::string data, out = "run";

  /// f(name, field, help, of_run): whether the weights that a run makes follow from it.
  template <class Self, class F>
  static void for_each(Self& s, const F& f) {
    f("data", s.data, "a file, or a folder of files: the text", true);
    f("out", s.out, "the folder of checkpoints and of loss.csv", false);
    f("setting", s.model.setting, "softmax, sympow, gated, conformal, gla, mamba2, deltanet or path_fox", true);
    f("power", s.model.power, "of sympow, 2 or 4", true);
    f("layers", s.model.layers, "blocks", true);
    f("d_model", s.model.d_model, "numbers of a token", true);
    f("heads", s.model.heads, "heads of queries", true);
    f("key_heads", s.model.key_heads, "heads of keys, which divide them; 0 is as many", true);
    f("d", s.model.d, "numbers of a head", true);
    f("tied", s.model.tied, "1: the head is the embedding", true);
    f("longest", s.model.longest, "N of the rotation rates, the longest text that is thought of", true);
    f("gate_bias", s.model.gate_bias, "of forget gates, at the start", true);
    f("context", s.context, "bytes that are read of a text in training", true);
    f("batch", s.batch, "texts of a step", true);
    f("steps", s.descent.steps, "of training", false);
    f("rate", s.descent.rate, "of learning", true);
    f("warmup", s.descent.warmup, "steps in which it grows", true);
    f("cosine", s.descent.cosine, "1: it falls to a tenth, as a half wave over all steps", true);
    f("decay", s.descent.decay, "of weights", true);
    f("clip", s.descent.clip, "the greatest length of a gradient", true);
    f("seed", s.seed, "of weights and of the choice of texts", true);
    f("checkpoint_every", s.checkpoint_every, "steps", false);
    f("keep", s.keep, "checkpoints that are kept", false);
    f("threads", s.threads, "0 for all; results do not depend on it", false);
  }
};

/// Throws `InvalidArgument` for words that are not all of a number. A size fits 32 bits, so that products of sizes fit
/// 64, and is not 0 unless the field was.
template <class Field>
void read_field(const std::string& name, const std::string& words, Field& field) {
  if constexpr (std::is_same_v<Field, std::string>) {
    field = words;
  } else if constexpr (std::is_same_v<Field, bool>) {
    if (words != "0" && words != "1") refuse("--", name, " is ", words, ", must be 0 or 1");
    field = words == "1";
  } else {
    constexpr bool is_size = std::is_same_v<Field, Index>;
    const Field most = is_size ? Field(INT32_MAX) : std::numeric_limits<Field>::max(), least = is_size && field > 0;
    Field number{};
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
    if (error != std::errc{} || end != words.data() + words.size() || !(number >= least && number <= most))
      refuse("--", name, " is ", words, ", must be a number in ", least, " … ", most);
    field = number;
  }
}

/// A field as words that `read_field` makes the same number of.
template <class Field>
std::string words_of(const Field& field) {
  if constexpr (std::is_same_v<Field, std::string>) {
    return field;
  } else if constexpr (std::is_same_v<Field, bool>) {
    return field ? "1" : "0";
  } else {
    std::array<char, 32> words;
    return {words.data(), std::to_chars(words.data(), words.data() + words.size(), field).ptr};
  }
}

/// Bytes of a model's matrices and of AdamW's averages, of which a run has a little more.
inline double bytes_of_weights(const Config& c) {
  const auto of = [](Index n) { return static_cast<double>(n); };
  const double heads = of(c.heads), key_heads = of(c.key_heads > 0 ? c.key_heads : c.heads);
  return 3 * sizeof(float) * of(c.d_model) *
         (256 + of(c.layers) * (8 * of(c.d_model) + 2 * (heads + key_heads) * of(c.d)));
}

using Words = std::map<std::string, std::string>;

/// Settings by name, as checkpoints have them.
inline Words words_of(const Settings& settings) {
  Words words;
  Settings::for_each(
      settings, [&](const std::string& name, const auto& field, const char*, bool) { words[name] = words_of(field); });
  return words;
}

/// Throws `InvalidArgument` unless there is such a model, and memory for it.
inline void require_model(const Config& model) {
  if (model.d % 2 != 0) refuse("--d is ", model.d, ", must be even: rotary positions turn pairs of numbers");
  if (model.key_heads > 0 && model.heads % model.key_heads != 0)
    refuse("--key_heads is ", model.key_heads, ", must divide --heads, which is ", model.heads);
  if (!(model.longest >= 1)) refuse("--longest is ", model.longest, ", must be at least 1");
  const double needed = bytes_of_weights(model), memory = static_cast<double>(sympow::io::machine_memory());
  if (needed > memory)
    refuse("--layers ", model.layers, " --d_model ", model.d_model, " --heads ", model.heads, " --d ", model.d,
           " make a model of ", needed, " bytes, must be less than this machine's memory of ", memory);
  (void)attention_layer<float>(model, sympow::Form::automatic);  // throws for other settings and powers
}

/// Throws `InvalidArgument` unless there is memory for a step: its texts, and 8 rows of every layer to go back from.
inline void require_step(const Settings& s) {
  const auto of = [](Index n) { return static_cast<double>(n); };
  const double needed = of(sizeof(std::span<const std::uint8_t>)) * of(s.batch) +
                        8 * sizeof(float) * of(s.context) * of(s.model.d_model) * of(s.model.layers),
               memory = static_cast<double>(sympow::io::machine_memory());
  if (needed > memory)
    refuse("--batch ", s.batch, " --context ", s.context, " make a step of ", needed,
           " bytes, must be less than this machine's memory of ", memory);
}

/// What is given by name: on a command line, or by a checkpoint.
class Options {
 public:
  /// Of a command line, where each option has a value. Throws `InvalidArgument`.
  explicit Options(const std::vector<std::string>& words) {
    for (std::size_t n = 0; n < words.size(); n += 2) {
      if (!words[n].starts_with("--")) refuse(words[n], " is no option; see language_model help");
      if (n + 1 == words.size()) refuse(words[n], " needs a value");
      if (!values_.emplace(words[n].substr(2), words[n + 1]).second) refuse(words[n], " is given twice");
    }
  }
  /// Of a checkpoint.
  explicit Options(Words words) : values_(std::move(words)) {}

  [[nodiscard]] const Words& given() const { return values_; }  ///< and not taken yet

  /// Sets a field, if it is given. Throws as `read_field`.
  template <class Field>
  void take(const std::string& name, Field& field) {
    known_ += " --" + name;
    if (const auto at = values_.find(name); at != values_.end()) {
      read_field(name, at->second, field);
      values_.erase(at);
    }
  }
  /// The folder of a run, which need not be there.
  [[nodiscard]] std::string take_out() {
    std::string out = Settings{}.out;
    take("out", out);
    if (out.empty() || (std::filesystem::exists(out) && !std::filesystem::is_directory(out)))
      refuse("--out is ", out, ", which is no folder, must be one or a new name");
    return out;
  }
  /// All settings, those that are not given as by default.
  [[nodiscard]] Settings take_settings() {
    Settings settings;
    settings.out = take_out();
    Settings::for_each(settings, [&](const std::string& name, auto& field, const char*, bool) {
      if (name != "out") take(name, field);
    });
    if (!settings.data.empty()) settings.data = std::filesystem::absolute(settings.data).lexically_normal().string();
    return settings;
  }
  /// Throws `InvalidArgument` if something is left that nobody took.
  void end() const {
    if (values_.empty()) return;
    const auto& [name, value] = *values_.begin();
    refuse("--", name, " ", value, ": there is no such option, must be one of", known_);
  }

 private:
  Words values_;
  std::string known_;
};

}  // namespace language_model
