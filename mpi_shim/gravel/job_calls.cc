// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The calls of the application: memory is looked up, then the machine is asked until it need not wait any more.
#include <algorithm>
#include <new>

#include "mpi_shim/gravel/job.h"
#include "mpi_shim/gravel/patience.h"
#include "mpi_shim/gravel/text.h"

namespace ewarp::gravel {

template <class Ask>
Error Job::until(Proc proc, Ask&& ask) {
  Patience patience;
  for (;;) {
    const Error e = ask();
    if (e != Error::full) return e;
    pump(proc);
    patience.pause();
  }
}

Error Job::say(Error error, Proc proc) {
  if (error == Error::none || error == Error::full) return error;
  reason_ = text(error);
  if (error != Error::peer || !is_peer(proc)) return error;
  const std::string why = endpoint_->why_lost(peer(proc).id);
  const bool left = machine_.peer_state(proc) == Machine::PeerState::left;
  reason_ = "process " + std::to_string(proc) + (left ? " has left" : " was lost");
  if (!left && !why.empty()) reason_ += ": " + why;
  return error;
}

// --- memory ---

Error Job::register_buffer(void* data, std::size_t size) {
  const MutableOctets memory(static_cast<std::byte*>(data), size);
  regions_.resize(std::max(regions_.size(), buffers_.slots() + 1));
  const auto region = device_->expose(memory, true, true);
  if (!region) return say(Error::memory, kAnySource);
  try {
    regions_[buffers_.add(memory, region->remote.key)] = region;
  } catch (const std::bad_alloc&) {
    device_->conceal(*region);
    throw;
  }
  return Error::none;
}

Error Job::unregister_buffer(void* data, std::size_t size) {
  const auto slot = buffers_.find_whole(data, size);
  if (!slot) return say(Error::unregistered, kAnySource);
  if (buffers_.users(*slot) > 0) pump(kAnySource);  // transfers that have ended
  if (buffers_.users(*slot) > 0) return say(Error::busy, kAnySource);
  buffers_.remove(*slot);
  device_->conceal(*std::exchange(regions_[*slot], std::nullopt));
  return Error::none;
}

Error Job::find(const void* data, std::size_t size, Local* out) {
  const auto found = buffers_.find(data, size);
  if (!found) return Error::unregistered;
  *out = *found;
  return Error::none;
}

// --- handshakes ---

Error Job::post(Proc proc, const Local& buffer, int tag, RequestId* request,
                Error (Machine::*how)(Proc, const Local&, int, RequestId*)) {
  const Error e = until(proc, [&] { return watch(proc) ? (machine_.*how)(proc, buffer, tag, request) : Error::full; });
  if (e == Error::none) buffers_.use(buffer);
  return say(e, proc);
}

Error Job::post_receive_buffer(Proc proc, void* data, std::size_t size, int tag, RequestId* request) {
  Local buffer;
  if (const Error e = find(data, size, &buffer); e != Error::none) return say(e, proc);
  return post(proc, buffer, tag, request, &Machine::post_receive_buffer);
}

Error Job::post_send_buffer(Proc proc, const void* data, std::size_t size, int tag, RequestId* request) {
  Local buffer;
  if (const Error e = find(data, size, &buffer); e != Error::none) return say(e, proc);
  return post(proc, buffer, tag, request, &Machine::post_send_buffer);
}

Error Job::post_send_request(Proc proc, std::size_t size, int tag, RequestId* request) {
  return say(
      until(proc, [&] { return watch(proc) ? machine_.post_send_request(proc, size, tag, request) : Error::full; }),
      proc);
}

template <class Take>
Error Job::take(Proc* proc, Take&& take) {
  const Proc wanted = *proc;
  const bool valid = wanted >= 0 && wanted < machine_.procs();
  const Error e = until(valid ? wanted : kAnySource, [&] { return watch_source(wanted) ? take() : Error::full; });
  return say(e, *proc);
}

Error Job::wait_receive_buffer(Proc* proc, int* tag, std::size_t* size, RequestId* request) {
  return take(proc, [&] { return machine_.take_receive_buffer(proc, tag, size, request); });
}

Error Job::wait_send_request(Proc* proc, int* tag, std::size_t* size) {
  return take(proc, [&] { return machine_.take_send_request(proc, tag, size); });
}

Error Job::wait_send_buffer(Proc* proc, int* tag, std::size_t* size, RequestId* request) {
  return take(proc, [&] { return machine_.take_send_buffer(proc, tag, size, request); });
}

// --- transfers ---

Error Job::move(RequestId request, const void* data, std::size_t size, std::size_t offset,
                Error (Machine::*how)(RequestId, const Local&, std::uint64_t)) {
  Local own;
  const Proc proc = machine_.proc_of(request);
  if (const Error e = find(data, size, &own); e != Error::none) return say(e, proc);
  return say(until(proc, [&] { return (machine_.*how)(request, own, offset); }), proc);
}

Error Job::post_put(RequestId request, const void* data, std::size_t size, std::size_t offset) {
  return move(request, data, size, offset, &Machine::put);
}

Error Job::post_get(RequestId request, void* data, std::size_t size, std::size_t offset) {
  return move(request, data, size, offset, &Machine::get);
}

Error Job::send_fin(RequestId request) {
  const Proc proc = machine_.proc_of(request);
  return say(until(proc, [&] { return machine_.send_fin(request); }), proc);
}

// --- ends ---

Error Job::ask_end(RequestId request) {
  std::optional<std::uint32_t> used;
  const Error e = machine_.test(request, &used);
  if (used) buffers_.leave(*used);
  return e;
}

Error Job::test(RequestId request) {
  const Proc proc = machine_.proc_of(request);
  Error e = ask_end(request);
  if (e == Error::full) {
    pump(proc);
    e = ask_end(request);
  }
  return say(e, proc);
}

Error Job::wait(RequestId request) {
  const Proc proc = machine_.proc_of(request);
  return say(until(proc, [&] { return ask_end(request); }), proc);
}

// All are asked in each round: the end of one may be what the peer of another waits for.
Error Job::wait_all(std::span<RequestId> requests) {
  Error first = Error::none;
  Proc waits_for = kAnySource, failed = kAnySource;
  std::vector<bool> asked(requests.size());
  const auto ask = [&](std::size_t i) {
    if (requests[i] == 0 || asked[i]) return;
    const Proc proc = machine_.proc_of(requests[i]);
    const Error e = ask_end(requests[i]);
    if (e == Error::full) {
      waits_for = proc;
      return;
    }
    asked[i] = true;
    if (e != Error::none && first == Error::none) {
      first = e;
      failed = proc;
    }
    if (e != Error::state) requests[i] = 0;
  };
  Patience patience;
  for (;;) {
    waits_for = kAnySource;
    for (std::size_t i = 0; i < requests.size(); ++i) ask(i);
    if (waits_for == kAnySource) return say(first, failed);
    pump(waits_for);
    patience.pause();
  }
}

}  // namespace ewarp::gravel
