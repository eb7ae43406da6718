// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The commands that librdmacm writes to its event channel, in any order and with any field wrong, and raw TCP peers
// that speak to the listeners: each command is answered with a result or an errno, nothing is written but into the
// response, and nothing is left when the channels are closed. Below the connection manager are the stand-ins of
// tests/cm.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "provider/base/log.h"
#include "provider/cm/cm.h"
#include "tests/cm/standins.h"
#include "tests/fuzz/own_network.h"
#include "tests/fuzz/records.h"

namespace ewarp::fuzz {
namespace {

using Talk = Records<1, 28>;
using Record = std::array<std::uint8_t, Talk::kRecord>;
constexpr std::size_t kLargestResponse = 1024;

enum Wrong : unsigned {  // bits of a record's octet 1
  kShort = 0x01,         // the command ends early
  kSmall = 0x02,         // there is little room for the response
  kNowhere = 0x04,       // ... or none
  kLong = 0x08,          // more octets than the command has
  kOtherId = 0x10,       // an id that is not there, or another channel's
  kRaw = 0x20,           // the body is the record's own octets
  kLies = 0x40,          // the header announces more than was written
};

sockaddr_in6 address(unsigned which, std::uint16_t port) {
  sockaddr_in6 a{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(a);
  static constexpr const char* kNames[] = {"127.0.0.1", "::1",     "0.0.0.0", "::",        "127.0.0.2",
                                           "239.1.1.1", "ff02::1", "fe80::1", "192.0.2.1", "::ffff:127.0.0.1"};
  const char* name = kNames[which % std::size(kNames)];
  if (inet_pton(AF_INET, name, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
  } else {
    a.sin6_family = AF_INET6;
    inet_pton(AF_INET6, name, &a.sin6_addr);
    a.sin6_port = htons(port);
  }
  if (which >= 0xf0) a.sin6_family = static_cast<sa_family_t>(which - 0xf0);
  return a;
}

class Session {
 public:
  Session() {
    for (int& fd : channels_) {
      fd = cm::ucma_open(O_NONBLOCK);
      FUZZ_CHECK(fd >= 0);
    }
  }
  ~Session() {
    for (const int fd : sockets_) close(fd);
    for (const int fd : channels_) {
      cm::ucma_close(fd);
      close(fd);
    }
    test::settle();
    for (const std::uint32_t qp : qps_) test::destroy_qp(qp);
    test::settle();
  }

  void act(const Record& r) {
    switch (r[0] & 63) {
      case 32:
        test::settle();
        break;
      case 33:
        if (qps_.size() < 8) qps_.push_back(test::make_qp());
        break;
      case 34:
        if (!qps_.empty()) test::refuse_attach(qps_[r[2] % qps_.size()], r[3] & 1 ? ENOMEM : EINVAL);
        break;
      case 35:
      case 36:
        call_listener(r);
        break;
      case 37:
        speak(r);
        break;
      case 38:
        if (!sockets_.empty()) {
          close(sockets_.back());
          sockets_.pop_back();
        }
        break;
      default:
        command(r);
        break;
    }
  }

 private:
  // As the kernel's ABI has them; what is not said here is the record's octets.
  std::size_t body(unsigned number, const Record& r, std::span<std::byte, 512> out) {
    const std::uint32_t id = id_of(r);
    const auto put = [&](const auto& command) {
      std::memcpy(out.data(), &command, sizeof command);
      return sizeof command;
    };
    const auto response = reinterpret_cast<std::uint64_t>(r[1] & kNowhere ? nullptr : response_.data());
    const auto param = [&](auto& p) {
      p.qp_num = qps_.empty() || (r[3] & 1) ? r[4] : qps_[r[4] % qps_.size()];
      p.private_data_len = r[5];
      std::memset(p.private_data, r[6], sizeof p.private_data);
      p.responder_resources = r[7];
      p.initiator_depth = r[8];
      p.valid = (r[3] & 2) == 0;
      p.srq = r[9];
    };
    const auto addr = [&](std::size_t at) { return address(r[at], port_of(r[at + 1])); };
    switch (number) {
      case RDMA_USER_CM_CMD_CREATE_ID: {
        rdma_ucm_create_id c{};
        c.uid = 100u + r[2];
        c.response = response;
        static constexpr std::uint16_t kSpaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB, 7};
        c.ps = kSpaces[r[3] % std::size(kSpaces)];
        c.qp_type = r[4];
        return put(c);
      }
      case RDMA_USER_CM_CMD_DESTROY_ID:
      case RDMA_USER_CM_CMD_LEAVE_MCAST:
        return put(rdma_ucm_destroy_id{response, id, 0});
      case RDMA_USER_CM_CMD_BIND_IP: {
        rdma_ucm_bind_ip c{};
        c.addr = addr(3);
        c.id = id;
        return put(c);
      }
      case RDMA_USER_CM_CMD_RESOLVE_IP: {
        rdma_ucm_resolve_ip c{};
        if (r[5] & 1) c.src_addr = addr(6);
        c.dst_addr = addr(3);
        c.id = id;
        c.timeout_ms = r[8];
        return put(c);
      }
      case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
        return put(rdma_ucm_resolve_route{id, r[3]});
      case RDMA_USER_CM_CMD_QUERY_ROUTE:
      case RDMA_USER_CM_CMD_QUERY:
        return put(rdma_ucm_query{response, id, r[3] % 5u});
      case RDMA_USER_CM_CMD_CONNECT: {
        rdma_ucm_connect c{};
        param(c.conn_param);
        c.id = id;
        return put(c);
      }
      case RDMA_USER_CM_CMD_LISTEN:
        return put(rdma_ucm_listen{id, r[3]});
      case RDMA_USER_CM_CMD_ACCEPT: {
        rdma_ucm_accept c{};
        c.uid = 100u + r[10];
        param(c.conn_param);
        c.id = id;
        return put(c);
      }
      case RDMA_USER_CM_CMD_REJECT: {
        rdma_ucm_reject c{};
        c.id = id;
        c.private_data_len = r[5];
        c.reason = r[3] & 1 ? r[4] : 28;
        std::memset(c.private_data, r[6], sizeof c.private_data);
        return put(c);
      }
      case RDMA_USER_CM_CMD_DISCONNECT:
        return put(rdma_ucm_disconnect{id});
      case RDMA_USER_CM_CMD_INIT_QP_ATTR:
        return put(rdma_ucm_init_qp_attr{response, id, r[3] % 8u});
      case RDMA_USER_CM_CMD_GET_EVENT:
        return put(rdma_ucm_get_event{response});
      case RDMA_USER_CM_CMD_SET_OPTION: {
        std::copy(r.begin() + 8, r.end(), option_.begin());
        static constexpr std::uint32_t kLengths[] = {0, 1, 4, 8, 16, 20};
        return put(rdma_ucm_set_option{reinterpret_cast<std::uint64_t>(r[1] & kNowhere ? nullptr : option_.data()), id,
                                       r[3] % 4u, r[4] % 8u, kLengths[r[5] % std::size(kLengths)]});
      }
      case RDMA_USER_CM_CMD_NOTIFY:
        return put(rdma_ucm_notify{id, r[3]});
      case RDMA_USER_CM_CMD_JOIN_IP_MCAST: {
        rdma_ucm_join_ip_mcast c{};
        c.response = response;
        c.uid = 100u + r[10];
        c.addr = addr(3);
        c.id = id;
        return put(c);
      }
      case RDMA_USER_CM_CMD_MIGRATE_ID:
        return put(
            rdma_ucm_migrate_id{response, id, static_cast<std::uint32_t>(r[3] & 4 ? r[4] : channels_[r[3] & 1])});
      case RDMA_USER_CM_CMD_BIND: {
        rdma_ucm_bind c{};
        c.id = id;
        c.addr_size = r[5] & 1 ? r[6] : sizeof(sockaddr_in6);
        c.reserved = r[5] & 2;
        const sockaddr_in6 a = addr(3);
        std::memcpy(&c.addr, &a, sizeof a);
        return put(c);
      }
      case RDMA_USER_CM_CMD_RESOLVE_ADDR: {
        rdma_ucm_resolve_addr c{};
        c.id = id;
        c.timeout_ms = r[8];
        c.src_size = r[5] & 1 ? r[6] : 0;
        c.dst_size = r[5] & 2 ? r[7] : sizeof(sockaddr_in6);
        const sockaddr_in6 a = addr(3);
        std::memcpy(&c.dst_addr, &a, sizeof a);
        return put(c);
      }
      case RDMA_USER_CM_CMD_JOIN_MCAST: {
        rdma_ucm_join_mcast c{};
        c.response = response;
        c.uid = 100u + r[10];
        c.id = id;
        c.addr_size = r[5] & 1 ? r[6] : sizeof(sockaddr_in6);
        c.join_flags = r[7] & 3;
        const sockaddr_in6 a = addr(3);
        std::memcpy(&c.addr, &a, sizeof a);
        return put(c);
      }
      default:
        return 16;
    }
  }
  // The octets of a raw body must not name memory of ours.
  std::size_t raw_body(const Record& r, std::span<std::byte, 512> out) const {
    const std::uint64_t nowhere = 8;
    std::memcpy(out.data(), &nowhere, sizeof nowhere);
    for (std::size_t i = 8; i < r.size(); ++i) out[i] = static_cast<std::byte>(r[i]);
    return r[2];
  }

  void command(const Record& r) {
    const unsigned number = r[0] & 31, wrong = r[1];
    alignas(8) std::array<std::byte, 512> content{};
    const bool raw = (wrong & kRaw) && number != RDMA_USER_CM_CMD_CREATE_ID && number != RDMA_USER_CM_CMD_SET_OPTION;
    std::size_t size = raw ? raw_body(r, content) : body(number, r, content);
    if (wrong & kLong) size = std::min<std::size_t>(size + r[27], content.size());
    if (wrong & kShort) size = r[27] % (size + 1);
    const std::size_t room = wrong & kSmall ? r[26] : kLargestResponse;
    rdma_ucm_cmd_hdr header{};
    header.cmd = number;
    header.in = static_cast<std::uint16_t>(size + (wrong & kLies ? 4 : 0));
    header.out = static_cast<std::uint16_t>(room);
    Bytes written(sizeof header + size);
    std::memcpy(written.data(), &header, sizeof header);
    std::memcpy(written.data() + sizeof header, content.data(), size);
    response_.assign(kLargestResponse + 64, std::byte{0xa5});
    const ssize_t n = cm::ucma_write(channels_[r[0] >> 7], written.data(), written.size());
    FUZZ_CHECK(n == static_cast<ssize_t>(written.size()) || (n < 0 && n > -4096));
    for (std::size_t i = room; i < response_.size(); ++i) FUZZ_CHECK(response_[i] == std::byte{0xa5});
    if (n > 0 && !raw && !(wrong & (kNowhere | kShort))) note(number, r[0] >> 7);
  }
  void note(unsigned number, unsigned channel) {
    if (number == RDMA_USER_CM_CMD_CREATE_ID) {
      rdma_ucm_create_id_resp answer;
      std::memcpy(&answer, response_.data(), sizeof answer);
      ids_[channel].push_back(answer.id);
    } else if (number == RDMA_USER_CM_CMD_GET_EVENT) {
      rdma_ucm_event_resp event;
      std::memcpy(&event, response_.data(), sizeof event);
      if (event.event == 4) ids_[channel].push_back(event.id);  // RDMA_CM_EVENT_CONNECT_REQUEST
    } else if (number == RDMA_USER_CM_CMD_QUERY_ROUTE) {
      rdma_ucm_query_route_resp route;
      std::memcpy(&route, response_.data(), sizeof route);
      ports_.push_back(ntohs(reinterpret_cast<const sockaddr_in6&>(route.src_addr).sin6_port));
    }
  }
  std::uint32_t id_of(const Record& r) const {
    const auto& ids = ids_[(r[0] >> 7) ^ (r[1] & kOtherId ? 1 : 0)];
    return ids.empty() ? r[2] : ids[ids.size() - 1 - r[2] % ids.size()];
  }
  std::uint16_t port_of(unsigned which) const {
    if (which == 0 || ports_.empty()) return which == 1 ? 1 : 0;
    return ports_[which % ports_.size()];
  }

  // --- raw peers ---
  void call_listener(const Record& r) {
    if (ports_.empty() || sockets_.size() >= 8) return;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr_in6 to = address(0, ports_[r[2] % ports_.size()]);
    (void)connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(sockaddr_in));
    sockets_.push_back(fd);
    speak(r);
  }
  void speak(const Record& r) {
    if (sockets_.empty()) return;
    std::vector<char> frame(20);
    std::memcpy(frame.data(), r[3] & 1 ? "MPA ID Rep Frame" : "MPA ID Req Frame", 16);
    frame[16] = static_cast<char>(r[4]);
    frame[17] = static_cast<char>(r[5] & 3);
    const std::size_t n = r[6];
    frame[19] = static_cast<char>(n);
    for (std::size_t i = 0; i < n; ++i) frame.push_back(static_cast<char>(r[8 + i % 20]));
    if (r[3] & 2) frame.resize(r[7] % (frame.size() + 1));
    (void)send(sockets_.back(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    test::settle();
  }

  using Bytes = std::vector<std::byte>;
  std::array<int, 2> channels_{};
  std::array<std::vector<std::uint32_t>, 2> ids_;
  std::vector<std::uint16_t> ports_;
  std::vector<std::uint32_t> qps_;
  std::vector<int> sockets_;
  Bytes response_;
  std::array<std::uint8_t, 64> option_{};
};

}  // namespace
}  // namespace ewarp::fuzz

FUZZ_MUTATES(ewarp::fuzz::Talk)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  static const bool apart = enter_own_network();
  (void)apart;  // without one the ports are the machine's
  const Talk talk(data, size);
  Session session;
  for (std::size_t i = 0; i < talk.count() && i < 60; ++i) session.act(talk[i]);
  return 0;
}
