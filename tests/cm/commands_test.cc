// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The command interface itself: lengths, pointers, wrong ids and states, queries, options, GET_EVENT, garbage.
#include <endian.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "provider/cm/cm.h"
#include "tests/cm/channel.h"
#include "tests/cm/standins.h"

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

template <class T>
std::uint64_t pointer(T* to) {
  return reinterpret_cast<std::uint64_t>(to);
}

void headers_are_checked(void**) {
  Channel channel;
  struct {
    rdma_ucm_cmd_hdr header;
    char body[64] = {};
  } m;
  const struct {
    const char* name;
    rdma_ucm_cmd_hdr header;
    std::size_t length;
    int error;
  } cases[] = {
      {"no header", {RDMA_USER_CM_CMD_LISTEN, 0, 0}, 7, EINVAL},
      {"RESOLVE_IB_SERVICE of newer libraries", {23, 56, 0}, 64, ENOSYS},
      {"WRITE_CM_EVENT of newer libraries", {24, 56, 0}, 64, ENOSYS},
      {"unknown command", {25, 8, 0}, 16, EINVAL},
      {"huge command", {0xffffffff, 8, 0}, 16, EINVAL},
      {"in beyond the write", {RDMA_USER_CM_CMD_LISTEN, 9, 0}, 16, EINVAL},
      {"in too short for the command", {RDMA_USER_CM_CMD_LISTEN, 7, 0}, 16, EINVAL},
      {"GET_OPTION", {RDMA_USER_CM_CMD_GET_OPTION, 24, 0}, 32, ENOSYS},
      {"no such id", {RDMA_USER_CM_CMD_LISTEN, 8, 0}, 16, ENOENT},
      {"no such id", {RDMA_USER_CM_CMD_JOIN_IP_MCAST, 48, 4}, 56, ENOENT},
      {"no such group", {RDMA_USER_CM_CMD_LEAVE_MCAST, 16, 4}, 24, ENOENT},
      {"short response", {RDMA_USER_CM_CMD_CREATE_ID, 24, 3}, 32, ENOSPC},
      {"short response", {RDMA_USER_CM_CMD_DESTROY_ID, 16, 3}, 24, ENOSPC},
      {"short response", {RDMA_USER_CM_CMD_GET_EVENT, 8, 323}, 16, ENOSPC},
      {"short response", {RDMA_USER_CM_CMD_MIGRATE_ID, 16, 3}, 24, ENOSPC},
  };
  for (const auto& c : cases) {
    print_message("case: %s (%u)\n", c.name, c.header.cmd);
    m.header = c.header;
    std::memset(m.body, 0xff, sizeof(m.body));
    assert_int_equal(cm::ucma_write(channel.fd(), &m, c.length), -c.error);
  }
  assert_int_equal(cm::ucma_write(channel.fd(), nullptr, 16), -EFAULT);
  m.header = {RDMA_USER_CM_CMD_LISTEN, 8, 0};
  assert_int_equal(cm::ucma_write(0, &m, 16), -EBADF);
  assert_false(cm::ucma_is(0) || cm::ucma_is(-1) || cm::ucma_is(1 << 30));
  assert_true(cm::ucma_is(channel.fd()));
}

// A program closed the channel with close_range(), and its own eventfd got the number.
void another_eventfd_gets_no_tokens(void**) {
  Channel channel;
  const std::uint32_t id = channel.create(1);
  const int own = eventfd(0, EFD_NONBLOCK);
  assert_int_equal(dup2(own, channel.fd()), channel.fd());
  assert_int_equal(channel.resolve(id, address("::1", 1)), 0);
  settle();
  std::uint64_t count = 0;
  assert_int_equal(read(own, &count, sizeof count), -1);
  // Nor does the end of the channel take what the program put there.
  assert_int_equal(eventfd_write(own, 3), 0);
  channel.destroy(id);
  assert_int_equal(read(own, &count, sizeof count), sizeof count);
  assert_int_equal(count, 3);
  close(own);
}

void older_and_newer_libraries_fit(void**) {
  Channel channel;
  // Longer than we know: the rest is ignored. Shorter: without the ece member.
  struct {
    rdma_ucm_resolve_route command;
    char rest[100];
  } longer{};
  const auto id = channel.resolved("127.0.0.1", 9, 1);
  longer.command.id = id;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, longer), EINVAL);  // the state, not the length
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param.valid = 1;
  connect.conn_param.qp_num = 0xffffff;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_CONNECT, connect, 0, offsetof(rdma_ucm_connect, ece)), EINVAL);
  connect.conn_param.qp_num = make_qp();
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_CONNECT, connect, 0, offsetof(rdma_ucm_connect, ece)), 0);
  channel.expect(kRejected);

  char short_response[offsetof(rdma_ucm_query_route_resp, ibdev_index) + 8];
  std::memset(short_response, 0x5a, sizeof(short_response));
  rdma_ucm_query query{pointer(short_response), id, 0};
  assert_int_equal(
      channel.run(RDMA_USER_CM_CMD_QUERY_ROUTE, query, sizeof(short_response) - 8, offsetof(rdma_ucm_query, option)),
      0);
  for (std::size_t i = sizeof(short_response) - 8; i < sizeof(short_response); ++i)
    assert_int_equal(short_response[i], 0x5a);  // not a single octet beyond `out`
}

void bad_pointers_are_errors(void**) {
  Channel channel(O_NONBLOCK);
  const std::uint64_t nowhere = 8;
  rdma_ucm_create_id create{};
  create.ps = RDMA_PS_TCP;
  create.uid = 1;
  create.response = nowhere;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_CREATE_ID, create, 4), EFAULT);
  const auto id = channel.create(1);
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{nowhere, id, 0}, 512), EFAULT);
  assert_int_equal(channel.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, reinterpret_cast<void*>(nowhere), 1),
                   EFAULT);
  assert_int_equal(channel.resolve(id, address("127.0.0.1", 9)), 0);
  // The event is not lost.
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{nowhere}, 336), EFAULT);
  channel.expect(kAddrResolved);
  assert_int_equal(channel.destroy(id), 1);
}

void port_spaces(void**) {
  Channel channel;
  const struct {
    std::uint16_t space;
    bool connected;  // where nobody listens, TCP says so at once
  } cases[] = {{RDMA_PS_TCP, true}, {RDMA_PS_IB, true}, {RDMA_PS_UDP, false}, {RDMA_PS_IPOIB, false}};
  for (const auto& c : cases) {
    const auto listener = channel.create(1, c.space);
    assert_int_equal(channel.bind(listener, address("127.0.0.1", 0)), 0);
    assert_int_not_equal(channel.port(listener), 0);
    assert_int_equal(channel.listen(listener), 0);
    const auto id = channel.create(2, c.space);
    assert_int_equal(channel.resolve(id, address("127.0.0.1", 9)), 0);
    channel.expect(kAddrResolved);
    assert_int_equal(channel.resolve_route(id), 0);
    channel.expect(kRouteResolved);
    assert_int_equal(channel.connect(id, make_qp()), 0);
    if (c.connected) channel.expect(kRejected);
  }
  rdma_ucm_create_id_resp response;
  rdma_ucm_create_id create{};
  create.response = pointer(&response);
  create.ps = 0x1234;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(response)), EINVAL);
}

void addresses_are_checked(void**) {
  Channel channel;
  const struct {
    const char* host;
    int error;
  } cases[] = {
      {"127.0.0.1", 0},
      {"127.1.2.3", 0},
      {"0.0.0.0", 0},
      {"192.0.2.1", EADDRNOTAVAIL},
      {"2001:db8::1", EADDRNOTAVAIL},
      {"fe80::1", EINVAL},  // link-local without a scope
  };
  for (const auto& c : cases) {
    print_message("case: %s\n", c.host);
    assert_int_equal(channel.bind(channel.create(1), address(c.host, 0)), c.error);
  }
  // librdmacm's probe for AF_IB: refused.
  rdma_ucm_bind bind{};
  bind.id = channel.create(1, RDMA_PS_IB);
  bind.addr_size = 48;
  bind.addr.ss_family = 27;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_BIND, bind), EAFNOSUPPORT);
  bind.addr.ss_family = AF_INET;
  bind.addr_size = 8;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_BIND, bind), EINVAL);
  bind.addr_size = 0;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_BIND, bind), EINVAL);
  bind.addr_size = 129;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_BIND, bind), EINVAL);
  sockaddr_in6 none{};
  assert_int_equal(channel.bind(bind.id, none), EINVAL);
  assert_int_equal(channel.resolve(bind.id, none), EINVAL);
  // A second bind; a destination of the other family.
  assert_int_equal(channel.bind(bind.id, address("127.0.0.1", 0)), 0);
  assert_int_equal(channel.bind(bind.id, address("127.0.0.1", 0)), EINVAL);
  assert_int_equal(channel.resolve(bind.id, address("::1", 9)), EINVAL);
}

void newer_address_commands(void**) {
  Channel channel;
  const auto id = channel.create(1);
  rdma_ucm_resolve_addr resolve{};
  resolve.id = id;
  const sockaddr_in6 from = address("127.0.0.3", 0), to = address("127.0.0.1", 7471);
  resolve.src_size = resolve.dst_size = sizeof(sockaddr_in);
  std::memcpy(&resolve.src_addr, &from, sizeof(sockaddr_in));
  std::memcpy(&resolve.dst_addr, &to, sizeof(sockaddr_in));
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve), 0);
  channel.expect(kAddrResolved);

  rdma_ucm_query_addr_resp r{};
  rdma_ucm_query query{pointer(&r), id, RDMA_USER_CM_QUERY_ADDR};
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_QUERY, query, sizeof(r)), 0);
  assert_int_equal(r.node_guid, htobe64(loopback_guid()));
  assert_int_equal(r.port_num, 1);
  assert_int_equal(r.pkey, 0xffff);
  assert_int_equal(r.src_size, sizeof(sockaddr_in));
  assert_int_equal(r.dst_size, sizeof(sockaddr_in));
  assert_memory_equal(&r.dst_addr, &to, sizeof(sockaddr_in));
  assert_memory_equal(reinterpret_cast<char*>(&r.src_addr) + 4, reinterpret_cast<const char*>(&from) + 4, 4);

  query.option = RDMA_USER_CM_QUERY_GID;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_QUERY, query, sizeof(r)), 0);
  const unsigned char mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 3};
  assert_int_equal(r.src_addr.ss_family, 27);
  assert_int_equal(r.src_size, 48);
  assert_memory_equal(reinterpret_cast<char*>(&r.src_addr) + 8, mapped, 16);

  rdma_ucm_query_path_resp path{};
  path.num_paths = 9;
  query = {pointer(&path), id, RDMA_USER_CM_QUERY_PATH};
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_QUERY, query, sizeof(path)), 0);
  assert_int_equal(path.num_paths, 0);
  query.option = 3;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_QUERY, query, sizeof(r)), ENOSYS);
}

void queue_pair_attributes(void**) {
  Channel channel;
  const auto id = channel.create(1);
  ib_uverbs_qp_attr r{};
  rdma_ucm_init_qp_attr init{pointer(&r), id, IBV_QPS_INIT};
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof(r)), EINVAL);  // no device yet
  assert_int_equal(channel.resolve(id, address("127.0.0.1", 9)), 0);
  channel.expect(kAddrResolved);
  const struct {
    std::uint32_t state;
    int error;
    std::uint32_t mask;
  } cases[] = {{IBV_QPS_RESET, EINVAL, 0}, {IBV_QPS_INIT, 0, 0x29},  {IBV_QPS_RTR, 0, 0x29},
               {IBV_QPS_RTS, 0, 0x20},     {IBV_QPS_ERR, EINVAL, 0}, {7, EINVAL, 0}};
  for (const auto& c : cases) {
    init.qp_state = c.state;
    r = {};
    assert_int_equal(channel.run(RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof(r)), c.error);
    assert_int_equal(r.qp_attr_mask, c.mask);
    if (c.error == 0) assert_int_equal(r.port_num, 1);
    if (c.mask == 0x29) assert_int_equal(r.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  }
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof(r) - 1), ENOSPC);
}

void options_are_checked(void**) {
  Channel channel;
  const auto id = channel.create(1);
  const int on = 1;
  const struct {
    std::uint32_t level, name;
    unsigned length;
    int error;
  } cases[] = {
      {RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1, 0},
      {RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 4, EINVAL},
      {RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 4, 0},
      {RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1, EINVAL},
      {RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 4, 0},
      {RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 0, EINVAL},
      {RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1, 0},
      {RDMA_OPTION_ID, 4, 4, ENOSYS},
      {RDMA_OPTION_ID, 4, 4000, ENOSYS},
      {2, 0, 4, ENOSYS},
      {RDMA_OPTION_IB, 0, 4, ENOSYS},
      {RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 3, EINVAL},
      {RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 72, EINVAL},  // before the address is resolved
  };
  for (const auto& c : cases) {
    print_message("case: level %u name %u length %u\n", c.level, c.name, c.length);
    assert_int_equal(channel.set_option(id, c.level, c.name, &on, c.length), c.error);
  }
  // An explicit path stands for RESOLVE_ROUTE.
  assert_int_equal(channel.resolve(id, address("127.0.0.1", 9)), 0);
  channel.expect(kAddrResolved);
  assert_int_equal(channel.set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &on, 72), 0);
  channel.expect(kRouteResolved);
}

void commands_out_of_order(void**) {
  Channel channel, other;
  const auto id = channel.create(1);
  const auto qp = make_qp();
  assert_int_equal(channel.resolve_route(id), EINVAL);
  assert_int_equal(channel.connect(id, qp), EINVAL);
  assert_int_equal(channel.accept(id, 1, qp), EINVAL);
  assert_int_equal(channel.reject(id), EINVAL);
  assert_int_equal(channel.disconnect(id), EINVAL);
  assert_int_equal(other.listen(id), EINVAL);  // another channel's id
  assert_int_equal(channel.listen(id), 0);
  assert_int_equal(channel.resolve(id, address("127.0.0.1", 9)), EINVAL);
  assert_int_equal(channel.connect(id, qp), EINVAL);
  assert_int_equal(channel.accept(id, 1, qp), EINVAL);
  assert_int_equal(channel.disconnect(id), EINVAL);
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id, 0}), 0);
  channel.destroy(id);
  assert_int_equal(channel.listen(id), ENOENT);
  // The active side's RTU exists on InfiniBand alone.
  const auto next = channel.create(1);
  rdma_ucm_accept rtu{};
  rtu.id = next;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_ACCEPT, rtu), EINVAL);
}

void destroy_takes_waiting_events_back(void**) {
  Channel channel(O_NONBLOCK);
  const auto keep = channel.create(1), gone = channel.create(2);
  assert_int_equal(channel.resolve(gone, address("127.0.0.1", 9)), 0);
  assert_int_equal(channel.resolve(keep, address("127.0.0.1", 9)), 0);
  assert_int_equal(channel.resolve_route(gone), 0);
  assert_int_equal(channel.destroy(gone), 0);
  assert_int_equal(channel.expect(kAddrResolved).id, keep);
  assert_false(channel.readable());
  rdma_ucm_event_resp r;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{pointer(&r)}, sizeof(r)), EAGAIN);
  assert_int_equal(channel.destroy(keep), 1);
}

void events_of_an_unknown_consumer_are_dropped(void**) {
  Channel channel(O_NONBLOCK);
  const auto id = channel.create(0);
  assert_int_equal(channel.resolve(id, address("127.0.0.1", 9)), 0);
  assert_false(channel.readable());
}

void* wait_for_event(void* channel) {
  rdma_ucm_event_resp r;
  static_cast<Channel*>(channel)->run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{pointer(&r)}, sizeof(r));
  return nullptr;
}

void a_waiting_thread_can_be_cancelled(void**) {
#ifdef __SANITIZE_ADDRESS__
  skip();  // it takes the unwinding of a cancelled thread for a stack overflow
#endif
  Channel channel;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, wait_for_event, &channel), 0);
  assert_int_equal(pthread_cancel(thread), 0);
  void* result = nullptr;
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  // Nothing is held: the channel works.
  const auto id = channel.create(1);
  assert_int_equal(channel.resolve(id, address("127.0.0.1", 9)), 0);
  channel.expect(kAddrResolved);
}

void a_channel_that_waits_no_more_ends_the_wait(void**) {
  Channel channel;
  std::atomic<int> result{-1};
  std::thread waiting([&] {
    rdma_ucm_event_resp r;
    result = channel.run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{pointer(&r)}, sizeof(r));
  });
  poll(nullptr, 0, 50);
  assert_int_equal(fcntl(channel.fd(), F_SETFL, O_NONBLOCK), 0);
  // As of an event that DESTROY_ID has taken back at this moment.
  assert_int_equal(eventfd_write(channel.fd(), 1), 0);
  for (int i = 0; i < 10000 && result == -1; ++i) poll(nullptr, 0, 1);
  assert_int_equal(result, EAGAIN);
  waiting.join();
}

void a_signal_interrupts_the_wait(void**) {
  Channel channel;
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction old;
  sigaction(SIGALRM, &action, &old);
  const itimerval often{{0, 10000}, {0, 10000}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  rdma_ucm_event_resp r;
  const int error = channel.run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{pointer(&r)}, sizeof(r));
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &old, nullptr);
  assert_int_equal(error, EINTR);
}

// Draws commands that are mostly plausible: known ids, loopback addresses, real queue pairs.
class Garbage {
 public:
  Garbage(unsigned seed, int first_fd, int second_fd) : random_(seed), fds_{first_fd, second_fd} {
    for (auto& qp : qps_) qp = make_qp();
  }
  ~Garbage() {
    for (const auto qp : qps_) destroy_qp(qp);
  }
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  // Some of the queue pairs got a stream: fresh ones.
  void renew_queue_pairs() {
    for (auto& qp : qps_) {
      destroy_qp(qp);
      qp = make_qp();
    }
  }
  // Fills message; returns the length to write.
  std::size_t draw(unsigned char (&message)[512]) {
    for (auto& octet : message) octet = static_cast<unsigned char>(below(3) != 0 ? 0 : random_());
    rdma_ucm_cmd_hdr header{below(25), static_cast<std::uint16_t>(below(400)), 512};
    if (header.cmd == RDMA_USER_CM_CMD_CREATE_ID && below(4) != 0) header.cmd = RDMA_USER_CM_CMD_CONNECT;
    if (header.cmd == RDMA_USER_CM_CMD_DESTROY_ID && below(4) != 0) header.cmd = RDMA_USER_CM_CMD_ACCEPT;
    if (below(4) == 0) header.out = static_cast<std::uint16_t>(below(sizeof(response_)));
    const std::uint16_t usual = fill(header.cmd, message + sizeof(header));
    if (below(10) != 0) header.in = usual;
    std::memcpy(message, &header, sizeof(header));
    const std::size_t length = below(20) != 0 ? sizeof(header) + header.in : below(sizeof(message));
    return std::min(length, sizeof(message));
  }

 private:
  std::uint32_t id() { return below(12); }
  std::uint64_t response() { return below(8) != 0 ? pointer(response_) : random_(); }
  sockaddr_in6 near() {
    return address("127.0.0.1", below(3) == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(40000 + below(2)));
  }
  void fill(rdma_ucm_conn_param& p) {
    p.valid = below(8) != 0;
    p.qp_num = qps_[below(8)];
    p.private_data_len = static_cast<std::uint8_t>(random_());
    p.initiator_depth = static_cast<std::uint8_t>(random_());
  }
  template <class T>
  static std::uint16_t put(unsigned char* body, const T& command) {
    std::memcpy(body, &command, sizeof(command));
    return sizeof(command);
  }
  // Returns the command's usual length.
  std::uint16_t fill(std::uint32_t command, unsigned char* body) {
    switch (command) {
      case RDMA_USER_CM_CMD_CREATE_ID: {
        rdma_ucm_create_id c{below(4), response(), RDMA_PS_TCP, IBV_QPT_RC, {}};
        if (below(8) == 0) c.ps = static_cast<std::uint16_t>(random_());
        return put(body, c);
      }
      case RDMA_USER_CM_CMD_BIND_IP:
        return put(body, rdma_ucm_bind_ip{0, near(), id()});
      case RDMA_USER_CM_CMD_RESOLVE_IP:
        return put(body, rdma_ucm_resolve_ip{{}, near(), id(), 0});
      case RDMA_USER_CM_CMD_CONNECT: {
        rdma_ucm_connect c{};
        c.id = id();
        fill(c.conn_param);
        return put(body, c);
      }
      case RDMA_USER_CM_CMD_ACCEPT: {
        rdma_ucm_accept c{};
        c.id = id();
        c.uid = below(3);
        fill(c.conn_param);
        return put(body, c);
      }
      case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      case RDMA_USER_CM_CMD_LISTEN:
      case RDMA_USER_CM_CMD_DISCONNECT:
      case RDMA_USER_CM_CMD_REJECT:
        put(body, id());
        return sizeof(rdma_ucm_reject);  // the longest of them
      case RDMA_USER_CM_CMD_MIGRATE_ID:
        return put(body, rdma_ucm_migrate_id{response(), id(), static_cast<std::uint32_t>(fds_[below(2)])});
      default:
        put(body, response());
        put(body + 8, id());
        return 400;
    }
  }

  std::mt19937 random_;
  int fds_[2];
  std::uint32_t qps_[8];
  alignas(8) char response_[4096];
};

// Any answer is good; a crash, a hang or a lost descriptor is not.
void garbage_does_no_harm(void**) {
  const unsigned seed = 20240611;
  print_message("seed %u\n", seed);
  settle();
  const int fds = open_fds();
  {
    Channel channel(O_NONBLOCK), other(O_NONBLOCK);
    Garbage garbage(seed, channel.fd(), other.fd());
    for (int round = 0; round < 40000; ++round) {
      alignas(8) unsigned char message[512];
      const std::size_t length = garbage.draw(message);
      const ssize_t n = cm::ucma_write(garbage.below(5) != 0 ? channel.fd() : other.fd(), message, length);
      assert_true(n < 0 || static_cast<std::size_t>(n) == length);
      if (round % 20 == 0) settle();  // lets connections get further than their first step
      if (round % 1000 == 0) garbage.renew_queue_pairs();
    }
  }
  expect_open_fds(fds);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "300", 1);
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(headers_are_checked),
      cmocka_unit_test(another_eventfd_gets_no_tokens),
      cmocka_unit_test(older_and_newer_libraries_fit),
      cmocka_unit_test(bad_pointers_are_errors),
      cmocka_unit_test(port_spaces),
      cmocka_unit_test(addresses_are_checked),
      cmocka_unit_test(newer_address_commands),
      cmocka_unit_test(queue_pair_attributes),
      cmocka_unit_test(options_are_checked),
      cmocka_unit_test(commands_out_of_order),
      cmocka_unit_test(destroy_takes_waiting_events_back),
      cmocka_unit_test(events_of_an_unknown_consumer_are_dropped),
      cmocka_unit_test(a_waiting_thread_can_be_cancelled),
      cmocka_unit_test(a_channel_that_waits_no_more_ends_the_wait),
      cmocka_unit_test(a_signal_interrupts_the_wait),
      cmocka_unit_test(garbage_does_no_harm),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
