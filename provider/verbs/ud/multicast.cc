#include "provider/verbs/multicast.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "provider/verbs/address_handle.h"
#include "provider/verbs/datagram_port.h"
#include "provider/verbs/datagram_queue_pair.h"
#include "provider/verbs/engine.h"
#include "provider/verbs/log.h"

namespace ewarp::verbs {
namespace {

bool operator==(const in6_addr& a, const in6_addr& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// A queue pair in a group.
struct Member {
  in6_addr group;
  unsigned interface;
  DatagramQueuePair* qp;
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
  bool turn() override {
    return reader_.read(socket_, [this](const llp::UdpArrival& a) { arrived(a); });
  }
  bool wants_to_write() const override { return false; }
  void close_in_child() override { socket_.close(); }

 private:
  void arrived(const llp::UdpArrival& arrival);

  llp::UdpSocket socket_;
  DatagramReader reader_;
  std::vector<Member> members_;
};

// An own datagram that comes back is no news to its sender (verbs-semantics.md section 12).
bool is_own(const DatagramQueuePair& qp, const llp::UdpArrival& arrival, std::uint32_t source) {
  return qp.number() == source && qp.group_source() == arrival.from.sin6_addr;
}

void GroupSocket::arrived(const llp::UdpArrival& arrival) {
  llp::Datagram d;
  if (!accept_datagram(arrival, &d)) return;
  bool anybody = false;
  if (d.prefix.destination == llp::kMulticastQpn) {
    for (const Member& m : members_) {
      if (!(m.group == arrival.to) || (arrival.interface != 0 && m.interface != arrival.interface)) continue;
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
  llp::UdpSocket socket;
  if (const int error = llp::UdpSocket::open_group(llp::kMulticastPort, v4 ? AF_INET : AF_INET6, &socket)) return error;
  group_socket(v4) = std::make_shared<GroupSocket>(std::move(socket));
  engine().add(group_socket(v4));
  return 0;
}

void close_socket(bool v4) {
  engine().remove(*group_socket(v4));
  engine().close_now(group_socket(v4)->socket().release());
  group_socket(v4).reset();
}

// Engine held.
int add_member(const Member& member) {
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

int attach_group(QueuePairApi& api, const ibv_gid& gid) {
  auto* qp = dynamic_cast<DatagramQueuePair*>(&api);
  const in6_addr group = address_of(gid);
  if (qp == nullptr || !is_multicast(group)) return EINVAL;
  Engine& e = engine();
  e.enter();
  const int error = add_member({group, api.context().device().interface_index(), qp});
  e.leave();
  if (error == ENOBUFS)
    log::error("too many multicast groups: net.ipv4.igmp_max_memberships limits those of a process");
  return error;
}

int detach_group(QueuePairApi& api, const ibv_gid& gid) {
  const in6_addr group = address_of(gid);
  Engine& e = engine();
  e.enter();
  const int removed = remove_members(
      llp::is_v4(group), [&](const Member& m) { return static_cast<QueuePairApi*>(m.qp) == &api && m.group == group; });
  e.leave();
  return removed > 0 ? 0 : EINVAL;
}

bool has_groups(QueuePairApi& api) {
  Engine& e = engine();
  e.enter();
  bool any = false;
  for (const bool v4 : {true, false}) {
    if (group_socket(v4) == nullptr) continue;
    const auto& members = group_socket(v4)->members();
    any |= std::any_of(members.begin(), members.end(),
                       [&](const Member& m) { return static_cast<QueuePairApi*>(m.qp) == &api; });
  }
  e.leave();
  return any;
}

void leave_groups(DatagramQueuePair& qp) {
  for (const bool v4 : {true, false}) remove_members(v4, [&](const Member& m) { return m.qp == &qp; });
}

void forget_groups_in_child() {
  for (const bool v4 : {true, false}) group_socket(v4).reset();
}

}  // namespace ewarp::verbs
