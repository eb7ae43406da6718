// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Poll sets and wait sets (fi_poll(3)). libfabric 2 calls them deprecated and keeps them.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/ofi/suite/bed.h"

namespace ewarp::ofi::suite {
namespace {

void a_poll_set_tells_of_its_members(void**) {
  const Bed bed;
  Speaker s(bed);
  fi_poll_attr attributes{};
  Owned<fid_poll> set;
  MUST_OR_SKIP(fi_poll_open(bed.domain, &attributes, set.out()));
  void* told[4] = {};
  assert_int_equal(fi_poll(set.get(), told, 4), 0);
  MUST(fi_poll_add(set.get(), &s.queue.f(), 0));
  MUST(fi_poll_add(set.get(), &s.sends.f(), 0));
  const auto tells = [&](void* context) {
    const int n = fi_poll(set.get(), told, 4);
    MUST(n);
    return std::find(told, told + n, context) != told + n;
  };
  s.speak();
  bool queue = false, counter = false;
  until([&] {
    const int n = fi_poll(set.get(), told, 4);
    MUST(n);
    for (int i = 0; i < n; ++i) {
      queue = queue || told[i] == s.queue.f().context;
      counter = counter || told[i] == s.sends.f().context;
    }
    return queue && counter;
  });
  s.hear();
  until([&] { return !tells(s.queue.f().context); });
  MUST(fi_poll_del(set.get(), &s.sends.f(), 0));
  MUST(fi_poll_del(set.get(), &s.queue.f(), 0));
  assert_int_equal(fi_poll(set.get(), told, 4), 0);
}

void members_of_a_poll_set_are_in_use(void**) {
  const Bed bed;
  Owned<fid_cq> queue;
  fi_cq_attr cq{};
  MUST(fi_cq_open(bed.domain, &cq, queue.out(), nullptr));
  fi_poll_attr attributes{};
  Owned<fid_poll> set;
  MUST_OR_SKIP(fi_poll_open(bed.domain, &attributes, set.out()));
  MUST(fi_poll_add(set.get(), &queue.f(), 0));
  if (ours()) assert_int_equal(fi_close(&queue.f()), -FI_EBUSY);
  assert_int_equal(fi_poll_add(set.get(), &bed.domain->fid, 0), -FI_EINVAL);
  MUST(fi_poll_del(set.get(), &queue.f(), 0));
  queue.close();
}

void a_wait_set_is_woken(void**) {
  const Bed bed;
  fi_wait_attr attributes{};
  attributes.wait_obj = FI_WAIT_UNSPEC;
  Owned<fid_wait> set;
  MUST_OR_SKIP(fi_wait_open(bed.fabric, &attributes, set.out()));
  Speaker s(bed, set.get());
  if (ours()) assert_int_equal(fi_close(&set.f()), -FI_EBUSY);
  assert_int_equal(fi_wait(set.get(), 5), -FI_ETIMEDOUT);
  for (int i = 0; i < 10; ++i) {
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      s.speak();
    });
    int ends = 0;
    until([&] {
      fi_cq_tagged_entry e{};
      const long n = fi_cq_read(s.queue.get(), &e, 1);
      if (n == 1) return ++ends == 2;
      assert_int_equal(n, -FI_EAGAIN);
      const int woken = fi_wait(set.get(), kPatienceMs);
      if (woken != -FI_EAGAIN) MUST(woken);
      return false;
    });
    later.join();
  }
}

}  // namespace

Tests set_tests() {
  return {cmocka_unit_test(a_poll_set_tells_of_its_members), cmocka_unit_test(members_of_a_poll_set_are_in_use),
          cmocka_unit_test(a_wait_set_is_woken)};
}

}  // namespace ewarp::ofi::suite
