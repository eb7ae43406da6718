// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What every table of options has in common: values by type, what is said of a bad one, the name that a misspelt one
// most likely meant. It needs the standard library alone, so the channel links it, too.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ewarp {

// For help texts: the name in lower case, unit or words, default and meaning of an option.
struct OptionDoc {
  const char* name;
  const char* unit;
  const char* initial;
  const char* meaning;
};

std::string concat(std::initializer_list<std::string_view> parts);

// --- values ---------------------------------------------------------------------------------------------------------

// Each set_* stores the value, or returns what would be good instead.
using Expected = std::optional<std::string>;

// yes, no, on, off, true, false, 1, 0; in any case.
Expected set_bool(bool& out, std::string_view value);

// One of these words, in any case; lower case is stored.
Expected set_word(std::string& out, std::string_view value, std::span<const std::string_view> words);

// As set_word(): words[i] stands for values[i].
template <class Value, std::size_t n>
Expected set_choice(Value& out, std::string_view value, const std::string_view (&words)[n], const Value (&values)[n]) {
  std::string word;
  if (auto expected = set_word(word, value, words)) return expected;
  for (std::size_t i = 0; i < n; ++i)
    if (words[i] == word) out = values[i];
  return std::nullopt;
}

// Decimal.
template <std::integral Number>
Expected set_number(Number& out, std::string_view value, std::type_identity_t<Number> least,
                    std::type_identity_t<Number> most) {
  Number n{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc{} || end != value.data() + value.size() || n < least || n > most)
    return concat({"a whole number from ", std::to_string(least), " to ", std::to_string(most)});
  out = n;
  return std::nullopt;
}

// Hexadecimal behind 0x, else decimal.
Expected set_bits(std::uint64_t& out, std::string_view value);

// --- names ----------------------------------------------------------------------------------------------------------

std::string_view trim(std::string_view s);
std::string lower(std::string_view s);

// The candidate that a mistyped word most likely meant; empty if none is near.
std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates);

// "ETHERWARP_IO_URING" for "ETHERWARP_" and "io_uring".
std::string variable_of(std::string_view prefix, std::string_view name);

// What is said, one line each.
std::string bad_value(std::string_view value, std::string_view name, std::string_view expected);
// nearest: empty if there is none.
std::string unknown_name(std::string_view what, std::string_view nearest);

// --- the environment ------------------------------------------------------------------------------------------------

// Of this process: strings NAME=value.
std::span<const char* const> own_environment();
// False in a set-user-ID program, which must not take orders from who called it.
bool environment_is_trusted();

// f(variable, value) for each whose name begins with the prefix. environment: the last may be a null pointer.
template <class F>
void each_variable(std::span<const char* const> environment, std::string_view prefix, F f) {
  for (const char* e : environment) {
    if (e == nullptr) break;
    const std::string_view entry(e);
    const auto equals = entry.find('=');
    if (equals != entry.npos && entry.substr(0, equals).starts_with(prefix))
      f(entry.substr(0, equals), entry.substr(equals + 1));
  }
}

// --- the table ------------------------------------------------------------------------------------------------------

template <class Options>
struct OptionEntry {
  OptionDoc doc;
  Expected (*set)(Options&, std::string_view value);  // of a value that is trimmed and not empty
};

// Refers to what it is made of. Names are in lower case.
template <class Options>
class OptionTable {
 public:
  // prefix: of the environment variables. others: variables with this prefix that are no options, without it.
  constexpr OptionTable(std::string_view prefix, std::span<const OptionEntry<Options>> entries,
                        std::span<const std::string_view> others = {})
      : prefix_(prefix), entries_(entries), others_(others) {}

  std::vector<OptionDoc> docs() const {
    std::vector<OptionDoc> out;
    for (const auto& entry : entries_) out.push_back(entry.doc);
    return out;
  }
  std::string variable(std::string_view name) const { return variable_of(prefix_, name); }

  // Empty, or one line that says what is wrong, and nothing is changed. Nor does an empty value change anything:
  // `NAME= program` is how a shell takes a setting back.
  std::string set(Options& options, std::string_view name, std::string_view value) const {
    for (const auto& entry : entries_)
      if (name == entry.doc.name) return apply(options, entry, trim(value));
    return unknown_name(concat({"option '", name, "'"}), nearest_word(name, names()));
  }

  // As set(), by the name of the variable, which has the prefix. Other variables are not looked at.
  std::string set_variable(Options& options, std::string_view variable, std::string_view value) const {
    for (const auto& entry : entries_)
      if (variable == this->variable(entry.doc.name)) {
        const std::string wrong = apply(options, entry, trim(value));
        return wrong.empty() ? wrong : concat({variable, ": ", wrong, "; ignored"});
      }
    for (const auto other : others_)
      if (variable == this->variable(other)) return {};
    auto candidates = names();
    candidates.insert(candidates.end(), others_.begin(), others_.end());
    const std::string near = nearest_word(lower(variable.substr(prefix_.size())), candidates);
    const std::string unknown =
        unknown_name(concat({"variable ", variable}), near.empty() ? near : this->variable(near));
    return concat({unknown, "; ignored"});
  }

 private:
  static std::string apply(Options& options, const OptionEntry<Options>& entry, std::string_view value) {
    if (value.empty()) return {};
    const auto expected = entry.set(options, value);
    return expected ? bad_value(value, entry.doc.name, *expected) : std::string();
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> out;
    for (const auto& entry : entries_) out.push_back(entry.doc.name);
    return out;
  }

  std::string_view prefix_;
  std::span<const OptionEntry<Options>> entries_;
  std::span<const std::string_view> others_;
};

}  // namespace ewarp
