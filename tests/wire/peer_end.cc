// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/wire/peer_end.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "tests/llp/tcp_pair.h"
#include "tests/vectors/vectors.h"

namespace ewarp::wire {
namespace {

class SocketEnd final : public PeerEnd {
 public:
  explicit SocketEnd(int fd) : fd_(fd) {}
  ~SocketEnd() override { SocketEnd::close(); }
  SocketEnd(const SocketEnd&) = delete;
  SocketEnd& operator=(const SocketEnd&) = delete;

  bool is_readable(int milliseconds) override { return is_ready(POLLIN, milliseconds); }
  bool is_writable(int milliseconds) override { return is_ready(POLLOUT, milliseconds); }
  bool is_forgotten() const override { return !test::has_other_end(fd_); }
  ssize_t take(std::byte* to, std::size_t octets) override { return recv(fd_, to, octets, MSG_DONTWAIT); }
  ssize_t give(const std::byte* from, std::size_t octets) override {
    return ::send(fd_, from, octets, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  int unread() const override { return queued(FIONREAD); }
  int unsent() const override { return queued(SIOCOUTQ); }
  void shut_down() override { ::shutdown(fd_, SHUT_WR); }
  void close() override {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() override {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

 private:
  bool is_ready(short what, int milliseconds) const {
    pollfd p{fd_, what, 0};
    return poll(&p, 1, milliseconds) == 1;
  }
  int queued(unsigned long which) const {
    int octets = 0;
    assert_int_equal(ioctl(fd_, which, &octets), 0);
    return octets;
  }
  int fd_;
};

class RingEnd final : public PeerEnd {
 public:
  RingEnd(int fd, llp::LocalMemory memory)
      : fd_(fd),
        memory_(std::move(memory)),
        out_(memory_.ring(true)),
        in_(memory_.ring(false)),
        to_(memory_.octets(true)),
        from_(memory_.octets(false)) {}
  ~RingEnd() override { RingEnd::close(); }
  RingEnd(const RingEnd&) = delete;
  RingEnd& operator=(const RingEnd&) = delete;

  bool is_readable(int milliseconds) override {
    return sleep_until(milliseconds, in_.wants_data, [this] { return waiting() > 0 || in_.ended != 0; });
  }
  bool is_writable(int milliseconds) override {
    return sleep_until(milliseconds, out_.wants_room, [this] { return room() > 0; });
  }
  ssize_t take(std::byte* to, std::size_t octets) override;
  ssize_t give(const std::byte* from, std::size_t octets) override;
  int unread() const override { return static_cast<int>(waiting()); }
  int unsent() const override { return static_cast<int>(written_ - out_.read.load()); }
  void shut_down() override {
    out_.ended = 1;
    ring(out_.wants_data);
  }
  void close() override {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() override { close(); }

 private:
  static constexpr std::size_t kRing = 262144;  // as the page says

  std::size_t waiting() const { return in_.written.load() - read_; }
  std::size_t room() const { return kRing - (written_ - out_.read.load()); }
  bool is_gone() const {
    pollfd p{fd_, POLLRDHUP, 0};
    return fd_ < 0 || poll(&p, 1, 0) == 1;
  }
  void ring(std::atomic<std::uint32_t>& wish) {
    if (wish.exchange(0) != 0) ::send(fd_, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // ready() after the wish was said; a bell that came before it says nothing.
  template <class F>
  bool sleep_until(int milliseconds, std::atomic<std::uint32_t>& wish, F ready) {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
    for (;;) {
      char bell[16];
      while (recv(fd_, bell, sizeof bell, MSG_DONTWAIT) > 0) continue;
      wish = 1;
      if (ready() || is_gone()) return true;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return false;
      pollfd p{fd_, POLLIN, 0};
      poll(&p, 1, static_cast<int>(left));
    }
  }

  int fd_;
  llp::LocalMemory memory_;
  llp::LocalRing &out_, &in_;
  std::byte *to_, *from_;
  std::uint64_t written_ = 0, read_ = 0;
};

ssize_t RingEnd::take(std::byte* to, std::size_t octets) {
  const bool gone = is_gone();  // first: what it wrote before is read to the end
  const std::size_t n = std::min({octets, waiting(), kRing - read_ % kRing});
  if (n == 0) {
    if (in_.ended != 0) return 0;
    return errno = gone ? ECONNRESET : EAGAIN, -1;
  }
  std::memcpy(to, from_ + read_ % kRing, n);
  in_.read = read_ += n;
  if (kRing - waiting() >= kRing / 4) ring(in_.wants_room);
  return static_cast<ssize_t>(n);
}

ssize_t RingEnd::give(const std::byte* from, std::size_t octets) {
  if (is_gone()) return errno = EPIPE, -1;
  const std::size_t n = std::min({octets, room(), kRing - written_ % kRing});
  if (n == 0) return errno = EAGAIN, -1;
  std::memcpy(to_ + written_ % kRing, from, n);
  out_.written = written_ += n;
  ring(out_.wants_data);
  return static_cast<ssize_t>(n);
}

}  // namespace

std::unique_ptr<PeerEnd> socket_end(int fd) {
  return std::make_unique<SocketEnd>(fd);
}

std::unique_ptr<PeerEnd> ring_end(int fd, llp::LocalMemory memory) {
  return std::make_unique<RingEnd>(fd, std::move(memory));
}

}  // namespace ewarp::wire
