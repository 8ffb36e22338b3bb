// The papers whose statements are checked: their references.
#pragma once

#include <string>
#include <vector>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A text that statements are taken from. Give your own to `run_program` under a letter of its own.
struct Paper {
  std::string letter;   ///< one capital letter, with which sources begin: "A §2"
  std::string title;    ///< in full
  std::string authors;  ///< first names first, separated by commas
  std::string year;     ///< of what was checked
  std::string venue;    ///< where it stands: journal, arXiv number, publisher
  std::string link;     ///< a URL

  /// Authors, title, venue, year, link: what is known of them in one line.
  [[nodiscard]] std::string reference() const {
    std::string line = authors;
    for (const std::string* part : {&title, &venue, &year, &link})
      if (!part->empty()) line += (line.empty() ? "" : ". ") + *part;
    return line;
  }
};

/// The five source papers, A to E.
[[nodiscard]] inline const std::vector<Paper>& papers() {
  static const std::vector<Paper> all = {
      {"A", "Conformal Transformations for Symmetric Power Transformers",
       "Saurabh Kumar, Jacob Buckman, Carles Gelada, Sean Zhang", "2025", "arXiv:2503.03269",
       "https://arxiv.org/abs/2503.03269"},
      {"B", "Improving Symmetric Power Transformers with Conformal Transformations",
       "Jacob Buckman, Carles Gelada, Saurabh Kumar, Sean Zhang", "2024", "Manifest AI, 10 December",
       "https://manifestai.com/articles/optimizing-symmetric-power-transformers/"},
      {"C", "Symmetric Power Transformers", "Jacob Buckman, Carles Gelada, Sean Zhang", "2024",
       "Manifest AI, 15 August", "https://manifestai.com/articles/symmetric-power-transformers/"},
      {"D", "On the Legacy of Linear Transformers in Positional Embeddings", "Arshia Afzal", "2026", "",
       "https://arshiaafzal.github.io/blog/2026/pe/"},
      {"E", "Equivariant Structured Positional Rotations", "Krzysztof Choromanski, Daniel Hardesty Lewis", "2025",
       "manuscript without a date", "https://github.com/dhardestylewis/EquivariantAttentionHead"},
  };
  return all;
}

/// The paper of this letter, or none.
[[nodiscard]] inline const Paper* find_paper(const std::vector<Paper>& among, const std::string& letter) {
  for (const Paper& paper : among)
    if (paper.letter == letter) return &paper;
  return nullptr;
}

}  // namespace SYMPOW_NAMESPACE::verify
