// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/base/option_table.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace ewarp {
namespace {

// Of ASCII, whatever the program's locale: in that of Turkey std::tolower() makes no i of an I.
constexpr char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr char to_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

}  // namespace

Expected set_bool(bool& out, std::string_view value) {
  const std::string v = lower(value);
  for (const char* yes : {"1", "yes", "true", "on"})
    if (v == yes) return out = true, std::nullopt;
  for (const char* no : {"0", "no", "false", "off"})
    if (v == no) return out = false, std::nullopt;
  return "yes or no";
}

Expected set_word(std::string& out, std::string_view value, std::span<const std::string_view> words) {
  const std::string v = lower(value);
  if (std::find(words.begin(), words.end(), v) != words.end()) return out = v, std::nullopt;
  std::string all;
  for (const auto word : words) all.append(all.empty() ? "" : ", ").append(word);
  return all;
}

Expected set_bits(std::uint64_t& out, std::string_view value) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr std::string_view kWanted = "up to 64 bits, in hexadecimal behind 0x or in decimal";
  if (!value.starts_with("0x") && !value.starts_with("0X"))
    return set_number(out, value, 0, kMost) ? Expected(kWanted) : std::nullopt;
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(value.data() + 2, value.data() + value.size(), n, 16);
  if (error != std::errc{} || end != value.data() + value.size()) return std::string(kWanted);
  out = n;
  return std::nullopt;
}

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r\n");
  if (first == s.npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), to_lower);
  return out;
}

std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    // Levenshtein's distance, one row at a time.
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < candidate.size(); ++j) {
        const std::size_t substituted = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance && row.back() < candidate.size()) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return std::string(best);
}

std::string variable_of(std::string_view prefix, std::string_view name) {
  std::string out(prefix);
  for (const char c : name) out += to_upper(c);
  return out;
}

std::string concat(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const auto part : parts) out += part;
  return out;
}

std::string bad_value(std::string_view value, std::string_view name, std::string_view expected) {
  return concat({"'", value, "' is no value for ", name, "; expected: ", expected});
}

std::string unknown_name(std::string_view what, std::string_view nearest) {
  if (nearest.empty()) return concat({"unknown ", what, "; `etherwarp options` lists all"});
  return concat({"unknown ", what, "; did you mean ", nearest, "?"});
}

std::span<const char* const> own_environment() {
  std::size_t n = 0;
  while (environ != nullptr && environ[n] != nullptr) ++n;
  return {environ, n};
}

bool environment_is_trusted() {
  return getauxval(AT_SECURE) == 0;
}

}  // namespace ewarp
