// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A raw socket as the initiator of a start-up by address.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>

#include "mpa/startup.h"
#include "provider/verbs/qp_numbers.h"
#include "tests/verbs/by_address.h"

namespace ewarp::test::by_address {

inline int connect_raw(std::uint32_t qp, const char* from = "127.0.0.1") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, from, &at.sin_addr);
  assert_int_equal(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  at.sin_port = htons(verbs::port_of(qp));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  assert_int_equal(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  return fd;
}

// A Request with this private data.
inline void request(int fd, Octets data, bool enhanced = true) {
  mpa::StartupConfig config;
  config.enhanced = enhanced;
  mpa::Initiator initiator(config, data);
  const Octets octets = initiator.request();
  assert_int_equal(send(fd, octets.data(), octets.size(), 0), octets.size());
}

// What the peer says: 'A' accepting Reply, 'R' rejecting one, 'C' closed, 'T' nothing.
inline char answer(int fd) {
  mpa::FrameReader reader;
  std::byte buffer[600];
  while (!reader.complete()) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, kPatience) != 1) return 'T';
    const ssize_t n = recv(fd, buffer, std::min(sizeof buffer, reader.want()), 0);
    if (n <= 0) return 'C';
    assert_true(reader.feed(Octets(buffer, static_cast<std::size_t>(n)), true));
  }
  return mpa::StartupFrame::parse(reader.frame()).value().reject ? 'R' : 'A';
}

}  // namespace ewarp::test::by_address
