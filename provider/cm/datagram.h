// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// rdma_cm for datagrams (RDMA_PS_UDP, RDMA_PS_IPOIB): SIDR (docs/protocol/datagrams.md section 9) and multicast
// groups.
//
// Threading: as id.h; the functions take what the others of their name take.
#pragma once

#include "llp/datagram_header.h"
#include "llp/udp_inbox.h"
#include "llp/udp_outbox.h"
#include "provider/cm/id.h"

namespace ewarp::cm {

inline constexpr std::uint32_t kUdpQkey = 0x01234567;  // RDMA_UDP_QKEY of <rdma/rdma_cma.h>

// The active side's request, sent until it is answered.
struct SidrAttempt {
  Socket socket;
  llp::UdpDestination to;
  std::uint32_t transaction = 0;
  std::vector<std::byte> request;
  unsigned sent = 0;
  std::uint64_t timer = 0;
  std::uint8_t gid_index = 0;
  bool done = false;
};

// On the passive side: where the answer goes, and the answer once there is one.
struct SidrArrival {
  std::weak_ptr<Id> listener;
  llp::UdpDestination back;
  std::uint32_t transaction = 0, source_qpn = 0;
  std::size_t asked = 0;  // octets of the request
  bool answered = false;
  std::vector<std::byte> reply;
};

// A group that an id has joined.
struct Group {
  std::uint32_t number = 0;
  std::uint64_t uid = 0;
  std::weak_ptr<Id> id;
  std::uint32_t events_reported = 0;
};

int sidr_connect(const IdRef& id, const rdma_ucm_conn_param& param);
void cancel_sidr(const Lock&, Id& id) EWARP_REQUIRES(manager_mutex);
int sidr_listen(const IdRef& id, std::uint32_t backlog);
int sidr_accept(const IdRef& id, std::uint64_t uid, const rdma_ucm_conn_param& param);
int sidr_reject(const IdRef& id, Octets private_data);

// JOIN_IP_MCAST and JOIN_MCAST: *number names the membership in LEAVE_MCAST. The QP joins by ibv_attach_mcast().
int join(const IdRef& id, std::uint64_t uid, const Address& group, std::uint32_t* number);
int leave(const FileRef& file, std::uint32_t number, std::uint32_t* events_reported);
void leave_all(const Lock&, const Id& id) EWARP_REQUIRES(manager_mutex);

// The addressing of a datagram's peer as the consumer gets it.
rdma_ucm_ud_param ud_param(const std::array<std::uint8_t, 16>& gid, std::uint8_t gid_index, std::uint8_t traffic_class,
                           std::uint32_t qpn, std::uint32_t qkey, Octets private_data);
// Index of this address in the device's table; 0 if it is not there. Looks at interfaces, so without the lock.
std::uint8_t gid_index_of(const verbs::Device& device, const Address& local);
// Sends one datagram without waiting; what cannot be sent is lost.
void send_datagram(const Lock&, const Socket& socket, const llp::UdpDestination& to, Octets octets)
    EWARP_REQUIRES(manager_mutex);
sockaddr_in6 mapped(const Address& address);
llp::UdpHandle handle_of(const Socket& socket);
llp::UdpInbox& sidr_inbox(const Lock&) EWARP_REQUIRES(manager_mutex);

// f(arrival, datagram) for each good datagram that waits, at most a bounded number.
template <class F>
void receive_datagrams(const Lock& lock, const Socket& socket, F&& f) EWARP_REQUIRES(manager_mutex) {
  llp::UdpInbox& inbox = sidr_inbox(lock);
  if (inbox.receive(handle_of(socket), llp::UdpInbox::kMost) <= 0) return;
  inbox.for_each([&](const llp::UdpArrival& arrival) EWARP_NO_LOCK_ANALYSIS {
    const auto datagram = llp::parse_datagram(arrival.payload, false);
    if (datagram.ok()) f(arrival, datagram.value());
  });
}

}  // namespace ewarp::cm
