// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A UD queue pair: each request is one UDP datagram (docs/protocol/datagrams.md section 5).
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "provider/verbs/ud/address_handle.h"
#include "provider/verbs/ud/datagram_queue_pair.h"

namespace ewarp::verbs {

struct DatagramSend {
  std::uint64_t wr_id;
  std::uint32_t length;  // octets of payload
  std::uint32_t qkey;
  std::uint32_t immediate_data;  // host order
  std::uint16_t sge_count;
  bool signaled, solicited, immediate, is_inline, crc;
  std::uint32_t qpn;
  llp::UdpDestination to;
};

class UdQueuePair final : public DatagramQueuePair {
 public:
  UdQueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq, std::uint32_t number,
              ibv_qp_type type)
      : DatagramQueuePair(pd, send_cq, recv_cq, srq, number, type) {}
  ~UdQueuePair() override { destroy(); }
  int create(ibv_qp_init_attr& init);  // 0 or errno

  int post_send(ibv_send_wr* wr, ibv_send_wr** bad) override;
  int post_all(ibv_send_wr* wr) override;

  // --- engine held ---
  // The address that it last sent to a group from.
  const in6_addr& group_source() const { return group_source_; }
  void serve() override;
  void receive(const DatagramIn& in) override;
  bool transmit() override;

 private:
  // datagram_queue_pair.cc
  int put_send(const ibv_send_wr& wr, std::uint64_t position);
  int put_next(const ibv_send_wr& wr, std::uint64_t position);
  void flush_sends() override;
  void drop_sends() override;
  void leave_port() override;

  // transmit.cc
  bool build(llp::UdpOutbox& out, std::uint64_t position);
  bool settle(std::size_t sent, std::size_t built, int error);
  void send_done(ibv_wc_status status);
  void fail_sends(ibv_wc_status first);

  // receive.cc
  bool is_for_us(const DatagramIn& in);
  void take(const DatagramIn& in, const llp::UdSend& header);
  void deliver(const DatagramIn& in, const llp::UdSend& header, Octets payload, bool solicited);
  const ReceiveEntry* next_receive();

  WorkQueue<DatagramSend> sq_;
  in6_addr group_source_{};
  std::uint32_t msn_ = 1;
  std::uint32_t error_msn_ = 1;
};

// ibv_create_qp() of type UD; see create_rc_qp(). EADDRNOTAVAIL: no UDP port can be had.
int create_ud_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                 std::shared_ptr<UdQueuePair>* out, SharedReceiveQueue* srq = nullptr);

}  // namespace ewarp::verbs
