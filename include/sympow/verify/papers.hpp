// The papers whose statements are checked: their references, and in which section their numbered places stand.
#pragma once

#include <string>
#include <vector>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A section, something in it that has a name of its own, and the numbers of its first and last equation (0: none).
struct Landmark {
  std::string section,  ///< "§3.1", "A.1.2", or the heading
      name;             ///< "Proposition 1": what an equation in a source begins with; or empty
  int first = 0,        ///< number of the section's first equation, 0 for none
      last = 0;         ///< and of its last
};

/// A text that statements are taken from. Give your own to `run_program` under a letter of its own.
struct Paper {
  std::string letter;                    ///< one capital letter, with which sources begin: "A §2"
  std::string title;                     ///< in full
  std::string authors;                   ///< first names first, separated by commas
  std::string year;                      ///< of what was checked
  std::string venue;                     ///< where it stands: journal, arXiv number, publisher
  std::string link;                      ///< a URL
  std::vector<Landmark> landmarks = {};  ///< for sources that name an equation or a theorem but no section

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
      {"A",
       "Conformal Transformations for Symmetric Power Transformers",
       "Saurabh Kumar, Jacob Buckman, Carles Gelada, Sean Zhang",
       "2025",
       "arXiv:2503.03269",
       "https://arxiv.org/abs/2503.03269",
       {{"§3.1", "Proposition 1"}, {"§3.3", "Proposition 2", 2, 3}, {"A.1.2", "Proposition 3"}}},
      {"B", "Improving Symmetric Power Transformers with Conformal Transformations",
       "Jacob Buckman, Carles Gelada, Saurabh Kumar, Sean Zhang", "2024", "Manifest AI, 10 December",
       "https://manifestai.com/articles/optimizing-symmetric-power-transformers/"},
      {"C", "Symmetric Power Transformers", "Jacob Buckman, Carles Gelada, Sean Zhang", "2024",
       "Manifest AI, 15 August", "https://manifestai.com/articles/symmetric-power-transformers/"},
      {"D",
       "On the Legacy of Linear Transformers in Positional Embeddings",
       "Arshia Afzal",
       "2026",
       "",
       "https://arshiaafzal.github.io/blog/2026/pe/",
       {{"Forget Gate as Positional Embedding", "Unrolled LinAtt"},
        {"Forget Gate as Positional Embedding", "log-space"},
        {"Forget Gate as Positional Embedding", "box Why Eigenvalues"},
        {"Forget Gate as Positional Embedding", "box Forget Gate in Log-Space"}}},
      {"E",
       "Equivariant Structured Positional Rotations",
       "Krzysztof Choromanski, Daniel Hardesty Lewis",
       "2025",
       "manuscript without a date",
       "https://github.com/dhardestylewis/EquivariantAttentionHead",
       {{"F", "", 1, 2},
        {"F.1", "Lemma 1", 3, 9},
        {"F.2", "Lemma 2", 10, 13},
        {"F.3", "Lemma 3", 14, 19},
        {"F.4", "Theorem 1", 20, 24},
        {"F.5", "Theorem 2", 25, 33}}},
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
