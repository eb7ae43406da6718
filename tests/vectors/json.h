// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What tests need of JSON, without templates: a header of nlohmann's costs each file that includes it three seconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ewarp::test {

// A value that was read and does not change. Members of an object are in the order of their names.
class Json {
 public:
  static Json parse(const std::string& text);

  bool is_null() const { return kind_ == Kind::null; }
  bool is_string() const { return kind_ == Kind::string; }
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  // Null where there is no such member or element.
  const Json& operator[](std::string_view key) const;
  const Json& operator[](std::size_t index) const;
  const Json& at(std::string_view key) const;  // throws where there is none

  // Elements of an array, values of an object.
  std::size_t size() const { return elements_.size(); }
  bool empty() const { return elements_.empty(); }
  auto begin() const { return elements_.begin(); }
  auto end() const { return elements_.end(); }

  // As std::string, bool, double or an integer; throws where it is something else.
  template <class T>
  T get() const {
    if constexpr (std::is_same_v<T, std::string>) {
      return text();
    } else if constexpr (std::is_same_v<T, bool>) {
      return boolean();
    } else if constexpr (std::is_same_v<T, double>) {
      return real();
    } else {
      return static_cast<T>(integer());
    }
  }
  operator const std::string&() const { return text(); }
  bool operator==(std::string_view other) const { return is_string() && text_ == other; }

 private:
  enum class Kind { null, boolean, integer, real, string, array, object };
  struct Reader;

  const Json* find(std::string_view key) const;
  const std::string& text() const;
  bool boolean() const;
  std::int64_t integer() const;
  double real() const;

  Kind kind_ = Kind::null;
  std::int64_t integer_ = 0;  // of an unsigned number that is too large for it: the same bits
  double real_ = 0;
  std::string text_;
  std::vector<std::string> keys_;  // of an object, one for each element
  std::vector<Json> elements_;
};

}  // namespace ewarp::test
