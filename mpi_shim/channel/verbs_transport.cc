// Requests to the adapter, and what comes of them.
#include "mpi_shim/channel/verbs_transport.h"

#include <endian.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mpi_shim/channel/link.h"

namespace ewarp::channel {
namespace {

// Work request ids: a receive names its connection and buffer, anything else its record.
constexpr std::uint64_t kReceive = std::uint64_t{1} << 63;
// The first message of each connection, which shows whether the adapters take immediates; never the id of a receive.
constexpr std::uint32_t kGreeting = 0xffffffff;
constexpr int kBatch = 32;
constexpr std::uint64_t kConnectionsNs = 100'000;
// A payload up to here is copied in any case.
constexpr std::size_t kAlwaysCopied = 128;
// A copy that takes no longer is worth having the source back at once.
constexpr double kShortCopyNs = 500;

std::uint64_t receive_id(std::uint32_t serial, std::uint32_t index) {
  return kReceive | std::uint64_t{serial} << 16 | index;
}

ibv_sge element(const void* data, std::size_t octets, std::uint32_t lkey) {
  return {.addr = reinterpret_cast<std::uint64_t>(data), .length = static_cast<std::uint32_t>(octets), .lkey = lkey};
}

}  // namespace

std::uint64_t VerbsTransport::now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

VerbsTransport::Connection* VerbsTransport::find(std::uint32_t serial) const {
  const auto at = connections_.find(serial);
  return at == connections_.end() ? nullptr : at->second;
}

// Null if the peer's connection takes nothing now; then it is noted that somebody wants to know when it does.
VerbsTransport::Connection* VerbsTransport::ready(PeerId peer) {
  Connection* c = peers_[peer].connection.get();
  if (c == nullptr || c->state != Connection::State::up) return nullptr;
  if (c->sends < send_depth_) return c;
  c->refused = true;
  return nullptr;
}

void VerbsTransport::give_back(const Record& record) {
  if (record.header.data != nullptr) headers_->give(record.header);
  if (record.bounce.data != nullptr) bounces_->give(record.bounce);
  if (record.sink.data != nullptr) sinks_->give(record.sink);
  if (record.region != nullptr) cache_->give(*record.region);
}

bool VerbsTransport::post(Connection& c, ibv_send_wr& wr, Record record) {
  if (free_records_.empty()) {
    free_records_.push_back(static_cast<std::uint32_t>(records_.size()));
    records_.emplace_back();
  }
  const std::uint32_t index = free_records_.back();
  wr.wr_id = index;
  wr.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  record.serial = c.serial;
  if (ibv_post_send(c.id->qp, &wr, &bad) != 0) {
    give_back(record);
    c.refused = true;
    return false;
  }
  free_records_.pop_back();
  records_[index] = record;
  ++c.sends;
  return true;
}

// Whether small memory is worth its registration, or is copied.
bool VerbsTransport::worth_registration(Octets memory) {
  if (memory.size() <= kAlwaysCopied) return false;
  if (!kept()) return !dear_ && costs_.registration_ns < costs_.copy_ns_per_octet * static_cast<double>(memory.size());
  if (!frequent_->used(memory.data(), memory.size())) return false;
  counters_->add(Count::frequent_buffer_sends);
  return true;
}

bool VerbsTransport::payload_in_place(Record& record, Octets payload) {
  if (everything_ != nullptr) return costs_.copy_ns_per_octet * static_cast<double>(payload.size()) > kShortCopyNs;
  if (worth_registration(payload)) record.region = cache_->take(payload, 0);
  return record.region != nullptr;
}

std::uint32_t VerbsTransport::lkey(const RegistrationCache::Region* region) const {
  return region != nullptr ? region->mr->lkey : everything_->lkey;
}

// Header and payload as one or two elements, out of registered memory. copy: none of the user's. False: there is none.
bool VerbsTransport::attach_payload(Record& record, ibv_sge* sges, int* count, Octets header, Octets payload,
                                    bool copy) {
  const std::size_t all = header.size() + payload.size();
  record.in_place = !copy && !payload.empty() && payload_in_place(record, payload);
  const bool copied = !record.in_place && !payload.empty();
  *count = 0;
  if (copied || !header.empty()) {
    BufferPool::Buffer& buffer = copied ? record.bounce : record.header;
    buffer = (copied ? bounces_ : headers_)->take();
    if (buffer.data == nullptr) return false;
    std::copy(header.begin(), header.end(), buffer.data);
    if (copied) {
      std::copy(payload.begin(), payload.end(), buffer.data + header.size());
      if (payload.size() > kAlwaysCopied) counters_->add(Count::bounce_copies);
    }
    sges[(*count)++] = element(buffer.data, copied ? all : header.size(), buffer.lkey);
  }
  if (record.in_place) sges[(*count)++] = element(payload.data(), payload.size(), lkey(record.region));
  return true;
}

Transport::Taken VerbsTransport::send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited,
                                      Cookie cookie) {
  Connection* c = ready(peer);
  if (c == nullptr) return Taken::refused;
  Record record = record_of(cookie);
  ibv_sge sges[2];
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = sges;
  if (header.size() + payload.size() <= inline_octets_) {
    sges[0] = element(header.data(), header.size(), 0);
    sges[1] = element(payload.data(), payload.size(), 0);
    wr.num_sge = payload.empty() ? 1 : 2;
    wr.send_flags = IBV_SEND_INLINE;
  } else if (!attach_payload(record, sges, &wr.num_sge, header, payload, copy)) {
    give_back(record);
    c->refused = true;
    return Taken::refused;
  }
  if (solicited) wr.send_flags |= IBV_SEND_SOLICITED;
  if (!post(*c, wr, record)) return Taken::refused;
  return record.in_place ? Taken::in_place : Taken::copied;
}

Transport::Taken VerbsTransport::write(PeerId peer, Octets source, const Exposed* memory, wire::Remote target,
                                       std::optional<std::uint32_t> immediate, bool copy, bool solicited,
                                       Cookie cookie) {
  Connection* c = ready(peer);
  if (c == nullptr) return Taken::refused;
  Record record = record_of(cookie);
  ibv_sge sges[2];
  ibv_send_wr wr{};
  if (memory != nullptr) {
    record.in_place = true;
    sges[wr.num_sge++] = element(source.data(), source.size(), lkey(static_cast<const Region*>(memory)->region));
  } else if (!attach_payload(record, sges, &wr.num_sge, {}, source, copy)) {
    give_back(record);
    c->refused = true;
    return Taken::refused;
  }
  wr.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (solicited) wr.send_flags |= IBV_SEND_SOLICITED;
  wr.imm_data = htobe32(immediate.value_or(0));
  wr.sg_list = sges;
  wr.wr.rdma.remote_addr = target.address;
  wr.wr.rdma.rkey = target.key;
  if (!post(*c, wr, record)) return Taken::refused;
  return record.in_place ? Taken::in_place : Taken::copied;
}

bool VerbsTransport::read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote source,
                          Cookie cookie) {
  Connection* c = ready(peer);
  if (c == nullptr) return false;
  Record record = record_of(cookie);
  if (memory == nullptr && worth_registration(target)) record.region = cache_->take(target, kSink);
  ibv_sge sge{};
  if (memory != nullptr || record.region != nullptr) {
    const auto* region = memory != nullptr ? static_cast<const Region*>(memory)->region : record.region;
    sge = element(target.data(), target.size(), lkey(region));
  } else {
    record.sink = sinks_->take();
    if (record.sink.data == nullptr) {
      c->refused = true;
      return false;
    }
    record.target = target;
    if (target.size() > kAlwaysCopied) counters_->add(Count::bounce_copies);
    sge = element(record.sink.data, target.size(), record.sink.lkey);
  }
  return post_read(*c, sge, source, record);
}

bool VerbsTransport::post_read(Connection& c, ibv_sge& sge, wire::Remote source, const Record& record) {
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
  ibv_sge sge = element(&heartbeat_sink_, sizeof heartbeat_sink_, sink_memory_->lkey);
  return post_read(*c, sge, c->heartbeat, record_of(cookie));
}

bool VerbsTransport::has_immediate(PeerId peer) {
  const Connection* c = peers_[peer].connection.get();
  return c != nullptr && c->immediate;
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

// A sink of Reads is written by peers, too, as iWARP sees it.
Exposed* VerbsTransport::expose(MutableOctets memory, Reach reach) {
  if (reach == Reach::own && everything_ != nullptr) {
    // Memory that is not there is found out here, as by every copy, and not by the adapter, which would end the
    // connection.
    for (const std::size_t at : {std::size_t{0}, memory.size() - 1})
      static_cast<void>(*static_cast<const volatile std::byte*>(memory.data() + at));
    return &own_;
  }
  const int access = reach == Reach::own    ? 0
                     : reach == Reach::read ? IBV_ACCESS_REMOTE_READ
                                            : kSink | IBV_ACCESS_REMOTE_READ;
  RegistrationCache::Region* region = cache_->take(memory, access);
  if (region == nullptr) return nullptr;
  auto out = std::make_unique<Region>();
  out->region = region;
  out->remote = {.address = reinterpret_cast<std::uint64_t>(memory.data()), .key = region->mr->rkey};
  return out.release();
}

void VerbsTransport::conceal(Exposed* memory) {
  if (memory == &own_) return;
  const std::unique_ptr<Region> region(static_cast<Region*>(memory));
  cache_->give(*region->region);
}

// --- completions ---

bool VerbsTransport::post_receive(Connection& c, std::uint32_t index) {
  const std::size_t octets = wire::Message::kLongest + tuning_.eager_threshold;
  ibv_sge sge = element(c.octets.get() + index * octets, octets, c.memory->lkey);
  ibv_recv_wr wr{};
  wr.wr_id = receive_id(c.serial, index);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(c.id->qp, &wr, &bad) != 0) return false;
  ++c.receives;
  return true;
}

bool VerbsTransport::add_receives(PeerId peer, std::uint32_t count) {
  Connection* const c = peers_[peer].connection.get();
  if (c == nullptr || c->state != Connection::State::up) return false;
  const std::uint32_t kept = std::min(c->surplus, count);
  c->surplus -= kept;
  for (std::uint32_t i = kept; i < count; ++i) {
    if (c->spare.empty() || !post_receive(*c, c->spare.back())) return false;
    c->spare.pop_back();
  }
  return true;
}

void VerbsTransport::take_receive(PeerId peer) {
  if (Connection* const c = peers_[peer].connection.get()) ++c->surplus;
}

void VerbsTransport::received(Connection& c, std::uint32_t index, const ibv_wc& wc) {
  --c.receives;
  if (wc.status != IBV_WC_SUCCESS) {
    // Before it stands, rdma_cm says what became of a connection.
    if (c.state == Connection::State::up || c.state == Connection::State::draining)
      drop(c, ibv_wc_status_str(wc.status));
    return;
  }
  // What comes before rdma_cm says that the connection stands is proof enough.
  if (c.state == Connection::State::accepting) on_established(c, std::nullopt);
  const std::size_t octets = wire::Message::kLongest + tuning_.eager_threshold;
  if (wc.opcode == IBV_WC_RECV)
    events_->on_received(c.peer, {c.octets.get() + index * octets, wc.byte_len});
  else if (const std::uint32_t immediate = be32toh(wc.imm_data); immediate != kGreeting)
    events_->on_immediate(c.peer, immediate, wc.byte_len);
  if (c.state != Connection::State::up) return;
  if (c.surplus > 0) {
    --c.surplus;
    c.spare.push_back(index);
  } else if (!post_receive(c, index)) {
    drop(c, "ibv_post_recv");
  }
}

void VerbsTransport::completed(const ibv_wc& wc) {
  if ((wc.wr_id & kReceive) != 0) {
    Connection* c = find(static_cast<std::uint32_t>(wc.wr_id >> 16));
    if (c != nullptr) received(*c, static_cast<std::uint32_t>(wc.wr_id & 0xffff), wc);
    return;
  }
  const auto index = static_cast<std::uint32_t>(wc.wr_id);
  const Record record = std::exchange(records_[index], Record{});
  free_records_.push_back(index);
  if (record.sink.data != nullptr && wc.status == IBV_WC_SUCCESS)
    std::copy_n(record.sink.data, record.target.size(), record.target.data());
  give_back(record);
  Connection* c = find(record.serial);
  if (c == nullptr) return;
  --c->sends;
  const bool ok = wc.status == IBV_WC_SUCCESS;
  if (record.told) events_->on_complete(record.cookie, ok);
  if (!ok) return drop(*c, ibv_wc_status_str(wc.status));
  if (std::exchange(c->refused, false)) writable_.push_back(c->peer);
}

bool VerbsTransport::poll(bool connections) {
  ibv_wc wcs[kBatch];
  bool anything = false;
  int n = 0;
  do {
    n = ibv_poll_cq(cq_, kBatch, wcs);
    for (int i = 0; i < n; ++i) completed(wcs[i]);
    anything = anything || n > 0;
  } while (n == kBatch);
  // The descriptor of connections costs system calls, and seldom has news.
  if (looked_at_ == 0 || (connections && now() - looked_at_ > kConnectionsNs)) {
    looked_at_ = now();
    anything = handle_connections() || anything;
  }
  for (const PeerId peer : std::exchange(writable_, {})) events_->on_writable(peer);
  for (const PeerId peer : std::exchange(draining_, {})) finish_drained(peer);
  return anything;
}

void VerbsTransport::arm(Wake wake) {
  if (wake != Wake::nothing) ibv_req_notify_cq(cq_, wake == Wake::control ? 1 : 0);
}

// Acknowledging takes a lock, so it is done for many at once.
void VerbsTransport::take_events() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(completions_, &cq, &context) == 0) ++unacknowledged_;
  if (unacknowledged_ < 64) return;
  ibv_ack_cq_events(cq_, unacknowledged_);
  unacknowledged_ = 0;
}

}  // namespace ewarp::channel
