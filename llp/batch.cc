// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/batch.h"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "llp/uring.h"

namespace ewarp::llp {

namespace {

constexpr std::size_t kLongest = std::size_t{1} << 30;

// One piece and nothing else, as a stream's receive is: recv() and send() then do the same for two thirds of the cost
// of recvmsg() and sendmsg() (0.50 against 0.72 us where nothing is to be read), within a ring as well.
bool is_plain(const msghdr& m) {
  return m.msg_iovlen == 1 && m.msg_name == nullptr && m.msg_control == nullptr;
}

ssize_t call_once(const Batch::Op& op) {
  if (is_plain(*op.msg)) {
    const iovec& piece = op.msg->msg_iov[0];
    return op.send ? send(op.fd, piece.iov_base, piece.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
                   : recv(op.fd, piece.iov_base, piece.iov_len, MSG_DONTWAIT);
  }
  return op.send ? sendmsg(op.fd, op.msg, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(op.fd, op.msg, MSG_DONTWAIT);
}

ssize_t call(const Batch::Op& op) {
  ssize_t rc = 0;
  do {
    rc = call_once(op);
  } while (rc < 0 && errno == EINTR);
  return rc < 0 ? -errno : rc;
}

void prepare(io_uring_sqe* sqe, const Batch::Op& op) {
  if (is_plain(*op.msg)) {
    const iovec& piece = op.msg->msg_iov[0];
    // The length of a request has 32 bits: a longer piece is done in part, as a stream may.
    const std::size_t length = std::min(piece.iov_len, kLongest);
    if (op.send)
      io_uring_prep_send(sqe, op.fd, piece.iov_base, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    else
      io_uring_prep_recv(sqe, op.fd, piece.iov_base, length, MSG_DONTWAIT);
  } else if (op.send) {
    io_uring_prep_sendmsg(sqe, op.fd, op.msg, MSG_DONTWAIT | MSG_NOSIGNAL);
  } else {
    io_uring_prep_recvmsg(sqe, op.fd, op.msg, MSG_DONTWAIT);
  }
}

void call_all(std::span<Batch::Op> ops) {
  for (Batch::Op& op : ops) op.result = call(op);
}

class PlainBatch final : public Batch {
 public:
  void run(std::span<Op> ops) override { call_all(ops); }
  const char* name() const override { return "system calls"; }
  void close_in_child() override {}
};

// MSG_DONTWAIT makes io_uring complete a request within the submission, -EAGAIN included: nothing is armed, so no
// request belongs to a thread when run() returns.
class UringBatch final : public Batch {
 public:
  int open() { return ring_.open(kEntries, 2 * kEntries, IORING_SETUP_SUBMIT_ALL); }
  void run(std::span<Op> ops) override;
  const char* name() const override { return broken_ ? "system calls" : "io_uring"; }
  void close_in_child() override { ring_.close_in_child(); }

 private:
  static constexpr unsigned kEntries = 64;
  // Entering the ring costs as much as one call, and an op in it little less than a call without it: on idle sockets
  // two ops took 1.7 us against 1.05, eight 4.0 against 3.7, thirty-two 17.8 against 18.1 (Linux 6.18 in a VM).
  static constexpr std::size_t kWorthARing = 8;
  static constexpr ssize_t kNoResult = std::numeric_limits<ssize_t>::min();

  void round(std::span<Op> ops);
  void queue(std::span<Op> ops);
  std::size_t reap(std::span<Op> ops);

  Uring ring_;
  bool broken_ = false;
};

void UringBatch::run(std::span<Op> ops) {
  while (ops.size() >= kWorthARing && !broken_) {
    const auto now = ops.first(std::min<std::size_t>(ops.size(), kEntries));
    round(now);
    ops = ops.subspan(now.size());
  }
  call_all(ops);
}

void UringBatch::queue(std::span<Op> ops) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    Op& op = ops[i];
    op.result = kNoResult;
    io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
    prepare(sqe, op);
    io_uring_sqe_set_data64(sqe, i);
  }
}

std::size_t UringBatch::reap(std::span<Op> ops) {
  unsigned head = 0;
  unsigned seen = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(ring_.get(), head, cqe) {
    ops[cqe->user_data].result = cqe->res;
    ++seen;
  }
  io_uring_cq_advance(ring_.get(), seen);
  return seen;
}

void UringBatch::round(std::span<Op> ops) {
  queue(ops);
  for (std::size_t left = ops.size(); left > 0;) {
    const int rc = io_uring_submit_and_wait(ring_.get(), static_cast<unsigned>(left));
    left -= reap(ops);
    if (rc >= 0 || rc == -EINTR || left == 0) continue;
    broken_ = true;  // what it did not take stays in it, and it is not entered again
    for (Op& op : ops)
      if (op.result == kNoResult) op.result = call(op);
    return;
  }
}

}  // namespace

std::unique_ptr<Batch> make_batch(bool use_io_uring, std::string* why_not) {
  if (!use_io_uring) return std::make_unique<PlainBatch>();
  auto batch = std::make_unique<UringBatch>();
  const int error = batch->open();
  if (error == 0) return batch;
  if (why_not != nullptr) *why_not = why_no_uring(error);
  return std::make_unique<PlainBatch>();
}

}  // namespace ewarp::llp
