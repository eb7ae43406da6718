// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/vectors/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ewarp::test {

struct Json::Reader {
  static Json read(const nlohmann::json& in) {
    Json out;
    switch (in.type()) {
      case nlohmann::json::value_t::boolean:
        out.kind_ = Kind::boolean;
        out.integer_ = in.get<bool>();
        break;
      case nlohmann::json::value_t::number_integer:
      case nlohmann::json::value_t::number_unsigned:
        out.kind_ = Kind::integer;
        out.integer_ = in.get<std::int64_t>();
        out.real_ = in.get<double>();
        break;
      case nlohmann::json::value_t::number_float:
        out.kind_ = Kind::real;
        out.real_ = in.get<double>();
        break;
      case nlohmann::json::value_t::string:
        out.kind_ = Kind::string;
        out.text_ = in.get<std::string>();
        break;
      case nlohmann::json::value_t::array:
        out.kind_ = Kind::array;
        for (const auto& element : in) out.elements_.push_back(read(element));
        break;
      case nlohmann::json::value_t::object:
        out.kind_ = Kind::object;
        for (const auto& [key, value] : in.items()) {
          out.keys_.push_back(key);
          out.elements_.push_back(read(value));
        }
        break;
      default:
        break;
    }
    return out;
  }
};

Json Json::parse(const std::string& text) {
  return Reader::read(nlohmann::json::parse(text));
}

const Json* Json::find(std::string_view key) const {
  const auto at = std::find(keys_.begin(), keys_.end(), key);
  return at == keys_.end() ? nullptr : &elements_[static_cast<std::size_t>(at - keys_.begin())];
}

static const Json kNull;

const Json& Json::operator[](std::string_view key) const {
  const Json* found = find(key);
  return found != nullptr ? *found : kNull;
}

const Json& Json::operator[](std::size_t index) const {
  return index < elements_.size() ? elements_[index] : kNull;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) throw std::out_of_range("JSON: no member " + std::string(key));
  return *found;
}

const std::string& Json::text() const {
  if (kind_ != Kind::string) throw std::domain_error("JSON: no string");
  return text_;
}

bool Json::boolean() const {
  if (kind_ != Kind::boolean) throw std::domain_error("JSON: no boolean");
  return integer_ != 0;
}

std::int64_t Json::integer() const {
  if (kind_ != Kind::integer) throw std::domain_error("JSON: no integer");
  return integer_;
}

double Json::real() const {
  if (kind_ != Kind::integer && kind_ != Kind::real) throw std::domain_error("JSON: no number");
  return real_;
}

}  // namespace ewarp::test
