// Receives that wait for messages, and messages that wait for receives, in MPI's order: a message goes to the first
// posted receive that may take it, a receive takes the first arrived message that it may. What differs by no wildcard
// is found by a hash; receives with bits ignored in the tag are looked through in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi_shim/channel/list.h"
#include "mpi_shim/channel/types.h"

namespace ewarp::channel {

// What a receive asks for; part of the request.
struct Posted {
  PeerId source = kAnySource;
  Tag tag = 0;
  Tag ignore = 0;
  bool multi = false;       // takes more than one message
  std::uint64_t order = 0;  // of posting
  Links<Posted> links;

  // Takes one message, of one envelope.
  bool exact() const { return source != kAnySource && ignore == 0 && !multi; }
  bool takes(PeerId from, Tag their_tag) const {
    return (source == kAnySource || source == from) && ((tag ^ their_tag) & ~ignore) == 0;
  }
};

class PostedReceives {
 public:
  void post(Posted& receive);
  void remove(Posted& receive);
  // The first receive that may take such a message, still in the queue; null if there is none.
  Posted* find(PeerId source, Tag tag) const;
  // Whether a receive with a wildcard may take such a message.
  bool wildcard_takes(PeerId source, Tag tag) const;
  // The exact receives of one envelope, in order.
  Posted* first_exact(PeerId source, Tag tag) const { return exact_.first({source, tag}); }
  static Posted* next_exact(const Posted& receive) { return Exact::next(receive); }
  std::size_t size() const { return exact_.size() + any_source_.size() + masked_count_; }

 private:
  struct Key {
    static Envelope key(const Posted& p) { return {p.source, p.tag}; }
    static std::size_t hash(const Envelope& e) { return hash_of(e); }
  };
  using Exact = HashedQueue<Posted, &Posted::links, Key>;
  using Masked = List<Posted, &Posted::links>;

  static bool masked(const Posted& p) { return p.ignore != 0 || (p.multi && p.source != kAnySource); }
  Posted* first_masked(PeerId source, Tag tag) const;

  Exact exact_;       // source and tag
  Exact any_source_;  // a whole tag, from anywhere
  Masked masked_;     // what else there is
  std::size_t masked_count_ = 0;
  std::uint64_t posted_ = 0;
};

// A message, or its announcement by SENDER_READY, that nobody has asked for yet. Derived from by who stores more.
struct Arrival {
  PeerId source = 0;
  Tag tag = 0;
  std::size_t size = 0;
  std::uint64_t order = 0;  // of arrival
  Links<Arrival> all, by_envelope, by_tag;
};

class Unexpected {
 public:
  void add(Arrival& arrival);
  void remove(Arrival& arrival);
  // The first that such a receive may take, still in the queue.
  Arrival* find(PeerId source, Tag tag, Tag ignore) const;
  Arrival* first() const { return all_.front(); }
  static Arrival* next(const Arrival& a) { return All::after(a); }
  std::size_t size() const { return by_envelope_.size(); }

 private:
  struct EnvelopeKey {
    static Envelope key(const Arrival& a) { return {a.source, a.tag}; }
    static std::size_t hash(const Envelope& e) { return hash_of(e); }
  };
  struct TagKey {
    static Tag key(const Arrival& a) { return a.tag; }
    static std::size_t hash(Tag tag) { return hash_of({kAnySource, tag}); }
  };
  using All = List<Arrival, &Arrival::all>;

  All all_;
  HashedQueue<Arrival, &Arrival::by_envelope, EnvelopeKey> by_envelope_;
  HashedQueue<Arrival, &Arrival::by_tag, TagKey> by_tag_;
  std::uint64_t arrived_ = 0;
};

}  // namespace ewarp::channel
