// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/rdmav34/send_batch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ewarp::rdmav34 {
namespace {

// calloc: the pages come with use.
template <class T>
T* allocate(std::size_t n) {
  return static_cast<T*>(std::calloc(std::max<std::size_t>(n, 1), sizeof(T)));
}

}  // namespace

SendBatch::SendBatch(const ibv_qp_cap& cap, bool one_thread)
    : locks_(!one_thread),
      depth_(cap.max_send_wr),
      max_sge_(std::max(cap.max_send_sge, 1u)),
      max_inline_(cap.max_inline_data),
      requests_(allocate<verbs::AddressedSend>(depth_)),
      sges_(allocate<ibv_sge>(depth_ * max_sge_)),
      inline_(allocate<std::byte>(depth_ * max_inline_)) {}

void SendBatch::start() EWARP_NO_LOCK_ANALYSIS {
  if (locks_) mutex_.lock();
  count_ = 0;
  error_ = 0;
}

void SendBatch::fail(int error) {
  if (error_ == 0) error_ = error;
}

verbs::AddressedSend* SendBatch::add(ibv_wr_opcode opcode, std::uint64_t wr_id, unsigned flags) {
  if (count_ == depth_) fail(ENOMEM);
  if (error_ != 0) return nullptr;
  verbs::AddressedSend& wr = requests_[count_];
  if (count_ > 0) requests_[count_ - 1].next = &wr;
  ++count_;
  wr.next = nullptr;
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.sg_list = nullptr;
  wr.num_sge = 0;
  wr.send_flags = flags & ~unsigned{IBV_SEND_INLINE};  // the setter says
  wr.ah = nullptr;
  return &wr;
}

verbs::AddressedSend* SendBatch::current() {
  if (count_ == 0) fail(EINVAL);
  return error_ != 0 ? nullptr : &requests_[count_ - 1];
}

void SendBatch::set_sges(std::span<const ibv_sge> sges) {
  ibv_send_wr* wr = current();
  if (wr == nullptr) return;
  if (sges.size() > max_sge_) return fail(EINVAL);
  wr->sg_list = &sges_[(count_ - 1) * max_sge_];
  wr->num_sge = static_cast<int>(sges.size());
  std::copy(sges.begin(), sges.end(), wr->sg_list);
}

void SendBatch::set_inline(std::span<const ibv_data_buf> buffers) {
  ibv_send_wr* wr = current();
  if (wr == nullptr) return;
  std::byte* const begin = &inline_[(count_ - 1) * max_inline_];
  std::size_t length = 0;
  for (const ibv_data_buf& b : buffers) {
    if (b.length > max_inline_ - length) return fail(EINVAL);
    if (b.length > 0) std::memcpy(begin + length, b.addr, b.length);
    length += b.length;
  }
  wr->sg_list = &sges_[(count_ - 1) * max_sge_];
  wr->num_sge = 1;
  wr->sg_list[0] = {reinterpret_cast<std::uintptr_t>(begin), static_cast<std::uint32_t>(length), 0};
  wr->send_flags |= IBV_SEND_INLINE;
}

void SendBatch::leave() EWARP_NO_LOCK_ANALYSIS {
  if (locks_) mutex_.unlock();
}

int SendBatch::complete(verbs::QueuePair& qp) {
  const int error = error_ != 0 || count_ == 0 ? error_ : qp.post_all(requests_.get());
  leave();
  return error;
}

void SendBatch::abort() {
  leave();
}

}  // namespace ewarp::rdmav34
