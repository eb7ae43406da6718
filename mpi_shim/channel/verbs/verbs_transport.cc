// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/verbs_transport.h"

#include <endian.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "mpi_shim/channel/core/link.h"
#include "mpi_shim/channel/verbs/element.h"
#include "mpi_shim/channel/verbs/reasons.h"

namespace ewarp::channel {
namespace {

// The first message of each connection, which shows whether the adapters take immediates; never the id of a receive.
constexpr std::uint32_t kGreeting = 0xffffffff;
constexpr std::size_t kBatch = 32;
constexpr std::size_t kReceivesAtOnce = 8;  // registered together
constexpr std::uint64_t kTryAgainNs = 10'000'000;

}  // namespace

VerbsTransport::VerbsTransport(const Tuning& tuning, const VerbsOptions& options)
    : tuning_(tuning),
      options_(options),
      connections_(tuning_, options_.address, options_.job, options_.connect_timeout_ns, *this) {}

// --- opening and closing ---

Refusal VerbsTransport::open() {
  if (address().unspecified())
    return {.text = address().text() + " is no address that peers can use", .code = EADDRNOTAVAIL};
  Refusal why;
  device_ = options_.device ? options_.device : Device::open(address(), &why.text, &why.code);
  if (!device_) return why;
  ibv_device_attr device{};
  if (ibv_query_device(device_->context(), &device) != 0) return refused("ibv_query_device");
  if ((why = completions_.open(device_->context(), device.max_cqe))) return why;
  if ((why = heartbeat_.open(device_->pd()))) return why;
  memory_.open(*device_, options_.registration, tuning_.eager_threshold);
  receives_.emplace(device_->pd(), Link::receive_octets(tuning_), kReceivesAtOnce);
  const int reads = std::clamp(std::min(device.max_qp_rd_atom, device.max_qp_init_rd_atom), 1, 16);
  return connections_.listen({.device = device_.get(),
                              .completions = &completions_,
                              .receives = &*receives_,
                              .heartbeat = heartbeat_.remote(),
                              .read_depth = static_cast<std::uint8_t>(reads)});
}

void VerbsTransport::attach(TransportEvents& events, Counters& counters, std::function<PeerId()> add_peer) {
  assert(events_ == nullptr);
  events_ = &events;
  add_peer_ = std::move(add_peer);
  memory_.attach(counters, options_.kept_registrations);
  connections_.add_self();
}

void VerbsTransport::close(std::uint64_t patience_ns) {
  const std::uint64_t until = now() + patience_ns;
  connections_.disconnect();
  while (connections_.any() && now() < until) {
    look_at_connections();
    poll(now());
  }
  connections_.end_all("this end was closed");
}

// --- connections ---

void VerbsTransport::connect(PeerId peer) {
  connections_.connect(peer);
  look_at_connections();
}

void VerbsTransport::fail(PeerId peer, const char* why) {
  connections_.fail(peer, why);
}

void VerbsTransport::on_up(Connection& c) {
  greet(c);
  events_->on_peer_up(c.peer());
}

void VerbsTransport::on_gone(Connection& c) {
  if (std::exchange(c.writable, false)) writable_.remove(c);
  records_.take_all_of(c.serial(), c.sends(), [this](const Record& record) {
    memory_.give_back(record.loan);
    if (record.told) events_->on_complete(record.cookie, false);
  });
}

void VerbsTransport::on_unreachable(PeerId peer, const std::string& why) {
  if (options_.end_if_unreachable) reason::end_process(address(), address_of(peer), why);
}

// An adapter, or a pair of them, without Write with immediate refuses it when it is posted.
void VerbsTransport::greet(Connection& c) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htobe32(kGreeting);
  Record unheard;
  unheard.told = false;
  c.immediate = post(c, wr, unheard);
  c.refused = false;
}

bool VerbsTransport::has_immediate(PeerId peer) {
  const Connection* c = connections_.of(peer);
  return c != nullptr && c->immediate;
}

bool VerbsTransport::add_receives(PeerId peer, std::uint32_t count) {
  Connection* const c = connections_.of(peer);
  return c != nullptr && c->add_receives(count);
}

void VerbsTransport::take_receive(PeerId peer) {
  if (Connection* const c = connections_.of(peer)) c->take_receive();
}

// --- requests ---

// Null if the peer's connection takes nothing now; then it is noted that somebody wants to know when it does. Otherwise
// there is a record for one request.
Connection* VerbsTransport::ready(PeerId peer) {
  Connection* c = connections_.of(peer);
  if (c == nullptr || c->state() != Connection::State::up) return nullptr;
  try {
    records_.next();
    if (c->has_room(held_count_)) return c;
  } catch (const std::bad_alloc&) {
  }
  refuse(*c, {});
  return nullptr;
}

// For what uses a receive of the peer, which may answer at once: it finds one here for that.
Connection* VerbsTransport::ready_with_receives(PeerId peer) {
  Connection* c = ready(peer);
  if (c == nullptr || c->renew()) return c;
  refuse(*c, {});
  return nullptr;
}

// A completion of the connection makes room, and tells so. Where there is none to come, time does.
void VerbsTransport::refuse(Connection& c, const Record& record) {
  memory_.give_back(record.loan);
  c.refused = true;
  if (c.sends() > 0 || try_again_at_ != 0) return;
  try_again_at_ = now() + kTryAgainNs;
  timers_changed_ = true;
}

bool VerbsTransport::post(Connection& c, ibv_send_wr& wr, Record& record) {
  const std::uint32_t id = records_.next();
  wr.wr_id = id;
  wr.send_flags |= IBV_SEND_SIGNALED;
  record.serial = c.serial();
  if (!c.post_send(wr)) {
    refuse(c, record);
    return false;
  }
  records_.put(id, record);
  return true;
}

// The adapter gets it with post_held(). What it refuses then ends the connection, and with it the request.
void VerbsTransport::hold(Connection& c, const ibv_send_wr& wr, std::span<const ibv_sge> sges, Record& record) {
  assert(held_count_ < kMostHeld && (held_count_ == 0 || held_for_ == &c));
  held_for_ = &c;
  Held& held = held_[held_count_++];
  held.wr = wr;
  std::copy(sges.begin(), sges.end(), held.sges);
  held.wr.sg_list = held.sges;
  const std::uint32_t id = records_.next();
  held.wr.wr_id = id;
  held.wr.send_flags |= IBV_SEND_SIGNALED;
  record.serial = c.serial();
  records_.put(id, record);
}

void VerbsTransport::post_held() {
  const std::uint32_t count = std::exchange(held_count_, 0);
  if (count == 0) return;
  for (std::uint32_t i = 0; i + 1 < count; ++i) held_[i].wr.next = &held_[i + 1].wr;
  held_[count - 1].wr.next = nullptr;
  if (!held_for_->post_sends(held_[0].wr, count)) connections_.drop(*held_for_, "ibv_post_send");
}

Transport::Taken VerbsTransport::send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited,
                                      bool followed, Cookie cookie) {
  const Taken taken = send_or_hold(peer, header, payload, copy, solicited, followed, cookie);
  if (taken == Taken::refused || !followed || held_count_ == kMostHeld) post_held();
  return taken;
}

Transport::Taken VerbsTransport::send_or_hold(PeerId peer, Octets header, Octets payload, bool copy, bool solicited,
                                              bool followed, Cookie cookie) {
  Connection* c = ready_with_receives(peer);
  if (c == nullptr) return Taken::refused;
  const bool held = followed || held_count_ > 0;
  Record record{.cookie = cookie};
  ibv_sge sges[2];
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = sges;
  if (!held && header.size() + payload.size() <= c->inline_octets()) {
    sges[0] = element(header.data(), header.size(), 0);
    sges[1] = element(payload.data(), payload.size(), 0);
    wr.num_sge = payload.empty() ? 1 : 2;
    wr.send_flags = IBV_SEND_INLINE;
  } else if (const auto count = memory_.gather(record.loan, sges, header, payload, copy)) {
    wr.num_sge = *count;
  } else {
    refuse(*c, record);
    return Taken::refused;
  }
  if (solicited) wr.send_flags |= IBV_SEND_SOLICITED;
  if (held)
    hold(*c, wr, std::span(sges).first(static_cast<std::size_t>(wr.num_sge)), record);
  else if (!post(*c, wr, record))
    return Taken::refused;
  return record.loan.in_place ? Taken::in_place : Taken::copied;
}

Transport::Taken VerbsTransport::write(PeerId peer, Octets source, const Exposed* memory, wire::Remote target,
                                       std::optional<std::uint32_t> immediate, bool copy, bool solicited,
                                       Cookie cookie) {
  assert(!immediate || has_immediate(peer));
  Connection* c = immediate ? ready_with_receives(peer) : ready(peer);
  if (c == nullptr) return Taken::refused;
  Record record{.cookie = cookie};
  ibv_sge sges[2];
  ibv_send_wr wr{};
  if (memory != nullptr) {
    record.loan.in_place = true;
    sges[wr.num_sge++] = memory_.exposed(source, *memory);
  } else if (const auto count = memory_.gather(record.loan, sges, {}, source, copy)) {
    wr.num_sge = *count;
  } else {
    refuse(*c, record);
    return Taken::refused;
  }
  wr.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (solicited) wr.send_flags |= IBV_SEND_SOLICITED;
  wr.imm_data = htobe32(immediate.value_or(0));
  wr.sg_list = sges;
  wr.wr.rdma.remote_addr = target.address;
  wr.wr.rdma.rkey = target.key;
  if (!post(*c, wr, record)) return Taken::refused;
  return record.loan.in_place ? Taken::in_place : Taken::copied;
}

bool VerbsTransport::read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote source,
                          Cookie cookie) {
  Connection* c = ready(peer);
  if (c == nullptr) return false;
  Record record{.cookie = cookie};
  auto sge = memory != nullptr ? memory_.exposed(target, *memory) : memory_.scatter(record.loan, target);
  if (!sge) {
    refuse(*c, record);
    return false;
  }
  return post_read(*c, *sge, source, record);
}

bool VerbsTransport::post_read(Connection& c, ibv_sge& sge, wire::Remote source, Record& record) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = source.address;
  wr.wr.rdma.rkey = source.key;
  return post(c, wr, record);
}

bool VerbsTransport::ping(PeerId peer, Cookie cookie) {
  Connection* c = ready(peer);
  if (c == nullptr) return false;
  ibv_sge sge = heartbeat_.sink();
  Record record{.cookie = cookie};
  return post_read(*c, sge, c->heartbeat, record);
}

// --- completions ---

void VerbsTransport::received(Connection& c, std::uint32_t index, const ibv_wc& wc) {
  c.receive_completed();
  if (wc.status != IBV_WC_SUCCESS) {
    // Before it stands, rdma_cm says what became of a connection.
    if (c.stood()) connections_.drop(c, ibv_wc_status_str(wc.status));
    return;
  }
  const Octets octets = c.look(index, wc.opcode == IBV_WC_RECV ? wc.byte_len : 0);
  try {
    if (c.state() == Connection::State::accepting) connections_.established(c, std::nullopt);
    if (wc.opcode == IBV_WC_RECV)
      events_->on_received(c.peer(), octets);
    else if (const std::uint32_t immediate = be32toh(wc.imm_data); immediate != kGreeting)
      events_->on_immediate(c.peer(), immediate, wc.byte_len);
  } catch (const std::bad_alloc&) {
    // A message that cannot be kept is lost, and no later one may pass it.
    connections_.drop(c, "no memory for a message");
  }
  if (!c.looked()) connections_.drop(c, "ibv_post_recv");
}

void VerbsTransport::completed(const ibv_wc& wc) {
  if (receive_id::is(wc.wr_id)) {
    Connection* c = connections_.find(receive_id::serial(wc.wr_id));
    if (c != nullptr) received(*c, receive_id::index(wc.wr_id), wc);
    return;
  }
  const Record record = records_.take(static_cast<std::uint32_t>(wc.wr_id));
  const bool ok = wc.status == IBV_WC_SUCCESS;
  if (ok) memory_.filled(record.loan);
  memory_.give_back(record.loan);
  Connection* c = connections_.find(record.serial);
  if (c == nullptr) return;
  c->send_completed();
  tell(*c, record, ok);
  if (!ok) return connections_.drop(*c, ibv_wc_status_str(wc.status));
  if (c->refused) set_writable(*c);
}

void VerbsTransport::tell(Connection& c, const Record& record, bool ok) {
  try {
    if (record.told) events_->on_complete(record.cookie, ok);
  } catch (const std::bad_alloc&) {
    connections_.drop(c, "no memory for a completion");
  }
}

// --- who may go on ---

void VerbsTransport::set_writable(Connection& c) {
  c.refused = false;
  if (std::exchange(c.writable, true)) return;
  writable_.push_back(c);
}

// Who was refused for want of memory, and has nothing under way.
void VerbsTransport::try_again() {
  if (try_again_at_ == 0 || polled_at() < try_again_at_) return;
  try_again_at_ = 0;
  connections_.for_each([this](Connection& c) {
    if (c.refused && c.sends() == 0) set_writable(c);
  });
}

void VerbsTransport::tell_writable() {
  while (Connection* c = writable_.pop_front()) {
    c->writable = false;
    try {
      events_->on_writable(c->peer());
    } catch (const std::bad_alloc&) {
      connections_.drop(*c, "no memory to go on");
    }
  }
}

std::uint64_t VerbsTransport::deadline() const {
  const std::uint64_t theirs = connections_.deadline();
  return theirs == 0 || try_again_at_ == 0 ? std::max(theirs, try_again_at_) : std::min(theirs, try_again_at_);
}

bool VerbsTransport::poll(std::uint64_t now, bool connections) {
  connections_turn_.poll(now);
  ibv_wc wcs[kBatch];
  memory_.registrations().look();
  bool anything = false;
  std::size_t n = 0;
  do {
    n = completions_.poll(wcs);
    for (std::size_t i = 0; i < n; ++i) completed(wcs[i]);
    anything = anything || n > 0;
  } while (n == kBatch);
  if (connections_turn_.take(now, connections)) anything = connections_.handle() || anything;
  try_again();
  tell_writable();
  connections_.finish_drained();
  return anything;
}

}  // namespace ewarp::channel
