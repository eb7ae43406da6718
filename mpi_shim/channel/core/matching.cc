// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/matching.h"

#include <cassert>

namespace ewarp::channel {

void PostedReceives::post(Posted& receive) {
  receive.order = ++posted_;
  receive.key = receive.tag & ~ignored_bits_;
  assert(receive.links.previous == nullptr && receive.links.next == nullptr);
  receive.masked = receive.ignore != ignored_bits_;
  if (receive.source == kAnySource) ++from_anybody_;
  if (unhashed(receive)) {
    masked_.push_back(receive);
    ++masked_count_;
  } else {
    (receive.source == kAnySource ? any_source_ : exact_).push_back(receive);
  }
}

void PostedReceives::remove(Posted& receive) {
  assert(receive.source != kAnySource || from_anybody_ > 0);
  if (receive.source == kAnySource) --from_anybody_;
  if (unhashed(receive)) {
    assert(masked_count_ > 0);
    masked_.remove(receive);
    --masked_count_;
  } else {
    (receive.source == kAnySource ? any_source_ : exact_).remove(receive);
  }
}

Posted* PostedReceives::first_masked(PeerId source, Tag tag, Tag more) const {
  Posted* p = masked_.front();
  while (p != nullptr && !p->takes(source, tag, more)) p = Masked::after(*p);
  return p;
}

Posted* PostedReceives::find(PeerId source, Tag tag) const {
  const Tag key = tag & ~ignored_bits_;
  Posted* best = exact_.first({source, key});
  for (Posted* other : {any_source_.first({kAnySource, key}), first_masked(source, tag)})
    if (other != nullptr && (best == nullptr || other->order < best->order)) best = other;
  return best;
}

bool PostedReceives::wildcard_takes(PeerId source, Tag key) const {
  return any_source_.first({kAnySource, key}) != nullptr || first_masked(source, key, ignored_bits_) != nullptr;
}

void Unexpected::add(Arrival& arrival) {
  arrival.order = ++arrived_;
  arrival.key = arrival.tag & ~ignored_bits_;
  all_.push_back(arrival);
  by_envelope_.push_back(arrival);
  by_key_.push_back(arrival);
}

void Unexpected::remove(Arrival& arrival) {
  all_.remove(arrival);
  by_envelope_.remove(arrival);
  by_key_.remove(arrival);
}

Arrival* Unexpected::find(PeerId source, Tag tag, Tag ignore) const {
  const Posted wanted{.source = source, .tag = tag, .ignore = ignore, .links = {}};
  const auto search = [&wanted](Arrival* a, auto next) {
    while (a != nullptr && !wanted.takes(a->source, a->tag)) a = next(*a);
    return a;
  };
  const Tag key = tag & ~ignored_bits_;
  if ((ignore & ~ignored_bits_) != 0) return search(all_.front(), All::after);
  if (source == kAnySource) return search(by_key_.first(key), ByKey::next);
  return search(by_envelope_.first({source, key}), ByEnvelope::next);
}

}  // namespace ewarp::channel
