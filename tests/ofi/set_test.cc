// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Poll sets and wait sets.
#include <netinet/in.h>
#include <poll.h>

#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

class Set {
 public:
  explicit Set(const Side& side) {
    fi_poll_attr attributes{};
    MUST(fi_poll_open(side.domain, &attributes, &set_));
  }
  ~Set() { fi_close(&set_->fid); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;
  fid_poll* get() const { return set_; }
  int add(fid& f) const { return fi_poll_add(set_, &f, 0); }
  int remove(fid& f) const { return fi_poll_del(set_, &f, 0); }
  // The contexts of those that have something; count: the most that are asked for at once.
  std::set<void*> poll(int count = 8) const {
    void* contexts[8];
    const int n = fi_poll(set_, contexts, count);
    MUST(n);
    assert_true(n <= count);
    return std::set<void*>(contexts, contexts + n);
  }
  // Until it is this.
  void until(const std::set<void*>& wanted) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (poll() != wanted) assert_true(std::chrono::steady_clock::now() < end);
  }

 private:
  fid_poll* set_ = nullptr;
};

fid_cntr* open_counter(const Side& side, fid_wait* set = nullptr) {
  fi_cntr_attr attributes{};
  attributes.wait_obj = set != nullptr ? FI_WAIT_SET : FI_WAIT_UNSPEC;
  attributes.wait_set = set;
  fid_cntr* out = nullptr;
  MUST(fi_cntr_open(side.domain, &attributes, &out, nullptr));
  return out;
}

fid_cq* open_queue(const Side& side, fid_wait* set) {
  fi_cq_attr attributes{};
  attributes.wait_obj = FI_WAIT_SET;
  attributes.wait_set = set;
  attributes.format = FI_CQ_FORMAT_TAGGED;
  fid_cq* out = nullptr;
  MUST(fi_cq_open(side.domain, &attributes, &out, nullptr));
  return out;
}

fid_wait* open_wait_set(const Side& side, fi_wait_obj object = FI_WAIT_FD) {
  fi_wait_attr attributes{};
  attributes.wait_obj = object;
  fid_wait* out = nullptr;
  MUST(fi_wait_open(side.fabric, &attributes, &out));
  return out;
}

// From a to b, received there.
void one_message(const Pair& p) {
  static std::uint64_t word = 7, in = 0;
  MUST(fi_trecv(p.b.ep, &in, sizeof in, nullptr, p.to_a, 5, 0, &in));
  MUST(fi_tsend(p.a.ep, &word, sizeof word, nullptr, p.to_b, 5, nullptr));
}

// Queues and counters say so by their contexts.
void a_poll_set_says_who_has_something(void**) {
  Pair p({.counters = true});
  p.b.receive_queue->fid.context = &p.b.receive_queue;
  p.b.receives->fid.context = &p.b.receives;
  p.b.send_queue->fid.context = &p.b.send_queue;
  const Set set(p.b);
  for (fid* f : {&p.b.receive_queue->fid, &p.b.receives->fid, &p.b.send_queue->fid}) assert_int_equal(set.add(*f), 0);
  assert_true(set.poll().empty());
  std::uint64_t word = 7, in = 0;
  MUST(fi_trecv(p.b.ep, &in, sizeof in, nullptr, p.to_a, 5, 0, &in));
  MUST(fi_tsend(p.a.ep, &word, sizeof word, nullptr, p.to_b, 5, nullptr));
  // Nothing but the set makes b go on. A queue says so until it is read, a counter once.
  std::set<void*> told;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (told.size() < 2) {
    told.merge(set.poll());
    assert_true(std::chrono::steady_clock::now() < end);
  }
  assert_true(told == std::set<void*>({&p.b.receive_queue, &p.b.receives}));
  assert_true(set.poll() == std::set<void*>({&p.b.receive_queue}));
  p.b.received();
  assert_true(set.poll().empty());
  // Errors are something to read and to count.
  MUST(fi_trecv(p.b.ep, &in, sizeof in, nullptr, p.to_a, 6, 0, &in));
  assert_int_equal(fi_cancel(&p.b.ep->fid, &in), 0);
  assert_true(set.poll().count(&p.b.receive_queue) == 1);
  assert_int_equal(p.b.failure(p.b.receive_queue).err, FI_ECANCELED);
  set.until({});
  assert_int_equal(set.remove(p.b.receive_queue->fid), 0);
  assert_int_equal(set.remove(p.b.receives->fid), 0);
  one_message(p);
  p.b.received();
  assert_true(set.poll().empty());
}

// Only what completed is news of a counter, however the program changes its value at the same time.
void what_a_program_adds_is_no_news(void**) {
  Pair p({.counters = true});
  p.a.sends->fid.context = &p.a.sends;
  const Set set(p.a);
  assert_int_equal(set.add(p.a.sends->fid), 0);
  MUST(fi_cntr_add(p.a.sends, 5));
  MUST(fi_cntr_adderr(p.a.sends, 1));
  MUST(fi_cntr_set(p.a.sends, 3));
  MUST(fi_cntr_seterr(p.a.sends, 2));
  assert_true(set.poll().empty());
  one_message(p);
  MUST(fi_cntr_wait(p.a.sends, 4, kPatienceMs));
  MUST(fi_cntr_set(p.a.sends, 3));  // the value that it had when it was looked at
  assert_true(set.poll() == std::set<void*>({&p.a.sends}));
  assert_true(set.poll().empty());
}

// With room for one context each has its turn.
void nobody_is_passed_over(void**) {
  Pair p;
  p.b.receive_queue->fid.context = &p.b.receive_queue;
  p.b.send_queue->fid.context = &p.b.send_queue;
  const Set set(p.b);
  assert_int_equal(set.add(p.b.receive_queue->fid), 0);
  assert_int_equal(set.add(p.b.send_queue->fid), 0);
  std::uint64_t word = 7, in = 0;
  MUST(fi_trecv(p.b.ep, &in, sizeof in, nullptr, p.to_a, 5, 0, &in));
  MUST(fi_tsend(p.a.ep, &word, sizeof word, nullptr, p.to_b, 5, nullptr));
  MUST(fi_trecv(p.a.ep, &in, sizeof in, nullptr, p.to_b, 5, 0, &in));
  MUST(fi_tsend(p.b.ep, &word, sizeof word, nullptr, p.to_a, 5, nullptr));
  set.until({&p.b.receive_queue, &p.b.send_queue});
  assert_true(set.poll(0).empty());
  std::set<void*> told = set.poll(1);
  told.merge(set.poll(1));
  assert_int_equal(told.size(), 2);
}

void members_of_a_poll_set_stay_open(void**) {
  const Side side;
  fid_cntr* const counter = open_counter(side);
  {
    const Set set(side);
    assert_int_equal(set.add(counter->fid), 0);
    assert_int_equal(set.add(counter->fid), -FI_EINVAL);  // it is there
    assert_int_equal(set.add(side.ep->fid), -FI_EINVAL);
    assert_int_equal(set.remove(side.send_queue->fid), -FI_EINVAL);
    assert_int_equal(fi_poll_add(set.get(), &side.send_queue->fid, 1), -FI_EBADFLAGS);
    assert_int_equal(fi_close(&counter->fid), -FI_EBUSY);
    assert_int_equal(set.remove(counter->fid), 0);
    assert_int_equal(set.remove(counter->fid), -FI_EINVAL);
    assert_int_equal(set.add(counter->fid), 0);
    assert_int_equal(fi_close(&side.domain->fid), -FI_EBUSY);
  }
  assert_int_equal(fi_close(&counter->fid), 0);
  fi_poll_attr attributes{};
  attributes.flags = 1;
  fid_poll* set = nullptr;
  assert_int_equal(fi_poll_open(side.domain, &attributes, &set), -FI_EINVAL);
}

// An endpoint whose queues and counter belong to one wait set, and another side that sends to it.
struct Waiting {
  explicit Waiting(fi_wait_obj object) : set(open_wait_set(other, object)) {
    queue = open_queue(other, set);
    counter = open_counter(other, set);
    fi_av_attr av{};
    av.type = FI_AV_MAP;
    MUST(fi_av_open(other.domain, &av, &addresses, nullptr));
    MUST(fi_endpoint(other.domain, other.info, &ep, nullptr));
    MUST(fi_ep_bind(ep, &addresses->fid, 0));
    MUST(fi_ep_bind(ep, &queue->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(ep, &counter->fid, FI_RECV));
    MUST(fi_enable(ep));
    sockaddr_storage name;
    std::size_t length = sizeof name;
    MUST(fi_getname(&ep->fid, &name, &length));
    assert_int_equal(fi_av_insert(other.addresses, &name, 1, &to, 0, nullptr), 1);
  }
  ~Waiting() {
    for (fid* f : {&ep->fid, &addresses->fid, &queue->fid, &counter->fid, &set->fid}) assert_int_equal(fi_close(f), 0);
  }
  void post() { MUST(fi_trecv(ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 5, 0, &in)); }
  void send() { MUST(fi_tinject(other.ep, &word, sizeof word, to, 5)); }
  void read() {
    fi_cq_tagged_entry e{};
    assert_int_equal(fi_cq_read(queue, &e, 1), 1);
    assert_ptr_equal(e.op_context, &in);
  }

  Side other;
  fid_wait* set;
  fid_cq* queue = nullptr;
  fid_cntr* counter = nullptr;
  fid_av* addresses = nullptr;
  fid_ep* ep = nullptr;
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  std::uint64_t word = 1, in = 0;
};

// Until the queue has something. The counter may wake first.
void wait_for_entry(Waiting& w, const std::function<void()>& wait) {
  fi_cq_tagged_entry e{};
  while (fi_cq_read(w.queue, &e, 1) == -FI_EAGAIN) wait();
  assert_ptr_equal(e.op_context, &w.in);
}

void a_wait_set_wakes(void**) {
  for (const fi_wait_obj object : {FI_WAIT_UNSPEC, FI_WAIT_FD}) {
    Waiting w(object);
    assert_int_equal(fi_wait(w.set, 0), -FI_ETIMEDOUT);
    assert_int_equal(fi_wait(w.set, 20), -FI_ETIMEDOUT);
    for (int i = 0; i < 20; ++i) {
      w.post();
      std::thread later([&] {
        if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        w.send();
      });
      wait_for_entry(w, [&] { MUST(fi_wait(w.set, kPatienceMs)); });
      later.join();
    }
    assert_int_equal(fi_cntr_read(w.counter), 20);
    while (fi_wait(w.set, 0) == 0) {  // the counter's news, if nobody was told yet
    }
    // With an entry in the queue there is nothing to wait for, as often as one asks.
    w.post();
    w.send();
    for (int i = 0; i < 3; ++i) MUST(fi_wait(w.set, kPatienceMs));
    MUST(fi_cntr_add(w.counter, 1));
    while (fi_cntr_read(w.counter) < 22) {
    }
    w.read();
  }
}

// By the descriptor that poll() and others take.
void the_descriptor_of_a_wait_set_becomes_readable(void**) {
  Waiting w(FI_WAIT_FD);
  int fd = -1;
  MUST(fi_control(&w.set->fid, FI_GETWAIT, &fd));
  fi_wait_obj object = FI_WAIT_NONE;
  MUST(fi_control(&w.set->fid, FI_GETWAITOBJ, &object));
  assert_int_equal(object, FI_WAIT_FD);
  for (int i = 0; i < 20; ++i) {
    w.post();
    std::thread later([&] {
      if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      w.send();
    });
    wait_for_entry(w, [&] {
      fid* set = &w.set->fid;
      if (fi_trywait(w.other.fabric, &set, 1) != 0) return;
      pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
      assert_int_equal(poll(&waiting, 1, kPatienceMs), 1);
    });
    later.join();
  }
}

void an_event_queue_belongs_to_a_wait_set(void**) {
  const Side side;
  fid_wait* const set = open_wait_set(side);
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_SET;
  attributes.wait_set = set;
  attributes.flags = FI_WRITE;
  fid_eq* queue = nullptr;
  MUST(fi_eq_open(side.fabric, &attributes, &queue, nullptr));
  assert_int_equal(fi_wait(set, 5), -FI_ETIMEDOUT);
  fi_eq_entry entry{};
  std::uint32_t event = 0;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    MUST(fi_eq_write(queue, FI_NOTIFY, &entry, sizeof entry, 0));
  });
  MUST(fi_wait(set, kPatienceMs));
  later.join();
  assert_int_equal(fi_eq_read(queue, &event, &entry, sizeof entry, 0), sizeof entry);
  assert_int_equal(fi_wait(set, 0), -FI_ETIMEDOUT);
  assert_int_equal(fi_close(&queue->fid), 0);
  assert_int_equal(fi_close(&set->fid), 0);
}

void members_of_a_wait_set_are_waited_for_by_it_alone(void**) {
  const Side side;
  fid_wait* const set = open_wait_set(side);
  fid_cq* const queue = open_queue(side, set);
  fid_cntr* const counter = open_counter(side, set);
  assert_int_equal(fi_close(&set->fid), -FI_EBUSY);
  fi_cq_tagged_entry e{};
  assert_int_equal(fi_cq_sread(queue, &e, 1, nullptr, 0), -FI_EINVAL);
  assert_int_equal(fi_cq_signal(queue), -FI_EINVAL);
  assert_int_equal(fi_cntr_wait(counter, 1, 0), -FI_EINVAL);
  int fd = -1;
  assert_int_equal(fi_control(&queue->fid, FI_GETWAIT, &fd), -FI_ENODATA);
  assert_int_equal(fi_close(&queue->fid), 0);
  assert_int_equal(fi_close(&counter->fid), 0);
  assert_int_equal(fi_close(&set->fid), 0);
  // Without a set to belong to.
  fi_cq_attr attributes{};
  attributes.wait_obj = FI_WAIT_SET;
  fid_cq* none = nullptr;
  assert_int_equal(fi_cq_open(side.domain, &attributes, &none, nullptr), -FI_EINVAL);
  fi_wait_attr bad{};
  bad.wait_obj = FI_WAIT_NONE;
  fid_wait* other = nullptr;
  assert_int_equal(fi_wait_open(side.fabric, &bad, &other), -FI_ENOSYS);
}

}  // namespace

std::vector<CMUnitTest> set_tests() {
  return {cmocka_unit_test(a_poll_set_says_who_has_something),
          cmocka_unit_test(what_a_program_adds_is_no_news),
          cmocka_unit_test(nobody_is_passed_over),
          cmocka_unit_test(members_of_a_poll_set_stay_open),
          cmocka_unit_test(a_wait_set_wakes),
          cmocka_unit_test(the_descriptor_of_a_wait_set_becomes_readable),
          cmocka_unit_test(an_event_queue_belongs_to_a_wait_set),
          cmocka_unit_test(members_of_a_wait_set_are_waited_for_by_it_alone)};
}

}  // namespace ewarp::ofi::test
