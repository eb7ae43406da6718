// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The receive side of a queue pair's stream: where octets go, and what they are.
#include <errno.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>

#include "provider/base/log.h"
#include "provider/engine/engine.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/rc/connection.h"

namespace ewarp::verbs {
namespace {

// Octets of one turn.
constexpr std::size_t kReceiveBudget = 256 * 1024;
// While payload goes direct, so much is read behind it: the trailer, the next header, a small message.
constexpr std::size_t kBulkTail = 512;
// Before it, where large segments are likely and a read is no system call: the second read of a segment costs a socket
// more than a copy out of staging (docs/design/performance.md).
constexpr std::size_t kBulkHead = 4096;

}  // namespace

void Connection::have_staging() noexcept {
  engine_.assert_held();
  try {
    if (staging_ == nullptr) staging_ = engine_.take_staging();
  } catch (const std::bad_alloc&) {
    log::error("a stream ends: no memory for what arrives");
    broken();
  }
}

// How many vectors were filled: all or none.
std::size_t Connection::enter_targets() noexcept {
  std::size_t count = 0;
  for (const llp::Extent& e : endpoint_.direct()) {
    direct_gone_ = e.region != nullptr && !memory().enter(e.region, e.ticket);
    if (direct_gone_) {
      leave_regions();
      direct_wanted_ = 0;
      return 0;
    }
    assert(count < vectors_.size() - 1 - 2 * kMostAhead);
    ++direct_entered_;
    vectors_[count++] = iovec{e.address, e.length};
    direct_wanted_ += e.length;
  }
  return count;
}

// What follows in the same message, as its sender told, behind the vectors of enter_targets(). It is stored before its
// heads are looked at: where the peer may write in any case, or where the message goes that it is a part of.
std::size_t Connection::enter_ahead(std::size_t count) noexcept {
  assert(begin_ == 0 && end_at_ == 0);
  if (ahead_.target.region != nullptr && !memory().enter(ahead_.target.region, ahead_.target.ticket)) ahead_ = {};
  for (std::size_t i = 0; i < ahead_.count; ++i) {
    vectors_[count++] = iovec{staging_.get() + i * ahead_.between, ahead_.between};
    vectors_[count++] = iovec{ahead_.target.address + i * ahead_.payload, ahead_.payload};
  }
  asked_ += ahead_.count * (ahead_.between + ahead_.payload);
  return count;
}

// Shared: other streams' octets are stored before this one's are looked at, and what a CRC is to be computed of could
// be stored over by them where two buffers are one. A copy out of staging is not.
msghdr* Connection::prepare(bool shared) noexcept {
  asked_ = direct_wanted_ = direct_entered_ = 0;
  ahead_ = {};
  direct_gone_ = false;
  message_ = msghdr{};
  message_.msg_iov = vectors_.data();
  message_.msg_iovlen = 1;
  vectors_[0] = iovec{};
  if (staging_ == nullptr) return &message_;
  const rdmap::Endpoint::Ahead ahead = endpoint_.find_ahead(kMostAhead);  // before any region is held
  std::size_t count = shared && endpoint_.direct_is_read() ? 0 : enter_targets();
  if (direct_wanted_ > 0 && ahead.count > 0) {
    ahead_ = ahead;
    count = enter_ahead(count);
  }
  const std::size_t at = end_at_ + ahead_.count * ahead_.between;
  std::size_t room = Engine::kStaging - at;
  if (direct_wanted_ > 0)
    room = std::min(room, kBulkTail);
  else if (endpoint_.bulk() && !stream_->reads_by_call())
    room = std::min(room, kBulkHead);
  vectors_[count++] = iovec{staging_.get() + at, room};
  asked_ += direct_wanted_ + room;
  message_.msg_iovlen = count;
  return &message_;
}

void Connection::leave_regions() {
  if (direct_entered_ == 0) return;
  if (ahead_.count > 0 && ahead_.target.region != nullptr) memory().leave(ahead_.target.region);
  const rdmap::ExtentList targets = endpoint_.direct();
  for (const llp::Extent& e : targets.all().first(direct_entered_))
    if (e.region != nullptr) memory().leave(e.region);
  direct_entered_ = 0;
}

bool Connection::completed(ssize_t result) {
  assert(result <= static_cast<ssize_t>(asked_));
  leave_regions();
  if (end_ != End::none) return true;
  if (direct_gone_) endpoint_.direct_failed();
  if (result == -EAGAIN || result == -EWOULDBLOCK || result == -EINTR) return false;
  if (result == -EFAULT && direct_wanted_ > 0) {
    endpoint_.direct_failed();
    return true;
  }
  if (result < 0) {
    end_ = End::lost;
    return true;
  }
  if (result == 0) {
    const bool clean = begin_ == end_at_ && endpoint_.end_of_stream();
    end_ = clean ? End::peer_closed : End::peer_closed_early;
    return true;
  }
  const auto n = static_cast<std::size_t>(result);
  rx_octets += n;
  const std::size_t direct = std::min(n, direct_wanted_);
  if (direct > 0) endpoint_.direct_received(direct);
  std::size_t staged = n - direct;
  if (ahead_.count > 0) {
    const auto standing = endpoint_.receive_ahead(std::span(staging_.get(), Engine::kStaging), ahead_, staged);
    begin_ = end_at_ = standing.begin;
    staged = standing.octets;
  }
  end_at_ += staged;
  parse();
  return true;
}

void Connection::parse() {
  assert(begin_ <= end_at_ && end_at_ <= Engine::kStaging);
  begin_ += endpoint_.receive(Octets(staging_.get() + begin_, end_at_ - begin_));
  if (begin_ == end_at_) {
    begin_ = end_at_ = 0;
  } else if (begin_ > 0 && Engine::kStaging - end_at_ < mpa::fpdu_octets(65535)) {
    // The largest FPDU (with markers) must fit behind what is left.
    std::memmove(staging_.get(), staging_.get() + begin_, end_at_ - begin_);
    end_at_ -= begin_;
    begin_ = 0;
  }
}

bool Connection::receive() {
  // One of many that are asked in each pass: a buffer is taken only where there is something.
  if (staging_ == nullptr && !stream_->reads_by_call() && (stream_->ready() & POLLIN) == 0) return false;
  bool any = false;
  for (std::size_t total = 0; total < kReceiveBudget && end_ == End::none && readable();) {
    have_staging();
    const msghdr* m = prepare(false);
    const long n = stream_->receive({m->msg_iov, m->msg_iovlen});
    const bool came = completed(n);
    any |= came;
    if (!came || n < static_cast<long>(asked_)) break;
    total += static_cast<std::size_t>(n);
  }
  return any;
}

}  // namespace ewarp::verbs
