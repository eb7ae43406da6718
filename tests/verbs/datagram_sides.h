// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UD queue pairs of this process on the loopback device, and a raw socket that sends them what it likes.
#pragma once

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "llp/datagram_header.h"
#include "provider/base/stats.h"
#include "provider/verbs/rd/rd_queue_pair.h"
#include "provider/verbs/ud/address_handle.h"
#include "provider/verbs/ud/multicast.h"
#include "provider/verbs/ud/ud_queue_pair.h"
#include "tests/verbs/two_qps.h"

namespace ewarp::test {

inline constexpr std::uint32_t kQkey = 0x11112222;

inline ibv_gid gid_of(const char* text) {
  ibv_gid gid;
  if (inet_pton(AF_INET6, text, gid.raw) != 1) throw std::runtime_error("no address");
  return gid;
}

inline int make(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* cq, SharedReceiveQueue* srq,
                std::shared_ptr<UdQueuePair>* out) {
  return create_ud_qp(pd, init, cq, cq, out, srq);
}
inline int make(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* cq, SharedReceiveQueue* srq,
                std::shared_ptr<RdQueuePair>* out) {
  return create_rd_qp(pd, init, cq, cq, out, srq);
}

template <class Qp>
struct PortSide {
  PortSide(ibv_qp_type type, SharedReceiveQueue* srq, ibv_qp_state to, int cqe, unsigned access,
           std::uint32_t depth = 256, Device& device = any_device())
      : async(channel(16)),
        completions(channel(8)),
        context(device, async),
        pd(context),
        cq(context, cqe, completions, 0x99),
        octets(1 << 20) {
    ibv_qp_init_attr init{};
    init.qp_type = type;
    init.cap = {depth, depth, 8, 8, 256};
    if (make(srq != nullptr ? const_cast<Pd&>(srq->pd()) : pd, init, &cq, srq, &qp) != 0)
      throw std::runtime_error("no queue pair");
    home = srq != nullptr ? const_cast<Pd*>(&srq->pd()) : &pd;
    if (memory().add(*home, octets.data(), octets.size(), reinterpret_cast<std::uintptr_t>(octets.data()), access,
                     &mr) != 0)
      throw std::runtime_error("reg_mr");
    qp->set_handle(kHandle);
    go(to);
  }
  ~PortSide() {
    qp->destroy();
    if (mr != nullptr) memory().remove(mr);
  }

  void go(ibv_qp_state to) {
    ibv_qp_attr a{};
    a.port_num = 1;
    a.qkey = kQkey;
    const struct {
      ibv_qp_state state;
      int mask;
    } steps[] = {{IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
                 {IBV_QPS_RTR, IBV_QP_STATE},
                 {IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN}};
    for (const auto& s : steps) {
      if (to == IBV_QPS_RESET) return;
      a.qp_state = s.state;
      if (qp->modify(a, s.mask) != 0) throw std::runtime_error("modify");
      if (s.state == to) return;
    }
  }
  int modify(ibv_qp_state to, int mask = IBV_QP_STATE) {
    ibv_qp_attr a{};
    a.qp_state = to;
    a.port_num = 1;
    a.qkey = kQkey;
    return qp->modify(a, mask);
  }

  AddressHandleObject address(const char* to = "::ffff:127.0.0.1", std::uint8_t traffic_class = 0,
                              std::uint8_t hop_limit = 0) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid_of(to);
    attr.grh.traffic_class = traffic_class;
    attr.grh.hop_limit = hop_limit;
    attr.grh.sgid_index = index_for(attr.grh.dgid);
    AddressHandleObject ah{};
    if (make_address_handle(*home, attr, &ah.impl) != 0) throw std::runtime_error("address handle");
    return ah;
  }
  static std::uint8_t index_for(const ibv_gid& to) {
    const auto gids = any_device().gids();
    for (std::size_t i = 0; i < gids.size(); ++i)
      if (llp::is_v4(address_of(gids[i])) == llp::is_v4(address_of(to))) return static_cast<std::uint8_t>(i);
    throw std::runtime_error("no GID of this family");
  }

  std::byte* at(std::size_t offset) { return octets.data() + offset; }
  ibv_sge sge(std::size_t offset, std::uint32_t length) {
    return {reinterpret_cast<std::uintptr_t>(at(offset)), length, mr->stag()};
  }
  void fill(std::size_t offset, std::size_t length, unsigned seed = 1) {
    for (std::size_t i = 0; i < length; ++i) octets[offset + i] = static_cast<std::byte>(i * 7 + seed);
  }
  bool filled(std::size_t offset, std::size_t length, unsigned seed = 1, std::size_t from = 0) {
    for (std::size_t i = 0; i < length; ++i)
      if (octets[offset + i] != static_cast<std::byte>((from + i) * 7 + seed)) return false;
    return true;
  }

  struct Sending {
    ibv_wr_opcode opcode = IBV_WR_SEND;
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint32_t qkey = kQkey;
    std::uint32_t immediate = 0;
    std::uint64_t id = 1;
  };
  int send(AddressHandleObject& ah, std::uint32_t qpn, std::vector<ibv_sge> sges) {
    return send(ah, qpn, std::move(sges), {});
  }
  int send(AddressHandleObject& ah, std::uint32_t qpn, std::vector<ibv_sge> sges, const Sending& s) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = s.id;
    wr.opcode = s.opcode;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.send_flags = s.flags;
    wr.imm_data = htobe32(s.immediate);
    wr.wr.ud.ah = &ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = s.qkey;
    return qp->post_send(&wr, &bad);
  }
  int receive(std::vector<ibv_sge> sges, std::uint64_t id = 100) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    return qp->post_recv(&wr, &bad);
  }
  ibv_wc wait(int milliseconds = kPatience) { return next_completion(cq, milliseconds); }
  ibv_qp_state state() {
    ibv_qp_attr a{};
    ibv_qp_init_attr i{};
    qp->query(a, i);
    return a.qp_state;
  }
  int event(int milliseconds = kPatience) { return next_event(*async, milliseconds).first; }

  static constexpr std::uint64_t kHandle = 0x4321;
  std::shared_ptr<EventChannel> async, completions;
  Context context;
  Pd pd;
  Pd* home = nullptr;
  CompletionQueue cq;
  std::vector<std::byte> octets;
  MemoryRegion* mr = nullptr;
  std::shared_ptr<Qp> qp;
};

// Registered pages whose owner takes them away and brings them back all the time, at moments that nobody chose.
class FlickeringPages {
 public:
  FlickeringPages(Pd& pd, std::size_t octets)
      : size_(octets), at_(mmap(nullptr, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    std::memset(at_, 1, octets);
    if (memory().add(pd, at_, octets, reinterpret_cast<std::uintptr_t>(at_), IBV_ACCESS_LOCAL_WRITE, &mr_) != 0)
      throw std::runtime_error("reg_mr");
    thread_ = std::thread([this] {
      while (!stop_) {
        const auto begin = std::chrono::steady_clock::now();
        mprotect(at_, size_, PROT_NONE);
        mprotect(at_, size_, PROT_READ | PROT_WRITE);
        // Longer there than gone, however long that took on a busy machine: a sender gets through now and then.
        const auto back = std::chrono::steady_clock::now();
        const auto until = back + 2 * (back - begin);
        while (!stop_ && std::chrono::steady_clock::now() < until) continue;
      }
    });
  }
  ~FlickeringPages() {
    stay();
    memory().remove(mr_);
    munmap(at_, size_);
  }
  void stay() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  ibv_sge sge(std::uint32_t length) { return {reinterpret_cast<std::uintptr_t>(at_), length, mr_->stag()}; }

 private:
  std::size_t size_;
  void* at_;
  MemoryRegion* mr_ = nullptr;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Side a sends its flickering pages to side b, with a CRC: so it reads them for itself, before the kernel does.
template <class Side>
struct FlickeringSource {
  explicit FlickeringSource(std::size_t octets) : pages(a.pd, octets) { ah.impl.crc = true; }
  Side a, b;
  AddressHandleObject ah = a.address();
  FlickeringPages pages;
};

struct DatagramSide : PortSide<UdQueuePair> {
  explicit DatagramSide(SharedReceiveQueue* srq = nullptr, ibv_qp_state to = IBV_QPS_RTS, int cqe = 4096,
                        std::uint32_t depth = 256, Device& device = any_device())
      : PortSide(IBV_QPT_UD, srq, to, cqe, IBV_ACCESS_LOCAL_WRITE, depth, device) {}
};

// Sends any octets to a QP's port, and receives what comes back.
class RawPeer {
 public:
  // address: any of 127/8, as if from another host.
  explicit RawPeer(std::uint32_t address = INADDR_LOOPBACK) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(address);
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) throw std::runtime_error("bind");
  }
  ~RawPeer() { close(fd_); }
  void send(std::uint32_t qpn, Octets octets) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<std::uint16_t>(qpn));
    if (sendto(fd_, octets.data(), octets.size(), 0, reinterpret_cast<const sockaddr*>(&a), sizeof a) < 0)
      throw std::runtime_error("sendto");
  }
  std::uint16_t port() const {
    sockaddr_in a{};
    socklen_t size = sizeof a;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size) != 0) throw std::runtime_error("getsockname");
    return ntohs(a.sin_port);
  }
  // Empty: nothing within this time.
  std::vector<std::byte> receive(int milliseconds) {
    pollfd p{fd_, POLLIN, 0};
    std::vector<std::byte> octets(65536);
    if (poll(&p, 1, milliseconds) != 1) return {};
    octets.resize(static_cast<std::size_t>(recv(fd_, octets.data(), octets.size(), 0)));
    return octets;
  }

 private:
  int fd_;
};

inline std::uint64_t drops(llp::DatagramDrop why) {
  return stats::page().datagrams.drops[static_cast<std::size_t>(why)];
}
// Until the counter has moved by n since `before`; false if it does not come. The application does not poll meanwhile.
inline bool counted(const stats::Counter& counter, std::uint64_t before, std::uint64_t n) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  while (counter - before < n) {
    if (std::chrono::steady_clock::now() > until) return false;
    poll(nullptr, 0, 1);
  }
  return counter - before == n;
}

}  // namespace ewarp::test
