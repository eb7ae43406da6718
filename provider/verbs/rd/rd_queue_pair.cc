// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Creation, progress and the end of queue pairs of RD.
#include "provider/verbs/rd/rd_queue_pair.h"

#include <algorithm>
#include <cerrno>

#include "provider/engine/engine.h"
#include "provider/verbs/requests.h"

namespace ewarp::verbs {

int create_rd_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                 std::shared_ptr<RdQueuePair>* out, SharedReceiveQueue* srq) {
  return make_datagram_pair(pd, init, send_cq, recv_cq, srq, out);
}

RdQueuePair::RdQueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq,
                         std::uint32_t number, ibv_qp_type type)
    : DatagramQueuePair(pd, send_cq, recv_cq, srq, number, type) {}

int RdQueuePair::create(ibv_qp_init_attr& init) {
  const ibv_qp_cap& c = init.cap;
  if (!sq_.create(c.max_send_wr, c.max_send_sge, std::max(c.max_inline_data, kMinInline)) || !make_receive_queue(c)) {
    give_up();
    return ENOMEM;
  }
  begin(init, sq_.depth(), sq_.sges(), sq_.inline_octets());
  engine().run([&] { rd().attach(number_, *this, context().device().index()); });
  return 0;
}

void RdQueuePair::serve() {
  switch (state_.load(std::memory_order_seq_cst)) {
    case IBV_QPS_ERR:
      flush_sends();
      flush_receives();
      return;
    case IBV_QPS_RTS:
      send_posted();
      break;
    default:
      break;
  }
  serve_refused();
  rd().settle();
}

// One wake for requests in a row to one peer.
void RdQueuePair::send_posted() {
  if (std::exchange(halted_, false)) {
    std::vector<const RdSend*> lines;
    sq_.each_line([&](const RdSend& s) { lines.push_back(&s); });
    for (const RdSend* s : lines) rd().wake(s->peer, s->to);
  }
  const RdSend* before = nullptr;
  while (const RdSend* s = sq_.arrange()) {
    if (before != nullptr && !(before->peer == s->peer)) rd().wake(before->peer, before->to);
    before = s;
  }
  if (before != nullptr) rd().wake(before->peer, before->to);
}

void RdQueuePair::progress() {
  publish();
  if (open_.returned() > 0 && receives_now()) serve_refused();
  check_drained();
  check_overflow();
}

// Messages that found no receive are taken, as far as there are receives now.
void RdQueuePair::serve_refused() {
  if (srq_ != nullptr) {
    if (in_line_ && srq_->serves(*this)) in_line_ = false;
    rd().receives_posted(endpoint_);
    if (endpoint_.has_refused()) stand_in_line();
    return;
  }
  if (!awaits_receives_.load(std::memory_order_relaxed) && open_.returned() == 0) return;
  do {
    rd().receives_posted(endpoint_);
    awaits_receives_.exchange(endpoint_.has_refused(), std::memory_order_seq_cst);
    // Pairs with post_recv(): it publishes, then looks; we ask to be told, then look.
  } while (awaits_receives_.load(std::memory_order_relaxed) && available() > 0);
}

void RdQueuePair::stand_in_line() {
  if (std::exchange(in_line_, true)) return;
  srq_->wait(*this);
}

// --- the end ---

// Nothing of what is in progress is told any more; peers learn that this end has gone.
void RdQueuePair::end_associations() {
  endpoint_.abandon();
  rd().reset(number_);
  rd().release_memory();
  in_progress_ = 0;
  halted_ = false;
  if (std::exchange(in_line_, false)) srq_->forget(*this);
  awaits_receives_ = false;
}

void RdQueuePair::leave_port() {
  rd().detach(number_, qkey_);
  rd().release_memory();
  if (std::exchange(in_line_, false)) srq_->forget(*this);
}

// All that was posted, in that order.
void RdQueuePair::flush_sends() {
  end_associations();
  open_.close_all([this](const ReceiveEntry& e) { flush_receive(e); });
  while (sq_.arrange() != nullptr) continue;
  sq_.forget_lines();
  while (RdSend* s = sq_.oldest()) complete_send(*s, IBV_WC_WR_FLUSH_ERR);
}

void RdQueuePair::drop_sends() {
  end_associations();
  open_.close_all([](const ReceiveEntry&) {});
  sq_.locked([this] {
    while (sq_.arrange() != nullptr) continue;
    sq_.forget_lines();
    while (RdSend* s = sq_.oldest()) sq_.release(*s);
  });
}

void RdQueuePair::publish() {
  const rdmap::DatagramCounters& now = endpoint_.counters;
  count_traffic([&](stats::Traffic& t) {
    stats::add(t.tx_messages, now.tx_messages - published_.tx_messages);
    stats::add(t.rx_messages, now.rx_messages - published_.rx_messages);
    stats::add(t.tx_sends, now.tx_sends - published_.tx_sends);
    stats::add(t.rx_sends, now.rx_sends - published_.rx_sends);
    stats::add(t.tx_writes, now.tx_writes - published_.tx_writes);
    stats::add(t.rx_write_segments, now.rx_write_segments - published_.rx_write_segments);
    stats::add(t.tx_reads, now.tx_reads - published_.tx_reads);
    stats::add(t.rx_reads, now.rx_reads - published_.rx_reads);
    stats::add(t.terminates_sent, now.reports_sent - published_.reports_sent);
    stats::add(t.terminates_received, now.reports_received - published_.reports_received);
  });
  if (now.wrong_stags != published_.wrong_stags)
    stats::add(stats::page().reliable.wrong_stags, now.wrong_stags - published_.wrong_stags);
  published_ = now;
}

}  // namespace ewarp::verbs
