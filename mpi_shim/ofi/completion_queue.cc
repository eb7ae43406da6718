// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/completion_queue.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "mpi_shim/ofi/endpoint.h"
#include "mpi_shim/ofi/error_entry.h"
#include "mpi_shim/ofi/fid.h"

namespace ewarp::ofi {
namespace {

// The formats are beginnings of each other.
std::size_t size_of(fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    default:
      return sizeof(fi_cq_tagged_entry);
  }
}
static_assert(offsetof(fi_cq_tagged_entry, flags) == offsetof(fi_cq_msg_entry, flags) &&
              offsetof(fi_cq_tagged_entry, len) == offsetof(fi_cq_data_entry, len) &&
              offsetof(fi_cq_tagged_entry, data) == offsetof(fi_cq_data_entry, data));

constexpr std::size_t kFewest = 256;
// So many reads in a row may do with what is in the queue.
constexpr int kMostUnpolled = 8;

}  // namespace

CompletionQueue::CompletionQueue(Domain& domain, const fi_cq_attr& attributes, void* context_)
    : wait_object(attributes.wait_obj),
      domain_(domain),
      entry_size_(size_of(attributes.format)),
      ring_(std::bit_ceil(std::max(kFewest, std::min<std::size_t>(attributes.size, 1 << 20)))) {
  fid = {.fclass = FI_CLASS_CQ, .context = context_, .ops = nullptr};
  ++domain_.users;
}

CompletionQueue::~CompletionQueue() {
  --domain_.users;
}

// An entry that was promised is never dropped, so there is room as long as there is memory.
void CompletionQueue::grow() {
  std::vector<Entry> bigger(ring_.size() * 2);
  for (std::size_t i = 0; i < waiting_.load(); ++i)
    bigger[(first_ + i) & (bigger.size() - 1)] = ring_[(first_ + i) & (ring_.size() - 1)];
  assert(std::has_single_bit(bigger.size()) && waiting_.load() < bigger.size());
  ring_.swap(bigger);
}

void CompletionQueue::add(const fi_cq_tagged_entry& entry, Origin origin) noexcept {
  {
    const llp::Guard lock(mutex_);
    if (overrun_.load(std::memory_order_relaxed)) return;
    try {
      const std::size_t waiting = waiting_.load(std::memory_order_relaxed);
      if (waiting == ring_.size()) grow();
      ring_[(first_ + waiting) & (ring_.size() - 1)] = {entry, origin};
      waiting_.store(waiting + 1);
    } catch (const std::bad_alloc&) {
      overrun_.store(true);
    }
  }
  waiter.wake();
}

void CompletionQueue::add_error(const fi_cq_err_entry& entry) noexcept {
  {
    const llp::Guard lock(mutex_);
    if (overrun_.load(std::memory_order_relaxed)) return;
    try {
      errors_.push_back({entry, first_ + waiting_.load(std::memory_order_relaxed)});
      failed_.store(errors_.size());
    } catch (const std::bad_alloc&) {
      overrun_.store(true);
    }
  }
  waiter.wake();
}

void CompletionQueue::forget(const Endpoint& endpoint) {
  const llp::Guard nobody_asks(naming_);
  const llp::Guard lock(mutex_);
  for (std::size_t i = 0; i < waiting_.load(); ++i) {
    Origin& origin = ring_[(first_ + i) & (ring_.size() - 1)].origin;
    if (origin.endpoint == &endpoint) origin.endpoint = nullptr;
  }
}

// At most `count` entries leave the ring, and none behind an error; returns how many. origins: null, or becomes whom
// each came from.
std::size_t CompletionQueue::take_entries(void* buffer, std::size_t count, std::vector<Origin>* origins) {
  const llp::Guard lock(mutex_);
  const std::size_t waiting = waiting_.load(std::memory_order_relaxed);
  const std::size_t before_error = errors_.empty() ? waiting : errors_.front().position - first_;
  assert(waiting <= ring_.size() && before_error <= waiting);
  const std::size_t n = std::min(count, before_error);
  if (origins != nullptr) origins->resize(n);
  auto* out = static_cast<std::byte*>(buffer);
  for (std::size_t i = 0; i < n; ++i) {
    const Entry& e = ring_[(first_ + i) & (ring_.size() - 1)];
    std::memcpy(out + i * entry_size_, &e.data, entry_size_);
    if (origins != nullptr) (*origins)[i] = e.origin;
  }
  first_ += n;
  waiting_.store(waiting - n);
  return n;
}

// Origins become addresses without the lock of the entries: that asks the endpoint, which takes its own.
std::size_t CompletionQueue::take_with_sources(void* buffer, std::size_t count, fi_addr_t* sources_out) {
  const llp::Guard they_stay(naming_);
  std::vector<Origin> origins;
  const std::size_t n = take_entries(buffer, count, &origins);
  for (std::size_t i = 0; i < n; ++i)
    sources_out[i] =
        origins[i].endpoint != nullptr ? origins[i].endpoint->address_of(origins[i].peer) : FI_ADDR_NOTAVAIL;
  return n;
}

ssize_t CompletionQueue::take(void* buffer, std::size_t count, fi_addr_t* sources_out) {
  const long nothing = has_error() ? -FI_EAVAIL : -FI_EAGAIN;  // first: no entry comes in front of an error
  if (waiting_.load() == 0) return nothing;
  const std::size_t n =
      sources_out != nullptr ? take_with_sources(buffer, count, sources_out) : take_entries(buffer, count, nullptr);
  return n > 0 ? static_cast<ssize_t>(n) : nothing;
}

void CompletionQueue::poll() {
  unpolled_.store(0, std::memory_order_relaxed);
  sources.poll();
}

// Who got something reads on until there is no more, Open MPI for one. That last read looks into the queue alone: going
// to the adapter costs 2 us, by which the program would learn later of what it has got. Entries come without the
// adapter as well, of messages to oneself for instance, so there is a bound to doing without it.
ssize_t CompletionQueue::read(void* buffer, std::size_t count, fi_addr_t* sources_out) {
  if (count == 0) return poll(), 0;
  if (unpolled_.load(std::memory_order_relaxed) >= kMostUnpolled) poll();
  unpolled_.fetch_add(1, std::memory_order_relaxed);
  ssize_t n = take(buffer, count, sources_out);
  if (n == -FI_EAGAIN && !had_some_.exchange(false, std::memory_order_relaxed)) {
    poll();
    n = take(buffer, count, sources_out);
  }
  if (n > 0) had_some_.store(true, std::memory_order_relaxed);
  return n;
}

ssize_t CompletionQueue::read_error(fi_cq_err_entry* out) {
  const llp::Guard lock(mutex_);
  if (errors_.empty() && overrun_.load() && waiting_.load() == 0) {
    tell_error({.err = FI_EOVERRUN, .prov_errno = static_cast<int>(channel::Error::no_memory)}, out,
               domain_.fabric->api_version);
    return 1;
  }
  if (errors_.empty() || errors_.front().position != first_) return -FI_EAGAIN;
  tell_error(errors_.front().entry, out, domain_.fabric->api_version);
  assert(failed_.load() == errors_.size());
  errors_.pop_front();
  failed_.store(errors_.size());
  return 1;
}

bool CompletionQueue::may_sleep() {
  return !has_some() && sources.rest() && !has_some();
}

bool CompletionQueue::prepare_to_sleep() {
  return waiter.arm_descriptor([&] { return may_sleep(); });
}

ssize_t CompletionQueue::read_waiting(void* buffer, std::size_t count, fi_addr_t* sources_out, int timeout_ms) {
  if (wait_object != FI_WAIT_FD) return -FI_EINVAL;
  const Deadline deadline(timeout_ms);
  had_some_.store(false, std::memory_order_relaxed);
  for (;;) {
    if (const ssize_t n = read(buffer, count, sources_out); n != -FI_EAGAIN) return n;
    if (signalled_.exchange(false)) return -FI_EAGAIN;
    const int left = deadline.left_ms();
    if (left == 0) return -FI_EAGAIN;
    if (!deadline.may_spin()) waiter.sleep(left, [&] { return may_sleep() && !signalled_.load(); });
  }
}

int CompletionQueue::signal() {
  if (wait_object != FI_WAIT_FD) return -FI_EINVAL;
  signalled_.store(true);
  waiter.wake();
  return 0;
}

namespace {

ssize_t read(fid_cq* q, void* buffer, size_t count) {
  return CompletionQueue::from(q).read(buffer, count, nullptr);
}

ssize_t read_from(fid_cq* q, void* buffer, size_t count, fi_addr_t* sources) {
  return CompletionQueue::from(q).read(buffer, count, sources);
}

ssize_t read_error(fid_cq* q, fi_cq_err_entry* out, uint64_t) {
  return CompletionQueue::from(q).read_error(out);
}

ssize_t read_waiting(fid_cq* q, void* buffer, size_t count, const void*, int timeout) {
  return CompletionQueue::from(q).read_waiting(buffer, count, nullptr, timeout);
}

ssize_t read_waiting_from(fid_cq* q, void* buffer, size_t count, fi_addr_t* sources, const void*, int timeout) {
  return CompletionQueue::from(q).read_waiting(buffer, count, sources, timeout);
}

int signal(fid_cq* q) {
  return CompletionQueue::from(q).signal();
}

const char* error_text(fid_cq*, int code, const void*, char* buffer, size_t length) noexcept {
  const char* text = channel::text(static_cast<channel::Error>(code));
  return copy_text(text, buffer, length);
}

int close_queue(struct fid* f) {
  auto& q = object<CompletionQueue, fid_cq>(f);
  if (q.users.load() > 0) return -FI_EBUSY;
  delete &q;
  return 0;
}

int control(struct fid* f, int command, void* argument) {
  auto& q = object<CompletionQueue, fid_cq>(f);
  return wait_control(q.waiter.fd(), q.wait_object, command, argument);
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = entry<close_queue>,
                  .bind = kUnsupported,
                  .control = entry<control>,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_cq queue_ops = {.size = sizeof(fi_ops_cq),
                       .read = entry<read>,
                       .readfrom = entry<read_from>,
                       .readerr = entry<read_error>,
                       .sread = entry<read_waiting>,
                       .sreadfrom = entry<read_waiting_from>,
                       .signal = entry<signal>,
                       .strerror = error_text};

}  // namespace

int open_completion_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** out, void* context) noexcept {
  return guarded([&] {
    fi_cq_attr a = attributes != nullptr ? *attributes : fi_cq_attr{};
    // Nobody is told which format it became. libfabric's own providers take the shortest, and programs have room for
    // it.
    if (a.format == FI_CQ_FORMAT_UNSPEC) a.format = FI_CQ_FORMAT_CONTEXT;
    if (a.format > FI_CQ_FORMAT_TAGGED) return -FI_EINVAL;
    a.wait_obj = waited_for_by(a.wait_obj);
    if (a.wait_obj > FI_WAIT_FD) return -FI_ENOSYS;
    auto q = std::make_unique<CompletionQueue>(Domain::from(domain), a, context);
    if (a.wait_obj != FI_WAIT_NONE && !q->waiter.open()) return -FI_EMFILE;
    if (const int error = q->membership.join(a.wait_obj, a.wait_set, q->fid, q->waiter.fd()); error != 0) return error;
    q->fid.ops = &fid_ops;
    q->ops = &queue_ops;
    *out = q.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
