// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/job/member.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "mpi_shim/acp/core/text.h"

namespace ewarp::acp {

Member::~Member() {
  close();
}

void Member::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string Member::connect_to(const std::string& root) {
  const auto colon = root.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  std::uint32_t port = 0;
  if (colon == root.npos || !read_number(std::string_view(root).substr(colon + 1), &port) || port > 0xffff ||
      inet_pton(AF_INET, root.substr(0, colon).c_str(), &to.sin_addr) != 1)
    return std::string(kRootVariable) + " has to be an IPv4 address and a port, as in 127.0.0.1:7000";
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return failed("socket");
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    return failed("the job's coordinator at " + root);
  const int one = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return {};
}

std::string Member::meet(const JobPlace& place, const Contact& own, PeerTable& peers) {
  if (place.root.empty()) {
    peers[0].contact = own;
    return {};
  }
  if (auto why = connect_to(place.root); !why.empty()) return why;
  struct {
    Frame frame;
    Hello hello;
  } first{{Word::hello, place.rank}, {.version = kJobVersion, .procs = place.procs, .secret = {}, .contact = own}};
  std::memcpy(first.hello.secret, place.secret.data(), kSecretOctets);
  if (send(fd_, &first, sizeof first, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof first)) return failed("send");
  Frame answer;
  if (!read_all(&answer, sizeof answer)) return "the job's coordinator has ended";
  if (answer.word != Word::table || answer.value != place.procs)
    return "the job's coordinator refuses: another job, another version, or a process of the job has ended";
  for (std::uint32_t rank = 0; rank < place.procs; ++rank)
    if (!read_all(&peers[rank].contact, sizeof(Contact))) return "the job's coordinator has ended";
  return {};
}

bool Member::read_all(void* to, std::size_t octets) {
  auto* at = static_cast<char*>(to);
  while (octets != 0) {
    const ssize_t n = recv(fd_, at, octets, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    octets -= static_cast<std::size_t>(n);
  }
  return true;
}

// Eight octets always find room: there is at most one of each kind under way, of `parted` one for each rank.
void Member::say(Word word, std::uint32_t value) {
  const Frame frame{word, value};
  if (fd_ >= 0)
    (void)!send(fd_, &frame, sizeof frame, MSG_NOSIGNAL);
  else if (word == Word::arrived && !lost_)
    ++meetings_;  // alone
}

bool Member::look(Listener& listener) {
  while (fd_ >= 0) {
    const ssize_t n =
        recv(fd_, reinterpret_cast<char*>(&part_) + part_octets_, sizeof part_ - part_octets_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return lose();
    part_octets_ += static_cast<std::size_t>(n);
    if (part_octets_ < sizeof part_) continue;
    part_octets_ = 0;
    if (!hear(part_, listener)) return lose();
  }
  return true;
}

// A closed connection would be ready for ever.
bool Member::lose() {
  close();
  lost_ = true;
  return false;
}

bool Member::hear(Frame frame, Listener& listener) {
  switch (frame.word) {
    case Word::all_arrived:
      ++meetings_;
      return true;
    case Word::gone:
      listener.gone(frame.value);
      return true;
    case Word::abort:
      listener.aborted();
      return true;
    case Word::parted:
      listener.parted(frame.value);
      return true;
    default:
      return false;
  }
}

}  // namespace ewarp::acp
