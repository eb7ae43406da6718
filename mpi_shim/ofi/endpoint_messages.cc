// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Messages, tagged and not. They are the same but for one bit of the channel's tags, which keeps them apart.
#include <algorithm>
#include <new>
#include <utility>

#include "mpi_shim/ofi/endpoint.h"
#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/info.h"
#include "mpi_shim/ofi/provider.h"

namespace ewarp::ofi {

ssize_t Endpoint::send(const Send& s) {
  if (!takes_requests()) return -FI_EOPBADSTATE;
  const channel::PeerId peer = peer_of(s.to);
  if (peer == kUnknown) return -FI_EINVAL;
  const bool inject = (s.flags & FI_INJECT) != 0;
  if (inject && s.length > inject_size(channel_->most_injected())) return -FI_EINVAL;
  if (inject && (s.flags & FI_MATCH_COMPLETE) != 0) return -FI_EOPNOTSUPP;
  if (inject && is_lost(peer)) return -FI_ECONNRESET;
  const channel::Request r =
      channel_->isend(peer, s.tag, {static_cast<const std::byte*>(s.buffer), s.length},
                      {.synchronous = (s.flags & FI_MATCH_COMPLETE) != 0,
                       .inject = inject,
                       .delivered = (s.flags & (FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE)) != 0,
                       .data = s.data,
                       .report = {.listener = this, .context = s.context, .label = label_of(s.label, s.flags)}});
  return r ? 0 : -FI_EAGAIN;
}

ssize_t Endpoint::receive(const Receive& r) {
  if (!takes_requests()) return -FI_EOPBADSTATE;
  if ((r.flags & (FI_PEEK | FI_CLAIM)) == FI_CLAIM) return claim(r);
  channel::PeerId source = channel::kAnySource;
  if (r.from != FI_ADDR_UNSPEC && (caps_ & FI_DIRECTED_RECV) != 0) {
    source = peer_of(r.from);
    if (source == kUnknown) return -FI_EINVAL;
  }
  if ((r.flags & FI_PEEK) != 0) return peek(r, source);
  const channel::Request request =
      channel_->irecv(source, r.tag, {static_cast<std::byte*>(r.buffer), r.length}, r.ignore,
                      {.multi = (r.flags & FI_MULTI_RECV) != 0,
                       .least = least_multi_receive(),
                       .report = {.listener = this, .context = r.context, .label = label_of(r.label, r.flags)}});
  return request ? 0 : -FI_EAGAIN;
}

// The answer is an entry like that of the receive, or an error. No counter counts it: nothing was received.
ssize_t Endpoint::peek(const Receive& r, channel::PeerId source) {
  channel::Completion found{.context = r.context, .label = r.label, .status = {}, .buffer = {}, .released = false};
  bool there = false;
  if ((r.flags & FI_DISCARD) != 0) {
    channel::Message message = channel_->improbe(source, r.tag, r.ignore, &found.status);
    there = static_cast<bool>(message);
    if (there) channel_->discard(std::move(message));
  } else if ((r.flags & FI_CLAIM) != 0) {
    channel::Message before;  // of this context, which nobody can have any more
    {
      const llp::Guard lock(claiming_);
      const auto [place, made] = claimed_.try_emplace(r.context);  // before there is a message to be lost
      channel::Message message = channel_->improbe(source, r.tag, r.ignore, &found.status);
      there = static_cast<bool>(message);
      if (there) {
        before = std::exchange(place->second.message, std::move(message));
        place->second.status = found.status;
      } else if (made) {
        claimed_.erase(place);
      }
    }
    if (before) channel_->discard(std::move(before));
  } else if (const auto status = channel_->iprobe(source, r.tag, r.ignore)) {
    found.status = *status;
    there = true;
  }
  if (there)
    tell(found);
  else if (receive_queue_ != nullptr)
    receive_queue_->add_error({.op_context = r.context,
                               .flags = r.label,
                               .len = 0,
                               .buf = nullptr,
                               .data = 0,
                               .tag = r.tag & kTagMask,
                               .olen = 0,
                               .err = FI_ENOMSG,
                               .prov_errno = 0,
                               .err_data = nullptr,
                               .err_data_size = 0});
  return 0;
}

ssize_t Endpoint::claim(const Receive& r) {
  const auto take = [&] {
    const llp::Guard lock(claiming_);
    return claimed_.extract(r.context);
  };
  auto claimed = take();
  if (!claimed || !claimed.mapped().message) return -FI_EINVAL;
  if ((r.flags & FI_DISCARD) != 0) {
    tell({.context = r.context,
          .label = label_of(r.label, r.flags),
          .status = claimed.mapped().status,
          .buffer = {},
          .released = false});
    channel_->discard(std::move(claimed.mapped().message));
    return 0;
  }
  const auto put_back = [&] {
    const llp::Guard lock(claiming_);
    claimed_.insert(std::move(claimed));
  };
  try {
    if (channel_->mrecv(std::move(claimed.mapped().message), {static_cast<std::byte*>(r.buffer), r.length},
                        {.listener = this, .context = r.context, .label = label_of(r.label, r.flags)}))
      return 0;
  } catch (const std::bad_alloc&) {
    put_back();
    throw;
  }
  put_back();
  return -FI_EAGAIN;
}

ssize_t Endpoint::cancel(void* context_) {
  return channel_->cancel(*this, context_) ? 0 : -FI_ENOENT;
}

namespace {

constexpr std::uint64_t kTaggedSend = FI_TAGGED | FI_SEND, kTaggedReceive = FI_TAGGED | FI_RECV;
constexpr std::uint64_t kMessageSend = FI_MSG | FI_SEND, kMessageReceive = FI_MSG | FI_RECV;

// One element at most: iov_limit.
template <class M>
iovec only_element(const M& m) {
  return m.iov_count > 0 ? m.msg_iov[0] : iovec{};
}

std::optional<std::uint64_t> data_of(std::uint64_t data, std::uint64_t flags) {
  return (flags & FI_REMOTE_CQ_DATA) != 0 ? std::optional(data) : std::nullopt;
}

// --- tagged ---

ssize_t send_tagged(fid_ep* ep, const void* buffer, size_t length, std::uint64_t flags, fi_addr_t to, uint64_t tag,
                    std::optional<std::uint64_t> data, void* context) {
  return Endpoint::from(ep).send({.to = to,
                                  .tag = tag & kTagMask,
                                  .label = kTaggedSend,
                                  .flags = flags,
                                  .buffer = buffer,
                                  .length = length,
                                  .data = data,
                                  .context = context});
}

ssize_t receive_tagged(fid_ep* ep, void* buffer, size_t length, std::uint64_t flags, fi_addr_t from, uint64_t tag,
                       uint64_t ignore, void* context) {
  return Endpoint::from(ep).receive({.from = from,
                                     .tag = tag & kTagMask,
                                     .ignore = ignore & kTagMask,
                                     .label = kTaggedReceive,
                                     .flags = flags,
                                     .buffer = buffer,
                                     .length = length,
                                     .context = context});
}

ssize_t trecv(fid_ep* ep, void* buffer, size_t length, void*, fi_addr_t from, uint64_t tag, uint64_t ignore,
              void* context) {
  return receive_tagged(ep, buffer, length, Endpoint::from(ep).receive_flags(), from, tag, ignore, context);
}

ssize_t trecvv(fid_ep* ep, const iovec* v, void**, size_t count, fi_addr_t from, uint64_t tag, uint64_t ignore,
               void* context) {
  if (count > 1) return -FI_EINVAL;
  const iovec one = count > 0 ? *v : iovec{};
  return receive_tagged(ep, one.iov_base, one.iov_len, Endpoint::from(ep).receive_flags(), from, tag, ignore, context);
}

ssize_t trecvmsg(fid_ep* ep, const fi_msg_tagged* m, uint64_t flags) {
  if (m->iov_count > 1) return -FI_EINVAL;
  const iovec one = only_element(*m);
  return receive_tagged(ep, one.iov_base, one.iov_len, Endpoint::from(ep).receive_flags(flags), m->addr, m->tag,
                        m->ignore, m->context);
}

ssize_t tsend(fid_ep* ep, const void* buffer, size_t length, void*, fi_addr_t to, uint64_t tag, void* context) {
  return send_tagged(ep, buffer, length, Endpoint::from(ep).send_flags(), to, tag, {}, context);
}

ssize_t tsendv(fid_ep* ep, const iovec* v, void**, size_t count, fi_addr_t to, uint64_t tag, void* context) {
  if (count > 1) return -FI_EINVAL;
  const iovec one = count > 0 ? *v : iovec{};
  return send_tagged(ep, one.iov_base, one.iov_len, Endpoint::from(ep).send_flags(), to, tag, {}, context);
}

ssize_t tsendmsg(fid_ep* ep, const fi_msg_tagged* m, uint64_t flags) {
  if (m->iov_count > 1) return -FI_EINVAL;
  const iovec one = only_element(*m);
  return send_tagged(ep, one.iov_base, one.iov_len, Endpoint::from(ep).send_flags(flags), m->addr, m->tag,
                     data_of(m->data, flags), m->context);
}

ssize_t tinject(fid_ep* ep, const void* buffer, size_t length, fi_addr_t to, uint64_t tag) {
  return send_tagged(ep, buffer, length, FI_INJECT, to, tag, {}, nullptr);
}

ssize_t tsenddata(fid_ep* ep, const void* buffer, size_t length, void*, uint64_t data, fi_addr_t to, uint64_t tag,
                  void* context) {
  return send_tagged(ep, buffer, length, Endpoint::from(ep).send_flags(), to, tag, data, context);
}

ssize_t tinjectdata(fid_ep* ep, const void* buffer, size_t length, uint64_t data, fi_addr_t to, uint64_t tag) {
  return send_tagged(ep, buffer, length, FI_INJECT, to, tag, data, nullptr);
}

// --- not tagged ---

ssize_t send_message(fid_ep* ep, const void* buffer, size_t length, std::uint64_t flags, fi_addr_t to,
                     std::optional<std::uint64_t> data, void* context) {
  return Endpoint::from(ep).send({.to = to,
                                  .tag = kMessageSpace,
                                  .label = kMessageSend,
                                  .flags = flags,
                                  .buffer = buffer,
                                  .length = length,
                                  .data = data,
                                  .context = context});
}

ssize_t receive_message(fid_ep* ep, void* buffer, size_t length, std::uint64_t flags, fi_addr_t from, void* context) {
  // They all have one tag; ignoring what all do, the receive is exact for the channel.
  return Endpoint::from(ep).receive({.from = from,
                                     .tag = kMessageSpace,
                                     .ignore = Endpoint::from(ep).ignored_bits(),
                                     .label = kMessageReceive,
                                     .flags = flags,
                                     .buffer = buffer,
                                     .length = length,
                                     .context = context});
}

ssize_t recv(fid_ep* ep, void* buffer, size_t length, void*, fi_addr_t from, void* context) {
  return receive_message(ep, buffer, length, Endpoint::from(ep).receive_flags(), from, context);
}

ssize_t recvv(fid_ep* ep, const iovec* v, void**, size_t count, fi_addr_t from, void* context) {
  if (count > 1) return -FI_EINVAL;
  const iovec one = count > 0 ? *v : iovec{};
  return receive_message(ep, one.iov_base, one.iov_len, Endpoint::from(ep).receive_flags(), from, context);
}

ssize_t recvmsg(fid_ep* ep, const fi_msg* m, uint64_t flags) {
  if (m->iov_count > 1) return -FI_EINVAL;
  const iovec one = only_element(*m);
  return receive_message(ep, one.iov_base, one.iov_len, Endpoint::from(ep).receive_flags(flags), m->addr, m->context);
}

ssize_t send(fid_ep* ep, const void* buffer, size_t length, void*, fi_addr_t to, void* context) {
  return send_message(ep, buffer, length, Endpoint::from(ep).send_flags(), to, {}, context);
}

ssize_t sendv(fid_ep* ep, const iovec* v, void**, size_t count, fi_addr_t to, void* context) {
  if (count > 1) return -FI_EINVAL;
  const iovec one = count > 0 ? *v : iovec{};
  return send_message(ep, one.iov_base, one.iov_len, Endpoint::from(ep).send_flags(), to, {}, context);
}

ssize_t sendmsg(fid_ep* ep, const fi_msg* m, uint64_t flags) {
  if (m->iov_count > 1) return -FI_EINVAL;
  const iovec one = only_element(*m);
  return send_message(ep, one.iov_base, one.iov_len, Endpoint::from(ep).send_flags(flags), m->addr,
                      data_of(m->data, flags), m->context);
}

ssize_t inject(fid_ep* ep, const void* buffer, size_t length, fi_addr_t to) {
  return send_message(ep, buffer, length, FI_INJECT, to, {}, nullptr);
}

ssize_t senddata(fid_ep* ep, const void* buffer, size_t length, void*, uint64_t data, fi_addr_t to, void* context) {
  return send_message(ep, buffer, length, Endpoint::from(ep).send_flags(), to, data, context);
}

ssize_t injectdata(fid_ep* ep, const void* buffer, size_t length, uint64_t data, fi_addr_t to) {
  return send_message(ep, buffer, length, FI_INJECT, to, data, nullptr);
}

}  // namespace

fi_ops_tagged tagged_ops = {.size = sizeof(fi_ops_tagged),
                            .recv = entry<trecv>,
                            .recvv = entry<trecvv>,
                            .recvmsg = entry<trecvmsg>,
                            .send = entry<tsend>,
                            .sendv = entry<tsendv>,
                            .sendmsg = entry<tsendmsg>,
                            .inject = entry<tinject>,
                            .senddata = entry<tsenddata>,
                            .injectdata = entry<tinjectdata>};

fi_ops_msg message_ops = {.size = sizeof(fi_ops_msg),
                          .recv = entry<recv>,
                          .recvv = entry<recvv>,
                          .recvmsg = entry<recvmsg>,
                          .send = entry<send>,
                          .sendv = entry<sendv>,
                          .sendmsg = entry<sendmsg>,
                          .inject = entry<inject>,
                          .senddata = entry<senddata>,
                          .injectdata = entry<injectdata>};

}  // namespace ewarp::ofi
