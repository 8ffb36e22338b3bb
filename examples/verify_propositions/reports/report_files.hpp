// The files that the programs of this library's own statements write.
#pragma once

#include <vector>

#include <sympow/verify/program.hpp>
#include "report_figure.hpp"
#include "report_latex.hpp"
#include "report_markdown.hpp"

namespace SYMPOW_NAMESPACE::verify {

[[nodiscard]] inline std::vector<ReportFormat> report_files() {
  return {
      {"--markdown", markdown_report}, {"--latex", latex_report}, {"--json", json_report}, {"--figure", figure_report}};
}

}  // namespace SYMPOW_NAMESPACE::verify
