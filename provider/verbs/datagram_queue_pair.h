// A UD queue pair: each request is one UDP datagram (datagram-iwarp.md section 5, verbs-semantics.md section 12).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <span>

#include "provider/verbs/address_handle.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/datagram_port.h"
#include "provider/verbs/kickable.h"
#include "provider/verbs/memory.h"
#include "provider/verbs/queue_pair_api.h"
#include "provider/verbs/shared_receive_queue.h"
#include "provider/verbs/work_queue.h"

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

class DatagramQueuePair final : public QueuePairApi, public Kickable, public DatagramSink {
 public:
  DatagramQueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq,
                    std::uint32_t number);
  ~DatagramQueuePair() override;
  int create(ibv_qp_init_attr& init);  // 0 or errno

  std::uint32_t number() const override { return number_; }
  Context& context() const override { return pd_.context; }
  void set_handle(std::uint64_t handle) override { handle_ = handle; }
  ibv_qp_type type() const override { return IBV_QPT_UD; }
  int post_send(ibv_send_wr* wr, ibv_send_wr** bad) override;
  int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) override;
  int post_all(ibv_send_wr* wr) override;
  int modify(const ibv_qp_attr& attr, int mask) override;
  int query(ibv_qp_attr& attr, ibv_qp_init_attr& init) override;
  void destroy() override;

  // Streams belong to RC.
  int attach(int fd, const mpa::StreamParams& params, std::shared_ptr<StreamObserver> observer) override;
  void get_read_limits(std::uint16_t* ird, std::uint16_t* ord) override { *ird = *ord = 0; }
  void disconnect(bool) override {}

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

  // datagram_transmit.cc
  bool build(llp::UdpOutbox& out, std::uint64_t position);
  bool settle(std::size_t sent, std::size_t built, int error);
  void send_done(ibv_wc_status status);

  // datagram_receive.cc
  bool receives() const;
  bool is_for_us(const DatagramIn& in);
  void take(const DatagramIn& in, const llp::UdSend& header);
  void deliver(const DatagramIn& in, const llp::UdSend& header, Octets payload, bool solicited);
  const ReceiveEntry* next_receive();

  // datagram_state.cc
  void enter_state(ibv_qp_state state);
  void flush_sends();
  void flush_receives();
  void fail();
  void fail_sends(ibv_wc_status first);
  void check_overflow();
  void reset_queues();

  void complete(CompletionQueue& cq, ibv_wc& wc, bool solicited);

  Pd& pd_;
  CompletionQueue* send_cq_;
  CompletionQueue* recv_cq_;
  SharedReceiveQueue* const srq_;
  const std::uint32_t number_;
  std::uint64_t handle_ = 0;
  bool signal_all_ = false;
  void* qp_context_ = nullptr;
  ibv_qp_cap cap_{};
  std::shared_ptr<DatagramPort> port_;
  bool destroyed_ = false;

  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::atomic<std::uint32_t> qkey_{0};
  std::uint32_t sq_psn_ = 0;
  bool first_told_ = false;  // COMM_EST, since RTR
  bool overflowed_ = false;

  WorkQueue<DatagramSend> sq_;
  WorkQueue<ReceiveEntry> rq_;  // with an SRQ: of one entry
  in6_addr group_source_{};
  std::uint32_t msn_ = 1;
  std::uint32_t error_msn_ = 1;
  stats::QpPage* slot_ = nullptr;
};

// ibv_create_qp() of type UD; see create_qp(). EADDRNOTAVAIL: no UDP port can be had.
int create_datagram_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                       std::shared_ptr<DatagramQueuePair>* out, SharedReceiveQueue* srq = nullptr);

}  // namespace ewarp::verbs
