// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// QUERY_ROUTE, QUERY, INIT_QP_ATTR: answers about an id.
#include <endian.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "provider/cm/datagram.h"
#include "provider/cm/id.h"
#include "provider/verbs/device/device.h"

namespace ewarp::cm {
namespace {

constexpr std::uint16_t kDefaultPkey = 0xffff;
constexpr std::uint32_t kNoIndex = ~std::uint32_t{0};  // librdmacm then finds the device by its GUID

// struct sockaddr_ib of the kernel's <rdma/ib.h>.
struct SockaddrIb {
  std::uint16_t family;
  std::uint16_t pkey;      // big endian
  std::uint32_t flowinfo;  // big endian
  std::uint8_t address[16];
  std::uint64_t service_id, service_mask;  // big endian
  std::uint64_t scope_id;
};
static_assert(sizeof(SockaddrIb) == 48);
constexpr sa_family_t kAfIb = 27;

std::uint64_t node_guid(const Id& id) {
  return id.device == nullptr ? 0 : htobe64(id.device->guid());
}

void copy_gid(std::uint8_t (&to)[16], const Address& address) {
  const auto gid = address.gid();
  std::memcpy(to, gid.data(), gid.size());
}

template <class To>
void copy_address(To& to, const Address& from) {
  static_assert(sizeof(To) >= sizeof(sockaddr_in6));
  std::memcpy(&to, from.get(), from.size());
}

std::uint16_t copy_ib(__kernel_sockaddr_storage& to, const Address& from) {
  if (from.family() == 0) return 0;
  SockaddrIb ib{};
  ib.family = kAfIb;
  ib.pkey = htobe16(kDefaultPkey);
  copy_gid(ib.address, from);
  ib.service_id = htobe64(from.port());
  ib.service_mask = htobe64(0xffff);
  std::memcpy(&to, &ib, sizeof(ib));
  return sizeof(ib);
}

rdma_ucm_query_addr_resp address_response(const Id& id, bool as_gids) {
  rdma_ucm_query_addr_resp r{};
  if (as_gids) {
    r.src_size = copy_ib(r.src_addr, id.local);
    r.dst_size = copy_ib(r.dst_addr, id.remote);
  } else {
    r.src_size = static_cast<std::uint16_t>(id.local.size());
    r.dst_size = static_cast<std::uint16_t>(id.remote.size());
    copy_address(r.src_addr, id.local);
    copy_address(r.dst_addr, id.remote);
  }
  r.ibdev_index = kNoIndex;
  if (id.device == nullptr) return r;
  r.node_guid = node_guid(id);
  r.port_num = 1;
  r.pkey = htobe16(kDefaultPkey);
  return r;
}

}  // namespace

int query_route(const IdRef& id, std::uint64_t response, std::size_t size) {
  // Libraries older than the ibdev_index member pass less; the kernel draws the same line.
  if (size < offsetof(rdma_ucm_query_route_resp, ibdev_index)) return ENOSPC;
  rdma_ucm_query_route_resp r{};
  r.ibdev_index = kNoIndex;
  {
    const Lock lock;
    copy_address(r.src_addr, id->local);
    copy_address(r.dst_addr, id->remote);
    if (id->device != nullptr) {
      r.node_guid = node_guid(*id);
      r.port_num = 1;
      copy_gid(r.ib_route[0].sgid, id->local);
      copy_gid(r.ib_route[0].dgid, id->remote);
      r.ib_route[0].pkey = htobe16(kDefaultPkey);
    }
  }
  return copy_out(response, &r, sizeof(r), size);
}

int query(const IdRef& id, std::uint32_t option, std::uint64_t response, std::size_t size) {
  switch (option) {
    case RDMA_USER_CM_QUERY_ADDR:
    case RDMA_USER_CM_QUERY_GID: {
      if (size < offsetof(rdma_ucm_query_addr_resp, ibdev_index)) return ENOSPC;
      Lock lock;
      const auto r = address_response(*id, option == RDMA_USER_CM_QUERY_GID);
      lock.unlock();
      return copy_out(response, &r, sizeof(r), size);
    }
    case RDMA_USER_CM_QUERY_PATH: {
      const rdma_ucm_query_path_resp none{};  // paths are InfiniBand's
      if (size < sizeof(none)) return ENOSPC;
      return copy_out(response, &none, sizeof(none), size);
    }
    default:
      return ENOSYS;
  }
}

int init_qp_attr(const IdRef& id, std::uint32_t qp_state, std::uint64_t response, std::size_t size) {
  ib_uverbs_qp_attr r{};
  if (size < sizeof(r)) return ENOSPC;
  if (qp_state > IBV_QPS_ERR) return EINVAL;
  {
    const Lock lock;
    if (id->device == nullptr) return EINVAL;
    r.qp_attr_mask = IBV_QP_PORT;
    if (id->is_datagram()) {
      if (qp_state != IBV_QPS_INIT) return EINVAL;
      r.qp_attr_mask |= IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
      r.qkey = kUdpQkey;
    } else if (qp_state == IBV_QPS_INIT || qp_state == IBV_QPS_RTR) {
      r.qp_attr_mask |= IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
      // The kernel's iw_cm grants both; what a region allows is said at its registration.
      r.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    } else if (qp_state != IBV_QPS_RTS) {
      return EINVAL;
    }
  }
  r.qp_state = qp_state;
  r.port_num = 1;
  return copy_out(response, &r, sizeof(r), size);
}

}  // namespace ewarp::cm
