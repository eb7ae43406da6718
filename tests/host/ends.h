// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs of this process on the loopback device, through libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "tests/host/check.h"

namespace ewarp::test {

constexpr unsigned kAllRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint64_t kAllOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                         IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                         IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                         IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
                                         IBV_QP_EX_WITH_SEND_WITH_INV;

inline ibv_context* open_loopback() {
  ibv_device** list = ibv_get_device_list(nullptr);
  CHECK(list != nullptr);
  ibv_context* context = nullptr;
  for (ibv_device** d = list; *d != nullptr; ++d)
    if (strcmp(ibv_get_device_name(*d), "ewarp_lo") == 0) context = ibv_open_device(*d);
  CHECK(context != nullptr);
  ibv_free_device_list(list);
  return context;
}

inline ibv_qp_init_attr_ex wanted(ibv_pd* pd, ibv_cq* cq, std::uint64_t operations = kAllOperations) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq;
  init.cap = {2048, 64, 4, 4, 128};
  init.pd = pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = operations;
  return init;
}

struct Device {
  Device() : context(open_loopback()), pd(ibv_alloc_pd(context)) { CHECK(pd != nullptr); }
  ~Device() { CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0); }
  ibv_context* context;
  ibv_pd* pd;
};

inline bool refused(const void* object) {
  return object == nullptr && errno == EOPNOTSUPP;
}

// A QP with its completion queue and its memory.
struct End {
  // cq: null: an ordinary one is made.
  explicit End(ibv_pd* domain, ibv_cq* cq = nullptr)
      : pd(domain), cq(cq != nullptr ? cq : ibv_create_cq(pd->context, 4096, nullptr, nullptr, 0)) {
    CHECK(this->cq != nullptr);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAllRights | IBV_ACCESS_MW_BIND);
    ibv_qp_init_attr_ex init = wanted(pd, this->cq);
    qp = ibv_create_qp_ex(pd->context, &init);
    CHECK(mr != nullptr && qp != nullptr);
    ex = ibv_qp_to_qp_ex(qp);
    CHECK(ex != nullptr);
    ex->wr_flags = IBV_SEND_SIGNALED;
  }
  ~End() { CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  std::uint64_t address(std::size_t at = 0) const { return reinterpret_cast<std::uintptr_t>(memory.data()) + at; }
  ibv_sge sge(std::size_t at, std::uint32_t length) const { return {address(at), length, mr->lkey}; }
  void receive(std::vector<ibv_sge> sges, std::uint64_t id = 100) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
  }
  ibv_wc wait() const {
    ibv_wc wc{};
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ibv_poll_cq(cq, 1, &wc) == 0) CHECK(std::chrono::steady_clock::now() < until);
    return wc;
  }
  // Nothing has completed by now.
  bool silent() const {
    ibv_wc wc;
    return ibv_poll_cq(cq, 1, &wc) == 0;
  }

  ibv_pd* pd;
  ibv_cq* cq;
  std::vector<char> memory = std::vector<char>(1 << 20);
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_ex* ex = nullptr;
};

inline void connect(ibv_qp* qp, std::uint32_t peer, unsigned rights) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = rights;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 16;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  CHECK(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

// rights: what b lets a do.
inline void join(const End& a, const End& b, unsigned rights = kAllRights) {
  connect(a.qp, b.qp->qp_num, kAllRights);
  connect(b.qp, a.qp->qp_num, rights);
}

// One part of a probe, by its name.
struct Part {
  const char* name;
  int (*run)();
};

// What main() returns. 2: there is no such part.
template <std::size_t kParts>
int run_part(const Part (&parts)[kParts], int argc, char** argv) {
  for (const Part& part : parts)
    if (argc == 2 && strcmp(part.name, argv[1]) == 0) return part.run();
  return 2;
}

}  // namespace ewarp::test
