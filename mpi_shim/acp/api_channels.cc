// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// acp.h: channels.
#include <climits>

#include "mpi_shim/acp/api.h"

using namespace ewarp::acp;

namespace {

template <class Handle>
std::uint64_t number(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}
template <class Handle>
Handle handle(std::uint64_t number) {
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(number));
}

acp_request_t begin(acp_ch_t channel, Kind kind, void* buffer, size_t octets) {
  return with_process(ACP_REQUEST_NULL, [&](Process& p) EWARP_REQUIRES(p.mutex) {
    if (octets > INT_MAX || (buffer == nullptr && octets != 0)) return errno = EINVAL, ACP_REQUEST_NULL;
    const Request* r = p.channels().begin(number(channel), kind, buffer, octets);
    const int error = errno;
    p.progress();
    errno = error;
    return r == nullptr ? ACP_REQUEST_NULL : handle<acp_request_t>(p.channels().requests().handle(*r));
  });
}

}  // namespace

extern "C" {

EWARP_ACP_EXPORT acp_ch_t acp_create_ch(int sender, int receiver) {
  return with_process(ACP_CH_NULL, [&](Process& p) EWARP_REQUIRES(p.mutex) {
    const std::uint64_t channel = p.channels().create(sender, receiver);
    const int error = errno;
    p.progress();
    errno = error;
    return handle<acp_ch_t>(channel);
  });
}

EWARP_ACP_EXPORT acp_request_t acp_nbfree_ch(acp_ch_t channel) {
  return begin(channel, Kind::free, nullptr, 0);
}

EWARP_ACP_EXPORT acp_request_t acp_nbsend_ch(acp_ch_t channel, void* buffer, size_t octets) {
  return begin(channel, Kind::send, buffer, octets);
}

EWARP_ACP_EXPORT acp_request_t acp_nbrecv_ch(acp_ch_t channel, void* buffer, size_t octets) {
  return begin(channel, Kind::receive, buffer, octets);
}

EWARP_ACP_EXPORT int acp_wait_ch(acp_request_t request) {
  return with_process(-1, [&](Process& p) EWARP_REQUIRES(p.mutex) {
    RequestPool& pool = p.channels().requests();
    Request* r = nullptr;
    // Another thread may wait for the same one, and end its handle.
    p.wait_until([&] { return (r = pool.find(number(request))) == nullptr || r->done; });
    if (r == nullptr) return errno = EBADF, -1;
    const int error = r->error, result = r->kind == Kind::receive ? static_cast<int>(r->moved) : 0;
    pool.give_back(*r);
    if (error != 0) errno = error;
    return error == 0 ? result : -1;
  });
}

EWARP_ACP_EXPORT int acp_waitall_ch(acp_request_t* requests, int count, size_t* octets) {
  int error = 0;
  for (int i = 0; i < count; ++i) {
    const int result = acp_wait_ch(requests[i]);
    if (result < 0 && error == 0) error = errno;
    if (octets != nullptr) octets[i] = result < 0 ? 0 : static_cast<size_t>(result);
  }
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

EWARP_ACP_EXPORT int acp_free_ch(acp_ch_t channel) {
  const acp_request_t r = acp_nbfree_ch(channel);
  return r == ACP_REQUEST_NULL ? -1 : acp_wait_ch(r);
}

EWARP_ACP_EXPORT int acp_send_ch(acp_ch_t channel, void* buffer, size_t octets) {
  const acp_request_t r = acp_nbsend_ch(channel, buffer, octets);
  return r == ACP_REQUEST_NULL ? -1 : acp_wait_ch(r);
}

EWARP_ACP_EXPORT int acp_recv_ch(acp_ch_t channel, void* buffer, size_t octets) {
  const acp_request_t r = acp_nbrecv_ch(channel, buffer, octets);
  return r == ACP_REQUEST_NULL ? -1 : acp_wait_ch(r);
}
}
