// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory keys: nobody can tell one from others, a forked child issues its own, and what a peer may take away by a Send
// with Invalidate.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>
#include <vector>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint32_t kIndexes = 1u << 24;

struct World {
  Context context{test::any_device(), nullptr};
  Pd pd{context};
  std::array<std::byte, 64> octets{};

  MemoryRegion* add(unsigned access = kAll) {
    MemoryRegion* mr = nullptr;
    assert_int_equal(memory().add(pd, octets.data(), octets.size(), 0, access, &mr), 0);
    return mr;
  }
  std::vector<MemoryRegion*> add_many(std::size_t n) {
    std::vector<MemoryRegion*> out;
    while (out.size() < n) out.push_back(add());
    return out;
  }
  Verdict read(std::uint32_t stag) {
    llp::Extent e;
    return memory().resolve(stag, pd, 0, 1, IBV_ACCESS_REMOTE_READ, &e);
  }
};

void remove(const std::vector<MemoryRegion*>& all) {
  for (MemoryRegion* mr : all) memory().remove(mr);
}

std::uint32_t index_of(const MemoryRegion* mr) {
  return mr->stag() >> 8;
}
unsigned octet_of(const MemoryRegion* mr) {
  return mr->stag() & 0xff;
}

// Of three regions that were registered in a row, two do not tell the third.
void indexes_follow_no_rule(void**) {
  World w;
  const auto all = w.add_many(1000);
  std::size_t affine = 0;
  for (std::size_t i = 2; i < all.size(); ++i)
    affine += index_of(all[i]) == (2 * index_of(all[i - 1]) - index_of(all[i - 2])) % kIndexes;
  assert_in_range(affine, 0, 10);
  // Neither the upper half of an index, nor the lower, tells the one after it.
  std::set<std::uint32_t> upper, lower;
  for (std::size_t i = 1; i < all.size(); ++i) {
    upper.insert((index_of(all[i]) - index_of(all[i - 1])) >> 12 & 0xfff);
    lower.insert((index_of(all[i]) - index_of(all[i - 1])) & 0xfff);
  }
  assert_true(upper.size() > 300 && lower.size() > 300);
  remove(all);
}

// Of the 256 steps from one to the next, each is as likely as another.
void key_octets_follow_no_rule(void**) {
  World w;
  const auto all = w.add_many(1000);
  std::size_t large = 0, large_steps = 0;
  for (const MemoryRegion* mr : all) large += octet_of(mr) > 127;
  MemoryRegion* mr = all.front();
  for (std::size_t i = 0; i < 1000; ++i) {
    const unsigned before = octet_of(mr);
    assert_int_equal(memory().change(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll), 0);
    large_steps += ((octet_of(mr) - before) & 0xff) > 127;
  }
  assert_in_range(large, 300, 700);
  assert_in_range(large_steps, 300, 700);
  remove(all);
}

// A key that is changed is a new one in all its bits, so that who knew the old one knows nothing of it.
void a_new_key_of_a_region_has_a_new_index(void**) {
  World w;
  MemoryRegion* mr = w.add();
  std::size_t same = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t before = index_of(mr), old = mr->stag();
    assert_int_equal(memory().change(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll), 0);
    same += index_of(mr) == before;
    assert_int_not_equal(mr->stag(), old);
    assert_int_equal(w.read(old), Verdict::invalid_stag);
    assert_int_equal(w.read(mr->stag()), Verdict::ok);
  }
  assert_in_range(same, 0, 20);
  memory().remove(mr);
}

// Regions come and go in an order of their own, in numbers that need many growths of the table.
void every_key_opens_its_own_region(void**) {
  World w;
  std::vector<MemoryRegion*> all;
  std::set<std::uint32_t> keys;
  for (const std::size_t n : {10u, 5000u, 20000u, 3000u, 40000u}) {
    while (all.size() < n) {
      all.push_back(w.add());
      if (!keys.insert(all.back()->stag()).second) fail_msg("two regions have key %x", all.back()->stag());
    }
    while (all.size() > n) {
      std::swap(all[all.size() * 7 / 11], all.back());
      const std::uint32_t key = all.back()->stag();
      memory().remove(all.back());
      all.pop_back();
      keys.erase(key);
      assert_int_equal(w.read(key), Verdict::invalid_stag);
    }
    for (const MemoryRegion* mr : all) {
      assert_int_equal(w.read(mr->stag()), Verdict::ok);
      assert_int_equal(w.read(mr->stag() ^ 1), keys.contains(mr->stag() ^ 1) ? Verdict::ok : Verdict::invalid_stag);
    }
  }
  remove(all);
}

// A worker that was forked knows its parent's keys up to then, and no others.
void a_child_issues_keys_of_its_own(void**) {
  constexpr std::size_t kMany = 100;
  World w;
  remove(w.add_many(kMany));  // so that there are old ones to be used again
  MemoryRegion* inherited = w.add();
  int pipe[2];
  assert_int_equal(::pipe(pipe), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::array<std::uint32_t, kMany> keys;
    for (std::uint32_t& key : keys) key = w.add()->stag();
    const bool good = w.read(inherited->stag()) == Verdict::ok &&
                      write(pipe[1], keys.data(), sizeof keys) == static_cast<ssize_t>(sizeof keys);
    _exit(good ? 0 : 1);
  }
  std::array<std::uint32_t, kMany> theirs{};
  assert_int_equal(read(pipe[0], theirs.data(), sizeof theirs), sizeof theirs);
  int status = -1;
  assert_true(waitpid(child, &status, 0) == child && status == 0);
  const auto ours = w.add_many(kMany);
  std::size_t same = 0, same_index = 0;
  for (std::size_t i = 0; i < kMany; ++i) {
    same += ours[i]->stag() == theirs[i];
    same_index += index_of(ours[i]) == theirs[i] >> 8;
  }
  assert_in_range(same, 0, 1);
  assert_in_range(same_index, 0, 5);
  remove(ours);
  memory().remove(inherited);
  close(pipe[0]);
  close(pipe[1]);
}

// A server with two clients and a region for both.
struct Shared {
  Shared() : one(4096), other(4096), server(4096) {
    test::join(one, server, test::params(true), test::params(false));
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 1, 1, 0};
    assert_int_equal(create_rc_qp(server.pd, init, &server.cq, &server.cq, &second), 0);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(second->attach(llp::tcp_stream(fds[1]), test::params(false), observer), 0);
    assert_int_equal(other.qp->attach(llp::tcp_stream(fds[0]), test::params(true), other.observer), 0);
    constexpr unsigned kRights = kAll | IBV_ACCESS_MW_BIND;
    assert_int_equal(memory().add(server.pd, octets.data(), octets.size(), address(), kRights, &region), 0);
  }
  ~Shared() {
    second->destroy();
    memory().remove(region);
  }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(octets.data()); }

  std::vector<std::byte> octets = std::vector<std::byte>(100, std::byte{42});
  test::Side one, other, server;
  std::shared_ptr<QueuePair> second;
  std::shared_ptr<test::Observer> observer = std::make_shared<test::Observer>();
  MemoryRegion* region = nullptr;
};

// Holds: RDM-7
// One of them cannot take it away from the other.
void a_region_is_not_one_peers_to_invalidate(void**) {
  Shared s;
  assert_int_equal(s.server.receive({s.server.sge(0, 8)}), 0);
  assert_int_equal(s.one.send(IBV_WR_SEND_WITH_INV, {s.one.sge(0, 8)}, 0, s.region->stag()), 0);
  assert_true(s.server.reaches(IBV_QPS_ERR));
  assert_int_equal(s.server.wait().status, IBV_WC_WR_FLUSH_ERR);
  assert_int_not_equal(s.region->stag(), 0);
  assert_int_equal(s.other.send(IBV_WR_RDMA_READ, {s.other.sge(0, 100)}, s.address(), s.region->stag()), 0);
  assert_int_equal(s.other.wait().status, IBV_WC_SUCCESS);
  assert_int_equal(*s.other.at(99), std::byte{42});
}

// By its owner, or where the owner lets peers do so: but not under a window.
void a_region_with_a_window_stays(void**) {
  Shared s;
  const std::uint32_t key = s.region->stag(), qp = s.second->number();
  MemoryRegion* window = nullptr;
  std::uint32_t rkey = 0;
  assert_int_equal(memory().add_window(s.server.pd, IBV_MW_TYPE_2, &window, &rkey), 0);
  assert_false(memory().bind({rkey ^ 0x80000000, key, s.address(), 10, IBV_ACCESS_REMOTE_READ}, s.server.pd, qp));
  assert_false(memory().bind({rkey ^ 0x00100000, key, s.address(), 10, IBV_ACCESS_REMOTE_READ}, s.server.pd, qp));
  assert_true(memory().bind({rkey ^ 1, key, s.address(), 10, IBV_ACCESS_REMOTE_READ}, s.server.pd, qp));
  assert_int_equal(memory().invalidate(key, s.server.pd, qp, Invalidates::windows), Verdict::access);
  assert_int_equal(memory().invalidate(key, s.server.pd, qp, Invalidates::regions_too), Verdict::access);
  assert_int_equal(memory().invalidate(rkey ^ 1, s.server.pd, qp, Invalidates::windows), Verdict::ok);
  assert_int_equal(memory().invalidate(key, s.server.pd, qp, Invalidates::windows), Verdict::access);
  assert_int_equal(s.region->stag(), key);
  assert_int_equal(memory().invalidate(key, s.server.pd, qp, Invalidates::regions_too), Verdict::ok);
  assert_int_equal(memory().invalidate(key, s.server.pd, qp, Invalidates::regions_too), Verdict::invalid_stag);
  memory().remove_window(window);
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "1000");
  const CMUnitTest tests[] = {
      cmocka_unit_test(indexes_follow_no_rule),
      cmocka_unit_test(key_octets_follow_no_rule),
      cmocka_unit_test(a_new_key_of_a_region_has_a_new_index),
      cmocka_unit_test(every_key_opens_its_own_region),
      cmocka_unit_test(a_child_issues_keys_of_its_own),
      cmocka_unit_test(a_region_is_not_one_peers_to_invalidate),
      cmocka_unit_test(a_region_with_a_window_stays),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
