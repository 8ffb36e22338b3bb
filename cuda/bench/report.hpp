// What was measured, as a table and as JSON.
#pragma once

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "ceilings.hpp"
#include "parts.hpp"

namespace sympow::cuda::bench {

struct Result {
  std::string name, form;  ///< form: of attention
  int chunk = 0;
  Times times;
  double graph_ms = 0;    ///< of the same call, as a graph; 0: not measured
  double clock_ghz = 0;   ///< of the chip right behind the call; 0: not measured
  double operations = 0;  ///< that the form needs, see operations.hpp; 0: not counted
  double bytes = 0;       ///< that must be moved: inputs, outputs, states
  std::vector<Part> parts;
  std::string error;    ///< in place of all this
  bool failed = false;  ///< the error is more than that there is no such kernel
};

/// What a measurement is held against.
struct Bar {
  std::string name, unit;
  double value, asked;
  bool at_most;  ///< or at least
  bool measured() const { return std::isfinite(value) && value > 0; }
  bool holds() const { return measured() && (at_most ? value <= asked : value >= asked); }
};

struct Report {
  Device device;
  Ceilings ceilings;
  std::vector<Result> results;
  std::vector<Bar> bars;
  std::vector<std::string> left_out;  ///< cases that the limit of time left out
};

inline void print_header(const Report& report) {
  const Device& d = report.device;
  const Ceilings& c = report.ceilings;
  std::printf("%s, %d multiprocessors, at most %.3f GHz, memory %.3f GHz, driver %d, runtime %d\n", d.name.c_str(),
              d.multiprocessors, d.clock_ghz, d.memory_clock_ghz, d.driver, d.runtime);
  std::printf("product of cuBLAS %.0f TFLOP/s at %.2f GHz, copy %.0f GB/s at %.2f GHz, read from L2 %.0f GB/s\n\n",
              c.product / 1e12, c.product_clock, c.copy / 1e9, c.copy_clock, c.l2 / 1e9);
  std::printf("%-52s %-9s %6s %9s %9s %9s %8s %6s %7s %6s\n", "", "form", "chunk", "ms", "least", "graph", "TFLOP/s",
              "of it", "GB/s", "of it");
}

inline void print(const Result& r, const Ceilings& c) {
  if (!r.error.empty()) {
    std::printf("%-52s %s\n", r.name.c_str(), r.error.c_str());
    return;
  }
  if (r.times.calls == 0) {
    std::printf("%-52s %-9s %6d called once\n", r.name.c_str(), r.form.c_str(), r.chunk);
    return;
  }
  const double flops = r.operations / (r.times.median * 1e-3), bytes = r.bytes / (r.times.median * 1e-3);
  std::printf("%-52s %-9s %6d %9.4f %9.4f %9.4f %8.1f %5.0f%% %7.0f %5.0f%%\n", r.name.c_str(), r.form.c_str(), r.chunk,
              r.times.median, r.times.least, r.graph_ms, flops / 1e12, c.product > 0 ? 100 * flops / c.product : 0,
              bytes / 1e9, c.copy > 0 ? 100 * bytes / c.copy : 0);
  if (r.clock_ghz > 0) std::printf("    %-66s %9.2f GHz\n", "clock", r.clock_ghz);
  for (const Part& part : r.parts) std::printf("    %-66s %9.4f\n", part.name.c_str(), part.ms);
  std::fflush(stdout);
}

inline void print(const std::vector<Bar>& bars) {
  std::printf("\n");
  for (const Bar& bar : bars)
    std::printf("%-60s %9.3f %s, asked %s %g: %s\n", bar.name.c_str(), bar.value, bar.unit.c_str(),
                bar.at_most ? "at most" : "at least", bar.asked,
                !bar.measured() ? "NOT MEASURED"
                : bar.holds()   ? "holds"
                                : "SHORT");
}

namespace detail {

inline std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + '"';
}

/// {"name": number, …}; what is not finite is null.
class Object {
 public:
  Object& number(const char* name, double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", value);
    return raw(name, std::isfinite(value) ? text : "null");
  }
  Object& text(const char* name, const std::string& value) { return raw(name, quoted(value)); }
  Object& raw(const char* name, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + quoted(name) + ": " + value;
    return *this;
  }
  std::string str() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <class Items, class ToText>
std::string list(const Items& items, const ToText& to_text) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "\n  " : ",\n  ") + to_text(item);
  return "[" + text + "]";
}

inline std::string json(const Result& r) {
  Object o;
  o.text("name", r.name);
  if (!r.error.empty()) return o.text("error", r.error).str();
  o.text("form", r.form).number("chunk", r.chunk).number("ms", r.times.median).number("least_ms", r.times.least);
  o.number("host_ms", r.times.host).number("calls", r.times.calls).number("graph_ms", r.graph_ms);
  o.number("clock_ghz", r.clock_ghz).number("operations", r.operations).number("bytes", r.bytes);
  const auto part = [](const Part& p) { return Object().text("kernel", p.name).number("ms", p.ms).str(); };
  return o.raw("parts", list(r.parts, part)).str();
}

}  // namespace detail

/// Writes all of it; false where the file cannot be written.
inline bool write_json(const Report& report, const std::string& file) {
  using detail::Object;
  const Device& d = report.device;
  const Ceilings& c = report.ceilings;
  Object device, ceilings, all;
  device.text("name", d.name).number("multiprocessors", d.multiprocessors);
  device.number("capability", d.major * 10 + d.minor).number("clock_ghz", d.clock_ghz);
  device.number("memory_clock_ghz", d.memory_clock_ghz).number("l2_bytes", static_cast<double>(d.l2_bytes));
  device.number("bytes", static_cast<double>(d.bytes)).number("driver", d.driver).number("runtime", d.runtime);
  ceilings.number("product_flops", c.product).number("product_clock_ghz", c.product_clock);
  ceilings.number("copy_bytes_a_second", c.copy).number("copy_clock_ghz", c.copy_clock);
  ceilings.number("l2_bytes_a_second", c.l2);
  all.raw("device", device.str()).raw("ceilings", ceilings.str());
  all.raw("cases", detail::list(report.results, [](const Result& r) { return detail::json(r); }));
  all.raw("bars", detail::list(report.bars, [](const Bar& b) {
            return Object()
                .text("name", b.name)
                .text("unit", b.unit)
                .number("value", b.value)
                .number("asked", b.asked)
                .raw("holds", b.holds() ? "true" : "false")
                .str();
          }));
  all.raw("left_out", detail::list(report.left_out, detail::quoted));
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (!out) return false;
  const bool written = std::fprintf(out, "%s\n", all.str().c_str()) > 0;
  return std::fclose(out) == 0 && written;
}

}  // namespace sympow::cuda::bench
