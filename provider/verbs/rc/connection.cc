// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/rc/connection.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <span>
#include <utility>

#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/engine/engine.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/rc/rc_queue_pair.h"

namespace ewarp::verbs {
namespace {

// Octets handed to the kernel at once. Between two calls it frees what was acknowledged, which keeps the next octets
// from the peer for some 15 us.
constexpr std::size_t kTransmitBudget = 2048 * 1024;
// More than any socket's buffer holds. A peer in shared memory may write on and on.
constexpr std::uint64_t kMostUnread = 64u << 20;
constexpr int kReadsAtTheEnd = 256;  // of 4096 octets, in one call of drained()

// A stream without segments (no TCP) gets ULPDUs as large as TCP's largest segment allows.
constexpr std::size_t kNoSegments = 65483;

std::size_t ulpdu_limit(const llp::Stream& stream, const mpa::StreamParams& params) {
  if (params.extensions) return std::clamp<std::size_t>(options().ulpdu_octets, mpa::kMinMulpdu, mpa::kMaxMulpdu);
  const std::size_t segment = stream.segment_octets();
  return mpa::mulpdu(segment > 0 ? segment : kNoSegments, params.tx_markers);
}

}  // namespace

Connection::Connection(Engine& engine, RcQueuePair& qp, std::size_t pieces, std::unique_ptr<llp::Stream> stream,
                       const mpa::StreamParams& params)
    : engine_(engine),
      qp_(qp),
      owned_(std::move(stream)),
      stream_(owned_.get()),
      agreement_(stream_->take_agreement()),
      endpoint_(qp, params, ulpdu_limit(*stream_, params)),
      peer_(stream_->peer()),
      vectors_(pieces + 1 + 2 * kMostAhead),
      distant_(stream_->is_distant()) {
  endpoint_.allow_leads(stream_->segment_octets() > 0);
  llp::no_stream();  // is made now: an end is not to need memory for it
}

Connection::~Connection() = default;

std::unique_ptr<llp::Stream> Connection::release_stream() {
  engine_.cancel_timer(std::exchange(agreement_timer_, 0));
  if (agreeing() && fin_sent_) stream_->half_close();
  agreement_.reset();
  stream_ = &llp::no_stream();
  return std::move(owned_);
}

void Connection::close_in_child() {
  if (agreement_ != nullptr) agreement_->close_in_child();
  stream_->close();
}

void Connection::broken() noexcept {
  if (end_ != End::none) return;
  end_ = End::lost;
  engine_.push(qp_);  // which sees to what follows
}

// What the stream can do, as far as it is worth asking. A full socket takes a little with every acknowledgement; it is
// ready when a third of its buffer is free, and it is cheaper to come back then, as a blocking sender does.
short Connection::possible() const {
  return blocked_ ? stream_->ready() : POLLIN | POLLOUT;
}

std::size_t Connection::agree() {
  if (agreement_->step() == llp::LocalAgreement::Outcome::more) return 0;
  settle();
  return progress(false, rx_octets + tx_octets, true);
}

// Another descriptor from here on.
void Connection::settle() {
  engine_.assert_held();
  engine_.cancel_timer(std::exchange(agreement_timer_, 0));
  engine_.remove(*this);
  const auto agreement = std::move(agreement_);
  if (agreement->step() == llp::LocalAgreement::Outcome::local) {
    auto tcp = std::exchange(owned_, agreement->take(peer_));
    stream_ = owned_.get();
    endpoint_.allow_leads(false);
    // The background thread may be about to watch TCP's no more, as the start-up has asked it to.
    engine_.post([old = std::shared_ptr<llp::Stream>(std::move(tcp))] {});
    qp_.engine().assert_held();  // the same one, by another name
    qp_.stream_is_local();
    log::debug("the stream to {} goes through shared memory", peer_);
  }
  if (fin_sent_) stream_->half_close();
  if (engine_.add(*this) != 0) return broken();
  engine_.push(qp_);  // what was posted meanwhile
}

void Connection::stop_agreeing() {
  engine_.assert_held();
  if (agreeing() && agreement_->give_up()) settle();
}

std::size_t Connection::turn() {
  if (agreeing()) return agree();
  const std::uint64_t before = rx_octets + tx_octets;
  if (finished_) {
    if (end_ == End::none && drained()) end_ = End::peer_closed;
    return progress(false, before, false);
  }
  const short now = possible();
  const bool any = (now & POLLIN) != 0 && readable() && receive();
  return progress(any, before, (now & POLLOUT) != 0);
}

std::size_t Connection::finish_turn(ssize_t result) {
  const std::uint64_t before = rx_octets + tx_octets;
  const bool more = result == static_cast<ssize_t>(asked_);
  const bool any = completed(result);
  if (more) receive();  // a stream in full flow gets its budget; the silent ones are asked once
  return progress(any, before, (possible() & POLLOUT) != 0);
}

// The stream may have ended when this returns; it stays in memory until the engine buries it.
std::size_t Connection::progress(bool any, std::uint64_t octets_before, bool writable) {
  engine_.assert_held();
  qp_.engine().assert_held();  // the same one, by another name
  if (writable && end_ == End::none && has_output() && engine_.may_send(qp_)) any |= send();
  const std::uint64_t moved = rx_octets + tx_octets - octets_before;
  if (any || end_ != End::none) qp_.stream_progress();
  return std::max<std::size_t>(moved, any ? 1 : 0);
}

bool Connection::enter_regions() {
  assert(regions_entered_ == 0 && out_->regions().size() <= 64);
  regions_entered_ = 0;
  const auto regions = out_->regions();
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (memory().enter(regions[i].region, regions[i].ticket)) {
      regions_entered_ |= std::uint64_t{1} << i;
    } else if (out_->uses(i)) {
      return false;
    }
  }
  return true;
}

bool Connection::transmit() {
  return (!blocked_ || (possible() & POLLOUT) != 0) && send();
}

bool Connection::send() {
  engine_.assert_held();
  if (fin_sent_ || agreeing() || end_ != End::none || endpoint_.terminated()) return false;
  if (out_ == nullptr) {
    if (!endpoint_.wants_transmit()) return false;
    out_ = engine_.take_gather();
  }
  endpoint_.transmit(*out_, kTransmitBudget);
  bool any = false;
  if (!out_->empty()) {
    if (distant_ && !watched_ && silence_limit_.count() > 0) {
      engine_.look_later();
      watched_ = true;
    }
    const bool allowed = enter_regions();
    const long n = allowed ? stream_->send(out_->vectors()) : -EFAULT;
    for (std::size_t i = 0; regions_entered_ != 0; ++i, regions_entered_ >>= 1)
      if (regions_entered_ & 1) memory().leave(out_->regions()[i].region);
    if (n < 0) {
      if (n == -EAGAIN || n == -EWOULDBLOCK || n == -EINTR || n == -ENOBUFS) {
        blocked_ = true;
        return false;
      }
      if (n == -EFAULT)  // a source that its owner took away in the middle of an FPDU: the framing cannot be saved
        end_ = End::local_memory;
      else
        lose();
      return true;
    }
    any = true;
    blocked_ = static_cast<std::size_t>(n) < out_->octets();
    assert(static_cast<std::size_t>(n) <= out_->octets());
    tx_octets += static_cast<std::size_t>(n);
    out_->consume(static_cast<std::size_t>(n));
    endpoint_.transmitted(static_cast<std::size_t>(n));
  }
  if (out_->empty()) {
    blocked_ = false;
    engine_.give_gather(std::move(out_));
  }
  return any;
}

// Nothing can be written any more. What came before is read first: it may be a Terminate, or the end of a message.
void Connection::lose() {
  const std::uint64_t most = rx_octets + kMostUnread;
  while (end_ == End::none && readable() && rx_octets < most && receive()) continue;
  if (!endpoint_.terminated()) end_ = End::lost;
}

bool Connection::look(std::chrono::steady_clock::time_point now) {
  if (!watched_) return false;
  const auto unanswered = stream_->unanswered();
  watched_ = end_ == End::none && unanswered.has_value() && silence_limit_.count() > 0;
  if (!watched_) {
    host_.idle();
  } else if (host_.gone(*unanswered, silence_limit_, now)) {
    log::info("{} has acknowledged nothing for {} ms, and was asked {} times: its host is gone", peer_,
              unanswered->silence.count(), unanswered->asked);
    watched_ = false;
    broken();
  }
  return watched_;
}

void Connection::drop_output() {
  engine_.assert_held();
  if (out_ == nullptr) return;
  out_->clear();
  engine_.give_gather(std::move(out_));
  blocked_ = false;
}

// Of ends that still agree the stream that they agree on.
void Connection::shut_down() {
  if (!fin_sent_ && !agreeing()) stream_->half_close();
  fin_sent_ = true;
}

// What other threads post meanwhile may be without end: a request of theirs ends it.
void Connection::finish() {
  qp_.engine().assert_held();  // the same one as engine_
  stop_agreeing();
  const std::uint64_t posted = qp_.sq_.tail();
  while (has_output() && qp_.started_ <= posted && transmit() && !blocked()) continue;
  shut_down();
  finished_ = true;
}

// A process that ends with unread octets makes the kernel send RST, which can destroy the peer's last message.
bool Connection::drained() {
  std::array<std::byte, 4096> sink;
  const iovec into{sink.data(), sink.size()};
  for (int i = 0; i < kReadsAtTheEnd; ++i) {
    const long n = stream_->receive(std::span(&into, 1));
    if (n > 0 || n == -EINTR) continue;
    if (n != -EAGAIN) return true;
    if (!stream_->arm(true, false, true)) return false;
  }
  return false;
}

void Connection::rest() {
  engine_.assert_held();
  if (begin_ == end_at_ && staging_ != nullptr) {
    begin_ = end_at_ = 0;
    engine_.give_staging(std::move(staging_));
  }
}

}  // namespace ewarp::verbs
