#include "provider/verbs/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "llp/tcp.h"
#include "provider/verbs/engine.h"
#include "provider/verbs/memory.h"
#include "provider/verbs/options.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::verbs {
namespace {

constexpr std::size_t kTransmitBudget = 256 * 1024;  // octets handed to the kernel at once
constexpr int kTransmitRounds = 4;                   // and how often per turn, so that others get theirs
constexpr std::size_t kReceiveBudget = 256 * 1024;
// While payload goes direct, so much is read behind it: the trailer, the next header, a small message.
constexpr std::size_t kBulkTail = 512;
constexpr std::size_t kBulkHead = 4096;

// As llp::send_now() and llp::receive_now(), which cost a sixth of a microsecond less than calls with a message header.
constexpr int kAtOnce = MSG_DONTWAIT | MSG_NOSIGNAL;

long receive_vectors(int fd, msghdr* m) {
  const iovec& first = *m->msg_iov;
  if (m->msg_iovlen == 1) return llp::receive_now(fd, {static_cast<std::byte*>(first.iov_base), first.iov_len});
  const ssize_t n = recvmsg(fd, m, kAtOnce);
  return n < 0 ? -errno : n;
}

long send_vectors(int fd, std::span<const iovec> vectors) {
  const iovec& first = vectors[0];
  if (vectors.size() == 1) return llp::send_now(fd, {static_cast<const std::byte*>(first.iov_base), first.iov_len});
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(vectors.data());
  m.msg_iovlen = vectors.size();
  const ssize_t n = sendmsg(fd, &m, kAtOnce);
  return n < 0 ? -errno : n;
}

std::size_t ulpdu_limit(int fd, const mpa::StreamParams& params) {
  if (params.extensions) return std::clamp<std::size_t>(options().ulpdu_octets, mpa::kMinMulpdu, mpa::kMaxMulpdu);
  int mss = 0;
  socklen_t size = sizeof mss;
  // The kernel's current MSS already leaves out TCP options. Other stream sockets (tests) have none.
  if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &size) != 0 || mss <= 0) mss = 65483;
  return mpa::mulpdu(static_cast<std::size_t>(mss), params.tx_markers);
}

std::string peer_name(int fd) {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  char text[INET6_ADDRSTRLEN] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&a), &size) != 0) return "";
  if (a.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(a);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(in.sin_port));
  }
  if (a.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(a);
    inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    return fmt::format("[{}]:{}", text, ntohs(in.sin6_port));
  }
  return "";
}

}  // namespace

Connection::Connection(Engine& engine, QueuePair& qp, int fd, const mpa::StreamParams& params)
    : engine_(engine),
      qp_(qp),
      fd_(fd),
      endpoint_(qp, params, ulpdu_limit(fd, params)),
      direct_possible_(!params.crc && !params.rx_markers),
      peer_(peer_name(fd)) {}

Connection::~Connection() {
  if (fd_ >= 0) ::close(fd_);
}

int Connection::release_fd() { return std::exchange(fd_, -1); }

msghdr* Connection::prepare() {
  if (staging_ == nullptr) staging_ = engine_.take_staging();
  direct_wanted_ = direct_entered_ = 0;
  std::size_t count = 0;
  for (const llp::Extent& e : endpoint_.direct()) {
    if (e.region != nullptr && !memory().enter(e.region, e.ticket)) {
      leave_regions();
      endpoint_.direct_failed();
      direct_wanted_ = count = 0;
      break;
    }
    ++direct_entered_;
    vectors_[count++] = iovec{e.address, e.length};
    direct_wanted_ += e.length;
  }
  std::size_t room = Engine::kStaging - end_at_;
  if (direct_wanted_ > 0)
    room = std::min(room, kBulkTail);
  else if (direct_possible_ && endpoint_.bulk())
    room = std::min(room, kBulkHead);
  vectors_[count++] = iovec{staging_.get() + end_at_, room};
  asked_ = direct_wanted_ + room;
  message_ = msghdr{};
  message_.msg_iov = vectors_.data();
  message_.msg_iovlen = count;
  return &message_;
}

void Connection::leave_regions() {
  if (direct_entered_ == 0) return;
  for (const llp::Extent& e : endpoint_.direct().first(direct_entered_))
    if (e.region != nullptr) memory().leave(e.region);
  direct_entered_ = 0;
}

bool Connection::completed(ssize_t result) {
  leave_regions();
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
  end_at_ += n - direct;
  parse();
  return true;
}

void Connection::parse() {
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
  bool any = false;
  for (std::size_t total = 0; total < kReceiveBudget && end_ == End::none && readable();) {
    const long n = receive_vectors(fd_, prepare());
    if (!completed(n)) break;
    any = true;
    if (n < static_cast<long>(asked_)) break;
    total += static_cast<std::size_t>(n);
  }
  return any;
}

bool Connection::enter_regions() {
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

// A full socket takes a little with every acknowledgement. It is cheaper to come back when a third of its buffer is
// free, as a blocking sender does; asking does not take the socket's lock, which the acknowledgements need.
bool Connection::still_full() const {
  pollfd p{fd_, POLLOUT, 0};
  return blocked_ && ::poll(&p, 1, 0) == 0;
}

bool Connection::transmit() {
  if (fin_sent_ || still_full()) return false;
  bool any = false;
  for (int round = 0; round < kTransmitRounds && end_ == End::none; ++round) {
    if (out_ == nullptr) {
      if (!endpoint_.wants_transmit()) break;
      out_ = engine_.take_gather();
    }
    endpoint_.transmit(*out_, kTransmitBudget);
    if (out_->empty()) break;
    const bool allowed = enter_regions();
    const long n = allowed ? send_vectors(fd_, out_->vectors()) : -EFAULT;
    for (std::size_t i = 0; regions_entered_ != 0; ++i, regions_entered_ >>= 1)
      if (regions_entered_ & 1) memory().leave(out_->regions()[i].region);
    if (n < 0) {
      if (n == -EAGAIN || n == -EWOULDBLOCK || n == -EINTR || n == -ENOBUFS) {
        blocked_ = true;
        return any;
      }
      // A source that its owner took away in the middle of an FPDU: the framing cannot be saved.
      end_ = n == -EFAULT ? End::local_memory : End::lost;
      return true;
    }
    any = true;
    blocked_ = static_cast<std::size_t>(n) < out_->octets();
    fpdu_cut_ = blocked_;
    tx_octets += static_cast<std::size_t>(n);
    out_->consume(static_cast<std::size_t>(n));
    endpoint_.transmitted(static_cast<std::size_t>(n));
    if (blocked_) return true;
  }
  if (out_ != nullptr && out_->empty()) {
    blocked_ = false;
    engine_.give_gather(std::move(out_));
  }
  return any;
}

void Connection::drop_output() {
  if (out_ == nullptr) return;
  if (fpdu_cut_ && end_ == End::none) end_ = End::lost;
  out_->clear();
  engine_.give_gather(std::move(out_));
  blocked_ = false;
}

void Connection::shut_down() {
  if (!fin_sent_) ::shutdown(fd_, SHUT_WR);
  fin_sent_ = true;
}

void Connection::rest() {
  if (begin_ == end_at_ && staging_ != nullptr) {
    begin_ = end_at_ = 0;
    engine_.give_staging(std::move(staging_));
  }
}

}  // namespace ewarp::verbs
