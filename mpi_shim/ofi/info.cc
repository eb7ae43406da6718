// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/info.h"

#include <netdb.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "mpi_shim/channel/channel.h"
#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/provider.h"
#include "mpi_shim/ofi/running.h"

namespace ewarp::ofi {
namespace {

using channel::Address;

// Addresses in fi_info belong to whoever calls fi_freeinfo().
bool store(const Address& address, void** out, std::size_t* length) {
  const sockaddr_storage s = address.socket_address();
  *length = address.v4() ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  *out = std::malloc(*length);
  if (*out == nullptr) return false;
  std::memcpy(*out, &s, *length);
  return true;
}

std::optional<Address> load(const void* address, std::size_t length) {
  if (address == nullptr || length < sizeof(sockaddr_in)) return std::nullopt;
  const auto* s = static_cast<const sockaddr*>(address);
  if (s->sa_family == AF_INET6 && length < sizeof(sockaddr_in6)) return std::nullopt;
  return Address::from(*s);
}

// The family that an address has to be of, if that is known beforehand: a name may have addresses of both. other: of
// the other end.
int family_for(const fi_info* hints, const std::optional<Address>& other) {
  if (hints != nullptr && hints->addr_format == FI_SOCKADDR_IN) return AF_INET;
  if (hints != nullptr && hints->addr_format == FI_SOCKADDR_IN6) return AF_INET6;
  if (!other || other->unspecified()) return AF_UNSPEC;
  return other->v4() ? AF_INET : AF_INET6;
}

// 0, or -FI_ENODATA if nobody knows the name. Without a node the address is unspecified.
int resolve(const char* node, const char* service, std::uint64_t flags, int family, std::optional<Address>* out) {
  addrinfo wanted{};
  wanted.ai_family = family;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = ((flags & FI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0) | (node == nullptr ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  if (getaddrinfo(node, service, &wanted, &list) != 0) return -FI_ENODATA;
  for (const addrinfo* a = list; a != nullptr && !*out; a = a->ai_next) *out = Address::from(*a->ai_addr);
  freeaddrinfo(list);
  return *out ? 0 : -FI_ENODATA;
}

// Between whom: what node, service and hints say together.
struct Route {
  std::optional<Address> source, destination;

  int find(const char* node, const char* service, std::uint64_t flags, const fi_info* hints) {
    if (hints != nullptr) {
      source = load(hints->src_addr, hints->src_addrlen);
      destination = load(hints->dest_addr, hints->dest_addrlen);
    }
    if (node != nullptr || service != nullptr) {
      const bool ours = (flags & FI_SOURCE) != 0;
      // A port alone is one to listen at, or none.
      if (!ours && node == nullptr) return 0;
      std::optional<Address>& end = ours ? source : destination;
      end.reset();
      const int family = family_for(hints, ours ? destination : source);
      if (const int error = resolve(node, service, flags, family, &end); error != 0) return error;
    }
    if (source || !destination) return 0;
    source = source_towards(*destination);
    return source ? 0 : -FI_ENODATA;
  }
  bool from(const Interface& i) const { return !source || source->unspecified() || source->ip == i.address.ip; }
};

// Who asks for nothing gets everything, but what needs a mode that he does not allow.
std::uint64_t caps_for(const fi_info* hints, std::uint32_t version) {
  std::uint64_t caps = hints != nullptr ? hints->caps : 0;
  const bool memory = hints == nullptr || hints->domain_attr == nullptr ||
                      memory_mode_fits(hints->domain_attr->mr_mode, kMemoryMode, version);
  if (caps == 0) caps = memory ? kCaps : kCaps & ~(FI_RMA | FI_ATOMIC | kMemoryDirections);
  if ((caps & kPrimaryCaps) == 0) caps |= FI_MSG | FI_TAGGED;
  if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & kMessageDirections) == 0) caps |= kMessageDirections;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kMemoryDirections) == 0) caps |= kMemoryDirections;
  return caps | kSecondaryCaps;
}

// Where nobody's memory is reached, nothing is asked of it. Before version 1.5 the mode was one of two, and who names
// one of them is answered in the same words.
int memory_mode(std::uint64_t caps, std::uint32_t version, const fi_info* hints) {
  const bool by_name = hints != nullptr && hints->domain_attr != nullptr && hints->domain_attr->mr_mode == kOldBasic;
  if (FI_VERSION_LT(version, FI_VERSION(1, 5)) || by_name) return kOldBasic;
  return (caps & (FI_RMA | FI_ATOMIC)) != 0 ? kMemoryMode : 0;
}

// Of the endpoint that would be opened now.
std::size_t most_injected() {
  std::vector<std::string> problems;  // it will say them itself
  return channel::EndpointOptions::from_environment({}, &problems).tuning.eager_threshold;
}

void describe_limits(fi_info& info) {
  fi_tx_attr& tx = *info.tx_attr;
  tx.caps = info.caps & kSendCaps;
  tx.msg_order = kMessageOrder;
  tx.inject_size = inject_size(most_injected());
  tx.size = kQueueSize;
  tx.iov_limit = 1;
  tx.rma_iov_limit = 1;
  fi_rx_attr& rx = *info.rx_attr;
  rx.caps = info.caps & kReceiveCaps;
  rx.msg_order = kMessageOrder;
  rx.size = kQueueSize;
  rx.iov_limit = 1;
  fi_ep_attr& ep = *info.ep_attr;
  ep.type = FI_EP_RDM;
  ep.protocol = kProtocol;
  ep.protocol_version = kProtocolVersion;
  ep.max_msg_size = SIZE_MAX;
  ep.mem_tag_format = kTagMask;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;
}

void describe_domain(fi_domain_attr& d) {
  d.threading = FI_THREAD_SAFE;
  d.control_progress = FI_PROGRESS_AUTO;
  d.data_progress = FI_PROGRESS_AUTO;
  d.resource_mgmt = FI_RM_ENABLED;
  d.av_type = FI_AV_UNSPEC;
  d.mr_key_size = 4;
  d.cq_data_size = kDataSize;
  d.cq_cnt = d.ep_cnt = d.tx_ctx_cnt = d.rx_ctx_cnt = d.cntr_cnt = 1024;
  d.max_ep_tx_ctx = 1;
  d.max_ep_rx_ctx = 1;
  d.mr_iov_limit = 1;
  d.mr_cnt = 1 << 20;
  d.caps = kDomainCaps;
}

// What the hints choose among things that we all have.
void choose(fi_info& info, const fi_info& hints) {
  if (hints.tx_attr != nullptr) info.tx_attr->op_flags = hints.tx_attr->op_flags;
  if (hints.rx_attr != nullptr) info.rx_attr->op_flags = hints.rx_attr->op_flags;
  if (hints.domain_attr == nullptr) return;
  fi_domain_attr& d = *info.domain_attr;
  if (hints.domain_attr->threading != FI_THREAD_UNSPEC) d.threading = hints.domain_attr->threading;
  if (hints.domain_attr->control_progress != FI_PROGRESS_UNSPEC)
    d.control_progress = hints.domain_attr->control_progress;
  if (hints.domain_attr->data_progress != FI_PROGRESS_UNSPEC) d.data_progress = hints.domain_attr->data_progress;
  if (hints.domain_attr->resource_mgmt != FI_RM_UNSPEC) d.resource_mgmt = hints.domain_attr->resource_mgmt;
  d.av_type = hints.domain_attr->av_type;
}

}  // namespace

bool describe(fi_info& info, const Interface& interface, std::uint32_t version, const fi_info* hints) {
  info.caps = caps_for(hints, version);
  info.addr_format = interface.address.v4() ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
  describe_limits(info);
  describe_domain(*info.domain_attr);
  info.domain_attr->mr_mode = memory_mode(info.caps, version, hints);
  info.domain_attr->name = strdup(interface.device.c_str());
  info.fabric_attr->name = strdup(interface.network.c_str());
  return info.domain_attr->name != nullptr && info.fabric_attr->name != nullptr;
}

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** out) {
  return guarded([&] {
    Route route;
    if (const int error = route.find(node, service, flags, hints); error != 0) return error;
    fi_info* first = nullptr;
    fi_info** last = &first;
    for (const Interface& i : find_interfaces()) {
      if (!route.from(i)) continue;
      fi_info* info = allocate_info();
      if (info == nullptr || !describe(*info, i, version, hints)) {
        free_info(info);
        free_info(first);
        return -FI_ENOMEM;
      }
      const char* why = hints != nullptr ? mismatch(*hints, *info, version) : nullptr;
      if (why != nullptr) {
        FI_INFO(&provider, FI_LOG_FABRIC, "%s: the hints ask for more in %s\n", i.device.c_str(), why);
        free_info(info);
        continue;
      }
      if (hints != nullptr) choose(*info, *hints);
      Address from = i.address;
      from.port = route.source ? route.source->port : 0;
      *last = info;
      last = &info->next;
      if (!store(from, &info->src_addr, &info->src_addrlen) ||
          (route.destination && !store(*route.destination, &info->dest_addr, &info->dest_addrlen))) {
        free_info(first);
        return -FI_ENOMEM;
      }
    }
    *out = first;
    return first == nullptr ? -FI_ENODATA : 0;
  });
}

}  // namespace ewarp::ofi
