#include "mpi_shim/channel/matching.h"

namespace ewarp::channel {

void PostedReceives::post(Posted& receive) {
  receive.order = ++posted_;
  if (masked(receive)) {
    masked_.push_back(receive);
    ++masked_count_;
  } else {
    (receive.source == kAnySource ? any_source_ : exact_).push_back(receive);
  }
}

void PostedReceives::remove(Posted& receive) {
  if (masked(receive)) {
    masked_.remove(receive);
    --masked_count_;
  } else {
    (receive.source == kAnySource ? any_source_ : exact_).remove(receive);
  }
}

Posted* PostedReceives::first_masked(PeerId source, Tag tag) const {
  Posted* p = masked_.front();
  while (p != nullptr && !p->takes(source, tag)) p = Masked::after(*p);
  return p;
}

Posted* PostedReceives::find(PeerId source, Tag tag) const {
  Posted* best = exact_.first({source, tag});
  for (Posted* other : {any_source_.first({kAnySource, tag}), first_masked(source, tag)})
    if (other != nullptr && (best == nullptr || other->order < best->order)) best = other;
  return best;
}

bool PostedReceives::wildcard_takes(PeerId source, Tag tag) const {
  return any_source_.first({kAnySource, tag}) != nullptr || first_masked(source, tag) != nullptr;
}

void Unexpected::add(Arrival& arrival) {
  arrival.order = ++arrived_;
  all_.push_back(arrival);
  by_envelope_.push_back(arrival);
  by_tag_.push_back(arrival);
}

void Unexpected::remove(Arrival& arrival) {
  all_.remove(arrival);
  by_envelope_.remove(arrival);
  by_tag_.remove(arrival);
}

Arrival* Unexpected::find(PeerId source, Tag tag, Tag ignore) const {
  if (ignore == 0) return source == kAnySource ? by_tag_.first(tag) : by_envelope_.first({source, tag});
  const Posted wanted{.source = source, .tag = tag, .ignore = ignore, .links = {}};
  Arrival* a = all_.front();
  while (a != nullptr && !wanted.takes(a->source, a->tag)) a = All::after(*a);
  return a;
}

}  // namespace ewarp::channel
