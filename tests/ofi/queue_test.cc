// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues, counters, event queues, and waiting for them.
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/llp/one_cpu.h"
#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

void one(const Pair& p, void* context, std::uint64_t* in) {
  const std::uint64_t word = 11;
  MUST(fi_trecv(p.b.ep, in, sizeof *in, nullptr, p.to_a, 5, 0, context));
  MUST(fi_tinjectdata(p.a.ep, &word, sizeof word, 12, p.to_b, 5));
}

// The formats are beginnings of each other; what a format has not is not written.
void every_format(void**) {
  const std::pair<fi_cq_format, std::size_t> kFormats[] = {{FI_CQ_FORMAT_UNSPEC, sizeof(fi_cq_entry)},
                                                           {FI_CQ_FORMAT_CONTEXT, sizeof(fi_cq_entry)},
                                                           {FI_CQ_FORMAT_MSG, sizeof(fi_cq_msg_entry)},
                                                           {FI_CQ_FORMAT_DATA, sizeof(fi_cq_data_entry)},
                                                           {FI_CQ_FORMAT_TAGGED, sizeof(fi_cq_tagged_entry)}};
  for (const auto& [format, size] : kFormats) {
    Pair p({.format = format});
    std::uint64_t in[2] = {};
    one(p, &in[0], &in[0]);
    one(p, &in[1], &in[1]);
    Bytes raw(3 * sizeof(fi_cq_tagged_entry), 0xee);
    std::size_t got = 0;
    while (got < 2) {
      const long n = fi_cq_sread(p.b.receive_queue, raw.data() + got * size, 3 - got, nullptr, kPatienceMs);
      MUST(n);
      got += static_cast<std::size_t>(n);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      fi_cq_tagged_entry e{};
      std::copy_n(raw.data() + i * size, size, reinterpret_cast<std::uint8_t*>(&e));
      assert_ptr_equal(e.op_context, &in[i]);
      if (size >= sizeof(fi_cq_msg_entry)) assert_int_equal(e.len, 8);
      if (size >= sizeof(fi_cq_msg_entry)) assert_true((e.flags & (FI_RECV | FI_TAGGED)) == (FI_RECV | FI_TAGGED));
      if (size >= sizeof(fi_cq_data_entry)) assert_int_equal(e.data, 12);
      if (size >= sizeof(fi_cq_tagged_entry)) assert_int_equal(e.tag, 5);
    }
    assert_int_equal(raw[2 * size], 0xee);
  }
}

// Messages to oneself fill the queue without the adapter; who reads nothing else hears of others all the same.
void messages_to_oneself_keep_nothing_out(void**) {
  Pair p;
  const fi_addr_t self = p.b.insert(p.b);
  std::uint64_t word = 1, own = 0, remote = 0;
  MUST(fi_trecv(p.b.ep, &remote, sizeof remote, nullptr, p.to_a, 5, 0, &remote));
  MUST(fi_tsend(p.a.ep, &word, sizeof word, nullptr, p.to_b, 5, nullptr));
  p.a.sent();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  for (bool come = false; !come;) {
    MUST(fi_trecv(p.b.ep, &own, sizeof own, nullptr, self, 6, 0, &own));
    MUST(fi_tinject(p.b.ep, &word, sizeof word, self, 6));
    fi_cq_tagged_entry e{};
    MUST(fi_cq_read(p.b.receive_queue, &e, 1));
    come = e.op_context == &remote;
    assert_true(std::chrono::steady_clock::now() < until);
  }
  assert_int_equal(remote, 1);
}

void what_is_not_asked_for_is_not_told(void**) {
  Pair p({.bind_flags = FI_SELECTIVE_COMPLETION});
  std::uint64_t word = 1, in[3] = {};
  const iovec v{&word, 8}, r{&in[1], 8};
  int told_a, told_b;
  MUST(fi_trecv(p.b.ep, &in[0], 8, nullptr, p.to_a, 5, 0, nullptr));
  const fi_msg_tagged receive{&r, nullptr, 1, p.to_a, 5, 0, &told_b, 0};
  MUST(fi_trecvmsg(p.b.ep, &receive, FI_COMPLETION));
  MUST(fi_tsend(p.a.ep, &word, 8, nullptr, p.to_b, 5, nullptr));
  const fi_msg_tagged send{&v, nullptr, 1, p.to_b, 5, 0, &told_a, 0};
  MUST(fi_tsendmsg(p.a.ep, &send, FI_COMPLETION));
  assert_ptr_equal(p.b.received().op_context, &told_b);
  assert_ptr_equal(p.a.sent().op_context, &told_a);
  assert_true(p.a.quiet(p.a.send_queue) && p.b.quiet(p.b.receive_queue));
  // Errors are.
  MUST(fi_trecv(p.b.ep, &in[2], 8, nullptr, p.to_a, 6, 0, &in[2]));
  assert_int_equal(fi_cancel(&p.b.ep->fid, &in[2]), 0);
  assert_ptr_equal(p.b.failure(p.b.receive_queue).op_context, &in[2]);
}

void flags_of_an_endpoint_can_be_changed(void**) {
  Pair p({.bind_flags = FI_SELECTIVE_COMPLETION});
  std::uint64_t flags = FI_TRANSMIT;
  MUST(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags));
  assert_int_equal(flags, 0);
  flags = FI_TRANSMIT | FI_COMPLETION;
  MUST(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags));
  std::uint64_t word = 1;
  MUST(fi_tsend(p.a.ep, &word, 8, nullptr, p.to_b, 5, &word));
  assert_ptr_equal(p.a.sent().op_context, &word);
  flags = FI_TRANSMIT | FI_FENCE;
  assert_int_equal(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags), -FI_EINVAL);
}

void a_reader_sleeps_until_something_comes(void**) {
  Pair p;
  std::uint64_t in = 0;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    one(p, &in, &in);
  });
  assert_ptr_equal(p.b.received().op_context, &in);
  later.join();
  fi_cq_tagged_entry e{};
  assert_int_equal(fi_cq_sread(p.b.receive_queue, &e, 1, nullptr, 20), -FI_EAGAIN);
}

void a_reader_is_woken(void**) {
  Pair p;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    MUST(fi_cq_signal(p.b.receive_queue));
  });
  fi_cq_tagged_entry e{};
  assert_int_equal(fi_cq_sread(p.b.receive_queue, &e, 1, nullptr, -1), -FI_EAGAIN);
  later.join();
}

void sleep_on_descriptor(const Pair& p, struct fid* what, int fd) {
  while (fi_trywait(p.b.fabric, &what, 1) == 0) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&waiting, 1, kPatienceMs), 1);
    return;
  }
}

void a_descriptor_becomes_readable(void**) {
  Pair p;
  int fd = -1;
  MUST(fi_control(&p.b.receive_queue->fid, FI_GETWAIT, &fd));
  assert_true(fd >= 0);
  for (int i = 0; i < 20; ++i) {
    std::uint64_t in = 0;
    std::thread later([&] {
      if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      one(p, &in, &in);
    });
    fi_cq_tagged_entry e{};
    while (fi_cq_read(p.b.receive_queue, &e, 1) == -FI_EAGAIN) sleep_on_descriptor(p, &p.b.receive_queue->fid, fd);
    assert_ptr_equal(e.op_context, &in);
    later.join();
  }
  // With an entry in it there is nothing to wait for.
  std::uint64_t in = 0;
  one(p, &in, &in);
  struct fid* queue = &p.b.receive_queue->fid;
  while (fi_trywait(p.b.fabric, &queue, 1) == 0) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&waiting, 1, kPatienceMs), 1);
  }
  p.b.received();
}

// This thread and those that it begins.
class OnOneCpu {
 public:
  OnOneCpu() {
    assert_int_equal(sched_getaffinity(0, sizeof before_, &before_), 0);
    assert_true(ewarp::test::to_cpu(sched_getcpu()));
  }
  ~OnOneCpu() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCpu(const OnOneCpu&) = delete;
  OnOneCpu& operator=(const OnOneCpu&) = delete;

 private:
  cpu_set_t before_;
};

int look(const Side& side, struct fid& f) {
  struct fid* one = &f;
  return fi_trywait(side.fabric, &one, 1);
}

// The sleeper, behind what it prepares, runs only while this thread sleeps. What this one does behind the event finds
// it woken and not yet up.
void is_woken_all_the_same(
    const std::function<void()>& sleep, const std::function<void()>& event, const std::function<void()>& behind_it,
    const std::function<void()>& prepare = [] {}) {
  const OnOneCpu shared;
  std::atomic<bool> ready{false};
  std::thread sleeper([&] {
    prepare();
    ready = true;
    const sched_param none{};
    assert_int_equal(pthread_setschedparam(pthread_self(), SCHED_IDLE, &none), 0);
    sleep();
  });
  while (!ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto begun = std::chrono::steady_clock::now();
  event();
  behind_it();
  sleeper.join();
  assert_true(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(kPatienceMs / 2));
}

// Whoever looks, or goes to sleep, in between.
void nobody_takes_the_wake_up_of_another(void**) {
  Side side({.counters = true});
  fid_cntr* const counter = side.reads;
  is_woken_all_the_same([&] { MUST(fi_cntr_wait(counter, 1, kPatienceMs)); }, [&] { MUST(fi_cntr_add(counter, 1)); },
                        [&] { assert_int_equal(fi_cntr_wait(counter, 2, 5), -FI_ETIMEDOUT); });
  is_woken_all_the_same([&] { MUST(fi_cntr_wait(counter, 2, kPatienceMs)); }, [&] { MUST(fi_cntr_add(counter, 1)); },
                        [&] { look(side, counter->fid); });

  const fi_addr_t self = side.insert(side);
  std::uint64_t word = 1, in = 0;
  is_woken_all_the_same([&] { assert_ptr_equal(side.received().op_context, &in); },
                        [&] {
                          MUST(fi_trecv(side.ep, &in, sizeof in, nullptr, self, 5, 0, &in));
                          MUST(fi_tinject(side.ep, &word, sizeof word, self, 5));
                        },
                        [&] { look(side, side.receive_queue->fid); });
}

void nobody_takes_the_wake_up_for_an_event(void**) {
  const Side side;
  fi_wait_attr of_set{};
  of_set.wait_obj = FI_WAIT_FD;
  fid_wait* set = nullptr;
  MUST(fi_wait_open(side.fabric, &of_set, &set));
  fi_eq_attr attributes{};
  attributes.flags = FI_WRITE;
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq *queue = nullptr, *member = nullptr;
  MUST(fi_eq_open(side.fabric, &attributes, &queue, nullptr));
  attributes.wait_obj = FI_WAIT_SET;
  attributes.wait_set = set;
  MUST(fi_eq_open(side.fabric, &attributes, &member, nullptr));
  int fd = -1;
  MUST(fi_control(&queue->fid, FI_GETWAIT, &fd));

  std::uint32_t event = 0;
  fi_eq_entry entry{};
  const auto write = [&](fid_eq* to) {
    const fi_eq_entry e{};
    assert_int_equal(fi_eq_write(to, FI_NOTIFY, &e, sizeof e, 0), sizeof e);
  };
  is_woken_all_the_same(
      [&] { assert_int_equal(fi_eq_sread(queue, &event, &entry, sizeof entry, kPatienceMs, 0), sizeof entry); },
      [&] { write(queue); }, [&] { look(side, queue->fid); });
  // On the descriptor.
  is_woken_all_the_same(
      [&] {
        pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
        assert_int_equal(poll(&waiting, 1, kPatienceMs), 1);
      },
      [&] { write(queue); }, [&] { assert_int_equal(look(side, queue->fid), -FI_EAGAIN); },
      [&] { assert_int_equal(look(side, queue->fid), 0); });
  is_woken_all_the_same([&] { MUST(fi_wait(set, kPatienceMs)); }, [&] { write(member); },
                        [&] { assert_int_equal(look(side, set->fid), -FI_EAGAIN); });
  for (fid* f : {&queue->fid, &member->fid, &set->fid}) assert_int_equal(fi_close(f), 0);
}

void a_queue_without_a_wait_object_is_polled(void**) {
  Pair p({.wait = FI_WAIT_NONE});
  fi_cq_tagged_entry e{};
  assert_int_equal(fi_cq_sread(p.b.receive_queue, &e, 1, nullptr, 1), -FI_EINVAL);
  assert_int_equal(fi_cq_signal(p.b.receive_queue), -FI_EINVAL);
  std::uint64_t in = 0;
  one(p, &in, &in);
  while (fi_cq_read(p.b.receive_queue, &e, 1) == -FI_EAGAIN) {
  }
  assert_ptr_equal(e.op_context, &in);
}

// Programs of before version 1.5 have no err_data_size in their entries.
void errors_leave_alone_what_is_behind_them(void**) {
  for (const std::uint32_t version : {FI_VERSION(1, 4), FI_VERSION(1, 17)}) {
    const Side side({.version = version});
    std::uint64_t in = 0;
    MUST(fi_trecv(side.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 6, 0, &in));
    assert_int_equal(fi_cancel(&side.ep->fid, &in), 0);
    fi_cq_tagged_entry e{};
    while (fi_cq_read(side.receive_queue, &e, 1) == -FI_EAGAIN) {
    }
    fi_cq_err_entry error{};
    error.err_data_size = 77;
    assert_int_equal(fi_cq_readerr(side.receive_queue, &error, 0), 1);
    assert_int_equal(error.err, FI_ECANCELED);
    assert_ptr_equal(error.op_context, &in);
    assert_int_equal(error.err_data_size, version == FI_VERSION(1, 4) ? 77 : 0);
  }
}

// More than any size that was asked for.
void no_entry_is_lost(void**) {
  Pair p;
  constexpr std::size_t kCount = 3000;
  std::vector<std::uint64_t> in(kCount);
  for (std::uint64_t& word : in) MUST(fi_trecv(p.b.ep, &word, 8, nullptr, p.to_a, 5, 0, &word));
  for (std::uint64_t i = 0; i < kCount; ++i)
    while (fi_tinject(p.a.ep, &i, 8, p.to_b, 5) == -FI_EAGAIN) fi_cq_read(p.a.send_queue, nullptr, 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    assert_ptr_equal(p.b.received().op_context, &in[i]);
    assert_int_equal(in[i], i);
  }
}

void counters_count(void**) {
  Pair p({.counters = true});
  std::uint64_t word = 3, in[5] = {};
  for (std::uint64_t& slot : in) MUST(fi_trecv(p.b.ep, &slot, 8, nullptr, p.to_a, 5, 0, &slot));
  for (int i = 0; i < 3; ++i) MUST(fi_tsend(p.a.ep, &word, 8, nullptr, p.to_b, 5, nullptr));
  for (int i = 0; i < 2; ++i) MUST(fi_tinject(p.a.ep, &word, 8, p.to_b, 5));
  MUST(fi_cntr_wait(p.a.sends, 5, kPatienceMs));
  MUST(fi_cntr_wait(p.b.receives, 5, kPatienceMs));
  assert_int_equal(fi_cntr_read(p.b.receives), 5);
  assert_int_equal(fi_cntr_read(p.b.sends), 0);
  assert_int_equal(fi_cntr_wait(p.b.receives, 6, 10), -FI_ETIMEDOUT);

  MUST(fi_trecv(p.b.ep, &in[0], 8, nullptr, p.to_a, 5, 0, &in[0]));
  assert_int_equal(fi_cancel(&p.b.ep->fid, &in[0]), 0);
  while (fi_cntr_readerr(p.b.receives) == 0) {
  }
  assert_int_equal(fi_cntr_readerr(p.b.receives), 1);

  Registered target(p.b, 8);
  MUST(fi_write(p.a.ep, &word, 8, nullptr, p.to_b, target.address(), target.key(), nullptr));
  MUST(fi_cntr_wait(p.a.writes, 1, kPatienceMs));
  MUST(fi_read(p.a.ep, &word, 8, nullptr, p.to_b, target.address(), target.key(), nullptr));
  MUST(fi_cntr_wait(p.a.reads, 1, kPatienceMs));
}

// Without FI_RMA_EVENT what peers do to our memory is not counted, but may be asked for.
void counters_of_what_peers_do_are_bound(void**) {
  Side side;
  fid_ep* ep = nullptr;
  fid_cntr* counter = nullptr;
  fi_cntr_attr attributes{};
  MUST(fi_cntr_open(side.domain, &attributes, &counter, nullptr));
  MUST(fi_endpoint(side.domain, side.info, &ep, nullptr));
  MUST(fi_ep_bind(ep, &counter->fid, FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE));
  assert_int_equal(fi_cntr_read(counter), 0);
  assert_int_equal(fi_close(&ep->fid), 0);
  assert_int_equal(fi_close(&counter->fid), 0);
}

void counters_can_be_set(void**) {
  Pair p({.counters = true});
  MUST(fi_cntr_set(p.a.sends, 10));
  MUST(fi_cntr_add(p.a.sends, 5));
  MUST(fi_cntr_seterr(p.a.sends, 2));
  MUST(fi_cntr_adderr(p.a.sends, 1));
  assert_int_equal(fi_cntr_read(p.a.sends), 15);
  assert_int_equal(fi_cntr_readerr(p.a.sends), 3);
  // A waiter hears of it.
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fi_cntr_add(p.a.sends, 1);
  });
  MUST(fi_cntr_wait(p.a.sends, 16, kPatienceMs));
  later.join();
  // What peers do to our memory is not counted, and not promised.
  assert_int_equal(fi_ep_bind(p.a.ep, &p.a.sends->fid, FI_REMOTE_WRITE), -FI_EOPBADSTATE);
}

// The descriptor tells of what is counted behind fi_trywait(); the call tells of what was counted before, once.
void what_was_counted_is_not_slept_on(void**) {
  Side side({.counters = true});
  const fi_addr_t self = side.insert(side);
  struct fid& counter = side.sends->fid;
  std::uint64_t word = 1, in = 0;
  const auto becomes_quiet = [&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (look(side, counter) != 0) assert_true(std::chrono::steady_clock::now() < until);
  };
  assert_int_equal(fi_cntr_read(side.sends), 0);
  becomes_quiet();
  MUST(fi_trecv(side.ep, &in, sizeof in, nullptr, self, 5, 0, &in));
  MUST(fi_tsend(side.ep, &word, sizeof word, nullptr, self, 5, &word));
  MUST(fi_cntr_wait(side.sends, 1, kPatienceMs));
  assert_int_equal(look(side, counter), -FI_EAGAIN);
  becomes_quiet();
  MUST(fi_cntr_adderr(side.sends, 1));
  assert_int_equal(look(side, counter), -FI_EAGAIN);
  becomes_quiet();
}

void an_event_queue_keeps_what_is_written(void**) {
  const Side side;
  fi_eq_attr attributes{};
  attributes.flags = FI_WRITE;
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* queue = nullptr;
  MUST(fi_eq_open(side.fabric, &attributes, &queue, nullptr));
  std::uint32_t event = 0;
  fi_eq_entry in{}, out{};
  in.data = 77;
  assert_int_equal(fi_eq_read(queue, &event, &out, sizeof out, 0), -FI_EAGAIN);
  assert_int_equal(fi_eq_write(queue, FI_NOTIFY, &in, sizeof in, 0), sizeof in);
  assert_int_equal(fi_eq_read(queue, &event, &out, sizeof out, FI_PEEK), sizeof out);
  assert_int_equal(fi_eq_sread(queue, &event, &out, sizeof out, kPatienceMs, 0), sizeof out);
  assert_int_equal(event, FI_NOTIFY);
  assert_int_equal(out.data, 77);
  assert_int_equal(fi_eq_sread(queue, &event, &out, sizeof out, 5, 0), -FI_EAGAIN);
  MUST(fi_close(&queue->fid));
}

}  // namespace

std::vector<CMUnitTest> queue_tests() {
  return {cmocka_unit_test(every_format),
          cmocka_unit_test(messages_to_oneself_keep_nothing_out),
          cmocka_unit_test(what_is_not_asked_for_is_not_told),
          cmocka_unit_test(flags_of_an_endpoint_can_be_changed),
          cmocka_unit_test(a_reader_sleeps_until_something_comes),
          cmocka_unit_test(a_reader_is_woken),
          cmocka_unit_test(a_descriptor_becomes_readable),
          cmocka_unit_test(nobody_takes_the_wake_up_of_another),
          cmocka_unit_test(nobody_takes_the_wake_up_for_an_event),
          cmocka_unit_test(a_queue_without_a_wait_object_is_polled),
          cmocka_unit_test(errors_leave_alone_what_is_behind_them),
          cmocka_unit_test(no_entry_is_lost),
          cmocka_unit_test(counters_count),
          cmocka_unit_test(counters_of_what_peers_do_are_bound),
          cmocka_unit_test(counters_can_be_set),
          cmocka_unit_test(what_was_counted_is_not_slept_on),
          cmocka_unit_test(an_event_queue_keeps_what_is_written)};
}

}  // namespace ewarp::ofi::test
