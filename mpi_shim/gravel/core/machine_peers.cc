// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What comes from peers, and their ends.
#include <algorithm>
#include <cassert>

#include "mpi_shim/gravel/core/machine.h"

namespace ewarp::gravel {
namespace {

constexpr int kLooksAtOnce = 16;  // a cache line of each of three ledgers is touched

constexpr std::array kInfo = {Ledger::receive_info, Ledger::send_info};

Arrival arrival_of(Ledger ledger, const Entry& entry) {
  if (ledger == Ledger::receive_info) return Arrival::receive_buffer;
  return entry.request == 0 ? Arrival::send_request : Arrival::send_buffer;
}

bool valid(Ledger ledger, const Entry& entry) {
  return entry.tag >= 0 && (ledger == Ledger::send_info || entry.request != 0);
}

}  // namespace

// --- what was entered ---

bool Machine::receive_counts(Proc proc) {
  auto& out = peer(proc).out;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!out[i].taken(load_word(board(proc) + board::kCounts + 4 * i))) return false;
  return true;
}

bool Machine::receive_info(Proc proc, Ledger ledger) {
  Peer& p = peer(proc);
  LedgerReader& reader = p.in[static_cast<std::size_t>(ledger)];
  while (!p.arrivals.full()) {
    const auto entry = reader.look(board(proc), ledger);
    if (!entry) return true;
    if (!valid(ledger, *entry)) return false;
    p.arrivals.add(arrival_of(ledger, *entry), *entry);  // without memory it stays in the ledger
    reader.advance();
  }
  return true;
}

bool Machine::on_fin(Proc proc, const Entry& entry) {
  Request* r = requests_.find(entry.request);
  if (r == nullptr || r->proc != proc || !r->awaits_fin()) return false;
  r->enter(Request::State::done);
  return true;
}

bool Machine::receive_fins(Proc proc) {
  LedgerReader& reader = peer(proc).in[static_cast<std::size_t>(Ledger::fin)];
  while (const auto entry = reader.take(board(proc), Ledger::fin))
    if (!on_fin(proc, *entry)) return false;
  return true;
}

bool Machine::receive(Proc proc) {
  return receive_counts(proc) &&
         std::all_of(kInfo.begin(), kInfo.end(), [&](Ledger l) { return receive_info(proc, l); }) && receive_fins(proc);
}

// Tells the peer how much was taken out of its ledgers, if it has filled half of one without knowing.
void Machine::tell(Proc proc) {
  auto& in = peer(proc).in;
  if (std::none_of(in.begin(), in.end(), [](const LedgerReader& r) { return r.untold(); })) return;
  board::CountsOctets octets;
  for (std::size_t i = 0; i < in.size(); ++i) store_word(octets.data() + 4 * i, in[i].taken());
  if (!carrier_.enter(proc, board::kCounts, octets)) return;
  for (LedgerReader& r : in) r.set_told();
}

Error Machine::look(Proc proc) {
  Peer& p = peer(proc);
  if (p.state != PeerState::present) return Error::peer;
  if (!receive(proc)) {
    enter(p, PeerState::lost);
    end_requests(proc);
    return Error::peer;
  }
  tell(proc);
  return Error::none;
}

void Machine::look_around() {
  for (int i = std::min(kLooksAtOnce, procs()); i > 0; --i) {
    look(next_look_);
    next_look_ = (next_look_ + 1) % procs();
  }
}

// --- ends ---

void Machine::on_moved(RequestId request, Error how) {
  Request* r = requests_.find(request);
  assert(r != nullptr && r->transfers() && r->unended > 0);
  --r->unended;
  if (r->error == Error::none) r->error = how;
  settle(*r);
}

// The only writer of a peer's state.
void Machine::enter(Peer& p, PeerState to) {
  assert(p.state == PeerState::present && to != PeerState::present);
  p.state = to;
  p.arrivals.clear();
}

// Transfers that are under way come back by themselves, and tell how a request ends that waits for nothing else: the
// peer may have left because it has all of them.
void Machine::end_requests(Proc proc) {
  requests_.for_each([&](Request& r) {
    if (r.proc != proc || r.state() == Request::State::done) return;
    if (r.state() == Request::State::closing && !r.owes_fin) return;
    r.error = Error::peer;
    if (r.state() == Request::State::open) r.enter(r.unended > 0 ? Request::State::closing : Request::State::done);
    settle(r);
  });
}

// Its FINs have come before. Nobody can use what else it has entered, so this needs no memory, and is never put off.
void Machine::on_gone(Proc proc, bool in_order) {
  if (peer_state(proc) != PeerState::present) return;
  const bool good = receive_fins(proc);
  enter(peer(proc), in_order && good ? PeerState::left : PeerState::lost);
  end_requests(proc);
}

}  // namespace ewarp::gravel
