// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/ud/multicast.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "provider/base/log.h"
#include "provider/engine/engine.h"
#include "provider/verbs/ud/address_handle.h"
#include "provider/verbs/ud/port.h"
#include "provider/verbs/ud/ud_queue_pair.h"

namespace ewarp::verbs {
namespace {

bool operator==(const in6_addr& a, const in6_addr& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// A queue pair in a group.
struct Member {
  in6_addr group;
  unsigned interface;
  UdQueuePair* qp;
};

// The socket of one family behind all groups of the process, open while there is one. Engine held.
class GroupSocket final : public Pollable {
 public:
  explicit GroupSocket(llp::UdpSocket socket) : socket_(std::move(socket)) {}
  llp::UdpSocket& socket() { return socket_; }
  std::vector<Member>& members() { return members_; }
  bool has(const in6_addr& group, unsigned interface) const {
    return std::any_of(members_.begin(), members_.end(),
                       [&](const Member& m) { return m.group == group && m.interface == interface; });
  }

  int fd() const override { return socket_.fd(); }
  std::size_t turn() override {
    return reader_.read(socket_, [this](const llp::UdpArrival& a) { arrived(a); }) ? 1 : 0;
  }
  bool wants_to_write() const override { return false; }
  void close_in_child() override { socket_.close(); }

 private:
  void arrived(const llp::UdpArrival& arrival);

  llp::UdpSocket socket_;
  DatagramReader reader_;
  std::vector<Member> members_;
};

// An own datagram that comes back is no news to its sender (docs/protocol/datagrams.md section 8).
bool is_own(const UdQueuePair& qp, const llp::UdpArrival& arrival, std::uint32_t source) {
  return qp.number() == source && qp.group_source() == arrival.from.sin6_addr;
}

void GroupSocket::arrived(const llp::UdpArrival& arrival) {
  llp::Datagram d;
  if (!accept_datagram(arrival, &d)) return;
  bool anybody = false;
  if (d.prefix.destination == llp::kMulticastQpn) {
    for (const Member& m : members_) {
      if (!(m.group == arrival.to) || m.interface != arrival.interface) continue;
      anybody = true;
      if (!is_own(*m.qp, arrival, d.prefix.source)) m.qp->receive({d, arrival, nullptr});
    }
  }
  if (!anybody) count_drop(llp::DatagramDrop::qp);
}

std::shared_ptr<GroupSocket>& group_socket(bool v4) {
  static auto* sockets = new std::array<std::shared_ptr<GroupSocket>, 2>;
  return (*sockets)[v4 ? 0 : 1];
}

int open_socket(bool v4) {
  engine().assert_held();
  llp::UdpSocket socket;
  if (const int error = llp::UdpSocket::open_group(llp::kMulticastPort, v4 ? AF_INET : AF_INET6, &socket)) return error;
  auto group = std::make_shared<GroupSocket>(std::move(socket));
  if (const int error = engine().add(*group)) return error;
  group_socket(v4) = std::move(group);
  return 0;
}

void close_socket(bool v4) {
  engine().assert_held();
  engine().remove(*group_socket(v4));
  group_socket(v4).reset();
}

// Engine held.
int add_member(const Member& member) {
  engine().assert_held();
  const bool v4 = llp::is_v4(member.group);
  if (group_socket(v4) == nullptr)
    if (const int error = open_socket(v4)) return error;
  GroupSocket& s = *group_socket(v4);
  for (const Member& m : s.members())
    if (m.group == member.group && m.interface == member.interface && m.qp == member.qp) return 0;
  const int error = s.has(member.group, member.interface) ? 0 : s.socket().join(member.group, member.interface);
  if (error == 0) s.members().push_back(member);
  if (s.members().empty()) close_socket(v4);
  return error;
}

template <class Predicate>
int remove_members(bool v4, Predicate gone) {
  engine().assert_held();
  if (group_socket(v4) == nullptr) return 0;
  GroupSocket& s = *group_socket(v4);
  std::vector<Member> removed;
  for (const Member& m : s.members())
    if (gone(m)) removed.push_back(m);
  std::erase_if(s.members(), gone);
  for (const Member& m : removed)
    if (!s.has(m.group, m.interface)) s.socket().leave(m.group, m.interface);
  if (s.members().empty()) close_socket(v4);
  return static_cast<int>(removed.size());
}

}  // namespace

int attach_group(QueuePair& api, const ibv_gid& gid) {
  auto* qp = dynamic_cast<UdQueuePair*>(&api);
  const in6_addr group = address_of(gid);
  if (qp == nullptr || !is_multicast(group)) return EINVAL;
  Engine& e = engine();
  if (const int started = e.start()) return started;
  int error = 0;
  e.run([&] { error = add_member({group, api.context().device().interface_index(), qp}); });
  if (error == ENOBUFS)
    log::error("too many multicast groups: net.ipv4.igmp_max_memberships limits those of a process");
  return error;
}

int detach_group(QueuePair& api, const ibv_gid& gid) {
  const in6_addr group = address_of(gid);
  int removed = 0;
  engine().run([&] {
    removed = remove_members(
        llp::is_v4(group), [&](const Member& m) { return static_cast<QueuePair*>(m.qp) == &api && m.group == group; });
  });
  return removed > 0 ? 0 : EINVAL;
}

bool has_groups(QueuePair& api) {
  bool any = false;
  engine().run([&] {
    for (const bool v4 : {true, false}) {
      if (group_socket(v4) == nullptr) continue;
      const auto& members = group_socket(v4)->members();
      any |= std::any_of(members.begin(), members.end(),
                         [&](const Member& m) { return static_cast<QueuePair*>(m.qp) == &api; });
    }
  });
  return any;
}

void leave_groups(UdQueuePair& qp) {
  for (const bool v4 : {true, false}) remove_members(v4, [&](const Member& m) { return m.qp == &qp; });
}

void forget_groups_in_child() {
  for (const bool v4 : {true, false}) group_socket(v4).reset();
}

}  // namespace ewarp::verbs
