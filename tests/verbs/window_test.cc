// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory windows: binding, what opens them, how they are closed.
#include <errno.h>

#include <cstring>

#include "provider/engine/engine.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr unsigned kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr unsigned kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

// `a` lends parts of its memory to `b` by windows.
struct Lender {
  explicit Lender(ibv_mw_type type, unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) {
    mpa::StreamParams pa = test::params(true), pb = test::params(false);
    pa.peer_to_peer = pb.peer_to_peer = true;
    pa.rtr = pb.rtr = mpa::kRtrWrite;
    test::join(a, b, pa, pb);
    assert_int_equal(memory().add(a.pd, a.at(0), a.memory_octets.size(), a.address(0), rights, &region), 0);
    mr.lkey = region->stag();
    assert_int_equal(memory().add_window(a.pd, type, &window, &mw.rkey), 0);
    mw.type = type;
  }
  ~Lender() {
    memory().remove_window(window);
    if (region != nullptr) assert_int_equal(memory().remove(region), 0);
  }
  // Posts a bind to the next key.
  int post_bind(std::size_t offset, std::uint64_t octets, unsigned access = kRemote) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = 7;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = &mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw.rkey);
    wr.bind_mw.bind_info = {&mr, a.address(offset), octets, access};
    const int rc = a.qp->post_send(&wr, &bad);
    if (rc == 0) mw.rkey = wr.bind_mw.rkey;
    return rc;
  }
  ibv_wc_status bind(std::size_t offset, std::uint64_t octets, unsigned access = kRemote) {
    assert_int_equal(post_bind(offset, octets, access), 0);
    const ibv_wc wc = a.wait();
    assert_int_equal(wc.wr_id, 7);
    if (wc.status == IBV_WC_SUCCESS) assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
    return wc.status;
  }
  ibv_wc_status invalidate() {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = mw.rkey;
    assert_int_equal(a.qp->post_send(&wr, &bad), 0);
    const ibv_wc wc = a.wait();
    if (wc.status == IBV_WC_SUCCESS) assert_int_equal(wc.opcode, IBV_WC_LOCAL_INV);
    return wc.status;
  }
  // b reads through the window.
  ibv_wc_status read(std::size_t offset, std::uint32_t octets) {
    assert_int_equal(b.send(IBV_WR_RDMA_READ, {b.sge(0, octets)}, a.address(offset), mw.rkey), 0);
    return b.wait().status;
  }
  Verdict opens(std::uint32_t key, std::size_t offset, std::size_t octets, unsigned need, std::uint32_t qp) {
    llp::Extent e;
    return memory().resolve(key, a.pd, a.address(offset), octets, need, &e, qp);
  }

  test::Side a, b;
  ibv_mr mr{};
  ibv_mw mw{};
  MemoryRegion *region = nullptr, *window = nullptr;
};

// Holds: VRB-24, VRB-25
// A part of the region, with its own rights, for peers only.
void vrb_25_what_a_window_opens(void**) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    Lender l(type);
    const std::uint32_t qp = l.a.qp->number();
    assert_int_equal(l.opens(l.mw.rkey, 1000, 1, IBV_ACCESS_REMOTE_READ, qp), Verdict::invalid_stag);
    // The local right may be asked for, and is not given.
    assert_int_equal(l.bind(1000, 100, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE), IBV_WC_SUCCESS);
    *l.a.at(1050) = std::byte{42};
    assert_int_equal(l.read(1000, 100), IBV_WC_SUCCESS);
    assert_int_equal(*l.b.at(50), std::byte{42});
    const std::uint32_t key = l.mw.rkey;
    assert_int_equal(l.opens(key, 1000, 101, IBV_ACCESS_REMOTE_READ, qp), Verdict::bounds);
    assert_int_equal(l.opens(key, 999, 1, IBV_ACCESS_REMOTE_READ, qp), Verdict::bounds);
    assert_int_equal(l.opens(key, 1000, 1, IBV_ACCESS_REMOTE_WRITE, qp), Verdict::access);
    assert_int_equal(l.opens(key, 1000, 1, 0, qp), Verdict::access);
    assert_int_equal(l.opens(key, 1000, 1, IBV_ACCESS_LOCAL_WRITE, qp), Verdict::access);
    assert_int_equal(l.opens(key, 1000, 1, IBV_ACCESS_REMOTE_READ, qp + 1),
                     type == IBV_MW_TYPE_1 ? Verdict::ok : Verdict::not_associated);
    llp::Extent e;
    assert_int_equal(memory().resolve(key, l.b.pd, l.a.address(1000), 1, IBV_ACCESS_REMOTE_READ, &e, qp),
                     Verdict::not_associated);
    // VRB-24
    assert_int_equal(memory().remove(l.region), EBUSY);
    assert_int_equal(memory().change(l.region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1), EBUSY);
  }
}

// Holds: VRB-25
// Type 1 is bound anew over an old bind, and unbound by a bind of nothing.
void vrb_25_type_1(void**) {
  Lender l(IBV_MW_TYPE_1);
  assert_int_equal(l.bind(0, 100), IBV_WC_SUCCESS);
  const std::uint32_t old = l.mw.rkey;
  assert_int_equal(l.bind(500, 100), IBV_WC_SUCCESS);
  assert_int_equal(l.opens(old, 0, 1, IBV_ACCESS_REMOTE_READ, 0), Verdict::invalid_stag);
  assert_int_equal(l.read(500, 100), IBV_WC_SUCCESS);
  assert_int_equal(memory().invalidate(l.mw.rkey, l.a.pd, l.a.qp->number(), Invalidates::regions_too),
                   Verdict::not_associated);
  assert_int_equal(l.bind(0, 0), IBV_WC_SUCCESS);
  assert_int_equal(l.opens(l.mw.rkey, 500, 1, IBV_ACCESS_REMOTE_READ, 0), Verdict::invalid_stag);
  assert_int_equal(memory().remove(std::exchange(l.region, nullptr)), 0);
}

// Holds: VRB-25, VRB-29
// Type 2 has to be invalidated first: by its owner, or by the peer's Send with Invalidate.
void vrb_25_type_2(void**) {
  Lender l(IBV_MW_TYPE_2);
  assert_int_equal(l.bind(0, 100), IBV_WC_SUCCESS);
  assert_int_equal(l.invalidate(), IBV_WC_SUCCESS);
  assert_int_equal(l.bind(100, 100), IBV_WC_SUCCESS);
  assert_int_equal(l.a.receive({l.a.sge(4096, 64)}), 0);
  assert_int_equal(l.b.send(IBV_WR_SEND_WITH_INV, {l.b.sge(0, 8)}, 0, l.mw.rkey), 0);
  const ibv_wc wc = l.a.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
  assert_int_equal(wc.invalidated_rkey, l.mw.rkey);
  assert_int_equal(l.b.wait().status, IBV_WC_SUCCESS);
  assert_int_equal(l.bind(200, 100), IBV_WC_SUCCESS);
  assert_int_equal(l.bind(300, 100), IBV_WC_MW_BIND_ERR);  // still bound
  assert_true(l.a.reaches(IBV_QPS_ERR));
}

// Holds: VRB-13
// A bind that may not be ends the stream; what is behind it is flushed.
void what_a_bind_refuses(void**) {
  struct Case {
    const char* what;
    unsigned rights;
    std::size_t offset;
    std::uint64_t octets;
    unsigned access;
  };
  constexpr unsigned kGood = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  constexpr Case kCases[] = {
      {"no right to bind", IBV_ACCESS_LOCAL_WRITE, 0, 10, IBV_ACCESS_REMOTE_READ},
      {"writes into what is read-only", IBV_ACCESS_MW_BIND, 0, 10, IBV_ACCESS_REMOTE_WRITE},
      {"too long", kGood, 0, (1 << 20) + 1, IBV_ACCESS_REMOTE_READ},
      {"beyond", kGood, 1 << 20, 1, IBV_ACCESS_REMOTE_READ},
      {"no end", kGood, 1, UINT64_MAX, IBV_ACCESS_REMOTE_READ},
      {"what is no right of a peer", kGood, 0, 10, IBV_ACCESS_MW_BIND},
  };
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2})
    for (const Case& c : kCases) {
      print_message("case: %s\n", c.what);
      Lender l(type, c.rights);
      assert_int_equal(l.bind(c.offset, c.octets, c.access), IBV_WC_MW_BIND_ERR);
      assert_true(l.a.reaches(IBV_QPS_ERR));
      assert_int_equal(l.post_bind(0, 10), 0);
      assert_int_equal(l.a.wait().status, IBV_WC_WR_FLUSH_ERR);
    }
  Lender l(IBV_MW_TYPE_2);
  assert_int_equal(l.invalidate(), IBV_WC_LOC_PROT_ERR);  // not bound
  assert_true(l.a.reaches(IBV_QPS_ERR));
}

// Holds: VRB-25
// A bind takes its turn: earlier Reads into the same memory are finished, later work finds the key valid.
void binds_keep_the_order_of_the_queue(void**) {
  Lender l(IBV_MW_TYPE_2);
  for (int round = 0; round < 50; ++round) {
    assert_int_equal(l.b.receive({l.b.sge(0, 8)}), 0);
    assert_int_equal(
        l.a.send(IBV_WR_RDMA_READ, {l.a.sge(0, 100000)}, l.b.address(0), l.b.mr->stag(), IBV_SEND_SIGNALED, 1), 0);
    assert_int_equal(l.post_bind(0, 100000), 0);
    assert_int_equal(l.a.send(IBV_WR_SEND, {l.a.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 2), 0);
    for (const std::uint64_t id : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{2}}) {
      const ibv_wc wc = l.a.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.wr_id, id);
    }
    assert_int_equal(l.b.wait().status, IBV_WC_SUCCESS);
    assert_int_equal(l.read(0, 100000), IBV_WC_SUCCESS);
    assert_int_equal(l.invalidate(), IBV_WC_SUCCESS);
  }
}

// Holds: DDP-25
// A key may come again. What was found by it before is not touched any more.
void a_key_that_comes_again_is_another(void**) {
  constexpr std::size_t kOctets = 64;
  test::Side side(8192);
  MemoryRegion *window = nullptr, *region = nullptr;
  std::uint32_t rkey = 0;
  assert_int_equal(memory().add_window(side.pd, IBV_MW_TYPE_2, &window, &rkey), 0);
  assert_int_equal(memory().add(side.pd, side.at(0), 8192, side.address(0), kBindable, &region), 0);
  const auto bind = [&](std::size_t offset) {
    return memory().bind({rkey, region->stag(), side.address(offset), kOctets, kRemote}, side.pd, 5);
  };
  const auto find = [&](std::size_t offset) {
    llp::Extent e;
    assert_int_equal(memory().resolve(rkey, side.pd, side.address(offset), kOctets, IBV_ACCESS_REMOTE_WRITE, &e, 5),
                     Verdict::ok);
    return e;
  };
  assert_true(bind(0));
  const llp::Extent old = find(0);
  Bytes data = pattern(kOctets);
  assert_true(verbs::copy_in(old, data.data()));
  assert_int_equal(memory().invalidate(rkey, side.pd, 5, Invalidates::windows), Verdict::ok);
  assert_false(verbs::copy_in(old, data.data()));
  assert_true(bind(4096));
  assert_false(verbs::copy_in(old, data.data()));
  assert_false(verbs::copy_out(data.data(), old));
  assert_false(verbs::hold(old));  // in place: a Read Response that is gathered
  assert_true(verbs::copy_in(find(4096), data.data()));
  memory().remove_window(window);
  assert_int_equal(memory().remove(region), 0);
}

// Holds: DDP-15, DDP-25
// A peer stops in the middle of a Write, whose payload goes direct. Its key is taken back, and comes again for other
// memory. The rest of the payload goes to neither.
void a_write_under_a_key_that_comes_again(void**) {
  constexpr std::size_t kOctets = 20000, kSent = 1000, kPlaced = kSent - 2 - 14;
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    Scene s(Setup{.initiator = true}, 2 * kOctets);
    Pd& pd = s.side.pd;
    const std::uint32_t qp = s.side.qp->number();
    MemoryRegion *window = nullptr, *first = nullptr, *second = nullptr;
    std::uint32_t rkey = 0;
    assert_int_equal(memory().add_window(pd, type, &window, &rkey), 0);
    assert_int_equal(memory().add(pd, s.side.at(0), kOctets, s.side.address(0), kBindable, &first), 0);
    assert_int_equal(memory().add(pd, s.side.at(kOctets), kOctets, s.side.address(kOctets), kBindable, &second), 0);
    assert_true(memory().bind({rkey, first->stag(), s.side.address(0), kOctets, kRemote}, pd, qp));

    const Bytes data = pattern(kOctets), ulpdu = write_segment(rkey, s.side.address(0), data);
    const Bytes fpdu = s.peer->frame(ulpdu);
    s.peer->raw(slice(fpdu, 0, kSent));
    const auto placed = [&] {
      bool there = false;
      engine().run([&] { there = std::memcmp(s.side.at(0), data.data(), kPlaced) == 0; });
      return there;
    };
    for (int i = 0; !placed(); ++i) {
      assert_true(i < test::kPatience);
      poll(nullptr, 0, 1);
    }

    // One of type 1 is bound over the old bind.
    if (type == IBV_MW_TYPE_2) assert_int_equal(memory().invalidate(rkey, pd, qp, Invalidates::windows), Verdict::ok);
    assert_true(memory().bind({rkey, second->stag(), s.side.address(kOctets), kOctets, kRemote}, pd, qp));
    assert_int_equal(memory().remove(first), 0);
    s.peer->raw(slice(fpdu, kSent, fpdu.size() - kSent));
    s.peer->expect(answer_to(ulpdu, 1, 1, 0));
    s.peer->expect_fin();
    s.expect_event("the key", IBV_EVENT_QP_ACCESS_ERR);
    s.expect_ended("the key");
    for (std::size_t i = kPlaced; i < 2 * kOctets; ++i) assert_int_equal(*s.side.at(i), std::byte{0});
    memory().remove_window(window);
    assert_int_equal(memory().remove(second), 0);
  }
}

// The slot of a window of type 2 was one queue pair's; a region that comes to stand there is every one's.
void a_slot_that_a_window_had_is_anybodys(void**) {
  constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
  test::Side side(8192);
  MemoryRegion *window = nullptr, *region = nullptr;
  std::uint32_t rkey = 0;
  assert_int_equal(memory().add_window(side.pd, IBV_MW_TYPE_2, &window, &rkey), 0);
  assert_int_equal(memory().add(side.pd, side.at(0), 4096, side.address(0), kAccess, &region), 0);
  assert_true(memory().bind({rkey ^ 1, region->stag(), side.address(0), 100, IBV_ACCESS_REMOTE_READ}, side.pd, 5));
  llp::Extent e;
  assert_int_equal(memory().resolve(rkey ^ 1, side.pd, side.address(0), 1, IBV_ACCESS_REMOTE_READ, &e, 5), Verdict::ok);
  memory().remove_window(window);
  assert_int_equal(memory().resolve(rkey ^ 1, side.pd, side.address(0), 1, IBV_ACCESS_REMOTE_READ, &e, 5),
                   Verdict::invalid_stag);
  // Slots rest before they are used again, and are drawn from a thousand then.
  for (int i = 0; i < 40'000; ++i) {
    MemoryRegion* other = nullptr;
    assert_int_equal(memory().add(side.pd, side.at(0), 4096, side.address(0), kAccess, &other), 0);
    const Verdict v = memory().resolve(other->stag(), side.pd, side.address(0), 1, IBV_ACCESS_REMOTE_READ, &e, 6);
    const bool there = other == window;
    assert_int_equal(memory().remove(other), 0);
    assert_int_equal(v, Verdict::ok);
    if (!there) continue;
    assert_int_equal(memory().remove(region), 0);
    return;
  }
  fail_msg("the slot does not come back");
}

// Slots that are empty have the key 0, which names none of them.
void key_0_is_no_region(void**) {
  constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
  test::Side side(8192);
  MemoryRegion* window = nullptr;
  std::uint32_t rkey = 0;
  assert_int_equal(memory().add_window(side.pd, IBV_MW_TYPE_2, &window, &rkey), 0);
  // More than rest, and again: the first slot of all was among them, and is empty.
  for (int round = 0; round < 3; ++round) {
    std::vector<MemoryRegion*> regions(4096);
    for (MemoryRegion*& r : regions)
      assert_int_equal(memory().add(side.pd, side.at(0), 4096, side.address(0), kAccess, &r), 0);
    for (MemoryRegion* r : regions) assert_int_equal(memory().remove(r), 0);
  }
  assert_false(memory().bind({rkey ^ 1, 0, side.address(0), 100, IBV_ACCESS_REMOTE_READ}, side.pd, 5));
  memory().remove_window(window);
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "1000");
  const CMUnitTest tests[] = {
      cmocka_unit_test(vrb_25_what_a_window_opens),
      cmocka_unit_test(vrb_25_type_1),
      cmocka_unit_test(vrb_25_type_2),
      cmocka_unit_test(what_a_bind_refuses),
      cmocka_unit_test(binds_keep_the_order_of_the_queue),
      cmocka_unit_test(a_key_that_comes_again_is_another),
      cmocka_unit_test(a_write_under_a_key_that_comes_again),
      cmocka_unit_test(a_slot_that_a_window_had_is_anybodys),
      cmocka_unit_test(key_0_is_no_region),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
