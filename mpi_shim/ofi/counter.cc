// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/counter.h"

#include "mpi_shim/ofi/fid.h"

namespace ewarp::ofi {

Counter::Counter(Domain& domain, fi_wait_obj wait, void* context_) : wait_object(wait), domain_(domain) {
  fid = {.fclass = FI_CLASS_CNTR, .context = context_, .ops = nullptr};
  ++domain_.users;
}

Counter::~Counter() {
  --domain_.users;
}

bool Counter::prepare_to_sleep() {
  return waiter.arm_descriptor([&] { return sources.rest(); });
}

bool Counter::try_wait() {
  return waiter.arm_descriptor([&] { return sources.rest() && !has_unseen(); });
}

bool Counter::has_unseen() {
  const std::uint64_t value_now = value.load(), errors_now = errors.load();
  const bool counted = seen_value.exchange(value_now) != value_now;
  return seen_errors.exchange(errors_now) != errors_now || counted;
}

std::uint64_t Counter::read(const std::atomic<std::uint64_t>& which, std::atomic<std::uint64_t>& seen) {
  sources.poll();
  const std::uint64_t now = which.load();
  seen.store(now, std::memory_order_relaxed);
  return now;
}

void Counter::change(std::atomic<std::uint64_t>& which, std::uint64_t by) {
  {
    const llp::Guard lock(mutex_);
    which.fetch_add(by);
    by_hand_ += by;
  }
  waiter.wake();
}

void Counter::set(std::atomic<std::uint64_t>& which, std::uint64_t to) {
  {
    const llp::Guard lock(mutex_);
    by_hand_ += to - which.exchange(to);
  }
  waiter.wake();
}

std::uint64_t Counter::counted() {
  const llp::Guard lock(mutex_);
  return value.load() + errors.load() - by_hand_;
}

int Counter::wait(std::uint64_t threshold, int timeout_ms) {
  if (wait_object == FI_WAIT_SET) return -FI_EINVAL;
  const Deadline deadline(timeout_ms);
  const std::uint64_t errors_before = errors.load();
  const auto ended = [&] { return value.load() >= threshold || errors.load() != errors_before; };
  while (!ended()) {
    sources.poll();
    if (ended()) break;
    const int left = deadline.left_ms();
    if (left == 0) return -FI_ETIMEDOUT;
    if (!deadline.may_spin()) waiter.sleep(left, [&] { return sources.rest() && !ended(); });
  }
  return value.load() >= threshold ? 0 : -FI_EAVAIL;
}

namespace {

uint64_t read(fid_cntr* c) noexcept {
  Counter& counter = Counter::from(c);
  return counter.read(counter.value, counter.seen_value);
}

uint64_t read_errors(fid_cntr* c) noexcept {
  Counter& counter = Counter::from(c);
  return counter.read(counter.errors, counter.seen_errors);
}

int add(fid_cntr* c, uint64_t n) {
  Counter& counter = Counter::from(c);
  return counter.change(counter.value, n), 0;
}

int add_error(fid_cntr* c, uint64_t n) {
  Counter& counter = Counter::from(c);
  return counter.change(counter.errors, n), 0;
}

int set(fid_cntr* c, uint64_t n) {
  Counter& counter = Counter::from(c);
  return counter.set(counter.value, n), 0;
}

int set_error(fid_cntr* c, uint64_t n) {
  Counter& counter = Counter::from(c);
  return counter.set(counter.errors, n), 0;
}

int wait(fid_cntr* c, uint64_t threshold, int timeout) {
  return Counter::from(c).wait(threshold, timeout);
}

int close_counter(struct fid* f) {
  auto& c = object<Counter, fid_cntr>(f);
  if (c.users.load() > 0) return -FI_EBUSY;
  delete &c;
  return 0;
}

int control(struct fid* f, int command, void* argument) {
  auto& c = object<Counter, fid_cntr>(f);
  return wait_control(c.waiter.fd(), c.wait_object, command, argument);
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = entry<close_counter>,
                  .bind = kUnsupported,
                  .control = entry<control>,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_cntr counter_ops = {.size = sizeof(fi_ops_cntr),
                           .read = read,
                           .readerr = read_errors,
                           .add = entry<add>,
                           .set = entry<set>,
                           .wait = entry<wait>,
                           .adderr = entry<add_error>,
                           .seterr = entry<set_error>};

}  // namespace

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** out, void* context) noexcept {
  return guarded([&] {
    const fi_cntr_attr a = attributes != nullptr ? *attributes : fi_cntr_attr{};
    // A counter can always be waited for: fi_cntr_wait() needs no wait object that was asked for.
    if (a.flags != 0) return -FI_EINVAL;
    if (a.events != FI_CNTR_EVENTS_COMP || a.wait_obj > FI_WAIT_FD) return -FI_ENOSYS;
    auto c = std::make_unique<Counter>(Domain::from(domain), waited_for_by(a.wait_obj), context);
    if (!c->waiter.open()) return -FI_EMFILE;
    if (const int error = c->membership.join(a.wait_obj, a.wait_set, c->fid, c->waiter.fd()); error != 0) return error;
    c->fid.ops = &fid_ops;
    c->ops = &counter_ops;
    *out = c.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
