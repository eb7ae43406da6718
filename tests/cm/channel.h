// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Drives the connection manager as librdmacm does: raw command structures, written to an event channel. And a raw TCP
// peer with a frame encoder of its own, which can say what ours never would.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ewarp::test {

// rdma_cm_event_type.
enum : std::uint32_t {
  kAddrResolved = 0,
  kAddrError = 1,
  kRouteResolved = 2,
  kConnectRequest = 4,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
};

struct Event {
  std::uint64_t uid;
  std::uint32_t id, type;
  int status;
  rdma_ucm_conn_param conn;
  std::string data() const { return {reinterpret_cast<const char*>(conn.private_data), conn.private_data_len}; }
};

sockaddr_in6 address(const char* host, std::uint16_t port);
std::uint16_t port_of(const void* sockaddr);

class Channel {
 public:
  explicit Channel(int flags = 0);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const { return fd_; }
  void close();
  // Writes a command; 0 or a positive errno. in < 0: the size of the structure.
  template <class T>
  int run(std::uint32_t command, const T& body, std::size_t out = 0, int in = -1) {
    return run_octets(command, &body, in < 0 ? sizeof(body) : static_cast<std::size_t>(in), out);
  }
  int run_octets(std::uint32_t command, const void* body, std::size_t in, std::size_t out);

  std::uint32_t create(std::uint64_t uid, std::uint16_t port_space = RDMA_PS_TCP);
  // Returns events_reported.
  std::uint32_t destroy(std::uint32_t id);
  int bind(std::uint32_t id, const sockaddr_in6& to);
  int resolve(std::uint32_t id, const sockaddr_in6& to);
  int resolve_route(std::uint32_t id);
  // What connect() and accept() say.
  std::uint8_t rnr_retry_count = 0;
  int connect(std::uint32_t id, std::uint32_t qp, std::string_view data = {}, unsigned ird = 4, unsigned ord = 5);
  int listen(std::uint32_t id, unsigned backlog = 0);
  int accept(std::uint32_t id, std::uint64_t uid, std::uint32_t qp, std::string_view data = {}, unsigned ird = 4,
             unsigned ord = 5);
  int reject(std::uint32_t id, std::string_view data = {}, unsigned reason = 0);
  int disconnect(std::uint32_t id);
  int set_option(std::uint32_t id, std::uint32_t level, std::uint32_t name, const void* value, unsigned length);
  int migrate(std::uint32_t id, int from, std::uint32_t* reported);
  rdma_ucm_query_route_resp query_route(std::uint32_t id);
  std::uint16_t port(std::uint32_t id);  // the local one

  // Fails the test when no event comes in a minute.
  Event next();
  Event expect(std::uint32_t type);
  // True if the channel is readable now.
  bool readable();

  // The usual sequences; each fails the test if a step does.
  std::uint32_t listener(const char* host, std::uint64_t uid, unsigned backlog = 0, std::uint16_t port = 0);
  // Through ROUTE_RESOLVED.
  std::uint32_t resolved(const char* host, std::uint16_t port, std::uint64_t uid);

 private:
  int fd_;
};

// --- the raw peer ---

struct Frame {
  bool reply = false;
  unsigned flags = 0, revision = 0;  // octets 16 and 17
  std::string data;                  // the enhanced word included
};
std::string encode(const Frame& frame);
std::string enhanced_word(bool peer_to_peer, unsigned forms, unsigned ird, unsigned ord);  // forms: B 1, C 2, D 4

class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {}
  RawSocket(RawSocket&& other) noexcept;
  ~RawSocket();
  static RawSocket connected(const char* host, std::uint16_t port);
  static RawSocket listening(const char* host, int backlog = 16);
  // Its port is taken and refuses, until somebody listens there beside it.
  static RawSocket bound(const char* host);
  RawSocket accept();
  std::uint16_t port() const;
  void send(std::string_view octets);
  std::string receive(std::size_t n);  // fails the test on a timeout; short at end of stream
  Frame receive_frame();
  bool at_end();  // waits for FIN or RST
  void close();

 private:
  int fd_;
};

int open_fds();
// So many are open in the end: a stream that ended lingers until its peer has closed too, or for close_timeout_ms.
void expect_open_fds(int want);

}  // namespace ewarp::test
