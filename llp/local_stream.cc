// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/local_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "llp/fd.h"
#include "llp/guarded_copy.h"

namespace ewarp::llp {
namespace {

// Room is told of when there is so much: a writer that came back for every octet would be woken as often.
constexpr std::uint64_t kWorthATurn = kLocalRing / 4;
// The socket tells of a peer that died without a word. It is asked each so many times that there was nothing to do.
constexpr unsigned kLooksForAQuestion = 1024;
constexpr int kBellsAtOnce = 16;  // a peer may ring without end
// The peer is told of so many octets at a time, and copies the first while we copy the next (docs/design/llp.md).
constexpr std::size_t kPiece = 16 * 1024;
// From so many octets on a copy goes into the ring past the caches. The lines of the ring are in the reader's cache: a
// plain store has to fetch each from there first, a store of a whole line has not (docs/design/llp.md).
constexpr std::size_t kPastCaches = 4 * 1024;

// A stretch of the octets of a ring, in one or two pieces.
struct Place {
  std::byte* octets;
  std::uint64_t at;

  // copy(in the ring, offset, length) for each piece; false as soon as it is.
  template <class Copy>
  bool pieces(std::size_t n, Copy copy) const {
    const std::size_t begin = at % kLocalRing;
    const std::size_t first = std::min(n, kLocalRing - begin);
    return copy(octets + begin, std::size_t{0}, first) && (first == n || copy(octets, first, n - first));
  }
};

bool put(std::byte* to, const std::byte* from, std::size_t n) {
  return n < kPastCaches ? guarded_copy(to, from, n) : guarded_copy_past_caches(to, from, n);
}

class LocalStream final : public Stream {
 public:
  LocalStream(int fd, LocalMemory memory, bool creator, std::string peer)
      : fd_(fd),
        memory_(std::move(memory)),
        out_(memory_.ring(creator)),
        in_(memory_.ring(!creator)),
        out_octets_(memory_.octets(creator)),
        in_octets_(memory_.octets(!creator)),
        peer_(std::move(peer)) {}
  ~LocalStream() override { LocalStream::close(); }
  LocalStream(const LocalStream&) = delete;
  LocalStream& operator=(const LocalStream&) = delete;

  int fd() const override { return fd_; }
  bool is_socket() const override { return false; }
  bool reads_by_call() const override { return false; }
  long receive(std::span<const iovec> into) override;
  long send(std::span<const iovec> from) override;
  short ready() const override;
  PeerEnd peer_end() const override;
  std::uint32_t watched_for(bool reads, bool writes) const override { return reads || writes ? POLLIN : 0; }
  bool arm(bool reads, bool writes, bool rang) override;
  bool rung() const override;
  void half_close() override;
  void end() override;
  void close() override;
  std::size_t segment_octets() const override { return 0; }
  std::string peer() const override { return peer_; }

 private:
  // What the peer's words say. They may change at any time, so each is read once; false: they make no sense.
  bool look_for_octets() const;
  bool look_for_room() const;
  std::uint64_t waiting() const { return written_seen_ - read_; }
  std::uint64_t room() const { return kLocalRing - (written_ - read_seen_); }
  bool readable() const;
  bool writable(std::uint64_t octets) const;
  void look_for_end() const;
  void take_bells() const;
  void ring_bell(std::atomic<std::uint32_t>& wish);

  int fd_;
  LocalMemory memory_;
  LocalRing &out_, &in_;
  std::byte *out_octets_, *in_octets_;
  std::string peer_;
  std::uint64_t written_ = 0, read_ = 0;            // ours; what the rings hold of them is for the peer
  bool finished_ = false;                           // nothing follows from us
  bool wished_data_ = false, wished_room_ = false;  // as arm() has left the wishes; who rings takes one back
  bool bells_ = false;                              // have come, and were not taken
  mutable std::uint64_t written_seen_ = 0, read_seen_ = 0;
  mutable bool gone_ = false;    // the peer has closed its end
  mutable bool broken_ = false;  // the peer's words made no sense
  mutable unsigned looks_ = 0;
};

bool LocalStream::look_for_octets() const {
  const std::uint64_t written = in_.written.load(std::memory_order_seq_cst);
  if (written - read_ > kLocalRing || written - read_ < waiting()) return !(broken_ = true);
  written_seen_ = written;
  return true;
}

bool LocalStream::look_for_room() const {
  const std::uint64_t read = out_.read.load(std::memory_order_seq_cst);
  if (written_ - read > kLocalRing || kLocalRing - (written_ - read) < room()) return !(broken_ = true);
  read_seen_ = read;
  return true;
}

// Bells stay where they are: somebody may sleep until there is one.
void LocalStream::look_for_end() const {
  looks_ = 0;
  pollfd p{fd_, POLLRDHUP, 0};
  if (::poll(&p, 1, 0) > 0) gone_ = true;
}

// They are of no interest but for having come.
void LocalStream::take_bells() const {
  std::array<std::byte, 64> bell;
  long n = 1;
  for (int i = 0; i < kBellsAtOnce && (n > 0 || errno == EINTR); ++i)
    n = ::recv(fd_, bell.data(), bell.size(), MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) gone_ = true;
}

bool LocalStream::readable() const {
  if (waiting() > 0 || !look_for_octets() || waiting() > 0) return true;
  if (in_.ended.load(std::memory_order_seq_cst) != 0 || gone_) return true;
  if (++looks_ >= kLooksForAQuestion) look_for_end();
  return gone_;
}

bool LocalStream::writable(std::uint64_t octets) const {
  if (room() >= octets || !look_for_room() || room() >= octets || gone_) return true;
  if (++looks_ >= kLooksForAQuestion) look_for_end();
  return gone_;
}

short LocalStream::ready() const {
  if (fd_ < 0) return POLLIN | POLLOUT;
  return static_cast<short>((readable() ? POLLIN : 0) | (writable(kWorthATurn) ? POLLOUT : 0));
}

// An end is told beside the rings, however full they are.
PeerEnd LocalStream::peer_end() const {
  if (fd_ < 0 || in_.ended.load(std::memory_order_seq_cst) != 0) return PeerEnd::ended;
  look_for_end();
  return gone_ ? PeerEnd::ended : PeerEnd::open;
}

long LocalStream::receive(std::span<const iovec> into) {
  assert(!into.empty());
  if (fd_ < 0) return -EBADF;
  if (!look_for_octets()) return -ECONNRESET;
  if (waiting() == 0) {
    if (!readable()) return -EAGAIN;
    if (!look_for_octets()) return -ECONNRESET;  // what came before the end
    if (waiting() == 0) return 0;
  }
  std::size_t taken = 0;
  for (const iovec& v : into) {
    const std::size_t n = std::min<std::uint64_t>(v.iov_len, waiting());
    auto* const to = static_cast<std::byte*>(v.iov_base);
    const bool whole = Place{in_octets_, read_}.pieces(
        n, [to](const std::byte* from, std::size_t at, std::size_t some) { return guarded_copy(to + at, from, some); });
    if (!whole) {
      if (taken == 0) return -EFAULT;
      break;
    }
    read_ += n;
    taken += n;
    if (n < v.iov_len) break;
  }
  // Pairs with arm(), which wishes, then looks for room.
  in_.read.exchange(read_, std::memory_order_seq_cst);
  if (in_.wants_room.load(std::memory_order_seq_cst) != 0 && kLocalRing - waiting() >= kWorthATurn)
    ring_bell(in_.wants_room);
  return static_cast<long>(taken);
}

long LocalStream::send(std::span<const iovec> from) {
  assert(!from.empty() && !finished_);
  if (fd_ < 0) return -EBADF;
  if (gone_) return -EPIPE;
  std::size_t wanted = 0;
  for (const iovec& v : from) wanted += v.iov_len;
  if (room() < wanted && !look_for_room()) return -ECONNRESET;
  if (room() == 0) return -EAGAIN;
  std::size_t given = 0, told = 0;
  bool whole = true;
  for (const iovec& v : from) {
    const auto* octets = static_cast<const std::byte*>(v.iov_base);
    std::uint64_t left = std::min<std::uint64_t>(v.iov_len, room() - given);
    const bool last = left < v.iov_len;
    while (whole && left > 0) {
      const std::size_t n = std::min<std::uint64_t>(left, kPiece - (given - told));
      whole = Place{out_octets_, written_ + given}.pieces(
          n, [octets](std::byte* to, std::size_t at, std::size_t some) { return put(to, octets + at, some); });
      if (!whole) break;
      octets += n;
      left -= n;
      given += n;
      if (given - told < kPiece) continue;
      out_.written.store(written_ + given, std::memory_order_release);
      told = given;
    }
    if (last || !whole) break;
  }
  if (!whole) {
    if (told == 0) return -EFAULT;  // the peer has seen nothing of it
    given = told;
  }
  written_ += given;
  // Pairs with arm(), which wishes, then looks for octets.
  out_.written.exchange(written_, std::memory_order_seq_cst);
  if (out_.wants_data.load(std::memory_order_seq_cst) != 0) ring_bell(out_.wants_data);
  return static_cast<long>(given);
}

// A full socket has bells enough; one that the kernel had no memory for is rung again.
void LocalStream::ring_bell(std::atomic<std::uint32_t>& wish) {
  if (wish.exchange(0, std::memory_order_seq_cst) == 0) return;
  const std::byte bell{1};
  if (::send(fd_, &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
  if (errno == EPIPE || errno == ECONNRESET) gone_ = true;
  if (errno == ENOBUFS || errno == ENOMEM) wish.store(1, std::memory_order_seq_cst);
}

bool LocalStream::arm(bool reads, bool writes, bool rang) {
  if (fd_ < 0) return true;
  if (rang) {
    take_bells();
    bells_ = false;
  }
  bells_ |= in_.wants_data.exchange(reads, std::memory_order_seq_cst) == 0 && wished_data_;
  bells_ |= out_.wants_room.exchange(writes, std::memory_order_seq_cst) == 0 && wished_room_;
  wished_data_ = reads;
  wished_room_ = writes;
  return (reads && readable()) || (writes && writable(kWorthATurn));
}

bool LocalStream::rung() const {
  return bells_ || (wished_data_ && in_.wants_data.load(std::memory_order_relaxed) == 0) ||
         (wished_room_ && out_.wants_room.load(std::memory_order_relaxed) == 0);
}

void LocalStream::half_close() {
  if (std::exchange(finished_, true) || fd_ < 0) return;
  out_.ended.exchange(1, std::memory_order_seq_cst);
  if (out_.wants_data.load(std::memory_order_seq_cst) != 0) ring_bell(out_.wants_data);
}

void LocalStream::end() {
  half_close();
  gone_ = true;
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void LocalStream::close() {
  if (fd_ < 0) return;
  close_fd(std::exchange(fd_, -1));
  memory_ = {};
}

}  // namespace

std::unique_ptr<Stream> local_stream(int fd, LocalMemory memory, bool creator, std::string peer) {
  try {
    return std::make_unique<LocalStream>(fd, std::move(memory), creator, std::move(peer));
  } catch (...) {
    close_fd(fd);
    throw;
  }
}

}  // namespace ewarp::llp
