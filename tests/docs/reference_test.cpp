// docs/reference.md names every public name, and none that does not exist.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "pages.hpp"

namespace {

namespace fs = std::filesystem;
using pages::Lines;
using Names = std::set<std::string>;

/// Each pattern is compiled once.
const std::regex& expression(const std::string& pattern) {
  static std::map<std::string, std::regex> compiled;
  return compiled.try_emplace(pattern, pattern).first->second;
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, expression(pattern));
}

/// The text without what matches, also after something within it has gone.
std::string without(std::string text, const std::string& pattern) {
  while (matches(text, pattern)) text = std::regex_replace(text, expression(pattern), "");
  return text;
}

/// Group n of the first match, or nothing.
std::string matched(const std::string& text, const std::string& pattern, std::size_t n = 1) {
  std::smatch found;
  return std::regex_search(text, found, expression(pattern)) ? found[n].str() : "";
}

/// The last group of every match.
std::vector<std::string> all_matched(const std::string& text, const std::string& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression(pattern)), end; match != end; ++match)
    found.push_back(match->str(match->size() - 1));
  return found;
}

/// What a line declares: a function or variables. Empty for operators and for members defined outside of their class.
std::vector<std::string> declared(std::string line) {
  line = without(without(line, R"(\s*//.*)"), R"(<[^<>()]*>)");
  const std::string head = line.substr(0, line.find(" ="));
  if (head.find('(') != std::string::npos) {
    const std::string before = head.substr(0, head.find('('));
    if (before.find("operator") != std::string::npos) return {};
    const std::string name = matched(before, R"((?:^|[^:\w~])(\w+)$)");
    return name.empty() ? std::vector<std::string>{} : std::vector<std::string>{name};
  }
  line = without(without(line, R"(\{[^{}]*\})"), R"(\[\w*\])");
  std::vector<std::string> names;
  std::istringstream pieces(line);
  for (std::string piece; std::getline(pieces, piece, ',');)
    if (const std::string name =
            matched(piece.substr(0, piece.find(" =")), names.empty() ? R"((\w+);?$)" : R"(^ *(\w+))");
        !name.empty())
      names.push_back(name);
  return names;
}

struct Declared {
  std::string scope, type, name;  // scope: the namespace after sympow, with ::
  [[nodiscard]] std::string full() const { return scope + (type.empty() ? "" : type + "::") + name; }
};

/// Public names of a header that is formatted as ours are: declarations in column 1, members in column 3.
std::vector<Declared> public_names(const Lines& header) {
  std::vector<Declared> found;
  std::vector<std::string> namespaces;
  std::string type;
  bool is_public = true;
  bool is_enum = false;
  std::string begun;  // members of a declaration that the next line continues
  for (std::string line : header) {
    if (line.starts_with("template")) continue;
    if (line.starts_with("}  // namespace")) {
      namespaces.pop_back();
      continue;
    }
    line = without(begun + without(line, begun.empty() ? R"(\[\[[^\]]*\]\] ?)" : "^ +"), R"(\s*//.*)");
    begun = matches(line, R"(^  \w[^()]*,$)") && !is_enum ? line + " " : "";
    if (!begun.empty()) continue;
    if (matches(line, R"(^(inline )?namespace .*\{$)")) {
      namespaces.push_back(matched(line, R"(namespace ([\w:]*))"));
      continue;
    }
    std::string scope;
    for (const std::string& name : namespaces) scope += name + "::";
    if (scope.empty() || scope.find("detail") != std::string::npos || scope.starts_with("Eigen")) continue;
    scope = without(scope, "SYMPOW_(NAMESPACE|THREADS)::|sympow::|cuda::");
    const std::string kind = matched(line, R"(^ ?(public|private|protected):)");
    if (!kind.empty()) is_public = kind == "public";
    if (line.empty() || !kind.empty()) continue;
    if (line[0] == '}') type.clear();
    if (matches(line, R"(^ *(#|\}|template|requires|extern|static_assert|friend|return|:))")) continue;
    const std::string compound = matched(line, R"(^(?:struct|class|enum class|enum|union) (\w+))");
    const std::string alias = matched(line, R"(^(?:  )?(?:using|concept) (\w+) =)");
    if (line[0] != ' ') {
      if (!compound.empty()) {
        found.push_back({scope, "", compound});
        is_enum = line.starts_with("enum");
        is_public = !line.starts_with("class");
        const bool is_open = line.find('{') != std::string::npos && line.find('}') == std::string::npos;
        type = is_open ? compound : "";
        if (is_enum)
          for (const std::string& name : all_matched(matched(line, R"(\{(.*)\})"), R"((\w+)(?: = \w+)?(?=,| *$))"))
            found.push_back({scope, compound, name});
      } else if (!alias.empty()) {
        found.push_back({scope, "", alias});
      } else if (!line.starts_with("using ")) {
        for (const std::string& name : declared(line)) found.push_back({scope, "", name});
      }
    } else if (!type.empty() && is_public && line.starts_with("  ") && line[2] != ' ') {
      const std::vector<std::string> names = !alias.empty() ? std::vector<std::string>{alias}
                                             : is_enum      ? all_matched(line, R"(^  (\w+))")
                                                            : declared(line);
      for (const std::string& name : names)
        if (name != type) found.push_back({scope, type, name});
    }
  }
  return found;
}

/// What must be on the page, and what may be.
struct Known {
  Names required, allowed;
  void add(const Declared& name, bool is_required) {
    if (is_required) required.insert(name.full());
    allowed.insert({name.full(), name.name, name.scope + name.name});
  }
};

Known of_cpp() {
  Known known;
  for (const fs::path& file : pages::files("include/sympow", ".hpp")) {
    const std::string name = file.generic_string();
    const bool is_listed = !matches(name, "/(c|detail|propositions)/");
    for (const Declared& x : public_names(pages::read(file)))
      known.add(x, is_listed && (x.type.empty() || name.find("/attention/") != std::string::npos ||
                                 x.type.ends_with("Options")));
    for (const std::string& line : pages::read(file))  // macros are not required: most are the library's
      if (const std::string macro = matched(line, R"(#(?:define|ifdef) (SYMPOW_\w+))"); !macro.empty())
        known.allowed.insert(macro);
  }
  return known;
}

Known of_cuda() {
  Known known;
  for (const fs::path& file : pages::files("cuda/include/sympow/cuda", ".hpp"))
    for (const Declared& x : public_names(pages::read(file)))
      known.add(x, !Names{"Products", "Precision", "Kernels", "Element"}.contains(x.type));
  return known;
}

Known of_c() {
  Known known;
  for (std::string line : pages::read("include/sympow.h")) {
    line = without(line, R"(//.*)");
    for (const std::string& name : all_matched(line, R"(\b(sympow_\w+|SYMPOW_\w+))")) known.required.insert(name);
    if (const std::string field = matched(line, R"(^  [\w ]+[ *]+(\w+);)"); !field.empty())
      known.required.insert(field);
  }
  known.required.erase("SYMPOW_H");
  known.allowed = known.required;
  return known;
}

Known of_python() {
  Known known;
  for (const fs::path& file : pages::files("python/sympow", ".py")) {
    std::string text;
    for (const std::string& line : pages::read(file)) text += line + "\n";
    for (const std::string& name : all_matched(matched(text, R"(__all__ = \[([^\]]*)\])"), R"~("(\w+)")~")) {
      known.required.insert(name);
      known.allowed.insert(name);
    }
    for (const std::string& name : all_matched(text, R"(\n *def ([a-z]\w*))")) known.allowed.insert(name);
    for (const std::string& name :
         all_matched(matched(text, R"(def __init__\(self, \*, (scores[^)]*)\))"), R"((\w+): )"))
      known.required.insert(name), known.allowed.insert(name);
    known.allowed.insert(file.stem() == "__init__" ? file.parent_path().filename().string() : file.stem().string());
  }
  return known;
}

/// Names in the tables of a section: each piece of code up to what is no part of a name.
struct Section {
  Names all, first_column;
};

std::map<std::string, Section> sections_of(const Lines& page) {
  std::map<std::string, Section> sections;
  std::string heading;
  for (const std::string& line : page) {
    if (line.starts_with("## ")) heading = line.substr(3);
    if (heading.empty() || !line.starts_with("|")) continue;
    const std::string first = line.substr(0, line.find(" | "));
    for (const auto& [text, is_first] : {std::pair{line, false}, std::pair{first, true}})
      for (const std::string& code : all_matched(text, "`([^`]*)`")) {
        const std::string name = matched(code, R"(^((\w+(::|\.))*\w+))");
        Section& section = sections[heading];
        if (is_first || (name.find("::") != std::string::npos && !name.starts_with("sympow::")))
          section.first_column.insert(name);
        section.all.insert({name, name.substr(std::min(name.size(), name.find_last_of(":.") + 1))});
      }
  }
  return sections;
}

/// One sentence for each name that is missing, and for each that does not exist.
std::vector<std::string> complaints(const Section& section, const Known& known) {
  std::vector<std::string> found;
  for (const std::string& name : known.required) {
    const std::size_t type = name.rfind("::");
    const bool is_member = type != std::string::npos && std::isupper(static_cast<unsigned char>(name[0]));
    if (!section.all.contains(name) && !(is_member && section.all.contains(name.substr(type + 2))))
      found.push_back(name + " is not on the page");
  }
  for (const std::string& name : section.first_column)
    if (!known.allowed.contains(name) && !known.allowed.contains(name.substr(name.find_last_of('.') + 1)))
      found.push_back(name + " does not exist");
  return found;
}

}  // namespace

TEST_CASE("the reference names every public name and no other", "[docs]") {
  auto sections = sections_of(pages::read("docs/reference.md"));
  CHECK(complaints(sections["C++"], of_cpp()) == Lines{});
  CHECK(complaints(sections["CUDA"], of_cuda()) == Lines{});
  CHECK(complaints(sections["C interface"], of_c()) == Lines{});
  CHECK(complaints(sections["Python"], of_python()) == Lines{});
}

TEST_CASE("the check of the reference finds what is missing and what is too much", "[docs]") {
  const Lines header = {
      "namespace SYMPOW_NAMESPACE {",
      "/// Comment.",
      "template <class S>",
      "[[nodiscard]] Matrix<S> form(const F& feature, Index n = 0) {",
      "  return f(n);",
      "}",
      "class Thing {",
      " public:",
      "  explicit Thing(int n) : n_(n) {}",
      "  Index a = 0, b{1};  ///< two",
      "  [[nodiscard]] Index size() const { return a; }",
      " private:",
      "  Index n_;",
      "};",
      "enum class Way { up, down };",
      "inline constexpr int most = f(8);",
      "Index Thing::hidden() { return 1; }",
      "namespace detail {",
      "void secret();",
      "}  // namespace detail",
      "}  // namespace SYMPOW_NAMESPACE",
  };
  Known known;
  for (const Declared& x : public_names(header)) known.add(x, true);
  CHECK(known.required ==
        Names{"form", "Thing", "Thing::a", "Thing::b", "Thing::size", "Way", "Way::up", "Way::down", "most"});

  const auto count = [&](const std::string& row) {
    return complaints(sections_of({"## C++", "| | |", row})["C++"], known).size();
  };
  const std::string whole = "| `form(feature, n)`, `Thing`, `a`, `b`, `size()`, `Way`, `Way::up`, `Way::down`, `most` ";
  CHECK(count(whole + "| text |") == 0);
  CHECK(count(whole + ", `gone(n)` | text |") == 1);
  CHECK(count(whole + "| `Way::left` |") == 1);
  CHECK(count("| `form(feature, n)`, `Thing`, `a`, `b`, `Way`, `Way::up`, `Way::down`, `most` | text |") == 1);
}
