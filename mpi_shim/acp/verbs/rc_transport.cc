// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/verbs/rc_transport.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include "mpi_shim/acp/core/text.h"

namespace ewarp::acp {
namespace {

constexpr int kBacklog = 256;

bool watch(int events, int fd) {
  epoll_event e{};
  e.events = EPOLLIN;
  return epoll_ctl(events, EPOLL_CTL_ADD, fd, &e) == 0;
}

}  // namespace

void RcTransport::Slots::push(RcSlot& slot) {
  slot.next = nullptr;
  (first == nullptr ? first : last->next) = &slot;
  last = &slot;
}

RcSlot* RcTransport::Slots::pop() {
  RcSlot* slot = first;
  if (slot != nullptr) first = slot->next;
  return slot;
}

// --- opening ---

std::string RcTransport::open(const std::string& device, bool prefer_loopback, const Member& own) {
  procs_ = own.procs;
  hello_ = {.version = RcHello::kVersion, .rank = own.rank, .lane = 0, .secret = {}};
  if (own.secret.empty() && getrandom(hello_.secret, sizeof hello_.secret, 0) != ssize_t{sizeof hello_.secret})
    return failed("getrandom");
  std::copy_n(own.secret.data(), std::min(own.secret.size(), sizeof hello_.secret), hello_.secret);
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return failed("rdma_create_event_channel");
  if (auto why = place_.find(channel_, device, prefer_loopback); !why.empty()) return why;
  if (auto why = device_.adopt(place_.id->verbs, static_cast<int>(reserved_)); !why.empty()) return why;
  slots_.reset(new RcSlot[kSends]());
  if (!register_memory(slots_.get(), kSends * sizeof(RcSlot), &slots_region_)) return failed("ibv_reg_mr");
  for (std::uint32_t i = 0; i < kSends; ++i) free_.push(slots_[i]);
  if (auto why = open_events(); !why.empty()) return why;
  return listen();
}

std::string RcTransport::open_events() {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  events_ = epoll_create1(EPOLL_CLOEXEC);
  if (wake_ < 0 || events_ < 0 || !watch(events_, wake_) || !watch(events_, device_.descriptor()))
    return failed("eventfd, epoll_create1");
  return {};
}

std::string RcTransport::listen() {
  if (rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) return failed("rdma_create_id");
  sockaddr_storage at = place_.address;
  if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&at)) != 0) return failed("rdma_bind_addr");
  if (rdma_listen(listener_, kBacklog) != 0) return failed("rdma_listen");
  if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) return failed("fcntl");
  return {};
}

RcTransport::~RcTransport() {
  while (inbounds_ != nullptr) {
    RcInbound* in = inbounds_;
    inbounds_ = in->behind;
    delete in;
  }
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  if (slots_region_.handle != nullptr) deregister(slots_region_.handle);
  device_.close();
  if (place_.id != nullptr) rdma_destroy_id(place_.id);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
  if (events_ >= 0) ::close(events_);
  if (wake_ >= 0) ::close(wake_);
}

void RcTransport::introduce(Contact* out) const {
  acp::introduce(place_.address, rdma_get_src_port(listener_), out);
}

// --- requests ---

RcOutbound* RcTransport::way_to(Peer& peer, Lane lane) {
  if (peer.path == nullptr) peer.path = new (std::nothrow) RcLanes;
  if (peer.path == nullptr) return nullptr;
  auto& o = static_cast<RcLanes*>(peer.path)->to[static_cast<unsigned>(lane)];
  if (o == nullptr) o.reset(new (std::nothrow) RcOutbound(peer, lane));
  return o.get();
}

void RcTransport::post(Peer& to, const Post& p) {
  assert(room() > 0 && (!p.copied || p.octets <= RcSlot::kOctets));
  RcSlot& slot = *free_.pop();
  ++under_way_;
  slot.post = p;
  RcOutbound* o = to.gone ? nullptr : way_to(to, p.lane);
  if (o == nullptr) return done(slot, to.gone ? ECONNRESET : ENOMEM);
  if (o->state() == RcOutbound::State::lost) return done(slot, ECONNRESET);
  if (p.copied) std::memcpy(slot.octets, p.local, p.octets);
  slot.on = o;
  o->queue.push(slot);
  if (o->state() == RcOutbound::State::idle) connect(*o);
  if (o->state() == RcOutbound::State::up) pump(*o);
}

void RcTransport::done(RcSlot& slot, int error) {
  slot.error = error;
  done_.push(slot);
}

void RcTransport::pump(RcOutbound& o) {
  while (!o.queue.broken()) {
    RcSlot* slot = o.queue.next();
    if (slot == nullptr) return;
    const int error = o.send(*slot, slots_region_.lkey);
    if (error != 0) done(*o.queue.pop_waiting(), error);
  }
}

int RcTransport::poll(Completion* out, int most) {
  if (pausing_ != nullptr) try_again();
  int n = give(out, most);
  ibv_wc wc[kPolled];
  const int polled = n < most ? ibv_poll_cq(device_.cq(), std::min(most - n, kPolled), wc) : 0;
  for (int i = 0; i < polled; ++i)
    if (take(wc[i], &out[n])) ++n;
  return n + give(out + n, most - n);
}

int RcTransport::give(Completion* out, int most) {
  int n = 0;
  for (; n < most; ++n) {
    RcSlot* slot = done_.pop();
    if (slot == nullptr) break;
    out[n] = {.id = slot->post.id, .error = slot->error, .notice = false, .immediate = 0};
    free_.push(*slot);
    --under_way_;
  }
  return n;
}

// True: it is a notice.
bool RcTransport::take(const ibv_wc& wc, Completion* out) {
  switch (rc_request(wc.wr_id)) {
    case RcRequest::post: {
      auto& slot = rc_subject<RcSlot>(wc.wr_id);
      RcOutbound& o = *slot.on;
      if (RcSlot* ended = o.queue.completed(slot, error_of(wc.status))) done(*ended, ended->error);
      settle(o);
      return false;
    }
    case RcRequest::receive:
      return received(rc_subject<RcEnd>(wc.wr_id), wc, out);
    case RcRequest::word: {
      auto& in = rc_subject<RcInbound>(wc.wr_id);
      if (!in.word_sent()) end(in);
      settle(in);
      return false;
    }
  }
  return false;
}

bool RcTransport::received(RcEnd& end, const ibv_wc& wc, Completion* out) {
  const bool good = wc.status == IBV_WC_SUCCESS;
  end.received();
  if (end.outbound()) {
    auto& o = static_cast<RcOutbound&>(end);
    if (good && o.state() == RcOutbound::State::up) {
      o.queue.polled();
      o.post_receive();
    }
    settle(o);
    return false;
  }
  auto& in = static_cast<RcInbound&>(end);
  const bool notice = good && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if (notice) *out = {.id = 0, .error = 0, .notice = true, .immediate = be32toh(wc.imm_data)};
  if (!in.ending && (!notice || !in.polled())) this->end(in);
  settle(in);
  return notice;
}

void RcTransport::settle(RcOutbound& o) {
  if (o.state() == RcOutbound::State::up && o.queue.broken()) break_off(o);
  if (o.state() == RcOutbound::State::up)
    pump(o);
  else if (o.state() == RcOutbound::State::draining && o.drained())
    drained(o);
}

void RcTransport::drain() {
  device_.drain();
  std::uint64_t n;
  (void)!read(wake_, &n, sizeof n);
}

}  // namespace ewarp::acp
