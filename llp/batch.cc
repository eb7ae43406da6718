#include "llp/batch.h"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "llp/uring.h"

namespace ewarp::llp {

namespace {

ssize_t call(const Batch::Op& op) {
  ssize_t rc = 0;
  do {
    rc = op.send ? sendmsg(op.fd, op.msg, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(op.fd, op.msg, MSG_DONTWAIT);
  } while (rc < 0 && errno == EINTR);
  return rc < 0 ? -errno : rc;
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
  const char* name() const override { return "io_uring"; }
  void close_in_child() override { ring_.close_in_child(); }

 private:
  static constexpr unsigned kEntries = 64;
  static constexpr ssize_t kNoResult = std::numeric_limits<ssize_t>::min();

  void round(std::span<Op> ops);
  void queue(std::span<Op> ops);
  std::size_t reap(std::span<Op> ops);
  void take_back();

  Uring ring_;
  bool broken_ = false;
};

void UringBatch::run(std::span<Op> ops) {
  while (ops.size() > 1 && !broken_) {
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
    if (op.send)
      io_uring_prep_sendmsg(sqe, op.fd, op.msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    else
      io_uring_prep_recvmsg(sqe, op.fd, op.msg, MSG_DONTWAIT);
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

// Entries that the kernel refused must not go out with the next round: they point at messages of this one.
void UringBatch::take_back() {
  io_uring_sq& sq = ring_.get()->sq;
  const unsigned head = io_uring_smp_load_acquire(sq.khead);
  sq.sqe_head = sq.sqe_tail = head;
  io_uring_smp_store_release(sq.ktail, head);
}

void UringBatch::round(std::span<Op> ops) {
  queue(ops);
  for (std::size_t left = ops.size(); left > 0;) {
    const int rc = io_uring_submit_and_wait(ring_.get(), static_cast<unsigned>(left));
    left -= reap(ops);
    if (rc >= 0 || rc == -EINTR || left == 0) continue;
    take_back();
    broken_ = true;
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
