// The numbers in the papers' tables, computed anew: propositions N.*.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <sympow/attention/state.hpp>
#include <sympow/combinatorics/binomial.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/layer/attention_layer.hpp>
#include <sympow/layer/gates.hpp>
#include <sympow/layer/turns.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A cell of a table: the value that is printed, and how many decimals it has.
struct Cell {
  double printed;
  int decimals = 0;

  /// |x rounded as the cell is - the cell|, exactly 0 where they agree.
  [[nodiscard]] double off(double x) const {
    const double unit = std::pow(10.0, decimals);
    return std::abs(std::round(x * unit) - std::round(printed * unit)) / unit;
  }

  /// The same with digits cut off in place of rounded.
  [[nodiscard]] double off_truncated(double x) const {
    const double unit = std::pow(10.0, decimals);
    return std::abs(std::floor(x * unit) - std::round(printed * unit)) / unit;
  }
};

inline constexpr double megabyte = 1e6, gigabyte = 1e9, terabyte = 1e12, petabyte = 1e15, exabyte = 1e18;

/// The tables' model: GPT-2 small with keys and values of 64 entries in two bytes each.
inline constexpr double heads_in_all = 12 * 12, bytes_of_entry = 2;
inline constexpr Index head_size = 64;

/// Bytes of the states of all heads for an embedding of D entries: value_rows D of them a head.
[[nodiscard]] inline double state_bytes(Index D, Index value_rows) {
  return heads_in_all * static_cast<double>(D) * static_cast<double>(value_rows) * bytes_of_entry;
}

/// A row of the table of state sizes.
struct StateRow {
  int p;
  const char* tensor_text;
  double tensor_unit;
  Cell tensor;
  const char* symmetric_text;
  double symmetric_unit;
  Cell symmetric;
  const char* saving_text;
  Cell saving;
};
inline constexpr StateRow state_rows[] = {
    {2, "77 MB", megabyte, {77}, "39 MB", megabyte, {39}, "49 %", {49}},
    {4, "314 GB", gigabyte, {314}, "14 GB", gigabyte, {14}, "96 %", {96}},
    {6, "1.3 PB", petabyte, {1.3, 1}, "2.2 TB", terabyte, {2.2, 1}, "99.8 %", {99.8, 1}},
    {8, "5.3 EB", exabyte, {5.3, 1}, "199 TB", terabyte, {199}, "99.996 %", {99.996, 3}}};

/// N.tp*, N.tpf*, N.sy*, N.sv*: state sizes. Residuals in the units of their cells.
inline void state_table(Ledger& ledger) {
  for (const StateRow& row : state_rows) {
    const std::string
        p = std::to_string(row.p),
        tensor_source =
            row.p == 8
                ? "C §4.2, \"The table below compares the size …\""
                : "C §3.2, \"The table below shows the size …\"; C §4.2, \"The table below compares the size …\"";
    const Index full = tensor_dimension(head_size, row.p), compact = symmetric_dimension(head_size, row.p);
    const double with_z = row.tensor.off(state_bytes(full, head_size + 1) / row.tensor_unit);
    ledger.holds("N.tp" + p, with_z, 0,
                 "tensor power state: 12·12·64^" + p + "·(64 + 1)·2 bytes are " + row.tensor_text + ", decimal units",
                 tensor_source);
    const double without_z = row.tensor.off(state_bytes(full, head_size) / row.tensor_unit);
    const std::string formula = "layers · heads · key_size^p · value_size, of two bytes each, is " +
                                std::string(row.tensor_text) + " for p = " + p;
    if (row.p == 6)
      ledger.holds("N.tpf6", without_z, 0, formula + " (to the printed digits)",
                   "C §3.2, \"The formula for the state size …\"");
    else
      ledger.erratum("N.tpf" + p, without_z, 0, formula, "C §3.2, \"The formula for the state size …\"",
                     "value_size + 1: the normaliser Z is a row of the state", with_z, 0);
    ledger.holds("N.sy" + p, row.symmetric.off(state_bytes(compact, head_size + 1) / row.symmetric_unit), 0,
                 "symmetric power state: 12·12·C(" + std::to_string(63 + row.p) + ", " + p + ")·(64 + 1)·2 bytes are " +
                     row.symmetric_text,
                 row.p >= 6 ? "C §4.2, \"The table below compares the size …\""
                            : "A §4.1, \"Using p = 2 results in …\"; B §introduction, \"It is evident that the effect "
                              "…\"; C §4.2, \"The table below compares the size …\"");
    const double saving = 100 * (1 - static_cast<double>(compact) / static_cast<double>(full));
    const std::string saved = "saving of symmetric over tensor powers, p = " + p + ": " + row.saving_text;
    if (row.p == 4)
      ledger.erratum("N.sv4", row.saving.off(saving), 0, saved, "C §4.2, \"The table below compares the size …\"",
                     "95.4 %", Cell{95.4, 1}.off(saving), 0);
    else
      ledger.holds("N.sv" + p, row.saving.off(saving), 0, saved, "C §4.2, \"The table below compares the size …\"");
  }
}

/// N.mib.* and N.sv4.fix: how the cells were not, and were, computed.
inline void state_table_readings(Ledger& ledger) {
  const auto binary = [&](const char* id, double bytes, int tens, Cell cell, const std::string& text) {
    ledger.control(id, cell.off(std::ldexp(bytes, -tens)), 0,
                   text + " in units of 2^" + std::to_string(tens) + " bytes",
                   "C §4.2, \"The table below compares the size …\"");
  };
  const auto full = [](int p) { return state_bytes(tensor_dimension(head_size, p), head_size + 1); };
  const auto compact = [](int p) { return state_bytes(symmetric_dimension(head_size, p), head_size + 1); };
  binary("N.mib.tp2", full(2), 20, {77}, "77 MB");
  binary("N.mib.sy2", compact(2), 20, {39}, "39 MB");
  binary("N.mib.tp4", full(4), 30, {314}, "314 GB");
  binary("N.mib.sy4", compact(4), 30, {14}, "14 GB");
  binary("N.mib.sy6", compact(6), 40, {2.2, 1}, "2.2 TB");
  binary("N.mib.sy8", compact(8), 40, {199}, "199 TB");
  const double rounded = 100 * (1 - std::round(compact(4) / gigabyte) / std::round(full(4) / gigabyte));
  ledger.holds("N.sv4.fix", Cell{96}.off(rounded), 0,
               "the printed 96 % is the saving between the rounded cells, 14 and 314 GB",
               "C §4.2, \"The table below compares the size …\"");
}

/// A row of the table of linear transformers.
struct ModelRow {
  const char* name;
  int layers, heads, width;
  double weights;        ///< as printed
  Cell weight_millions;  ///< the same in millions
  double state_unit;
  Cell state, ratio;
  const char* state_text;
  const char* ratio_text;
};
inline constexpr ModelRow model_rows[] = {
    {"small", 12, 12, 768, 124e6, {124}, 1e3, {589}, {.0048, 4}, "589K", ".0048"},
    {"medium", 24, 16, 1024, 335e6, {355}, 1e6, {1.5, 1}, {.0045, 4}, "1.5M", ".0045"},
    {"large", 36, 20, 1280, 774e6, {774}, 1e6, {2.9, 1}, {.0037, 4}, "2.9M", ".0037"},
    {"xl", 48, 25, 1600, 1.6e9, {1558}, 1e6, {4.9, 1}, {.0031, 4}, "4.9M", ".0031"}};

/// N.lt*, N.ltr*, N.w.medium: linear transformers of GPT-2's sizes.
inline void model_table(Ledger& ledger) {
  Largest other_weights;
  double medium_weights = 0;
  for (const ModelRow& row : model_rows) {
    const double states = static_cast<double>(row.layers * row.heads * Linear{}.dimension(head_size) * head_size);
    ledger.holds(std::string("N.lt.") + row.name, row.state.off_truncated(states / row.state_unit), 0,
                 "state of a linear transformer: " + std::to_string(row.layers) + "·" + std::to_string(row.heads) +
                     "·64·64 entries are " + row.state_text + ", digits cut off",
                 "C §introduction, \"If we look at the state …\", \"The formula for the state size …\"");
    const std::string id = std::string("N.ltr.") + row.name,
                      statement = "state over weights, " + std::string(row.name) + ": " + row.ratio_text;
    const double ratio = states / row.weights, of_cells = row.state.printed * row.state_unit / row.weights;
    const auto misprint = [&](Cell corrected, const std::string& text) {
      ledger.erratum(id, row.ratio.off(ratio), 0, statement, "C §introduction, \"If we look at the state …\"",
                     text + "; the printed one divides the truncated state",
                     corrected.off(ratio) + row.ratio.off(of_cells), 0);
    };
    if (row.layers == 24)
      misprint({.0047, 4}, ".0047");
    else if (row.layers == 36)
      misprint({.0038, 4}, ".0038");
    else
      ledger.holds(id, row.ratio.off(ratio), 0, statement, "C §introduction, \"If we look at the state …\"");

    // Token and position embeddings; 12 w² + 13 w a block: attention, the wide layer, their biases and norms; the last
    // norm.
    const double width = row.width,
                 weights = (50257 + 1024) * width + row.layers * (12 * width * width + 13 * width) + 2 * width;
    if (row.layers == 24) medium_weights = weights / 1e6;
    other_weights.add(row.weight_millions.off(weights / 1e6));
  }
  ledger.erratum("N.w.medium", Cell{335}.off(medium_weights), 0, "GPT-2 medium has 335M weights; residual in millions",
                 "C §introduction, \"If we look at the state …\"",
                 "355M; the same count gives 124M, 774M and 1558M for the other three", other_weights.value(), 0);
}

/// How many weights gates, and gates and rotation rates, add to an attention layer of GPT-2 small, as it counts them.
struct AddedWeights {
  Index gates, both;

  AddedWeights() {
    const LayerShape shape{.d_model = 768, .heads = 12, .d = head_size, .e = head_size};
    const auto theta = rotary_frequencies<double>(head_size, 65536);
    const auto weights = [&](const auto& recipe) { return AttentionLayer(shape, SymmetricPower<2>{}, recipe).size(); };
    const Index plain = weights(Fixed(rotary(theta, Pairing::interleaved)));
    gates = weights(ForgetGate{} * Fixed(rotary(theta, Pairing::interleaved))) - plain;
    both = weights(ForgetGate{} * LearnedRotary(theta, Pairing::interleaved)) - plain;
  }
};

/// N.ov*: parameters of the gates and rotation rates, as the layers themselves count them. Residuals in per cent of the
/// model.
inline void overhead(Ledger& ledger) {
  const Cell one{.09, 2}, two{.18, 2};
  const AddedWeights added;
  const auto per_cent = [](Index of_layer) { return 100 * 12 * static_cast<double>(of_layer) / 124e6; };
  const double gates = per_cent(added.gates), both = per_cent(added.both), of_layers = per_cent(768);
  ledger.holds("N.ov1", one.off(gates), 0,
               "gates: one vector of the model's 768 entries a head is 0.09 % of 124M parameters; counted are those of "
               "an attention layer with gates, its biases too, against one without",
               "A §A.5, \"Adding data-dependent gating increases the total …\"");
  ledger.holds("N.ov2", two.off(both), 0, "gates and rotation rates: two such vectors are 0.18 %, counted likewise",
               "A §A.5, \"Together …\"");
  ledger.erratum("N.ov3", one.off(of_layers), 0, "one W a layer, or one of a head's 64 entries a head, makes 0.09 %",
                 "A §3.1, \"The discount value at timestep i …\"; A §4.2, \"We implement conformal-sympow in its "
                 "attention …\"; A §A.5, \"Adding data-dependent gating increases the total …\"",
                 "one of 768 entries a head", one.off(gates), 0);
  ledger.documents(
      "N.ov4", "σ(W X_i) with W in R^{d×1}",
      "A §3.1, \"The discount value at timestep i …\"; B §2, \"The discount value at timestep i …\"",
      "a column times a column is not defined; read σ(Wᵀ X_i) with X_i in R^{d_model}, which N.ov1 confirms");
}

/// N.80: which states fit into 80 GB.
inline void memory_columns(Ledger& ledger) {
  const auto fits = [](Index D) { return state_bytes(D, head_size + 1) <= 80 * gigabyte; };
  double wrong = 0;
  for (const auto& [p, full, compact] : {std::tuple{2, true, true}, {4, false, true}, {6, false, false}}) {
    wrong += fits(tensor_dimension(head_size, p)) != full;
    wrong += fits(symmetric_dimension(head_size, p)) != compact;
  }
  const State<float, SymmetricPower<2>> state(head_size, head_size, 0);
  const Index entries = state.bytes() / static_cast<Index>(sizeof(float));
  wrong += entries != symmetric_dimension(head_size, 2) * (head_size + 1);
  ledger.holds("N.80", wrong, 0,
               "the columns \"≤ 80 GB?\"; residual: wrong marks, and whether a State has the entries counted here",
               "C §3.2, \"The table below shows the size …\"; C §4.2, \"We can evaluate each symmetric power …\"");
}

}  // namespace detail

/// Decides N.* and adds them to the ledger. They are counts of whole numbers, the same in every type and for every
/// seed.
template <class Scalar>
void table_propositions(Ledger& ledger, [[maybe_unused]] std::uint64_t seed) {
  detail::state_table(ledger);
  detail::state_table_readings(ledger);
  detail::model_table(ledger);
  detail::overhead(ledger);
  detail::memory_columns(ledger);
}

}  // namespace SYMPOW_NAMESPACE::verify
