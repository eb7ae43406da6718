// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests that a program builds call by call (ibv_wr_start(3)) before they are posted together.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "llp/mutex.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::rdmav34 {

// They are kept as ibv_post_send() would take them. What goes wrong is remembered and told by complete(); then nothing
// is posted.
// Threading: from start() to complete() or abort() it is one thread's: others wait in start(), unless the program has
// promised (thread domain) that there are none.
class SendBatch {
 public:
  // cap: what was granted to the QP.
  SendBatch(const ibv_qp_cap& cap, bool one_thread);
  bool valid() const { return requests_ != nullptr && sges_ != nullptr && inline_ != nullptr; }  // false: no memory

  void start();
  // The next request, still without data and address; null if there is none.
  verbs::AddressedSend* add(ibv_wr_opcode opcode, std::uint64_t wr_id, unsigned flags);
  // The one that add() gave last, for its setters; null (and the batch fails) without one.
  verbs::AddressedSend* current();
  void set_sges(std::span<const ibv_sge> sges);
  void set_inline(std::span<const ibv_data_buf> buffers);
  void fail(int error);
  int complete(verbs::QueuePair& qp);  // 0 or errno
  void abort();

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  void leave();

  llp::Mutex mutex_;
  const bool locks_;
  const std::size_t depth_, max_sge_, max_inline_;
  std::size_t count_ = 0;
  int error_ = 0;
  std::unique_ptr<verbs::AddressedSend[], Free> requests_;
  std::unique_ptr<ibv_sge[], Free> sges_;      // max_sge_ for each request
  std::unique_ptr<std::byte[], Free> inline_;  // max_inline_ octets for each request
};

}  // namespace ewarp::rdmav34
