// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Extended completion queues, domains, null regions, and what is refused, one part per run: `PROGRAM PART`. Exit status
// as with host_probe.
#include <arpa/inet.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tests/host/ends.h"

using namespace ewarp::test;

namespace {

// --- extended completion queues -------------------------------------------------------------------------------------

constexpr std::uint64_t kStamps =
    std::uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

ibv_cq_ex* create_cq(ibv_context* context, ibv_cq_init_attr_ex init) {
  return ibv_create_cq_ex(context, &init);
}

ibv_cq_init_attr_ex cq_wanted() {
  ibv_cq_init_attr_ex init{};
  init.cqe = 64;
  init.wc_flags = IBV_WC_STANDARD_FLAGS | kStamps;
  return init;
}

void post_writes(End& from, const End& to, std::uint64_t n) {
  ibv_wr_start(from.ex);
  for (std::uint64_t i = 0; i < n; ++i) {
    from.ex->wr_id = i;
    ibv_wr_rdma_write(from.ex, to.mr->rkey, to.address());
    ibv_wr_set_sge(from.ex, from.mr->lkey, from.address(), 16);
  }
  CHECK(ibv_wr_complete(from.ex) == 0);
}

void start_poll(ibv_cq_ex* cq) {
  ibv_poll_cq_attr none{};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int error = 0;
  while ((error = ibv_start_poll(cq, &none)) == ENOENT) CHECK(std::chrono::steady_clock::now() < until);
  CHECK(error == 0);
}

std::uint64_t raw_clock(ibv_context* context) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  CHECK(ibv_query_rt_values_ex(context, &values) == 0 && values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
  return static_cast<std::uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

std::uint64_t wall_clock() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

int polling() {
  Device device;
  ibv_cq_ex* cq = create_cq(device.context, cq_wanted());
  CHECK(cq != nullptr && cq->cqe >= 64);
  End a(device.pd, ibv_cq_ex_to_cq(cq)), b(device.pd);
  join(a, b);
  ibv_poll_cq_attr none{}, unknown{1};
  CHECK(ibv_start_poll(cq, &none) == ENOENT && ibv_start_poll(cq, &none) == ENOENT);
  CHECK(ibv_start_poll(cq, &unknown) == EINVAL);

  std::uint64_t last = raw_clock(device.context);
  post_writes(a, b, 10);
  // The first four by the new interface, two by the old one, the rest after the queue was made larger.
  std::uint64_t next = 0;
  const auto look = [&] {
    CHECK(cq->wr_id == next++ && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
    CHECK(ibv_wc_read_qp_num(cq) == a.qp->qp_num && ibv_wc_read_byte_len(cq) == 16 && ibv_wc_read_wc_flags(cq) == 0);
    CHECK(ibv_wc_read_vendor_err(cq) == 0 && ibv_wc_read_src_qp(cq) == 0 && ibv_wc_read_slid(cq) == 0);
    CHECK(ibv_wc_read_sl(cq) == 0 && ibv_wc_read_dlid_path_bits(cq) == 0);
    const std::uint64_t raw = ibv_wc_read_completion_ts(cq), wall = ibv_wc_read_completion_wallclock_ns(cq);
    CHECK(raw >= last && raw <= raw_clock(device.context));
    CHECK(std::abs(static_cast<double>(wall) - static_cast<double>(wall_clock())) < 1e9 * 3600);  // it may be set
    last = raw;
  };
  const auto advance = [cq] {
    if (ibv_next_poll(cq) == 0) return;
    ibv_end_poll(cq);
    start_poll(cq);
  };
  start_poll(cq);
  look();
  for (int i = 1; i < 4; ++i) advance(), look();
  ibv_end_poll(cq);
  for (int i = 4; i < 6; ++i) CHECK(a.wait().wr_id == next++);
  CHECK(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 1000) == 0 && cq->cqe >= 1000);
  start_poll(cq);
  look();
  for (int i = 7; i < 10; ++i) advance(), look();
  CHECK(ibv_next_poll(cq) == ENOENT);
  ibv_end_poll(cq);

  // A receive, with what came with it.
  a.receive({a.sge(0, 16)}, 77);
  ibv_wr_start(b.ex);
  ibv_wr_send_imm(b.ex, htonl(5));
  CHECK(ibv_wr_complete(b.ex) == 0);
  start_poll(cq);
  CHECK(cq->wr_id == 77 && ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
  CHECK(ibv_wc_read_imm_data(cq) == htonl(5) && ibv_wc_read_byte_len(cq) == 0);
  ibv_end_poll(cq);
  return 0;
}

int cq_creation() {
  Device device;
  const auto create = [&](auto change) {
    ibv_cq_init_attr_ex init = cq_wanted();
    change(init);
    return create_cq(device.context, init);
  };
  CHECK(refused(create([](auto& i) { i.wc_flags |= IBV_WC_EX_WITH_CVLAN; })));
  CHECK(refused(create([](auto& i) { i.wc_flags |= IBV_WC_EX_WITH_TM_INFO; })));
  CHECK(refused(create([](auto& i) {
    i.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    i.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  })));
  const auto invalid = [](const ibv_cq_ex* cq) { return cq == nullptr && errno == EINVAL; };
  CHECK(invalid(create([](auto& i) { i.comp_mask = 1u << 30; })));
  CHECK(invalid(create([](auto& i) { i.cqe = 0; })));
  CHECK(invalid(create([](auto& i) { i.cqe = UINT32_MAX; })));
  CHECK(invalid(create([](auto& i) { i.comp_vector = 99; })));
  CHECK(invalid(create([&](auto& i) {
    i.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    i.parent_domain = device.pd;  // is none
  })));
  // Events as with any other.
  ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
  ibv_cq_ex* cq = create([channel](auto& i) {
    i.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    i.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    i.channel = channel;
    i.cq_context = channel;
    i.wc_flags = 0;
  });
  CHECK(cq != nullptr && cq->channel == channel && cq->cq_context == channel);
  {
    End a(device.pd, ibv_cq_ex_to_cq(cq)), b(device.pd);
    join(a, b);
    CHECK(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0) == 0);
    post_writes(a, b, 1);
    ibv_cq* who = nullptr;
    void* context = nullptr;
    CHECK(ibv_get_cq_event(channel, &who, &context) == 0 && who == ibv_cq_ex_to_cq(cq) && context == channel);
    ibv_ack_cq_events(who, 1);
    start_poll(cq);
    CHECK(ibv_wc_read_completion_ts(cq) == 0);  // not asked for
    ibv_end_poll(cq);
    ibv_modify_cq_attr moderation{IBV_CQ_ATTR_MODERATE, {1, 1}};
    CHECK(ibv_modify_cq(who, &moderation) == EOPNOTSUPP);
  }
  CHECK(ibv_destroy_comp_channel(channel) == 0);
  return 0;
}

// --- domains --------------------------------------------------------------------------------------------------------

int domains() {
  Device device;
  ibv_td_init_attr td_init{};
  ibv_td* td = ibv_alloc_td(device.context, &td_init);
  CHECK(td != nullptr && td->context == device.context);
  ibv_td_init_attr unknown{1};
  CHECK(ibv_alloc_td(device.context, &unknown) == nullptr && errno == EINVAL);
  for (ibv_td* thread : {static_cast<ibv_td*>(nullptr), td}) {
    ibv_parent_domain_init_attr init{};
    init.pd = device.pd;
    init.td = thread;
    ibv_pd* parent = ibv_alloc_parent_domain(device.context, &init);
    CHECK(parent != nullptr && parent != device.pd && parent->context == device.context);
    CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
    CHECK((thread != nullptr ? ibv_dealloc_td(td) : EBUSY) == EBUSY);
    init.pd = parent;
    CHECK(ibv_alloc_parent_domain(device.context, &init) == nullptr && errno == EINVAL);
    init.pd = device.pd;
    init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    CHECK(refused(ibv_alloc_parent_domain(device.context, &init)));

    ibv_cq_init_attr_ex cq_init = cq_wanted();
    cq_init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    cq_init.parent_domain = parent;
    ibv_cq_ex* cq = create_cq(device.context, cq_init);
    CHECK(cq != nullptr && ibv_dealloc_pd(parent) == EBUSY);
    {
      // What is made on the one and on the other belongs together.
      End a(parent, ibv_cq_ex_to_cq(cq)), b(device.pd);
      CHECK(a.qp->pd == parent && a.mr->pd == parent);
      join(a, b);
      ibv_wr_start(b.ex);
      ibv_wr_rdma_write(b.ex, a.mr->rkey, a.address());
      ibv_wr_set_sge(b.ex, a.mr->lkey, a.address(), 8);
      CHECK(ibv_wr_complete(b.ex) == 0 && b.wait().status == IBV_WC_SUCCESS);
      ibv_wr_start(a.ex);
      ibv_wr_rdma_read(a.ex, b.mr->rkey, b.address());
      ibv_wr_set_sge(a.ex, b.mr->lkey, b.address(8), 8);
      CHECK(ibv_wr_complete(a.ex) == 0);
      start_poll(cq);
      CHECK(cq->status == IBV_WC_SUCCESS);
      ibv_end_poll(cq);
      CHECK(ibv_dealloc_pd(parent) == EBUSY);
    }
    ibv_srq_init_attr srq_init{nullptr, {1, 1, 0}};
    ibv_srq* srq = ibv_create_srq(parent, &srq_init);
    CHECK(srq != nullptr && srq->pd == parent && ibv_dealloc_pd(parent) == EBUSY && ibv_destroy_srq(srq) == 0);
    ibv_mw* mw = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
    CHECK(mw != nullptr && ibv_dealloc_pd(parent) == EBUSY && ibv_dealloc_mw(mw) == 0);
    char memory[8];
    ibv_mr* mr = ibv_reg_mr(parent, memory, sizeof memory, 0);
    CHECK(mr != nullptr && ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, device.pd, nullptr, 0, 0) == 0);
    CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_pd(device.pd) == EBUSY && ibv_dereg_mr(mr) == 0);
  }
  CHECK(ibv_dealloc_td(td) == 0);
  return 0;
}

// --- null regions ---------------------------------------------------------------------------------------------------

int null_region() {
  Device device;
  ibv_mr* null = ibv_alloc_null_mr(device.pd);
  CHECK(null != nullptr && null->context == device.context && null->pd == device.pd && null->lkey != 0);
  CHECK(null->addr == nullptr && null->length == SIZE_MAX && null->rkey == 0 && ibv_dealloc_pd(device.pd) == EBUSY);
  {
    End a(device.pd), b(device.pd);
    join(a, b);
    memset(a.memory.data(), 'a', a.memory.size());
    memset(b.memory.data(), 'b', b.memory.size());
    // Zeros are sent, at whatever address; what is received there is dropped.
    constexpr std::uint32_t kLarge = 300000;
    b.receive({b.sge(0, 10), {UINT64_MAX - kLarge, kLarge, null->lkey}, b.sge(10, 2 * kLarge)});
    const ibv_sge sges[] = {a.sge(0, 10 + kLarge), {12345, kLarge, null->lkey}, a.sge(0, 10)};
    ibv_wr_start(a.ex);
    ibv_wr_send(a.ex);
    ibv_wr_set_sge_list(a.ex, 3, sges);
    CHECK(ibv_wr_complete(a.ex) == 0);
    ibv_wc wc = b.wait();
    CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 2 * kLarge + 20 && a.wait().status == IBV_WC_SUCCESS);
    const auto all = [&b](std::size_t from, std::size_t n, char what) {
      return std::all_of(&b.memory[from], &b.memory[from] + n, [what](char c) { return c == what; });
    };
    CHECK(all(0, 10, 'a') && all(10, kLarge, 0) && all(10 + kLarge, 10, 'a') && all(20 + kLarge, 10, 'b'));
    ibv_wr_start(a.ex);
    ibv_wr_rdma_read(a.ex, b.mr->rkey, b.address());
    ibv_wr_set_sge(a.ex, null->lkey, 1, kLarge);
    ibv_wr_rdma_write(a.ex, b.mr->rkey, b.address());  // what was read is not what is there
    ibv_wr_set_sge(a.ex, null->lkey, 1, 10);
    ibv_wr_send(a.ex);
    b.receive({b.sge(1000, 1)});
    CHECK(ibv_wr_complete(a.ex) == 0 && b.wait().status == IBV_WC_SUCCESS && all(0, 10, 0));
    for (int i = 0; i < 3; ++i) CHECK(a.wait().status == IBV_WC_SUCCESS);
    // It is nobody's rkey.
    CHECK(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllRights) != 0);
    ibv_wr_start(a.ex);
    ibv_wr_rdma_read(a.ex, null->lkey, 1);
    ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 1);
    CHECK(ibv_wr_complete(a.ex) == 0 && a.wait().status == IBV_WC_REM_ACCESS_ERR);
  }
  CHECK(ibv_dereg_mr(null) == 0);
  return 0;
}

// --- what the device says -------------------------------------------------------------------------------------------

int attributes() {
  Device device;
  ibv_device_attr plain;
  ibv_device_attr_ex ex;
  memset(&ex, 0xff, sizeof ex);
  CHECK(ibv_query_device(device.context, &plain) == 0 && ibv_query_device_ex(device.context, nullptr, &ex) == 0);
  CHECK(memcmp(&plain, &ex.orig_attr, sizeof plain) == 0 && ex.comp_mask == 0 && ex.phys_port_cnt_ex == 1);
  CHECK(ex.completion_timestamp_mask == UINT64_MAX && ex.hca_core_clock == 1000000);
  CHECK(ex.device_cap_flags_ex == plain.device_cap_flags && ex.max_dm_size == 0);
  CHECK(ex.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
  CHECK(ex.cq_mod_caps.max_cq_count == 0 && ex.tm_caps.flags == 0 && ex.rss_caps.supported_qpts == 0);
  CHECK(ex.tso_caps.max_tso == 0 && ex.raw_packet_caps == 0 && ex.xrc_odp_caps == 0);
  CHECK(ex.pci_atomic_caps.fetch_add == 0 && ex.pci_atomic_caps.compare_swap == 0);
  const ibv_query_device_ex_input unknown{1};
  CHECK(ibv_query_device_ex(device.context, &unknown, &ex) == EINVAL);
  ibv_values_ex nothing{};
  CHECK(ibv_query_rt_values_ex(device.context, &nothing) == 0 && nothing.comp_mask == 0);
  const std::uint64_t then = raw_clock(device.context);
  CHECK(then != 0 && raw_clock(device.context) >= then);
  return 0;
}

int refusals() {
  Device device;
  ibv_context* c = device.context;
  char memory[64];
  unsigned optional =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;  // not a constant: asks libibverbs' newer call
  ibv_mr* mr = ibv_reg_mr(device.pd, memory, sizeof memory, static_cast<int>(optional | IBV_ACCESS_OPTIONAL_RANGE));
  CHECK(mr != nullptr);
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory), 1, mr->lkey};
  CHECK(ibv_advise_mr(device.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EINVAL);  // it is not on demand
  CHECK(refused(ibv_reg_dmabuf_mr(device.pd, 0, 64, 0, 1, 0)));
  ibv_alloc_dm_attr dm{64, 0, 0};
  CHECK(refused(ibv_alloc_dm(c, &dm)));
  ibv_counters_init_attr counters{};
  CHECK(refused(ibv_create_counters(c, &counters)));
  ibv_wq_init_attr wq{};
  wq.wq_type = IBV_WQT_RQ;
  CHECK(refused(ibv_create_wq(c, &wq)));
  ibv_rwq_ind_table_init_attr table{};
  CHECK(refused(ibv_create_rwq_ind_table(c, &table)));
  ibv_xrcd_init_attr xrcd{};
  CHECK(refused(ibv_open_xrcd(c, &xrcd)));
  CHECK(refused(ibv_import_device(c->cmd_fd)) && refused(ibv_import_pd(c, 1)));
  CHECK(refused(ibv_import_mr(device.pd, 1)) && refused(ibv_import_dm(c, 1)));
  {
    End a(device.pd);
    ibv_ece ece{1, 2, 0};
    CHECK(ibv_query_ece(a.qp, &ece) == EOPNOTSUPP && ibv_set_ece(a.qp, &ece) == EOPNOTSUPP);
    ibv_flow_attr flow{};
    CHECK(refused(ibv_create_flow(a.qp, &flow)));
    ibv_qp_rate_limit_attr rate{};
    CHECK(ibv_modify_qp_rate_limit(a.qp, &rate) == EOPNOTSUPP);
    CHECK(ibv_query_qp_data_in_order(a.qp, IBV_WR_RDMA_WRITE, 0) == 0);
  }
  CHECK(ibv_dereg_mr(mr) == 0);
  return 0;
}

// --- datagrams ------------------------------------------------------------------------------------------------------

constexpr std::uint32_t kQkey = 0x1234;

// A UD queue pair in RTS.
ibv_qp* datagram_qp(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_UD;
  init.send_cq = init.recv_cq = cq;
  init.cap = {8, 8, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  CHECK(qp != nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return qp;
}

// Sends 8 octets of `from` to a receive at `to`; the completion of the receive.
ibv_wc datagram(ibv_qp* sender, ibv_ah* ah, ibv_qp* receiver, ibv_mr* mr, char* from, char* to) {
  ibv_sge into{reinterpret_cast<std::uintptr_t>(to), 48, mr->lkey};
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  receive.sg_list = &into;
  receive.num_sge = 1;
  CHECK(ibv_post_recv(receiver, &receive, &bad_receive) == 0);
  ibv_sge out{reinterpret_cast<std::uintptr_t>(from), 8, mr->lkey};
  ibv_send_wr send{}, *bad_send = nullptr;
  send.opcode = IBV_WR_SEND;
  send.sg_list = &out;
  send.num_sge = 1;
  send.wr.ud = {ah, receiver->qp_num, kQkey};
  CHECK(ibv_post_send(sender, &send, &bad_send) == 0);
  ibv_wc wc{};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do {
    CHECK(std::chrono::steady_clock::now() < until);
  } while (ibv_poll_cq(receiver->recv_cq, 1, &wc) == 0);
  CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 48);
  CHECK((wc.wc_flags & IBV_WC_GRH) != 0 && wc.src_qp == sender->qp_num);
  return wc;
}

// What arrives can be answered: ibv_init_ah_from_wc() makes of the 40 octets and the completion where it came from, for
// IPv4 and IPv6, and a datagram that is sent there arrives.
int answers() {
  Device device;
  ibv_cq* const cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  ibv_qp *const asks = datagram_qp(device.pd, cq), *const replies = datagram_qp(device.pd, cq);
  std::vector<char> memory(4096);
  ibv_mr* const mr = ibv_reg_mr(device.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != nullptr);
  ibv_port_attr port{};
  CHECK(ibv_query_port(device.context, 1, &port) == 0);
  const ibv_gid v4{.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
  const ibv_gid v6{.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  int kinds = 0;
  for (std::uint8_t index = 0; index < port.gid_tbl_len; ++index) {
    ibv_gid gid{};
    if (ibv_query_gid(device.context, 1, index, &gid) != 0) continue;
    const bool is_v4 = memcmp(&gid, &v4, sizeof gid) == 0;
    if (!is_v4 && memcmp(&gid, &v6, sizeof gid) != 0) continue;
    kinds |= is_v4 ? 1 : 2;
    ibv_ah_attr there{};
    there.is_global = 1;
    there.port_num = 1;
    there.grh.dgid = gid;
    there.grh.sgid_index = index;
    there.grh.hop_limit = 33;
    ibv_ah* const ah = ibv_create_ah(device.pd, &there);
    CHECK(ah != nullptr);
    memcpy(memory.data(), "question", 8);
    ibv_wc wc = datagram(asks, ah, replies, mr, memory.data(), memory.data() + 1000);
    CHECK(memcmp(memory.data() + 1040, "question", 8) == 0);

    ibv_ah_attr back{};
    auto* const grh = reinterpret_cast<ibv_grh*>(memory.data() + 1000);
    CHECK(ibv_init_ah_from_wc(device.context, 1, &wc, grh, &back) == 0);
    CHECK(back.is_global == 1 && back.port_num == 1);
    CHECK(memcmp(&back.grh.dgid, &gid, sizeof gid) == 0);
    CHECK(back.grh.sgid_index == index);
    ibv_ah* const answer = ibv_create_ah_from_wc(device.pd, &wc, grh, 1);
    CHECK(answer != nullptr);
    memcpy(memory.data() + 2000, "response", 8);
    datagram(replies, answer, asks, mr, memory.data() + 2000, memory.data() + 3000);
    CHECK(memcmp(memory.data() + 3040, "response", 8) == 0);
    CHECK(ibv_destroy_ah(answer) == 0 && ibv_destroy_ah(ah) == 0);
  }
  CHECK(ibv_destroy_qp(asks) == 0 && ibv_destroy_qp(replies) == 0);
  CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
  CHECK((kinds & 1) != 0);
  return kinds == 3 ? 0 : 77;  // no IPv6 on this machine
}

// --- children -------------------------------------------------------------------------------------------------------

// A queue pair on a shared receive queue that says that it uses no more receives: in ERR, at the latest.
struct OnShared {
  explicit OnShared(ibv_pd* pd) : cq(ibv_create_cq(pd->context, 16, nullptr, nullptr, 0)) {
    ibv_srq_init_attr shared{nullptr, {4, 1, 0}};
    srq = ibv_create_srq(pd, &shared);
    CHECK(cq != nullptr && srq != nullptr);
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = {4, 0, 1, 0, 0};
    qp = ibv_create_qp(pd, &init);
    CHECK(qp != nullptr);
  }
  void fail() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  }
  void destroy() { CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0); }
  ibv_cq* cq;
  ibv_srq* srq;
  ibv_qp* qp;
};

// Nobody can acknowledge an event that a child does not get: that of an object of its own, and one that was unread when
// it was forked.
void objects_end_in_children() {
  const Device device;
  OnShared before(device.pd);
  before.fail();
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(20);  // what waits ends by it
    OnShared own(device.pd);
    own.fail();
    own.destroy();
    before.destroy();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  before.destroy();
}

// As UCX does. A child has its copy of what is registered, and of the words of the heap that lie beside it.
int children() {
  objects_end_in_children();
  CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
  const Device device;
  const std::vector<char> before(100);
  std::vector<char> memory(9000, 'p');
  ibv_mr* const mr = ibv_reg_mr(device.pd, memory.data(), memory.size(), kAllRights);
  CHECK(mr != nullptr);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    memory[0] = memory[8999] = 'c';
    const std::vector<char> of_the_heap(100);
    _exit(of_the_heap[0] == before[0] && memory[1] == 'p' ? 7 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  CHECK(memory[0] == 'p' && memory[8999] == 'p');
  CHECK(ibv_dereg_mr(mr) == 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr Part kParts[] = {{"polling", polling},  {"cq-creation", cq_creation}, {"domains", domains},
                             {"null", null_region}, {"attributes", attributes},   {"refusals", refusals},
                             {"answers", answers},  {"children", children}};
  return run_part(kParts, argc, argv);
}
