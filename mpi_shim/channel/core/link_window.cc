// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The Writes of rendezvous that wait for room at the adapter, and what passes them.
#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "mpi_shim/channel/core/link.h"

namespace ewarp::channel {
namespace {

constexpr std::size_t kPieces = 4;  // of a window
// The window stays narrow for so many times what it is when it is wide: less than two is on its way before a message is
// answered that had to wait for it, and then each one would find it wide again.
constexpr std::size_t kNarrowFor = 4;

}  // namespace

// Whether a message of this tag could be taken for one of those that are written. Who has so many under way can wait.
bool Link::waits_unheard(Tag tag) const {
  constexpr int kMost = 64;
  int n = 0;
  for (const Outgoing* o = paced_.front(); o != nullptr; o = paced_.after(*o))
    if (o->unheard == (tag & ~tuning_.ignored_bits) || ++n == kMost) return true;
  return false;
}

// Whether it need not wait behind the Writes that wait.
bool Link::passes(const Outgoing& o, bool other_data) const {
  if (o.paced) return false;
  if (paced_.empty()) return true;
  if (holding_up_ > 0 || o.what != Outgoing::What::send || other_data) return false;
  switch (o.message.kind) {
    case wire::Kind::receiver_ready:
    case wire::Kind::retract:
    case wire::Kind::note:
    case wire::Kind::recall:
    case wire::Kind::unused:
    case wire::Kind::more:  // what it goes on with has passed
      return true;
    case wire::Kind::eager:
    case wire::Kind::sender_ready:
      return !waits_unheard(o.message.tag);
    default:
      return false;
  }
}

// What else passes has time: it only prepares other large messages.
void Link::note_passing(const Outgoing& o) {
  counters_.add(Count::writes_passed);
  if (o.message.kind == wire::Kind::eager) narrow_left_ = kNarrowFor * tuning_.write_window;
}

std::size_t Link::write_window() const {
  return narrow_left_ > 0 ? std::min(tuning_.narrow_window, tuning_.write_window) : tuning_.write_window;
}

std::size_t Link::room() const {
  const std::size_t window = write_window();
  return window - std::min(paced_octets_, window);
}

std::size_t Link::write_piece() const {
  return std::max<std::size_t>(write_window() / kPieces, 1);
}

// What is first among the Writes, if it need not wait for completions.
Outgoing* Link::first_with_room() const {
  Outgoing* const o = paced_.front();
  const bool goes = o != nullptr && (!o->paced || o->length <= room() || write_piece() <= room());
  return goes ? o : nullptr;
}

// Messages pass Writes that wait for room, but not those that have it: there may always be another message. Nothing
// comes between the pieces of a message.
void Link::send_in_order() {
  for (;;) {
    const Outgoing* const message = queue_.front();
    Outgoing* const write = first_with_room();
    const bool writes =
        write != nullptr && (message == nullptr || (write->order < message->order && !message->continues()));
    if (!writes && message == nullptr) return;
    if (!(writes ? send_paced(*write) : hand_over_first(queue_))) return;
  }
}

bool Link::send_paced(Outgoing& o) {
  if (o.paced && o.length > room()) return send_piece(o);
  if (!hand_over_first(paced_)) return false;
  if (o.holds) --holding_up_;
  return true;
}

// The first octets of a Write that is longer than there is room.
bool Link::send_piece(Outgoing& o) {
  const std::size_t octets = write_piece();
  assert(o.paced && o.length > octets);
  Outgoing *piece = nullptr, *notice = nullptr;
  try {
    piece = &pool_.take(Outgoing::What::write, peer_);
    if (o.tells_length) notice = &pool_.take(Outgoing::What::send, peer_);
  } catch (const std::bad_alloc&) {  // behind those that are under way; if none is, in one
    if (piece != nullptr) pool_.give(*piece);
    return paced_octets_ == 0 && hand_over_first(paced_);
  }
  piece->paced = true;
  piece->data = o.data;
  piece->length = octets;
  piece->memory = o.memory;
  piece->remote = o.remote;
  if (!hand_over(*piece, false)) {
    pool_.give(*piece);
    if (notice != nullptr) pool_.give(*notice);
    return false;
  }
  if (notice != nullptr) tell_length_by(*notice, o);
  o.data += octets;
  o.length -= octets;
  o.remote.address += octets;
  counters_.add(Count::writes_divided);
  return true;
}

// A Write that waits and a message behind it, instead of one with immediate.
void Link::tell_length_by(Outgoing& notice, Outgoing& o) {
  assert(o.what == Outgoing::What::write_immediate && o.message.kind == wire::Kind::written);
  counters_.add(Count::written_notices);
  o.what = Outgoing::What::write;
  o.tells_length = false;
  notice.message = o.message;
  notice.unheard = o.unheard;
  notice.order = o.order;
  notice.operation = std::exchange(o.operation, nullptr);
  paced_.insert_after(o, notice);
}

}  // namespace ewarp::channel
