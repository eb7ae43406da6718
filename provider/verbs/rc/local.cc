// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests that the send queue executes by itself, without a word to the peer: binding and invalidating keys.
#include <errno.h>

#include "provider/engine/engine.h"
#include "provider/verbs/rc/rc_queue_pair.h"

namespace ewarp::verbs {

WindowBind& RcQueuePair::window_bind(const SendEntry& e) {
  static_assert(sizeof(WindowBind) <= kMinInline && alignof(WindowBind) <= alignof(Sge));
  return *reinterpret_cast<WindowBind*>(sq_.extra(e));
}

int RcQueuePair::put_local(const ibv_send_wr& wr, std::uint64_t position) {
  if ((wr.send_flags & ~unsigned{IBV_SEND_FENCE | IBV_SEND_SIGNALED}) != 0) return EINVAL;
  const bool is_bind = wr.opcode == IBV_WR_BIND_MW;
  if (is_bind && (wr.bind_mw.mw == nullptr || (wr.bind_mw.bind_info.mr == nullptr && wr.bind_mw.bind_info.length > 0) ||
                  (wr.bind_mw.rkey ^ wr.bind_mw.mw->rkey) >> 8 != 0))
    return EINVAL;
  SendEntry& e = sq_.entry(position);
  static_cast<rdmap::SendRequest&>(e) = {};
  e.wr_id = wr.wr_id;
  e.signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  e.done = false;
  e.status = rdmap::Status::success;
  e.sge_count = 0;
  e.local = is_bind ? LocalOperation::bind : LocalOperation::invalidate;
  if (is_bind) {
    const ibv_mw_bind_info& i = wr.bind_mw.bind_info;
    window_bind(e) = {wr.bind_mw.rkey, i.mr != nullptr ? i.mr->lkey : 0, i.addr, i.length, i.mw_access_flags};
  } else {
    e.invalidate_stag = wr.invalidate_rkey;
  }
  return 0;
}

// False: it has to wait for what was posted before, which may still use the key.
bool RcQueuePair::execute_local(SendEntry& e) {
  if (sq_.head() != started_ || local_failed_) return false;
  ++started_;
  const bool ok = e.local == LocalOperation::bind
                      ? memory().bind(window_bind(e), pd_, number_)
                      : memory().invalidate(e.invalidate_stag, pd_, number_, Invalidates::regions_too) == Verdict::ok;
  if (!ok) {
    local_failed_ = true;
    engine().kick(*this);  // stream_progress() ends the stream
  }
  send_done(e, ok ? rdmap::Status::success : rdmap::Status::local_protection);
  return ok;
}

}  // namespace ewarp::verbs
