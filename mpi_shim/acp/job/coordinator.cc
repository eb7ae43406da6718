// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/job/coordinator.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ewarp::acp {
namespace {

constexpr std::size_t kLongest = sizeof(Frame) + sizeof(Hello);  // of what a member says at a time

// Takes as long for a wrong one as for the right one.
bool same_secret(const char* one, const std::string& other) {
  unsigned differences = other.size() != kSecretOctets;
  for (std::size_t i = 0; i < std::min(other.size(), kSecretOctets); ++i)
    differences |= static_cast<unsigned char>(one[i] ^ other[i]);
  return differences == 0;
}

}  // namespace

Coordinator::Coordinator(std::uint32_t procs, std::string secret)
    : ranks_(procs, Rank::expected), contacts_(procs), secret_(std::move(secret)) {}

Coordinator::~Coordinator() {
  for (auto& m : members_)
    if (m.fd >= 0) close(m.fd);
  if (listener_ >= 0) close(listener_);
}

int Coordinator::listen() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return errno;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  if (bind(listener_, address, sizeof at) != 0 || ::listen(listener_, SOMAXCONN) != 0) return errno;
  if (getsockname(listener_, address, &length) != 0) return errno;
  port_ = ntohs(at.sin_port);
  return 0;
}

bool Coordinator::step(std::vector<pollfd>* more, int timeout_ms) {
  const std::size_t own = more->size();
  more->push_back({listener_, POLLIN, 0});
  for (const auto& m : members_)
    more->push_back({m.fd, static_cast<short>(m.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  const int n = poll(more->data(), more->size(), timeout_ms);
  const std::size_t count = members_.size();
  for (std::size_t i = 0; n > 0 && i < count; ++i) look(members_[i], (*more)[own + 1 + i].revents);
  if (n > 0 && (*more)[own].revents != 0) accept_all();
  more->resize(own);
  std::erase_if(members_, [](const Member& m) { return m.fd < 0; });
  return n >= 0;
}

void Coordinator::accept_all() {
  for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    members_.push_back({.fd = fd, .rank = kNobody, .in = {}, .out = {}, .arrived = false});
    if (too_many_strangers()) hang_up(*std::find_if(members_.begin(), members_.end(), is_stranger));
  }
}

// Beside those that are still expected. A member says who it is at once, so that the oldest one is none.
bool Coordinator::too_many_strangers() const {
  const auto strangers = std::count_if(members_.begin(), members_.end(), is_stranger);
  return static_cast<std::size_t>(strangers) > kMostStrangers + ranks_.size() - met_;
}

void Coordinator::look(Member& m, short events) {
  if (m.fd >= 0 && (events & POLLOUT) != 0) write_some(m);
  if (m.fd >= 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_some(m);
}

void Coordinator::read_some(Member& m) {
  char octets[4096];
  const ssize_t n = recv(m.fd, octets, sizeof octets, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return hang_up(m);
  m.in.append(octets, static_cast<std::size_t>(n));
  while (m.fd >= 0 && understand(m)) continue;
  if (m.fd >= 0 && m.in.size() > kLongest) hang_up(m);
}

// False: there is no whole frame.
bool Coordinator::understand(Member& m) {
  Frame frame;
  if (m.in.size() < sizeof frame) return false;
  std::memcpy(&frame, m.in.data(), sizeof frame);
  const bool greets = frame.word == Word::hello;
  const std::size_t length = sizeof frame + (greets ? sizeof(Hello) : 0);
  if (m.in.size() < length) return false;
  Hello hello{};
  if (greets) std::memcpy(&hello, m.in.data() + sizeof frame, sizeof hello);
  m.in.erase(0, length);
  const bool good = greets ? welcome(m, frame.value, hello) : m.rank != kNobody && hear(m, frame);
  if (!good) hang_up(m);
  return good;
}

bool Coordinator::welcome(Member& m, std::uint32_t rank, const Hello& hello) {
  const bool good = hello.version == kJobVersion && hello.procs == ranks_.size() && rank < ranks_.size() &&
                    m.rank == kNobody && ranks_[rank] == Rank::expected && !broken_ &&
                    same_secret(hello.secret, secret_);
  if (!good) {
    say(m, Word::refused, 0);
    return false;
  }
  m.rank = rank;
  ranks_[rank] = Rank::here;
  contacts_[rank] = hello.contact;
  if (++met_ == ranks_.size()) send_table();
  return true;
}

bool Coordinator::hear(Member& m, Frame frame) {
  switch (frame.word) {
    case Word::arrived:
      arrived(m);
      return true;
    case Word::leaving:
      ranks_[m.rank] = Rank::left;
      return true;
    case Word::abort:
      aborted_ = true;
      say_to_all(Word::abort, m.rank);
      return true;
    case Word::parted:
      return parted(m, frame.value);
    default:
      return false;
  }
}

// Where one is gone there is no meeting any more, though it may have arrived at this one. The others have been told,
// and may come here again and again.
void Coordinator::arrived(Member& m) {
  if (std::exchange(m.arrived, true) || ++arrivals_ < ranks_.size()) return;
  if (std::find(ranks_.begin(), ranks_.end(), Rank::gone) != ranks_.end()) return;
  arrivals_ = 0;
  for (auto& other : members_) other.arrived = false;
  say_to_all(Word::all_arrived, 0);
}

// The way between the two is lost, so the other one hears of it here. Of one that is gone both hear in any case.
bool Coordinator::parted(Member& m, std::uint32_t other) {
  if (other >= ranks_.size() || other == m.rank) return false;
  if (ranks_[other] != Rank::here) return true;
  const auto found =
      std::find_if(members_.begin(), members_.end(), [&](const Member& o) { return o.fd >= 0 && o.rank == other; });
  if (found != members_.end()) say(*found, Word::parted, m.rank);
  say(m, Word::parted, other);
  return true;
}

void Coordinator::send_table() {
  for (auto& m : members_) {
    if (m.fd < 0 || m.rank == kNobody) continue;
    m.out.reserve(sizeof(Frame) + contacts_.size() * sizeof(Contact));
    const Frame frame{Word::table, static_cast<std::uint32_t>(contacts_.size())};
    m.out.append(reinterpret_cast<const char*>(&frame), sizeof frame);
    m.out.append(reinterpret_cast<const char*>(contacts_.data()), contacts_.size() * sizeof(Contact));
    write_some(m);
  }
}

void Coordinator::say(Member& m, Word word, std::uint32_t value) {
  const Frame frame{word, value};
  m.out.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  write_some(m);
}

void Coordinator::say_to_all(Word word, std::uint32_t value) {
  for (auto& m : members_)
    if (m.fd >= 0 && m.rank != kNobody) say(m, word, value);
}

bool Coordinator::finished() const {
  return complete() &&
         std::all_of(ranks_.begin(), ranks_.end(), [](Rank r) { return r == Rank::left || r == Rank::gone; });
}

// What does not go now goes when the socket has room (step()); a fault shows when it is read.
void Coordinator::write_some(Member& m) {
  const ssize_t n = send(m.fd, m.out.data(), m.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) m.out.erase(0, static_cast<std::size_t>(n));
}

void Coordinator::hang_up(Member& m) {
  close(m.fd);
  m.fd = -1;
  if (m.rank != kNobody) ended(m.rank);
}

void Coordinator::ended(std::uint32_t rank) {
  const Rank was = ranks_[rank];
  if (was == Rank::left || was == Rank::gone) return;
  ranks_[rank] = Rank::gone;
  // Before all have met, nobody has been told of anybody: whoever waits for the table is told that it will not come.
  broken_ = !complete();
  say_to_all(broken_ ? Word::refused : Word::gone, rank);
}

}  // namespace ewarp::acp
