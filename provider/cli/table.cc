// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/table.h"

#include <fmt/format.h>
#include <cassert>

#include <algorithm>

namespace ewarp::cli {

Table::Table(std::vector<std::string> headings) : headings_(std::move(headings)), right_(headings_.size()) {
  for (std::size_t i = 0; i < headings_.size(); ++i) {
    right_[i] = headings_[i].starts_with('>');
    if (right_[i]) headings_[i].erase(0, 1);
  }
}

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() <= headings_.size());
  cells.resize(headings_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::str() const {
  std::vector<std::size_t> width(headings_.size());
  const auto widen = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  };
  widen(headings_);
  for (const auto& row : rows_) widen(row);

  std::string out;
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += right_[i] ? fmt::format("{:>{}}", row[i], width[i]) : fmt::format("{:<{}}", row[i], width[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  print(headings_);
  for (const auto& row : rows_) print(row);
  return out;
}

std::string in_units(double n) {
  constexpr const char* kUnits[] = {"", " Ki", " Mi", " Gi", " Ti", " Pi"};
  std::size_t unit = 0;
  for (; n >= 1024 && unit + 1 < std::size(kUnits); ++unit) n /= 1024;
  return unit == 0 ? fmt::format("{:.0f}", n) : fmt::format("{:.1f}{}", n, kUnits[unit]);
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out, line(indent, ' ');
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find(' ', at), text.size());
    if (line.size() > indent && line.size() + 1 + end - at > width) {
      out += line + "\n";
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line.append(text, at, end - at);
    at = end + 1;
  }
  return out + line + "\n";
}

}  // namespace ewarp::cli
