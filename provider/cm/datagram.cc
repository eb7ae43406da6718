// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What SIDR and multicast share: addresses, sockets, parameters of events.
#include "provider/cm/datagram.h"

#include <algorithm>
#include <cstring>

#include "provider/verbs/device/device.h"

namespace ewarp::cm {

llp::UdpInbox& sidr_inbox(const Lock&) {
  static auto* inbox = new llp::UdpInbox;
  return *inbox;
}

llp::UdpHandle handle_of(const Socket& socket) {
  return {socket.fd(), Address::of_socket(socket.fd()).family() == AF_INET6};
}

sockaddr_in6 mapped(const Address& address) {
  sockaddr_in6 out{};
  if (address.family() == AF_INET6) {
    std::memcpy(&out, address.get(), sizeof out);
    return out;
  }
  out.sin6_family = AF_INET6;
  out.sin6_port = htons(address.port());
  const auto gid = address.gid();
  std::memcpy(&out.sin6_addr, gid.data(), gid.size());
  return out;
}

void send_datagram(const Lock&, const Socket& socket, const llp::UdpDestination& to, Octets octets) {
  static auto* outbox = new llp::UdpOutbox;
  outbox->clear();
  outbox->begin(to);
  outbox->append(octets.data(), octets.size());
  int error = 0;
  outbox->send(handle_of(socket), &error);
}

std::uint8_t gid_index_of(const verbs::Device& device, const Address& local) {
  const auto gids = device.gids();
  const auto wanted = local.gid();
  for (std::size_t i = 0; i < gids.size() && i < 255; ++i)
    if (std::equal(wanted.begin(), wanted.end(), gids[i].raw)) return static_cast<std::uint8_t>(i);
  return 0;
}

rdma_ucm_ud_param ud_param(const std::array<std::uint8_t, 16>& gid, std::uint8_t gid_index, std::uint8_t traffic_class,
                           std::uint32_t qpn, std::uint32_t qkey, Octets private_data) {
  rdma_ucm_ud_param p{};
  p.qp_num = qpn;
  p.qkey = qkey;
  p.ah_attr.is_global = 1;
  p.ah_attr.port_num = 1;
  std::copy(gid.begin(), gid.end(), p.ah_attr.grh.dgid);
  p.ah_attr.grh.sgid_index = gid_index;
  p.ah_attr.grh.traffic_class = traffic_class;
  const std::size_t length = std::min<std::size_t>(private_data.size(), 255);
  std::copy_n(reinterpret_cast<const std::uint8_t*>(private_data.data()), length, p.private_data);
  p.private_data_len = static_cast<std::uint8_t>(length);
  return p;
}

}  // namespace ewarp::cm
