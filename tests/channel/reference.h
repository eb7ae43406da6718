// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Matching as MPI words it, with nothing but two lists per node: what the channel's matching is held against.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel::test {

class Reference {
 public:
  struct Message {
    PeerId source;
    Tag tag;
    std::uint64_t number;  // of all that were sent
    bool operator==(const Message&) const = default;
  };
  struct Receive {
    std::uint64_t id;
    PeerId source;
    Tag tag, ignore;
    bool takes(const Message& m) const {
      return (source == kAnySource || source == m.source) && (tag | ignore) == (m.tag | ignore);
    }
  };

  // The message that it gets, if one is there.
  std::optional<Message> post(const Receive& r) {
    const auto m = take(r);
    if (!m) posted_.push_back(r);
    return m;
  }
  // The receive that gets it, if one is there.
  std::optional<std::uint64_t> arrive(const Message& m) {
    for (auto r = posted_.begin(); r != posted_.end(); ++r) {
      if (!r->takes(m)) continue;
      const std::uint64_t id = r->id;
      posted_.erase(r);
      return id;
    }
    unexpected_.push_back(m);
    return std::nullopt;
  }
  std::optional<Message> peek(const Receive& r) const {
    for (const Message& m : unexpected_)
      if (r.takes(m)) return m;
    return std::nullopt;
  }
  std::optional<Message> take(const Receive& r) {
    const auto m = peek(r);
    if (m) unexpected_.remove(*m);
    return m;
  }
  bool cancel(std::uint64_t id) {
    return posted_.remove_if([id](const Receive& r) { return r.id == id; }) == 1;
  }
  bool unexpected() const { return !unexpected_.empty(); }

 private:
  std::list<Receive> posted_;
  std::list<Message> unexpected_;
};

}  // namespace ewarp::channel::test
