// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receives that wait for messages, and messages that wait for receives, in MPI's order: a message goes to the first
// posted receive that may take it, a receive takes the first arrived message that it may. What differs by no wildcard
// is found by a hash; receives that ignore bits of the tag, other than those that all of a job do, are looked through
// in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi_shim/channel/core/list.h"
#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel {

// What a receive asks for; part of the request.
struct Posted {
  PeerId source = kAnySource;
  Tag tag = 0;
  Tag ignore = 0;
  Tag key = 0;              // the tag without the job's ignored_bits
  bool masked = false;      // it does not ignore just those
  bool multi = false;       // takes more than one message
  std::uint64_t order = 0;  // of posting
  Links<Posted> links;

  // Takes one message, whichever of one source and key comes.
  bool exact() const { return source != kAnySource && !masked && !multi; }
  // more: bits that make no difference either.
  bool takes(PeerId from, Tag their_tag, Tag more = 0) const {
    return (source == kAnySource || source == from) && ((tag ^ their_tag) & ~(ignore | more)) == 0;
  }
};

class PostedReceives {
 public:
  explicit PostedReceives(Tag ignored_bits) : ignored_bits_(ignored_bits) {}

  void post(Posted& receive);
  void remove(Posted& receive);
  // The first receive that may take such a message, still in the queue; null if there is none.
  Posted* find(PeerId source, Tag tag) const;
  // Whether a receive that is not exact may take a message of this key.
  bool wildcard_takes(PeerId source, Tag key) const;
  // The exact receives of one source and key, in order.
  Posted* first_exact(PeerId source, Tag key) const { return exact_.first({source, key}); }
  static Posted* next_exact(const Posted& receive) { return Exact::next(receive); }
  // Receives that any peer's message may be for.
  std::size_t from_anybody() const { return from_anybody_; }
  std::size_t size() const { return exact_.size() + any_source_.size() + masked_count_; }

 private:
  struct Key {
    static Envelope key(const Posted& p) { return {p.source, p.key}; }
    static std::size_t hash(const Envelope& e) { return hash_of(e); }
  };
  using Exact = HashedQueue<Posted, &Posted::links, Key>;
  using Masked = List<Posted, &Posted::links>;

  static bool unhashed(const Posted& p) { return p.masked || (p.multi && p.source != kAnySource); }
  // more: bits that make no difference either.
  Posted* first_masked(PeerId source, Tag tag, Tag more = 0) const;

  const Tag ignored_bits_;
  Exact exact_;       // source and key
  Exact any_source_;  // a whole key, from anywhere
  Masked masked_;     // what else there is
  std::size_t masked_count_ = 0, from_anybody_ = 0;
  std::uint64_t posted_ = 0;
};

// A message, or its announcement by SENDER_READY, that nobody has asked for yet. Derived from by who stores more.
struct Arrival {
  PeerId source = 0;
  Tag tag = 0;
  Tag key = 0;  // the tag without the job's ignored_bits
  std::size_t size = 0;
  std::uint64_t order = 0;  // of arrival
  Links<Arrival> all, by_envelope, by_key;
};

class Unexpected {
 public:
  explicit Unexpected(Tag ignored_bits) : ignored_bits_(ignored_bits) {}

  void add(Arrival& arrival);
  void remove(Arrival& arrival);
  // The first that such a receive may take, still in the queue.
  Arrival* find(PeerId source, Tag tag, Tag ignore) const;
  Arrival* first() const { return all_.front(); }
  static Arrival* next(const Arrival& a) { return All::after(a); }
  std::size_t size() const { return by_envelope_.size(); }

 private:
  struct EnvelopeKey {
    static Envelope key(const Arrival& a) { return {a.source, a.key}; }
    static std::size_t hash(const Envelope& e) { return hash_of(e); }
  };
  struct KeyAlone {
    static Tag key(const Arrival& a) { return a.key; }
    static std::size_t hash(Tag tag) { return hash_of({kAnySource, tag}); }
  };
  using All = List<Arrival, &Arrival::all>;
  using ByEnvelope = HashedQueue<Arrival, &Arrival::by_envelope, EnvelopeKey>;
  using ByKey = HashedQueue<Arrival, &Arrival::by_key, KeyAlone>;

  const Tag ignored_bits_;
  All all_;
  ByEnvelope by_envelope_;
  ByKey by_key_;
  std::uint64_t arrived_ = 0;
};

}  // namespace ewarp::channel
