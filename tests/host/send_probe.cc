// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs with ibv_wr_*(), one part per run: `PROGRAM PART`. Exit status as with host_probe.
#include <arpa/inet.h>

#include <algorithm>
#include <thread>

#include "tests/host/ends.h"

using namespace ewarp::test;

namespace {

template <class T>
T value(const End& e, std::size_t at) {
  T out;
  memcpy(&out, e.memory.data() + at, sizeof out);
  return out;
}

template <class T>
void put(End& e, std::size_t at, T what) {
  memcpy(e.memory.data() + at, &what, sizeof what);
}

// --- ibv_wr_*() -----------------------------------------------------------------------------------------------------

// All of them in one batch: they complete in order, with their data, and their peer sees what it should.
int builders() {
  Device device;
  End a(device.pd), b(device.pd);
  join(a, b);
  std::vector<char> lent(64);
  ibv_mr* extra = ibv_reg_mr(device.pd, lent.data(), lent.size(), kAllRights | IBV_ACCESS_MW_BIND);
  ibv_mw* window = ibv_alloc_mw(device.pd, IBV_MW_TYPE_2);
  const std::uint32_t window_key = ibv_inc_rkey(window->rkey);
  const ibv_mw_bind_info all_of_it{extra, reinterpret_cast<std::uintptr_t>(lent.data()), lent.size(),
                                   IBV_ACCESS_REMOTE_READ};
  ibv_wr_start(b.ex);
  ibv_wr_bind_mw(b.ex, window, window_key, &all_of_it);
  CHECK(ibv_wr_complete(b.ex) == 0 && b.wait().status == IBV_WC_SUCCESS);
  for (std::size_t i = 0; i < 4; ++i) b.receive({b.sge(1000 * i, 500), b.sge(1000 * i + 500, 500)}, 100 + i);
  memcpy(a.memory.data(), "onetwo", 6);
  put<std::uint64_t>(b, 8000, 5);
  put<std::uint64_t>(b, 8008, 7);
  memcpy(b.memory.data() + 8016, "to be read", 10);

  ibv_wr_start(a.ex);
  a.ex->wr_id = 0;
  ibv_wr_send(a.ex);
  ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 3);
  a.ex->wr_id = 1;
  ibv_wr_send_imm(a.ex, htonl(0x1234));
  const ibv_sge turned[] = {a.sge(3, 3), a.sge(0, 3)};
  ibv_wr_set_sge_list(a.ex, 2, turned);
  a.ex->wr_id = 2;
  ibv_wr_send_inv(a.ex, window_key);
  char text[] = "inline";
  ibv_wr_set_inline_data(a.ex, text, 6);
  memset(text, 'x', 6);  // it was copied
  a.ex->wr_id = 3;
  ibv_wr_rdma_write(a.ex, b.mr->rkey, b.address(9000));
  const ibv_data_buf buffers[] = {{a.memory.data() + 3, 3}, {nullptr, 0}, {a.memory.data(), 3}};
  ibv_wr_set_inline_data_list(a.ex, 3, buffers);
  a.ex->wr_id = 4;
  ibv_wr_rdma_write_imm(a.ex, b.mr->rkey, b.address(9100), htonl(99));
  ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 6);
  a.ex->wr_id = 5;
  ibv_wr_rdma_read(a.ex, b.mr->rkey, b.address(8016));
  ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(100), 10);
  a.ex->wr_id = 6;
  ibv_wr_atomic_cmp_swp(a.ex, b.mr->rkey, b.address(8000), 5, 50);
  ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(200), 8);
  a.ex->wr_id = 7;
  ibv_wr_atomic_fetch_add(a.ex, b.mr->rkey, b.address(8008), 70);
  ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(208), 8);
  CHECK(a.silent() && b.silent());
  CHECK(ibv_wr_complete(a.ex) == 0);

  constexpr ibv_wc_opcode kSent[] = {IBV_WC_SEND,       IBV_WC_SEND,      IBV_WC_SEND,      IBV_WC_RDMA_WRITE,
                                     IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD};
  for (std::uint64_t i = 0; i < 8; ++i) {
    const ibv_wc wc = a.wait();
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.opcode == kSent[i]);
  }
  ibv_wc wc = b.wait();
  CHECK(wc.wr_id == 100 && wc.byte_len == 3 && wc.wc_flags == 0 && memcmp(b.memory.data(), "one", 3) == 0);
  wc = b.wait();
  CHECK(wc.byte_len == 6 && wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == htonl(0x1234));
  CHECK(memcmp(b.memory.data() + 1000, "twoone", 6) == 0);
  wc = b.wait();
  CHECK(wc.byte_len == 6 && wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == window_key);
  CHECK(memcmp(b.memory.data() + 2000, "inline", 6) == 0);
  wc = b.wait();
  CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 6 && wc.imm_data == htonl(99));
  CHECK(memcmp(b.memory.data() + 9000, "twoone", 6) == 0 && memcmp(b.memory.data() + 9100, "onetwo", 6) == 0);
  CHECK(memcmp(a.memory.data() + 100, "to be read", 10) == 0);
  CHECK(value<std::uint64_t>(a, 200) == 5 && value<std::uint64_t>(a, 208) == 7);
  CHECK(value<std::uint64_t>(b, 8000) == 50 && value<std::uint64_t>(b, 8008) == 77);
  CHECK(ibv_dealloc_mw(window) == 0 && ibv_dereg_mr(extra) == 0);
  return 0;
}

int windows() {
  Device device;
  End a(device.pd), b(device.pd);
  join(a, b);
  ibv_mw* mw = ibv_alloc_mw(device.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
  const ibv_mw_bind_info info{b.mr, b.address(100), 10, IBV_ACCESS_REMOTE_READ};
  const auto read = [&] {
    ibv_wr_start(a.ex);
    ibv_wr_rdma_read(a.ex, rkey, b.address(100));
    ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 10);
    CHECK(ibv_wr_complete(a.ex) == 0);
    return a.wait().status;
  };
  ibv_wr_start(b.ex);
  ibv_wr_bind_mw(b.ex, mw, rkey, &info);
  CHECK(ibv_wr_complete(b.ex) == 0);
  ibv_wc wc = b.wait();
  CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && read() == IBV_WC_SUCCESS);
  ibv_wr_start(b.ex);
  ibv_wr_local_inv(b.ex, rkey);
  CHECK(ibv_wr_complete(b.ex) == 0);
  wc = b.wait();
  CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV && read() == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dealloc_mw(mw) == 0);
  return 0;
}

// A batch in which something is wrong posts nothing, nor does one that is aborted; the next one is as good as new.
int errors() {
  Device device;
  End a(device.pd), b(device.pd);
  const auto good = [&](std::uint64_t id) {
    a.ex->wr_id = id;
    ibv_wr_rdma_write(a.ex, b.mr->rkey, b.address());
    ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 1);
  };
  // `bad` in the midst of others.
  const auto fails = [&](int error, auto bad) {
    ibv_wr_start(a.ex);
    good(1);
    bad();
    good(2);
    return ibv_wr_complete(a.ex) == error;
  };
  CHECK(fails(EINVAL, [] {}));  // in RESET
  join(a, b);
  char text[200] = {};
  const std::vector<ibv_sge> sges(5, a.sge(0, 1));
  CHECK(fails(EINVAL, [&] { ibv_wr_send(a.ex), ibv_wr_set_inline_data(a.ex, text, sizeof text); }));
  CHECK(fails(EINVAL, [&] { ibv_wr_send(a.ex), ibv_wr_set_sge_list(a.ex, sges.size(), sges.data()); }));
  CHECK(fails(EINVAL, [&] { ibv_wr_rdma_read(a.ex, 1, 0), ibv_wr_set_inline_data(a.ex, text, 1); }));
  CHECK(fails(EINVAL, [&] { ibv_wr_atomic_fetch_add(a.ex, 1, 0, 1); }));  // without a place for the answer
  CHECK(fails(EINVAL, [&] { ibv_wr_set_ud_addr(a.ex, nullptr, 1, 1); }));
  CHECK(fails(EOPNOTSUPP, [&] { ibv_wr_send_tso(a.ex, text, 1, 1); }));
  CHECK(fails(EOPNOTSUPP, [&] { ibv_wr_set_xrc_srqn(a.ex, 1); }));
  CHECK(fails(ENOMEM, [&] {
    for (int i = 0; i < 2048; ++i) good(3);
  }));
  ibv_wr_start(a.ex);
  ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 1);  // of no request
  CHECK(ibv_wr_complete(a.ex) == EINVAL);
  ibv_wr_start(a.ex);
  good(4);
  ibv_wr_abort(a.ex);
  ibv_wr_start(a.ex);
  CHECK(ibv_wr_complete(a.ex) == 0);
  ibv_wr_start(a.ex);
  good(5);
  CHECK(ibv_wr_complete(a.ex) == 0);
  CHECK(a.wait().wr_id == 5 && a.silent());
  // Bad memory is a completion, as after ibv_post_send().
  ibv_wr_start(a.ex);
  a.ex->wr_id = 6;
  ibv_wr_send(a.ex);
  ibv_wr_set_sge(a.ex, a.mr->lkey ^ 1, a.address(), 1);
  CHECK(ibv_wr_complete(a.ex) == 0);
  const ibv_wc wc = a.wait();
  CHECK(wc.wr_id == 6 && wc.status == IBV_WC_LOC_PROT_ERR);
  return 0;
}

// Batches of several threads do not mix.
int batches() {
  constexpr unsigned kThreads = 4, kBatches = 200;
  Device device;
  End a(device.pd), b(device.pd);
  join(a, b);
  std::vector<std::thread> all;
  for (unsigned t = 0; t < kThreads; ++t)
    all.emplace_back([&, t] {
      for (unsigned i = 0; i < kBatches; ++i) {
        ibv_wr_start(a.ex);
        for (const unsigned half : {0u, 1u}) {
          a.ex->wr_id = (t * kBatches + i) * 2 + half;
          ibv_wr_rdma_write(a.ex, b.mr->rkey, b.address());
          ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 1);
        }
        CHECK(ibv_wr_complete(a.ex) == 0);
      }
    });
  for (auto& t : all) t.join();
  std::vector<bool> seen(kThreads * kBatches);
  for (unsigned i = 0; i < kThreads * kBatches; ++i) {
    const ibv_wc first = a.wait(), second = a.wait();
    CHECK(first.status == IBV_WC_SUCCESS && first.wr_id % 2 == 0 && second.wr_id == first.wr_id + 1);
    CHECK(!seen[first.wr_id / 2]);
    seen[first.wr_id / 2] = true;
  }
  return 0;
}

int creation() {
  Device device;
  ibv_cq* cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
  const auto create = [&](auto change) {
    ibv_qp_init_attr_ex init = wanted(device.pd, cq);
    change(init);
    return ibv_create_qp_ex(device.context, &init);
  };
  CHECK(refused(create([](auto& i) { i.send_ops_flags |= IBV_QP_EX_WITH_TSO; })));
  CHECK(refused(create([](auto& i) { i.send_ops_flags |= IBV_QP_EX_WITH_ATOMIC_WRITE; })));
  CHECK(refused(create([](auto& i) { i.comp_mask |= IBV_QP_INIT_ATTR_XRCD; })));
  CHECK(refused(create([](auto& i) {
    i.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    i.create_flags = IBV_QP_CREATE_SCATTER_FCS;
  })));
  CHECK(create([](auto& i) { i.comp_mask &= ~std::uint32_t{IBV_QP_INIT_ATTR_PD}; }) == nullptr && errno == EINVAL);
  // Where each release of libibverbs looks for verbs_qp.comp_mask.
  constexpr std::size_t kPlaces[] = {344, 352, 360};
  const auto marked = [&kPlaces](const ibv_qp* qp) {
    return std::count_if(std::begin(kPlaces), std::end(kPlaces), [qp](std::size_t at) {
      std::uint32_t mask;
      memcpy(&mask, reinterpret_cast<const char*>(qp) + at, sizeof mask);
      return mask == 2;
    });
  };
  for (const bool extended : {false, true}) {
    ibv_qp* qp = create([extended](auto& i) {
      i.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;  // none
      if (!extended) i.comp_mask &= ~std::uint32_t{IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
    });
    CHECK(qp != nullptr && qp->pd == device.pd && (ibv_qp_to_qp_ex(qp) != nullptr) == extended);
    CHECK(marked(qp) == (extended ? 3 : 0));
    CHECK(ibv_destroy_qp(qp) == 0);
  }
  CHECK(ibv_destroy_cq(cq) == 0);
  return 0;
}

// What the application gave a QP that it connects itself is what the peer may do.
int rights() {
  Device device;
  End a(device.pd), b(device.pd);
  join(a, b, IBV_ACCESS_REMOTE_READ);
  for (const bool atomic : {false, true}) {
    ibv_wr_start(a.ex);
    atomic ? ibv_wr_atomic_fetch_add(a.ex, b.mr->rkey, b.address(), 1)
           : ibv_wr_rdma_read(a.ex, b.mr->rkey, b.address());
    ibv_wr_set_sge(a.ex, a.mr->lkey, a.address(), 8);
    CHECK(ibv_wr_complete(a.ex) == 0);
    CHECK(a.wait().status == (atomic ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
  }
  CHECK(value<std::uint64_t>(b, 0) == 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr Part kParts[] = {{"builders", builders}, {"windows", windows},   {"errors", errors},
                             {"batches", batches},   {"creation", creation}, {"rights", rights}};
  return run_part(kParts, argc, argv);
}
