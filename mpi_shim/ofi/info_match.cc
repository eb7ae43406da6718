// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Hints against offers. A field that is zero asks for nothing.
#include <strings.h>

#include <bit>

#include "mpi_shim/ofi/info.h"
#include "mpi_shim/ofi/provider.h"
#include "mpi_shim/ofi/running.h"

namespace ewarp::ofi {
namespace {

bool within(std::uint64_t wanted, std::uint64_t offered) {
  return (wanted & ~offered) == 0;
}

bool same_name(const char* wanted, const char* offered) {
  return wanted == nullptr || *wanted == '\0' || strcasecmp(wanted, offered) == 0;
}

// Capabilities of the other direction ask for nothing here: libfabric's own providers overlook them, too.
const char* check(const fi_tx_attr& wanted, const fi_tx_attr& offer) {
  if (!within(wanted.caps, kCaps)) return "tx_attr->caps";
  if (!within(wanted.op_flags, kSendFlags)) return "tx_attr->op_flags";
  if (!within(wanted.msg_order, offer.msg_order)) return "tx_attr->msg_order";
  if (wanted.comp_order != kNoOrder) return "tx_attr->comp_order";
  if (wanted.inject_size > offer.inject_size) return "tx_attr->inject_size";
  if (wanted.size > offer.size) return "tx_attr->size";
  if (wanted.iov_limit > offer.iov_limit) return "tx_attr->iov_limit";
  if (wanted.rma_iov_limit > offer.rma_iov_limit) return "tx_attr->rma_iov_limit";
  return nullptr;
}

const char* check(const fi_rx_attr& wanted, const fi_rx_attr& offer) {
  if (!within(wanted.caps, kCaps)) return "rx_attr->caps";
  if (!within(wanted.op_flags, kReceiveFlags)) return "rx_attr->op_flags";
  if (!within(wanted.msg_order, offer.msg_order)) return "rx_attr->msg_order";
  if (wanted.comp_order != kNoOrder) return "rx_attr->comp_order";
  if (wanted.size > offer.size) return "rx_attr->size";
  if (wanted.iov_limit > offer.iov_limit) return "rx_attr->iov_limit";
  return nullptr;
}

const char* check(const fi_ep_attr& wanted, const fi_ep_attr& offer) {
  if (wanted.type != FI_EP_UNSPEC && wanted.type != FI_EP_RDM) return "ep_attr->type";
  if (wanted.protocol != FI_PROTO_UNSPEC && wanted.protocol != offer.protocol) return "ep_attr->protocol";
  if (wanted.protocol_version > offer.protocol_version) return "ep_attr->protocol_version";
  if (wanted.max_msg_size > offer.max_msg_size) return "ep_attr->max_msg_size";
  if (wanted.msg_prefix_size > 0) return "ep_attr->msg_prefix_size";
  if (wanted.max_order_raw_size > 0 || wanted.max_order_war_size > 0 || wanted.max_order_waw_size > 0)
    return "ep_attr->max_order_*_size";
  if (std::countl_zero(wanted.mem_tag_format) < std::countl_zero(offer.mem_tag_format))
    return "ep_attr->mem_tag_format";
  if (wanted.tx_ctx_cnt > 1 || wanted.rx_ctx_cnt > 1) return "ep_attr->*_ctx_cnt";
  if (wanted.auth_key_size > 0) return "ep_attr->auth_key";
  return nullptr;
}

const char* check(const fi_domain_attr& wanted, const fi_domain_attr& offer) {
  if (!same_name(wanted.name, offer.name)) return "domain_attr->name";
  if (wanted.cq_data_size > offer.cq_data_size) return "domain_attr->cq_data_size";
  if (wanted.mr_key_size > 0 && wanted.mr_key_size < offer.mr_key_size) return "domain_attr->mr_key_size";
  if (wanted.cq_cnt > offer.cq_cnt || wanted.ep_cnt > offer.ep_cnt || wanted.cntr_cnt > offer.cntr_cnt ||
      wanted.tx_ctx_cnt > offer.tx_ctx_cnt || wanted.rx_ctx_cnt > offer.rx_ctx_cnt ||
      wanted.max_ep_tx_ctx > offer.max_ep_tx_ctx || wanted.max_ep_rx_ctx > offer.max_ep_rx_ctx ||
      wanted.max_ep_stx_ctx > 0 || wanted.max_ep_srx_ctx > 0 || wanted.mr_cnt > offer.mr_cnt)
    return "a count of domain_attr";
  if (wanted.mr_iov_limit > offer.mr_iov_limit) return "domain_attr->mr_iov_limit";
  if (!within(wanted.caps, kDomainCaps)) return "domain_attr->caps";
  if (wanted.auth_key_size > 0) return "domain_attr->auth_key";
  return nullptr;
}

}  // namespace

bool memory_mode_fits(int wanted, int offered, std::uint32_t version) {
  if (FI_VERSION_LT(version, FI_VERSION(1, 5))) return wanted != kOldScalable;
  return wanted == kOldBasic || (offered & ~wanted) == 0;
}

const char* mismatch(const fi_info& hints, const fi_info& offer, std::uint32_t version) {
  if (!within(hints.caps, kCaps)) return "caps";
  if (hints.addr_format != FI_FORMAT_UNSPEC && hints.addr_format != FI_SOCKADDR &&
      hints.addr_format != offer.addr_format)
    return "addr_format";
  if (hints.fabric_attr != nullptr && !same_name(hints.fabric_attr->name, offer.fabric_attr->name))
    return "fabric_attr->name";
  const int memory_mode = hints.domain_attr != nullptr ? hints.domain_attr->mr_mode : kOldUnspecified;
  if (!memory_mode_fits(memory_mode, offer.domain_attr->mr_mode, version)) return "domain_attr->mr_mode";
  const char* why = nullptr;
  if (why == nullptr && hints.domain_attr != nullptr) why = check(*hints.domain_attr, *offer.domain_attr);
  if (why == nullptr && hints.ep_attr != nullptr) why = check(*hints.ep_attr, *offer.ep_attr);
  if (why == nullptr && hints.tx_attr != nullptr) why = check(*hints.tx_attr, *offer.tx_attr);
  if (why == nullptr && hints.rx_attr != nullptr) why = check(*hints.rx_attr, *offer.rx_attr);
  return why;
}

}  // namespace ewarp::ofi
