// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/context.h"
#include "llp/mutex.h"

#include <rdma/ib_user_verbs.h>

#include <cstring>
#include <new>

namespace ewarp::verbs {
namespace {

constinit llp::Mutex raised_mutex;

// These name a port or the device: nobody acknowledges them by object, nothing waits for them.
bool belongs_to_object(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return false;
    default:
      return true;
  }
}

}  // namespace

void Context::raise(ibv_event_type type, std::uint64_t handle) {
  if (!async_ || async_->closed()) return;
  ib_uverbs_async_event_desc event{};
  event.element = handle;
  event.event_type = type;
  if (belongs_to_object(type)) {
    // Counted before it can be read, so that a reader's acknowledgement is never one too many.
    const llp::Guard lock(raised_mutex);
    ++raised_[handle];
  }
  async_->post(std::as_bytes(std::span(&event, 1)));
}

std::size_t Context::purge_async(std::uint64_t handle) {
  if (!async_) return 0;
  const std::size_t unread = async_->purge(handle);
  const llp::Guard lock(raised_mutex);
  if (const auto found = raised_.find(handle); found != raised_.end()) found->second -= unread;
  return unread;
}

std::optional<std::uint64_t> Context::retire_async(std::uint64_t handle) {
  purge_async(handle);
  const llp::Guard lock(raised_mutex);
  const auto found = raised_.find(handle);
  const std::uint64_t read = found != raised_.end() ? found->second : 0;
  if (found != raised_.end()) raised_.erase(found);
  if (async_ && async_->closed()) return std::nullopt;
  return read;
}

void Context::before_fork() EWARP_NO_LOCK_ANALYSIS {
  raised_mutex.lock();
}

void Context::after_fork() EWARP_NO_LOCK_ANALYSIS {
  raised_mutex.unlock();
}

void Context::forget_in_child() {
  raised_mutex.renew_in_child();
}

}  // namespace ewarp::verbs
