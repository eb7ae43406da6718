// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Our devices beside the kernel's: the session's socket is one end of a pair, the test at the other end is the kernel.
#include "provider/host/netlink.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "provider/host/names.h"
#include "provider/verbs/device/device.h"

extern "C" {
#include <cmocka.h>
}

using namespace ewarp;
using host::NetlinkSession;

namespace {

constexpr std::uint32_t kSequence = 99, kPort = 0xabcd;
constexpr std::uint16_t kGet = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
constexpr std::uint16_t kSystem = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET);
constexpr std::uint16_t kChardev = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET_CHARDEV);

using Octets = std::vector<char>;

// A message with this payload, padded.
Octets message(std::uint16_t type, std::uint16_t flags, const Octets& payload = {}) {
  Octets out(NLMSG_SPACE(payload.size()));
  nlmsghdr h{};
  h.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(payload.size()));
  h.nlmsg_type = type;
  h.nlmsg_flags = flags;
  h.nlmsg_seq = kSequence;
  h.nlmsg_pid = kPort;
  memcpy(out.data(), &h, sizeof h);
  if (!payload.empty()) memcpy(out.data() + NLMSG_HDRLEN, payload.data(), payload.size());
  return out;
}

Octets attribute(std::uint16_t type, const void* value, std::size_t size) {
  Octets out(NLA_ALIGN(NLA_HDRLEN + size));
  const nlattr head{static_cast<std::uint16_t>(NLA_HDRLEN + size), type};
  memcpy(out.data(), &head, sizeof head);
  memcpy(out.data() + NLA_HDRLEN, value, size);
  return out;
}

Octets operator+(Octets a, const Octets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Kernel {
  int ends[2];
  Kernel() { assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0); }
  ~Kernel() {
    close(ends[0]);
    close(ends[1]);
  }
  void say(const Octets& datagram) {
    assert_int_equal(send(ends[1], datagram.data(), datagram.size(), 0), datagram.size());
  }
  bool was_asked() {
    char buffer[4096];
    return recv(ends[1], buffer, sizeof buffer, MSG_DONTWAIT) > 0;
  }
};

void ask(NetlinkSession& session, Octets request) {
  iovec part{request.data(), request.size()};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  assert_int_equal(session.send(&m, 0), request.size());
}

// One datagram; empty where there is none.
Octets hear(NetlinkSession& session) {
  Octets buffer(8192);
  iovec part{buffer.data(), buffer.size()};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  const ssize_t n = session.receive(&m, MSG_DONTWAIT);
  buffer.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return buffer;
}

// What an answer consists of: 'k' a device of the kernel's, 'o' one of ours, 'D' the end, 'E' an error, '?' else.
std::string hear_all(NetlinkSession& session) {
  std::string kinds;
  for (Octets datagram; !(datagram = hear(session)).empty();) {
    auto left = static_cast<unsigned>(datagram.size());
    for (auto* h = reinterpret_cast<nlmsghdr*>(datagram.data()); NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
      assert_int_equal(h->nlmsg_seq, kSequence);
      assert_int_equal(h->nlmsg_pid, kPort);
      if (h->nlmsg_type == NLMSG_DONE) {
        kinds += 'D';
      } else if (h->nlmsg_type == NLMSG_ERROR) {
        kinds += 'E';
      } else if (h->nlmsg_type == kGet) {
        const auto* first = static_cast<const nlattr*>(NLMSG_DATA(h));
        std::uint32_t index;
        memcpy(&index, reinterpret_cast<const char*>(first) + NLA_HDRLEN, sizeof index);
        assert_int_equal(first->nla_type, RDMA_NLDEV_ATTR_DEV_INDEX);
        kinds += index >= 0x10000 ? 'o' : 'k';
      } else {
        kinds += '?';
      }
    }
  }
  return kinds;
}

const std::string ours() {
  return std::string(verbs::devices().size(), 'o');
}

void a_dump_has_ours_behind_the_kernels(void**) {
  const std::uint32_t zero = 0, one = 1;
  const std::int32_t status = 0;
  const Octets device0 = message(kGet, NLM_F_MULTI, attribute(RDMA_NLDEV_ATTR_DEV_INDEX, &zero, sizeof zero));
  const Octets device1 = message(kGet, NLM_F_MULTI, attribute(RDMA_NLDEV_ATTR_DEV_INDEX, &one, sizeof one));
  const auto* s = reinterpret_cast<const char*>(&status);
  const Octets done = message(NLMSG_DONE, NLM_F_MULTI, Octets(s, s + sizeof status));
  const Octets error = message(NLMSG_ERROR, 0, Octets(sizeof(nlmsgerr)));
  struct Case {
    const char* name;
    std::vector<Octets> kernel;
    std::string want;
  };
  const Case cases[] = {
      {"no device", {done}, ours() + "D"},
      {"one, the end apart", {device0, done}, "k" + ours() + "D"},
      {"one, the end with it", {device0 + done}, "k" + ours() + "D"},
      {"two together, the end apart", {device0 + device1, done}, "kk" + ours() + "D"},
      {"two apart, the end with the second", {device0, device1 + done}, "kk" + ours() + "D"},
      {"refused", {error}, ours() + "D"},
  };
  for (const Case& c : cases) {
    print_message("case: %s\n", c.name);
    Kernel kernel;
    NetlinkSession session(kernel.ends[0], true);
    ask(session, message(kGet, NLM_F_REQUEST | NLM_F_DUMP));
    assert_true(kernel.was_asked());
    for (const Octets& datagram : c.kernel) kernel.say(datagram);
    assert_string_equal(hear_all(session).c_str(), c.want.c_str());
  }
}

void without_a_kernel_ours_are_all(void**) {
  NetlinkSession session(-1, false);
  ask(session, message(kGet, NLM_F_REQUEST | NLM_F_DUMP));
  assert_string_equal(hear_all(session).c_str(), (ours() + "D").c_str());
}

std::uint64_t number_in(const Octets& datagram, std::uint16_t type) {
  for (std::size_t at = NLMSG_HDRLEN; at + NLA_HDRLEN <= datagram.size();) {
    nlattr a;
    memcpy(&a, datagram.data() + at, sizeof a);
    if (a.nla_type == type) {
      std::uint64_t value = 0;
      memcpy(&value, datagram.data() + at + NLA_HDRLEN, a.nla_len - NLA_HDRLEN);
      return value;
    }
    at += NLA_ALIGN(a.nla_len);
  }
  fail_msg("no attribute %u", type);
  return 0;
}

void chardev_questions_go_to_whom_they_concern(void**) {
  const std::uint32_t mine = 0x10000, kernels = 0, nobodys = 0x10000 + 500;
  struct Case {
    const char* name;
    const std::uint32_t* index;
    const char* type;
    bool real, kernel_asked, answered;
  };
  const Case cases[] = {
      {"ours", &mine, "uverbs", true, false, true},
      {"ours, no kernel", &mine, "uverbs", false, false, true},
      {"the kernel's", &kernels, "uverbs", true, true, false},
      {"rdma_cm", nullptr, "rdma_cm", false, false, true},
      {"rdma_cm beside a kernel", nullptr, "rdma_cm", true, false, true},
      {"another type", &kernels, "umad", true, true, false},
      {"nobody's", &nobodys, "uverbs", false, false, false},
  };
  for (const Case& c : cases) {
    print_message("case: %s\n", c.name);
    Kernel kernel;
    NetlinkSession session(kernel.ends[0], c.real);
    Octets payload;
    if (c.index != nullptr) payload = attribute(RDMA_NLDEV_ATTR_DEV_INDEX, c.index, sizeof *c.index);
    payload = payload + attribute(RDMA_NLDEV_ATTR_CHARDEV_TYPE, c.type, strlen(c.type) + 1);
    ask(session, message(kChardev, NLM_F_REQUEST, payload));
    assert_int_equal(kernel.was_asked(), c.kernel_asked);
    const Octets answer = hear(session);
    const bool positive = !answer.empty() && reinterpret_cast<const nlmsghdr*>(answer.data())->nlmsg_type == kChardev;
    assert_int_equal(positive, c.answered);
    if (!positive) continue;
    const bool cm = c.index == nullptr;
    assert_int_equal(number_in(answer, RDMA_NLDEV_ATTR_CHARDEV_ABI), cm ? 4 : 1);
    // As the kernel packs a dev_t: minor's low 8 bits, then the major, then the rest of the minor.
    assert_int_equal(number_in(answer, RDMA_NLDEV_ATTR_CHARDEV), 3999 << 8 | (cm ? 255 : 0));
  }
}

void copy_on_fork_is_promised_only_for_ourselves(void**) {
  NetlinkSession alone(-1, false);
  ask(alone, message(kSystem, NLM_F_REQUEST));
  assert_int_equal(number_in(hear(alone), RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK), 1);
  Kernel kernel;
  NetlinkSession beside(kernel.ends[0], true);
  ask(beside, message(kSystem, NLM_F_REQUEST));
  assert_true(kernel.was_asked());
}

// UndefinedBehaviorSanitizer sees what is made of its address.
void a_piece_without_octets_needs_no_address(void**) {
  NetlinkSession session(-1, false);
  ask(session, message(kSystem, NLM_F_REQUEST));
  Octets buffer(8192);
  iovec parts[] = {{nullptr, 0}, {buffer.data(), buffer.size()}, {nullptr, 0}};
  msghdr m{};
  m.msg_iov = parts;
  m.msg_iovlen = std::size(parts);
  const ssize_t n = session.receive(&m, MSG_DONTWAIT);
  assert_true(n > NLMSG_HDRLEN);
  assert_int_equal(reinterpret_cast<const nlmsghdr*>(buffer.data())->nlmsg_len, n);
}

void nonsense_is_no_request(void**) {
  Kernel kernel;
  NetlinkSession session(kernel.ends[0], false);
  for (Octets nonsense : {Octets(3), Octets(16), message(kGet, NLM_F_REQUEST | NLM_F_DUMP)}) {
    if (nonsense.size() >= sizeof(nlmsghdr)) reinterpret_cast<nlmsghdr*>(nonsense.data())->nlmsg_len = 1 << 20;
    iovec part{nonsense.data(), nonsense.size()};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    assert_int_equal(session.send(&m, 0), -EINVAL);
  }
  assert_true(hear(session).empty());
  // Attributes that claim more than there is.
  Octets request = message(kChardev, NLM_F_REQUEST, attribute(RDMA_NLDEV_ATTR_DEV_INDEX, "1234", 4));
  reinterpret_cast<nlattr*>(request.data() + NLMSG_HDRLEN)->nla_len = 0xfff0;
  ask(session, request);
  assert_string_equal(hear_all(session).c_str(), "E");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_dump_has_ours_behind_the_kernels),
      cmocka_unit_test(without_a_kernel_ours_are_all),
      cmocka_unit_test(chardev_questions_go_to_whom_they_concern),
      cmocka_unit_test(copy_on_fork_is_promised_only_for_ourselves),
      cmocka_unit_test(a_piece_without_octets_needs_no_address),
      cmocka_unit_test(nonsense_is_no_request),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
