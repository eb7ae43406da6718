// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A kernel's rdma_cm beside ours: who answers for an id, and that events of both come through one channel. The kernel
// is a stand-in that keeps a diary.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "provider/cm/cm.h"
#include "provider/cm/kernel.h"
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

constexpr const char* kElsewhere = "192.0.2.1";  // no device of ours has it or leads there

struct FakeKernel {
  struct File {
    std::deque<rdma_ucm_event_resp> events;
    std::map<std::uint32_t, std::uint32_t> reported;  // of each id
  };
  std::mutex mutex;
  std::map<int, File> files;
  std::vector<std::uint32_t> diary;  // numbers of the commands, GET_EVENT left out
  std::uint32_t next_id = 1000;
  int next_error = 0;

  // listener: of a new id. A channel that a test has closed may still be open when the next one begins.
  void post(std::uint64_t uid, std::uint32_t id, std::uint32_t type, std::uint32_t listener = 0) {
    const std::lock_guard guard(mutex);
    rdma_ucm_event_resp event{};
    event.uid = uid;
    event.id = id;
    event.event = type;
    const std::uint32_t known = listener != 0 ? listener : id;
    const auto at = std::find_if(files.begin(), files.end(),
                                 [known](const auto& f) { return f.second.reported.count(known) != 0; });
    assert_true(at != files.end());
    at->second.events.push_back(event);
    eventfd_write(at->first, 1);
  }
  bool did(std::uint32_t command) {
    const std::lock_guard guard(mutex);
    return std::find(diary.begin(), diary.end(), command) != diary.end();
  }
  void forget() {
    const std::lock_guard guard(mutex);
    diary.clear();
  }
};
FakeKernel kernel;

template <class T>
T body(const void* command) {
  T out;
  std::memcpy(&out, static_cast<const char*>(command) + sizeof(rdma_ucm_cmd_hdr), sizeof out);
  return out;
}

int open_fake() {
  const std::lock_guard guard(kernel.mutex);
  // Numbers of closed channels come back.
  std::erase_if(kernel.files, [](const auto& f) { return fcntl(f.first, F_GETFD) < 0; });
  const int low = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
  const int fd = fcntl(low, F_DUPFD_CLOEXEC, 300);  // stays where it is
  close(low);
  kernel.files[fd];
  return fd;
}

ssize_t write_fake(int fd, const void* command, std::size_t size) {
  const std::lock_guard guard(kernel.mutex);
  const auto header = *static_cast<const rdma_ucm_cmd_hdr*>(command);
  assert_int_equal(size, sizeof header + header.in);
  auto& file = kernel.files.at(fd);
  if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
    std::uint64_t one;
    if (file.events.empty() || read(fd, &one, sizeof one) < 0) return -EAGAIN;
    const auto get = body<rdma_ucm_get_event>(command);
    std::memcpy(reinterpret_cast<void*>(get.response), &file.events.front(), header.out);
    ++file.reported[file.events.front().id];
    file.events.pop_front();
    return static_cast<ssize_t>(size);
  }
  kernel.diary.push_back(header.cmd);
  if (kernel.next_error != 0) return -std::exchange(kernel.next_error, 0);
  if (header.cmd == RDMA_USER_CM_CMD_CREATE_ID) {
    const auto create = body<rdma_ucm_create_id>(command);
    reinterpret_cast<rdma_ucm_create_id_resp*>(create.response)->id = kernel.next_id;
    file.reported[kernel.next_id++] = 0;
  } else if (header.cmd == RDMA_USER_CM_CMD_DESTROY_ID) {
    const auto destroy = body<rdma_ucm_destroy_id>(command);
    if (file.reported.count(destroy.id) == 0) return -ENOENT;
    reinterpret_cast<rdma_ucm_destroy_id_resp*>(destroy.response)->events_reported = file.reported[destroy.id];
    file.reported.erase(destroy.id);
  } else if (header.cmd == RDMA_USER_CM_CMD_MIGRATE_ID) {
    const auto migrate = body<rdma_ucm_migrate_id>(command);
    auto& from = kernel.files.at(static_cast<int>(migrate.fd));
    reinterpret_cast<rdma_ucm_migrate_resp*>(migrate.response)->events_reported = from.reported.at(migrate.id);
    file.reported[migrate.id] = from.reported[migrate.id];
    from.reported.erase(migrate.id);
  }
  return static_cast<ssize_t>(size);
}

int in_kernel() {
  const std::lock_guard guard(kernel.mutex);
  int n = 0;
  for (const auto& [fd, file] : kernel.files)
    if (fcntl(fd, F_GETFD) >= 0) n += static_cast<int>(file.reported.size());
  return n;
}

void an_address_of_ours_is_ours(void**) {
  Channel server, client;
  const auto listener = server.listener("127.0.0.1", 1);
  kernel.forget();
  const auto id = client.resolved("127.0.0.1", server.port(listener), 2);
  assert_int_equal(client.connect(id, make_qp(), "hello"), 0);
  const Event request = server.expect(kConnectRequest);
  assert_int_equal(server.accept(request.id, 3, make_qp()), 0);
  client.expect(kEstablished);
  server.expect(kEstablished);
  for (const std::uint32_t command : {RDMA_USER_CM_CMD_RESOLVE_IP, RDMA_USER_CM_CMD_CONNECT, RDMA_USER_CM_CMD_ACCEPT})
    assert_false(kernel.did(command));
  assert_int_equal(in_kernel(), 3);  // the numbers of all three
  assert_int_equal(client.destroy(id), 3);
  assert_int_equal(server.expect(kDisconnected).id, request.id);
  assert_int_equal(server.destroy(request.id), 2);
  assert_int_equal(server.destroy(listener), 1);
  assert_int_equal(in_kernel(), 0);
}

void another_address_is_the_kernels(void**) {
  Channel channel;
  const auto id = channel.create(7);
  assert_int_equal(channel.resolve(id, address(kElsewhere, 7471)), 0);
  assert_true(kernel.did(RDMA_USER_CM_CMD_RESOLVE_IP));
  assert_false(channel.readable());
  kernel.post(7, id, kAddrResolved);
  assert_true(channel.readable());
  const Event event = channel.expect(kAddrResolved);
  assert_int_equal(event.uid, 7);
  assert_false(channel.readable());
  kernel.forget();
  assert_int_equal(channel.resolve_route(id), 0);
  assert_int_equal(channel.connect(id, 5), 0);
  assert_true(kernel.did(RDMA_USER_CM_CMD_RESOLVE_ROUTE) && kernel.did(RDMA_USER_CM_CMD_CONNECT));
  assert_int_equal(channel.destroy(id), 1);
  assert_int_equal(in_kernel(), 0);
}

void what_the_kernel_refuses_is_refused(void**) {
  Channel channel;
  const auto id = channel.create(7);
  kernel.next_error = EADDRNOTAVAIL;
  assert_int_equal(channel.bind(id, address(kElsewhere, 7471)), EADDRNOTAVAIL);
  // Nobody has claimed it: an address of ours still can.
  assert_int_equal(channel.bind(id, address("127.0.0.1", 0)), 0);
  assert_int_not_equal(channel.port(id), 0);
  kernel.next_error = ENOMEM;
  rdma_ucm_create_id_resp response{};
  rdma_ucm_create_id create{};
  create.response = reinterpret_cast<std::uintptr_t>(&response);
  create.ps = RDMA_PS_TCP;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof response), ENOMEM);
}

void a_bound_id_takes_its_port_along(void**) {
  Channel channel;
  const auto id = channel.create(7);
  assert_int_equal(channel.bind(id, address("0.0.0.0", 0)), 0);
  assert_false(kernel.did(RDMA_USER_CM_CMD_BIND_IP));
  assert_int_equal(channel.resolve(id, address(kElsewhere, 7471)), 0);
  assert_true(kernel.did(RDMA_USER_CM_CMD_BIND_IP) && kernel.did(RDMA_USER_CM_CMD_RESOLVE_IP));
}

void a_wildcard_listens_in_both(void**) {
  Channel server, client;
  const auto listener = server.listener("0.0.0.0", 1);
  assert_true(kernel.did(RDMA_USER_CM_CMD_BIND_IP) && kernel.did(RDMA_USER_CM_CMD_LISTEN));
  const auto id = client.resolved("127.0.0.1", server.port(listener), 2);
  assert_int_equal(client.connect(id, make_qp()), 0);
  const Event ours = server.expect(kConnectRequest);
  assert_int_equal(server.reject(ours.id), 0);
  client.expect(kRejected);
  // One of the kernel's: an id that we have never heard of. It answers, and can move to another channel.
  const std::uint32_t theirs = 5555;
  kernel.post(1, theirs, kConnectRequest, listener);
  assert_int_equal(server.expect(kConnectRequest).id, theirs);
  kernel.forget();
  assert_int_equal(server.accept(theirs, 3, 5), 0);
  assert_true(kernel.did(RDMA_USER_CM_CMD_ACCEPT));
  Channel third;
  std::uint32_t reported = 0;
  assert_int_equal(third.migrate(theirs, server.fd(), &reported), 0);
  assert_int_equal(reported, 1);
  assert_int_equal(third.destroy(theirs), 1);
}

void a_wildcard_listens_with_us_alone(void**) {
  Channel server;
  const auto listener = server.create(1);
  assert_int_equal(server.bind(listener, address("0.0.0.0", 0)), 0);
  kernel.next_error = EADDRINUSE;
  assert_int_equal(server.listen(listener), 0);
}

void options_go_to_both(void**) {
  Channel channel;
  const auto id = channel.create(1);
  const std::uint8_t tos = 0x20;
  assert_int_equal(channel.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos), 0);
  assert_true(kernel.did(RDMA_USER_CM_CMD_SET_OPTION));
}

void a_newer_command_is_the_kernels_to_know(void**) {
  Channel channel;
  const std::uint64_t nothing[4] = {};
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_JOIN_MCAST + 2, nothing), 0);
  assert_true(kernel.did(RDMA_USER_CM_CMD_JOIN_MCAST + 2));
}

void ids_move_with_what_the_kernel_reported(void**) {
  Channel first, second;
  const auto id = first.create(7);
  assert_int_equal(first.resolve(id, address(kElsewhere, 7471)), 0);
  kernel.post(7, id, kAddrResolved);
  first.expect(kAddrResolved);
  std::uint32_t reported = 0;
  assert_int_equal(second.migrate(id, first.fd(), &reported), 0);
  assert_int_equal(reported, 1);
  kernel.post(7, id, kRouteResolved);
  second.expect(kRouteResolved);
  assert_int_equal(second.destroy(id), 2);
}

void waiting_and_not_waiting(void**) {
  {
    Channel impatient(O_NONBLOCK);
    rdma_ucm_event_resp response;
    rdma_ucm_get_event get{reinterpret_cast<std::uintptr_t>(&response)};
    assert_int_equal(impatient.run(RDMA_USER_CM_CMD_GET_EVENT, get, sizeof response), EAGAIN);
  }
  Channel channel;
  const auto id = channel.create(7);
  assert_int_equal(channel.resolve(id, address(kElsewhere, 7471)), 0);
  std::thread later([id] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kernel.post(7, id, kAddrResolved);
  });
  rdma_ucm_event_resp response{};
  rdma_ucm_get_event get{reinterpret_cast<std::uintptr_t>(&response)};
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_GET_EVENT, get, sizeof response), 0);
  assert_int_equal(response.uid, 7);
  later.join();
}

void nothing_is_left_open(void**) {
  const int before = open_fds();
  {
    Channel channel;
    channel.listener("0.0.0.0", 1);
  }
  expect_open_fds(before);
}

void* wait_for_event(void* channel) {
  rdma_ucm_event_resp response;
  rdma_ucm_get_event get{reinterpret_cast<std::uintptr_t>(&response)};
  static_cast<Channel*>(channel)->run(RDMA_USER_CM_CMD_GET_EVENT, get, sizeof response);
  return nullptr;
}

// A thread that waited goes on waiting, as in the kernel, and keeps nothing.
void nothing_is_left_open_to_who_waits(void**) {
#ifdef __SANITIZE_ADDRESS__
  skip();  // it takes the unwinding of a cancelled thread for a stack overflow
#endif
  const int before = open_fds();
  Channel channel;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, wait_for_event, &channel), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  channel.close();
  expect_open_fds(before);
  assert_int_equal(pthread_cancel(thread), 0);
  assert_int_equal(pthread_join(thread, nullptr), 0);
}

int forget_all(void**) {
  kernel.forget();
  kernel.next_error = 0;
  return 0;
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  ewarp::cm::kernel_calls = {open_fake, write_fake};
  settle();
#define KERNEL_TEST(f) cmocka_unit_test_setup(f, forget_all)
  const CMUnitTest tests[] = {
      KERNEL_TEST(an_address_of_ours_is_ours),
      KERNEL_TEST(another_address_is_the_kernels),
      KERNEL_TEST(what_the_kernel_refuses_is_refused),
      KERNEL_TEST(a_bound_id_takes_its_port_along),
      KERNEL_TEST(a_wildcard_listens_in_both),
      KERNEL_TEST(a_wildcard_listens_with_us_alone),
      KERNEL_TEST(options_go_to_both),
      KERNEL_TEST(a_newer_command_is_the_kernels_to_know),
      KERNEL_TEST(ids_move_with_what_the_kernel_reported),
      KERNEL_TEST(waiting_and_not_waiting),
      KERNEL_TEST(nothing_is_left_open),
      KERNEL_TEST(nothing_is_left_open_to_who_waits),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
