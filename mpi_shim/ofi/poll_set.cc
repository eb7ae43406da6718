// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/poll_set.h"

#include <algorithm>
#include <memory>

#include "mpi_shim/ofi/completion_queue.h"
#include "mpi_shim/ofi/counter.h"
#include "mpi_shim/ofi/fid.h"

namespace ewarp::ofi {
namespace {

// Null: nothing that a poll set takes. A member cannot be closed.
std::atomic<int>* users_of(fid* f) {
  if (f->fclass == FI_CLASS_CQ) return &object<CompletionQueue, fid_cq>(f).users;
  if (f->fclass == FI_CLASS_CNTR) return &object<Counter, fid_cntr>(f).users;
  return nullptr;
}

}  // namespace

PollSet::PollSet(Domain& domain, void* context_) : domain_(domain) {
  fid = {.fclass = FI_CLASS_POLL, .context = context_, .ops = nullptr};
  ++domain_.users;
}

PollSet::~PollSet() {
  const llp::Guard lock(mutex_);
  for (Watched& w : members_) --*users_of(&w.what());
  --domain_.users;
}

int PollSet::add(struct fid& object) {
  std::atomic<int>* const users = users_of(&object);
  if (users == nullptr) return -FI_EINVAL;
  const llp::Guard lock(mutex_);
  if (std::any_of(members_.begin(), members_.end(), [&](Watched& w) { return &w.what() == &object; }))
    return -FI_EINVAL;
  members_.emplace_back(object);
  ++*users;
  return 0;
}

int PollSet::remove(struct fid& object) {
  const llp::Guard lock(mutex_);
  if (std::erase_if(members_, [&](Watched& w) { return &w.what() == &object; }) == 0) return -FI_EINVAL;
  --*users_of(&object);
  return 0;
}

int PollSet::poll(void** contexts, int count) {
  const llp::Guard lock(mutex_);
  int found = 0;
  for (std::size_t looked = 0; looked < members_.size() && found < count; ++looked) {
    Watched& w = members_[next_++ % members_.size()];
    w.progress();
    if (w.has_news()) contexts[found++] = w.what().context;
  }
  return found;
}

namespace {

int poll(fid_poll* s, void** contexts, int count) {
  return count < 0 ? -FI_EINVAL : PollSet::from(s).poll(contexts, count);
}

int add(fid_poll* s, fid* object, uint64_t flags) {
  return flags != 0 ? -FI_EBADFLAGS : PollSet::from(s).add(*object);
}

int remove(fid_poll* s, fid* object, uint64_t flags) {
  return flags != 0 ? -FI_EBADFLAGS : PollSet::from(s).remove(*object);
}

int close_set(struct fid* f) {
  delete &object<PollSet, fid_poll>(f);
  return 0;
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = entry<close_set>,
                  .bind = kUnsupported,
                  .control = kUnsupported,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_poll set_ops = {
    .size = sizeof(fi_ops_poll), .poll = entry<poll>, .poll_add = entry<add>, .poll_del = entry<remove>};

}  // namespace

int open_poll_set(fid_domain* domain, fi_poll_attr* attributes, fid_poll** out) noexcept {
  return guarded([&] {
    if (attributes != nullptr && attributes->flags != 0) return -FI_EINVAL;
    auto s = std::make_unique<PollSet>(Domain::from(domain), nullptr);
    s->fid.ops = &fid_ops;
    s->ops = &set_ops;
    *out = s.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
