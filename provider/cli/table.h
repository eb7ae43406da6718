// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

namespace ewarp::cli {

// Columns as wide as their widest cell, two blanks between. A column whose heading begins with '>' is right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string str() const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// 1536 -> "1.5 Ki"; octets below 1024 as they are.
std::string in_units(double n);
// `text` broken into lines of at most `width`, each after `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width);

}  // namespace ewarp::cli
