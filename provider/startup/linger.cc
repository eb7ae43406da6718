// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/startup/linger.h"

#include <poll.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "provider/base/options.h"

namespace ewarp::verbs {
namespace {

constexpr int kReadsAtOnce = 64;  // then others get the thread

std::chrono::milliseconds patience() {
  return std::chrono::milliseconds(options().close_timeout_ms);
}

// One of the kMostRefused, or none.
class Place {
 public:
  Place() = default;
  Place(Place&& other) noexcept : taken_(std::exchange(other.taken_, false)) {}
  Place& operator=(Place&&) = delete;
  ~Place() {
    if (taken_) in_use_.fetch_sub(1, std::memory_order_relaxed);
  }
  // False: there is none.
  bool take() {
    taken_ = in_use_.fetch_add(1, std::memory_order_relaxed) < kMostRefused;
    if (!taken_) in_use_.fetch_sub(1, std::memory_order_relaxed);
    return taken_;
  }

 private:
  static inline std::atomic<unsigned> in_use_{0};
  bool taken_ = false;
};

// Background thread only.
struct Lingering {
  Lingering(Reactor& r, Place p) : reactor(r), place(std::move(p)) {}
  Reactor& reactor;
  Place place;
  std::unique_ptr<llp::Stream> stream;  // null: it has ended
  std::uint64_t timer = 0;
};
using LingeringRef = std::shared_ptr<Lingering>;

void end(Lingering& l) {
  if (l.stream == nullptr) return;
  l.reactor.cancel_timer(l.timer);
  end_now(l.reactor, std::move(l.stream));
}

void drain(const LingeringRef& l) {
  if (l->stream == nullptr) return;
  std::array<std::byte, 16384> sink;
  const iovec into{sink.data(), sink.size()};
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const long n = l->stream->receive(std::span(&into, 1));
    if (n > 0 || n == -EINTR) continue;
    if (n != -EAGAIN) return end(*l);
    if (l->stream->arm(true, false, true)) continue;
    return l->reactor.watch(l->stream->fd(), POLLIN, [l](std::uint32_t) { drain(l); });
  }
  l->reactor.post([l] { drain(l); });
}

void begin(Reactor& reactor, std::unique_ptr<llp::Stream> stream, Place place) {
  assert(stream != nullptr && stream->fd() >= 0);
  stream->give_up_after(patience());
  stream->half_close();
  LingeringRef l;
  try {
    l = std::make_shared<Lingering>(reactor, std::move(place));
    l->stream = std::move(stream);
    reactor.post([l] {
      l->timer = l->reactor.add_timer(Reactor::Clock::now() + patience(), [l] { end(*l); });
      drain(l);
    });
  } catch (const std::bad_alloc&) {  // it ends without having waited for the peer
    end_now(reactor, std::move(l != nullptr ? l->stream : stream));
  }
}

}  // namespace

void linger(Reactor& reactor, std::unique_ptr<llp::Stream> stream) {
  if (stream != nullptr && stream->fd() >= 0) begin(reactor, std::move(stream), {});
}

void linger_refused(Reactor& reactor, std::unique_ptr<llp::Stream> stream) {
  if (stream == nullptr || stream->fd() < 0) return;
  if (Place place; place.take())
    begin(reactor, std::move(stream), std::move(place));
  else
    end_now(reactor, std::move(stream));
}

void end_now(Reactor& reactor, std::unique_ptr<llp::Stream> stream) {
  if (stream == nullptr || stream->fd() < 0) return;
  stream->give_up_after(patience());
  stream->end();  // closing takes effect only when the kernel lets go of a poll that has not been cancelled yet
  reactor.unwatch(stream->fd());
}

}  // namespace ewarp::verbs
