// What a run is told: one list for the command line, the help, and the checkpoints.
#pragma once

#include "optimizer.hpp"

#include <sympow/core/checks.hpp>

#include <charconv>
#include <map>
#include <string>
#include <vector>

namespace language_model {

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
    f("--data", s.data, "a file, or a folder of files: the text", true);
    f("--out", s.out, "the folder of checkpoints and of loss.csv", false);
    f("--setting", s.model.setting, "softmax, sympow, gated, conformal, gla, mamba2, deltanet or path_fox", true);
    f("--power", s.model.power, "of sympow, 2 or 4", true);
    f("--layers", s.model.layers, "blocks", true);
    f("--d_model", s.model.d_model, "numbers of a token", true);
    f("--heads", s.model.heads, "heads of queries", true);
    f("--key_heads", s.model.key_heads, "heads of keys, which divide them; 0 is as many", true);
    f("--d", s.model.d, "numbers of a head", true);
    f("--tied", s.model.tied, "1: the head is the embedding", true);
    f("--longest", s.model.longest, "N of the rotation rates, the longest text that is thought of", true);
    f("--gate_bias", s.model.gate_bias, "of forget gates, at the start", true);
    f("--context", s.context, "bytes that are read of a text in training", true);
    f("--batch", s.batch, "texts of a step", true);
    f("--steps", s.descent.steps, "of training", false);
    f("--rate", s.descent.rate, "of learning", true);
    f("--warmup", s.descent.warmup, "steps in which it grows", true);
    f("--cosine", s.descent.cosine, "1: it falls to a tenth, as a half wave over all steps", true);
    f("--decay", s.descent.decay, "of weights", true);
    f("--clip", s.descent.clip, "the greatest length of a gradient", true);
    f("--seed", s.seed, "of weights and of the choice of texts", true);
    f("--checkpoint_every", s.checkpoint_every, "steps", false);
    f("--keep", s.keep, "checkpoints that are kept", false);
    f("--threads", s.threads, "0 for all; results do not depend on it", false);
  }
};

/// Throws `InvalidArgument` for words that are not all of a number.
template <class Field>
void read_field(const std::string& name, const std::string& words, Field& field) {
  if constexpr (std::is_same_v<Field, std::string>) {
    field = words;
  } else if constexpr (std::is_same_v<Field, bool>) {
    if (words != "0" && words != "1")
      sympow::detail::raise<sympow::InvalidArgument>(name, " is ", words, ", must be 0 or 1");
    field = words == "1";
  } else {
    Field number{};
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
    if (error != std::errc{} || end != words.data() + words.size() || !(number >= Field(0)))
      sympow::detail::raise<sympow::InvalidArgument>(name, " is ", words, ", must be a number, 0 or more");
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

/// Options of a command line, by name; each needs a value. Throws `InvalidArgument`.
inline std::map<std::string, std::string> options_of(const std::vector<std::string>& words) {
  std::map<std::string, std::string> options;
  for (std::size_t n = 0; n < words.size(); n += 2) {
    if (!words[n].starts_with("--"))
      sympow::detail::raise<sympow::InvalidArgument>(words[n], " is no option; see language_model help");
    if (n + 1 == words.size()) sympow::detail::raise<sympow::InvalidArgument>(words[n], " needs a value");
    if (!options.emplace(words[n], words[n + 1]).second)
      sympow::detail::raise<sympow::InvalidArgument>(words[n], " is given twice");
  }
  return options;
}

/// Takes a field's value out of the options, if it is there.
template <class Field>
void take(std::map<std::string, std::string>& options, const std::string& name, Field& field) {
  if (const auto at = options.find(name); at != options.end()) {
    read_field(name, at->second, field);
    options.erase(at);
  }
}

/// Throws `InvalidArgument` for what is left of the options.
inline void refuse_others(const std::map<std::string, std::string>& options) {
  if (!options.empty())
    sympow::detail::raise<sympow::InvalidArgument>(options.begin()->first, " is no option of this command");
}

}  // namespace language_model
