// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reliable connections, made on demand by rdma_cm: for adapters without RD. Nothing here is EtherWARP's own: the device
// has to have RC queue pairs with RDMA Write with immediate and atomics.
//
// To each peer there are at most two connections of this process's own, one for each lane, and as many of the peer's
// (rc_connection.h).
#pragma once

#include <memory>
#include <string>

#include "mpi_shim/acp/verbs/device.h"
#include "mpi_shim/acp/verbs/rc_address.h"
#include "mpi_shim/acp/verbs/rc_connection.h"

namespace ewarp::acp {

// What a process says of itself when it connects, as private data.
struct RcHello {
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t version;
  std::uint32_t rank;
  std::uint32_t lane;
  char secret[32];  // of the job: everybody else is refused
};
static_assert(sizeof(RcHello) <= 56);  // all that InfiniBand leaves

class RcTransport final : public Transport {
 public:
  struct Member {
    std::uint32_t rank, procs;
    std::string secret;  // empty: this process is alone
  };
  // Empty, or why not.
  std::string open(const std::string& device, bool prefer_loopback, const Member& own);
  ~RcTransport() override;

  bool register_memory(void* memory, std::size_t octets, Registration* out) override {
    return device_.register_memory(memory, octets, out);
  }
  void deregister(void* handle) override { Device::deregister(handle); }
  Registration registration(void* handle) const override { return Device::registration(handle); }
  void introduce(Contact* out) const override;
  bool fits(const Contact& contact) const override { return (contact.qpn & Contact::kListens) != 0; }
  std::uint32_t room() const override { return kSends - under_way_; }
  void post(Peer& to, const Post& post) override;
  std::uint32_t most_copied() const override { return RcSlot::kOctets; }
  int poll(Completion* out, int most) override;
  int descriptor() const override { return events_; }
  void arm() override { device_.arm(); }
  void drain() override;
  void lose(Peer& peer) override;
  void forget(Peer& peer) override;
  int callers() const override { return channel_->fd; }
  int serve() override;

 private:
  struct Event;
  struct Slots {
    RcSlot* first = nullptr;
    RcSlot* last = nullptr;
    void push(RcSlot& slot);
    RcSlot* pop();
  };

  std::string listen();
  std::string open_events();
  RcOutbound* way_to(Peer& peer, Lane lane);

  // What becomes of requests (rc_transport.cc).
  void done(RcSlot& slot, int error);
  int give(Completion* out, int most);
  bool take(const ibv_wc& wc, Completion* out);
  bool received(RcEnd& end, const ibv_wc& wc, Completion* out);
  void pump(RcOutbound& o);
  void settle(RcOutbound& o);
  void settle(RcInbound& in);

  // How connections begin and end (rc_connect.cc).
  bool prepare(RcEnd& end);
  void close(RcEnd& end);
  void connect(RcOutbound& o);
  void resolved(RcOutbound& o);
  void ask(RcOutbound& o);
  void established(RcOutbound& o);
  void try_later(RcOutbound& o);
  void try_again();
  void break_off(RcOutbound& o);
  void drained(RcOutbound& o);
  void lose(RcOutbound& o);
  void end(RcOutbound& o);
  bool is_member(const Event& event) const;
  void called(const Event& event);
  void end(RcInbound& in);
  void happened(const Event& event);
  rdma_conn_param parameters(const Event* request) const;

  rdma_event_channel* channel_ = nullptr;
  RcPlace place_;
  Device device_;
  rdma_cm_id* listener_ = nullptr;
  int wake_ = -1;    // readable: posts have ended without a completion
  int events_ = -1;  // readable: wake_, or a completion
  RcHello hello_{};
  std::uint32_t procs_ = 0;
  std::unique_ptr<RcSlot[]> slots_;
  Registration slots_region_;
  Slots free_, done_;
  std::uint32_t under_way_ = 0;
  std::uint32_t reserved_ = 2 * kSends;  // completions that may come
  RcInbound* inbounds_ = nullptr;
  std::uint32_t inbound_count_ = 0;
  RcOutbound* pausing_ = nullptr;
};

}  // namespace ewarp::acp
