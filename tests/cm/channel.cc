// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/cm/channel.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "provider/cm/cm.h"

// cmocka last: its fail() is a macro.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

constexpr int kPatienceMs = 60'000;

template <class T>
std::uint64_t pointer(T* to) {
  return reinterpret_cast<std::uint64_t>(to);
}

void fill(rdma_ucm_conn_param& p, std::uint32_t qp, std::string_view data, unsigned ird, unsigned ord) {
  p.qp_num = qp;
  std::copy(data.begin(), data.end(), p.private_data);
  p.private_data_len = static_cast<std::uint8_t>(data.size());
  p.responder_resources = static_cast<std::uint8_t>(ird);
  p.initiator_depth = static_cast<std::uint8_t>(ord);
  p.valid = 1;
}

}  // namespace

sockaddr_in6 address(const char* host, std::uint16_t port) {
  sockaddr_in6 a{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(a);
  if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
  } else {
    a.sin6_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, host, &a.sin6_addr), 1);
    a.sin6_port = htons(port);
  }
  return a;
}

std::uint16_t port_of(const void* sockaddr) {
  return ntohs(static_cast<const sockaddr_in6*>(sockaddr)->sin6_port);  // the same place in both families
}

Channel::Channel(int flags) : fd_(cm::ucma_open(flags)) {
  assert_true(fd_ >= 0);
}
Channel::~Channel() {
  close();
}

void Channel::close() {
  if (fd_ < 0) return;
  cm::ucma_close(fd_);
  ::close(std::exchange(fd_, -1));
}

int Channel::run_octets(std::uint32_t command, const void* body, std::size_t in, std::size_t out) {
  std::vector<char> buffer(sizeof(rdma_ucm_cmd_hdr) + in);
  const rdma_ucm_cmd_hdr header{command, static_cast<std::uint16_t>(in), static_cast<std::uint16_t>(out)};
  std::memcpy(buffer.data(), &header, sizeof(header));
  std::memcpy(buffer.data() + sizeof(header), body, in);
  const ssize_t n = cm::ucma_write(fd_, buffer.data(), buffer.size());
  if (n < 0) return static_cast<int>(-n);
  assert_int_equal(n, buffer.size());
  return 0;
}

std::uint32_t Channel::create(std::uint64_t uid, std::uint16_t port_space) {
  rdma_ucm_create_id_resp response{};
  rdma_ucm_create_id c{};
  c.uid = uid;
  c.response = pointer(&response);
  c.ps = port_space;
  c.qp_type = 2;  // RC
  assert_int_equal(run(RDMA_USER_CM_CMD_CREATE_ID, c, sizeof(response)), 0);
  return response.id;
}

std::uint32_t Channel::destroy(std::uint32_t id) {
  rdma_ucm_destroy_id_resp response{};
  rdma_ucm_destroy_id c{};
  c.response = pointer(&response);
  c.id = id;
  assert_int_equal(run(RDMA_USER_CM_CMD_DESTROY_ID, c, sizeof(response)), 0);
  return response.events_reported;
}

int Channel::bind(std::uint32_t id, const sockaddr_in6& to) {
  rdma_ucm_bind_ip c{};
  c.addr = to;
  c.id = id;
  return run(RDMA_USER_CM_CMD_BIND_IP, c);
}

int Channel::resolve(std::uint32_t id, const sockaddr_in6& to) {
  rdma_ucm_resolve_ip c{};
  c.dst_addr = to;
  c.id = id;
  c.timeout_ms = 2000;
  return run(RDMA_USER_CM_CMD_RESOLVE_IP, c);
}

int Channel::resolve_route(std::uint32_t id) {
  return run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
}

int Channel::connect(std::uint32_t id, std::uint32_t qp, std::string_view data, unsigned ird, unsigned ord) {
  rdma_ucm_connect c{};
  c.id = id;
  fill(c.conn_param, qp, data, ird, ord);
  c.conn_param.rnr_retry_count = rnr_retry_count;
  return run(RDMA_USER_CM_CMD_CONNECT, c);
}

int Channel::listen(std::uint32_t id, unsigned backlog) {
  return run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
}

int Channel::accept(std::uint32_t id, std::uint64_t uid, std::uint32_t qp, std::string_view data, unsigned ird,
                    unsigned ord) {
  rdma_ucm_accept c{};
  c.uid = uid;
  c.id = id;
  fill(c.conn_param, qp, data, ird, ord);
  c.conn_param.rnr_retry_count = rnr_retry_count;
  return run(RDMA_USER_CM_CMD_ACCEPT, c);
}

int Channel::reject(std::uint32_t id, std::string_view data, unsigned reason) {
  rdma_ucm_reject c{};
  c.id = id;
  c.reason = static_cast<std::uint8_t>(reason);
  std::copy(data.begin(), data.end(), c.private_data);
  c.private_data_len = static_cast<std::uint8_t>(data.size());
  return run(RDMA_USER_CM_CMD_REJECT, c);
}

int Channel::disconnect(std::uint32_t id) {
  return run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
}

int Channel::set_option(std::uint32_t id, std::uint32_t level, std::uint32_t name, const void* value, unsigned length) {
  return run(RDMA_USER_CM_CMD_SET_OPTION, rdma_ucm_set_option{pointer(value), id, level, name, length});
}

int Channel::migrate(std::uint32_t id, int from, std::uint32_t* reported) {
  rdma_ucm_migrate_resp response{};
  const int error =
      run(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{pointer(&response), id, static_cast<std::uint32_t>(from)},
          sizeof(response));
  *reported = response.events_reported;
  return error;
}

rdma_ucm_query_route_resp Channel::query_route(std::uint32_t id) {
  rdma_ucm_query_route_resp response{};
  assert_int_equal(run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{pointer(&response), id, 0}, sizeof(response)), 0);
  return response;
}

std::uint16_t Channel::port(std::uint32_t id) {
  const auto r = query_route(id);
  return port_of(&r.src_addr);
}

bool Channel::readable() {
  pollfd p{fd_, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

Event Channel::next() {
  pollfd p{fd_, POLLIN, 0};
  if (poll(&p, 1, kPatienceMs) != 1) fail_msg("no event");
  rdma_ucm_event_resp r{};
  assert_int_equal(run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{pointer(&r)}, sizeof(r)), 0);
  return {r.uid, r.id, r.event, static_cast<int>(r.status), r.param.conn};
}

Event Channel::expect(std::uint32_t type) {
  const Event e = next();
  if (e.type != type) print_message("event %u, status %d, id %u\n", e.type, e.status, e.id);
  assert_int_equal(e.type, type);
  return e;
}

std::uint32_t Channel::listener(const char* host, std::uint64_t uid, unsigned backlog, std::uint16_t port) {
  const auto id = create(uid);
  assert_int_equal(bind(id, address(host, port)), 0);
  assert_int_equal(listen(id, backlog), 0);
  return id;
}

std::uint32_t Channel::resolved(const char* host, std::uint16_t port, std::uint64_t uid) {
  const auto id = create(uid);
  assert_int_equal(resolve(id, address(host, port)), 0);
  assert_int_equal(expect(kAddrResolved).status, 0);
  assert_int_equal(resolve_route(id), 0);
  assert_int_equal(expect(kRouteResolved).status, 0);
  return id;
}

std::string encode(const Frame& frame) {
  std::string out = frame.reply ? "MPA ID Rep Frame" : "MPA ID Req Frame";
  out += static_cast<char>(frame.flags);
  out += static_cast<char>(frame.revision);
  out += static_cast<char>(frame.data.size() >> 8);
  out += static_cast<char>(frame.data.size());
  return out + frame.data;
}

std::string enhanced_word(bool peer_to_peer, unsigned forms, unsigned ird, unsigned ord) {
  const unsigned first = (peer_to_peer ? 0x8000U : 0) | ((forms & 1) != 0 ? 0x4000U : 0) | ird;
  const unsigned second = ((forms & 2) != 0 ? 0x8000U : 0) | ((forms & 4) != 0 ? 0x4000U : 0) | ord;
  std::string word;
  for (const unsigned octet : {first >> 8, first, second >> 8, second}) word += static_cast<char>(octet);
  return word;
}

RawSocket::RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
RawSocket::~RawSocket() {
  close();
}

void RawSocket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

namespace {

socklen_t size_of(const sockaddr_in6& a) {
  return a.sin6_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

}  // namespace

RawSocket RawSocket::connected(const char* host, std::uint16_t port) {
  const auto to = address(host, port);
  const int fd = socket(to.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(::connect(fd, reinterpret_cast<const sockaddr*>(&to), size_of(to)), 0);
  return RawSocket(fd);
}

RawSocket RawSocket::bound(const char* host) {
  const auto at = address(host, 0);
  const int fd = socket(at.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  assert_int_equal(::bind(fd, reinterpret_cast<const sockaddr*>(&at), size_of(at)), 0);
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  return RawSocket(fd);
}

RawSocket RawSocket::listening(const char* host, int backlog) {
  const auto at = address(host, 0);
  const int fd = socket(at.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(::bind(fd, reinterpret_cast<const sockaddr*>(&at), size_of(at)), 0);
  if (backlog >= 0) assert_int_equal(::listen(fd, backlog), 0);
  return RawSocket(fd);
}

RawSocket RawSocket::accept() {
  pollfd p{fd_, POLLIN, 0};
  assert_int_equal(poll(&p, 1, kPatienceMs), 1);
  return RawSocket(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
}

std::uint16_t RawSocket::port() const {
  sockaddr_in6 a{};
  socklen_t size = sizeof(a);
  assert_int_equal(getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size), 0);
  return port_of(&a);
}

void RawSocket::send(std::string_view octets) {
  assert_int_equal(::send(fd_, octets.data(), octets.size(), MSG_NOSIGNAL), octets.size());
}

std::string RawSocket::receive(std::size_t n) {
  std::string out;
  while (out.size() < n) {
    pollfd p{fd_, POLLIN, 0};
    if (poll(&p, 1, kPatienceMs) != 1) fail_msg("nothing received");
    char buffer[1024];
    const auto got = recv(fd_, buffer, std::min(sizeof(buffer), n - out.size()), 0);
    if (got <= 0) break;
    out.append(buffer, static_cast<std::size_t>(got));
  }
  return out;
}

Frame RawSocket::receive_frame() {
  const std::string header = receive(20);
  assert_int_equal(header.size(), 20);
  const auto octet = [&](std::size_t at) { return static_cast<unsigned char>(header[at]); };
  Frame f;
  f.reply = header.starts_with("MPA ID Rep Frame");
  assert_true(f.reply || header.starts_with("MPA ID Req Frame"));
  f.flags = octet(16);
  f.revision = octet(17);
  f.data = receive(octet(18) * 256U + octet(19));
  return f;
}

bool RawSocket::at_end() {
  return receive(1).empty();
}

int open_fds() {
  int n = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

void expect_open_fds(int want) {
  constexpr int kPatience = 60'000, kStep = 5;  // milliseconds
  for (int waited = 0; waited < kPatience && open_fds() != want; waited += kStep) poll(nullptr, 0, kStep);
  assert_int_equal(open_fds(), want);
}

}  // namespace ewarp::test
