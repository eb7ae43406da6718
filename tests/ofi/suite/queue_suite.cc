// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Event queues, completion queues and counters (fi_eq(3), fi_cq(3), fi_cntr(3)).
#include <poll.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "tests/ofi/suite/bed.h"

namespace ewarp::ofi::suite {
namespace {

// --- event queues ---

void open(const Bed& bed, Owned<fid_eq>& out, fi_wait_obj wait, std::size_t size = 0) {
  fi_eq_attr attributes{};
  attributes.size = size;
  attributes.flags = FI_WRITE;
  attributes.wait_obj = wait;
  MUST(fi_eq_open(bed.fabric, &attributes, out.out(), &out));
  assert_ptr_equal(out.f().context, &out);
}

fi_eq_entry entry(std::uint64_t data) {
  fi_eq_entry e{};
  e.data = data;
  return e;
}

void write(fid_eq* queue, std::uint64_t data) {
  const fi_eq_entry e = entry(data);
  assert_int_equal(fi_eq_write(queue, FI_NOTIFY, &e, sizeof e, 0), sizeof e);
}

void event_queues_of_any_size(void**) {
  const Bed bed;
  for (std::size_t size = 0; size < 1 << 12; size = size * 4 + 1) {
    Owned<fid_eq> queue;
    open(bed, queue, FI_WAIT_NONE, size);
    // As many as were asked for.
    for (std::size_t i = 0; i < size; ++i) write(queue.get(), i);
    for (std::size_t i = 0; i < size; ++i) {
      std::uint32_t event = 0;
      fi_eq_entry e{};
      assert_int_equal(fi_eq_read(queue.get(), &event, &e, sizeof e, 0), sizeof e);
      assert_int_equal(event, FI_NOTIFY);
      assert_int_equal(e.data, i);
    }
    std::uint32_t event = 0;
    fi_eq_entry e{};
    assert_int_equal(fi_eq_read(queue.get(), &event, &e, sizeof e, 0), -FI_EAGAIN);
  }
}

void events_are_peeked_at(void**) {
  const Bed bed;
  Owned<fid_eq> queue;
  open(bed, queue, FI_WAIT_UNSPEC);
  std::uint32_t event = 0;
  fi_eq_entry e{};
  assert_int_equal(fi_eq_read(queue.get(), &event, &e, sizeof e, FI_PEEK), -FI_EAGAIN);
  write(queue.get(), 5);
  write(queue.get(), 6);
  for (int i = 0; i < 3; ++i) {
    assert_int_equal(fi_eq_read(queue.get(), &event, &e, sizeof e, FI_PEEK), sizeof e);
    assert_int_equal(e.data, 5);
    assert_int_equal(fi_eq_sread(queue.get(), &event, &e, sizeof e, kPatienceMs, FI_PEEK), sizeof e);
    assert_int_equal(e.data, 5);
  }
  for (const std::uint64_t data : {5, 6}) {
    assert_int_equal(fi_eq_sread(queue.get(), &event, &e, sizeof e, kPatienceMs, 0), sizeof e);
    assert_int_equal(e.data, data);
  }
  assert_int_equal(fi_eq_sread(queue.get(), &event, &e, sizeof e, 5, 0), -FI_EAGAIN);
}

void events_that_are_not_there(void**) {
  const Bed bed;
  Owned<fid_eq> queue;
  open(bed, queue, FI_WAIT_FD);
  fi_eq_err_entry error{};
  assert_int_equal(fi_eq_readerr(queue.get(), &error, 0), -FI_EAGAIN);
  write(queue.get(), 5);
  assert_int_equal(fi_eq_readerr(queue.get(), &error, 0), -FI_EAGAIN);
  std::uint32_t event = 0;
  fi_eq_entry e{};
  if (ours()) assert_int_equal(fi_eq_read(queue.get(), &event, &e, 1, 0), -FI_ETOOSMALL);
  assert_int_equal(fi_eq_read(queue.get(), &event, &e, sizeof e, 0), sizeof e);
  // Nobody said that the program writes to this one.
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_NONE;
  Owned<fid_eq> read_only;
  MUST(fi_eq_open(bed.fabric, &attributes, read_only.out(), nullptr));
  if (ours()) assert_int_equal(fi_eq_write(read_only.get(), FI_NOTIFY, &e, sizeof e, 0), -FI_EINVAL);
}

int descriptor(fid& f) {
  int fd = -1;
  MUST(fi_control(&f, FI_GETWAIT, &fd));
  assert_true(fd >= 0);
  return fd;
}

// Sleeps on the descriptor until there is something.
void sleep_on(const Bed& bed, fid& f, int fd) {
  fid* one = &f;
  if (fi_trywait(bed.fabric, &one, 1) != 0) return;
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  assert_int_equal(poll(&waiting, 1, kPatienceMs), 1);
}

void event_queues_are_waited_for(void**) {
  const Bed bed;
  Owned<fid_eq> queue;
  open(bed, queue, FI_WAIT_FD);
  const int fd = descriptor(queue.f());
  std::uint32_t event = 0;
  fi_eq_entry e{};
  for (std::uint64_t i = 0; i < 10; ++i) {
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      write(queue.get(), i);
    });
    if (i % 2 == 0)
      while (fi_eq_read(queue.get(), &event, &e, sizeof e, 0) == -FI_EAGAIN) sleep_on(bed, queue.f(), fd);
    else
      assert_int_equal(fi_eq_sread(queue.get(), &event, &e, sizeof e, -1, 0), sizeof e);
    assert_int_equal(e.data, i);
    later.join();
  }
}

// --- completion queues ---

void completion_queues_of_any_size(void**) {
  const Bed bed;
  std::vector<std::unique_ptr<Owned<fid_cq>>> together;
  for (std::size_t size = 1; size <= 1 << 12; size *= 4)
    for (const fi_cq_format format :
         {FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
      fi_cq_attr attributes{};
      attributes.size = size;
      attributes.format = format;
      together.push_back(std::make_unique<Owned<fid_cq>>());
      MUST(fi_cq_open(bed.domain, &attributes, together.back()->out(), &together));
      assert_ptr_equal(together.back()->f().context, &together);
      char octets[sizeof(fi_cq_tagged_entry)];
      assert_int_equal(fi_cq_read(together.back()->get(), octets, 1), -FI_EAGAIN);
      fi_cq_err_entry error{};
      assert_int_equal(fi_cq_readerr(together.back()->get(), &error, 0), -FI_EAGAIN);
    }
}

void no_such_completion_queue(void**) {
  const Bed bed;
  fid_cq* queue = nullptr;
  fi_cq_attr format{};
  format.format = static_cast<fi_cq_format>(7);
  assert_true(fi_cq_open(bed.domain, &format, &queue, nullptr) < 0);
  fi_cq_attr wait{};
  wait.wait_obj = static_cast<fi_wait_obj>(7);
  assert_true(fi_cq_open(bed.domain, &wait, &queue, nullptr) < 0);
}

void readers_are_woken(void**) {
  const Bed bed;
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.wait_obj = FI_WAIT_UNSPEC;
  Owned<fid_cq> queue;
  MUST(fi_cq_open(bed.domain, &attributes, queue.out(), nullptr));
  fi_cq_tagged_entry e{};
  assert_int_equal(fi_cq_sread(queue.get(), &e, 1, nullptr, 0), -FI_EAGAIN);
  assert_int_equal(fi_cq_sread(queue.get(), &e, 1, nullptr, 5), -FI_EAGAIN);
  MUST(fi_cq_signal(queue.get()));
  assert_int_equal(fi_cq_sread(queue.get(), &e, 1, nullptr, -1), -FI_EAGAIN);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    MUST(fi_cq_signal(queue.get()));
  });
  assert_int_equal(fi_cq_sread(queue.get(), &e, 1, nullptr, -1), -FI_EAGAIN);
  later.join();
}

void entries_say_what_was_done(void**) {
  const Bed bed;
  Speaker s(bed);
  s.speak();
  bool sent = false, received = false;
  until([&] {
    fi_cq_tagged_entry e{};
    if (fi_cq_read(s.queue.get(), &e, 1) == 1) {
      sent = sent || (e.flags & FI_SEND) != 0;
      if ((e.flags & FI_RECV) != 0) {
        received = true;
        assert_int_equal(e.len, sizeof s.in);
        assert_int_equal(e.tag, 7);
      }
    }
    return sent && received;
  });
}

// A receive that is given up ends as such, in its turn.
void a_cancelled_receive_is_an_error(void**) {
  const Bed bed;
  Speaker s(bed);
  fi_context2 context;
  MUST(fi_trecv(s.ep.get(), &s.in, sizeof s.in, nullptr, FI_ADDR_UNSPEC, 9, 0, &context));
  MUST(fi_cancel(&s.ep.f(), &context));
  fi_cq_tagged_entry e{};
  until([&] { return fi_cq_read(s.queue.get(), &e, 1) == -FI_EAVAIL; });
  fi_cq_err_entry error{};
  assert_int_equal(fi_cq_readerr(s.queue.get(), &error, 0), 1);
  assert_int_equal(error.err, FI_ECANCELED);
  assert_ptr_equal(error.op_context, &context);
  assert_non_null(fi_cq_strerror(s.queue.get(), error.prov_errno, error.err_data, nullptr, 0));
}

// --- counters ---

void counters_keep_what_they_are_given(void**) {
  const Bed bed;
  std::vector<std::unique_ptr<Owned<fid_cntr>>> together;
  const std::size_t count = std::min<std::size_t>(bed.info->domain_attr->cntr_cnt, 64);
  for (std::uint64_t i = 0; i < count; ++i) {
    fi_cntr_attr attributes{};
    attributes.events = FI_CNTR_EVENTS_COMP;
    together.push_back(std::make_unique<Owned<fid_cntr>>());
    MUST(fi_cntr_open(bed.domain, &attributes, together.back()->out(), &together));
    fid_cntr* c = together.back()->get();
    assert_int_equal(fi_cntr_read(c), 0);
    MUST(fi_cntr_set(c, i));
    MUST(fi_cntr_add(c, 10));
    MUST(fi_cntr_seterr(c, i * 2));
    MUST(fi_cntr_adderr(c, 5));
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    assert_int_equal(fi_cntr_read(together[i]->get()), i + 10);
    assert_int_equal(fi_cntr_readerr(together[i]->get()), i * 2 + 5);
  }
}

void counters_are_waited_for(void**) {
  const Bed bed;
  Speaker s(bed);
  fi_cntr_attr attributes{};
  attributes.wait_obj = FI_WAIT_UNSPEC;
  Owned<fid_cntr> c;
  MUST(fi_cntr_open(bed.domain, &attributes, c.out(), nullptr));
  assert_int_equal(fi_cntr_wait(c.get(), 1, 5), -FI_ETIMEDOUT);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fi_cntr_add(c.get(), 3);
  });
  MUST(fi_cntr_wait(c.get(), 3, kPatienceMs));
  later.join();
  MUST(fi_cntr_wait(c.get(), 2, 0));
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fi_cntr_adderr(c.get(), 1);
  });
  assert_int_equal(fi_cntr_wait(c.get(), 4, kPatienceMs), -FI_EAVAIL);
  failing.join();
}

}  // namespace

Tests event_tests() {
  return {cmocka_unit_test(event_queues_of_any_size), cmocka_unit_test(events_are_peeked_at),
          cmocka_unit_test(events_that_are_not_there), cmocka_unit_test(event_queues_are_waited_for)};
}

Tests completion_tests() {
  return {cmocka_unit_test(completion_queues_of_any_size), cmocka_unit_test(no_such_completion_queue),
          cmocka_unit_test(readers_are_woken), cmocka_unit_test(entries_say_what_was_done),
          cmocka_unit_test(a_cancelled_receive_is_an_error)};
}

Tests counter_tests() {
  return {cmocka_unit_test(counters_keep_what_they_are_given), cmocka_unit_test(counters_are_waited_for)};
}

}  // namespace ewarp::ofi::suite
