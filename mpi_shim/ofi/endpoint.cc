// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/endpoint.h"

#include <rdma/fi_cm.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/info.h"
#include "mpi_shim/ofi/provider.h"

namespace ewarp::ofi {
namespace {

int fabric_error(channel::Error e) {
  switch (e) {
    case channel::Error::none:
      return 0;
    case channel::Error::truncated:
      return FI_ETRUNC;
    case channel::Error::cancelled:
      return FI_ECANCELED;
    case channel::Error::peer_down:
      return FI_ECONNRESET;
    case channel::Error::too_long:
      return FI_EMSGSIZE;
    case channel::Error::no_memory:
      return FI_ENOMEM;
  }
  return FI_EOTHER;
}

// Whether the ranks of this host have no CPU each, by what launchers tell them: Open MPI's, MPICH's. Open MPI lets
// others run by itself then, but not in all of its loops: btl ofi's wait for a flush is without a break, and a rank
// that waits there for one without a CPU uses up its time slice.
bool too_few_cpus() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* ranks = std::getenv(name)) return std::atol(ranks) > sysconf(_SC_NPROCESSORS_ONLN);
  return false;
}

}  // namespace

Endpoint::Endpoint(Domain& domain, const fi_info& info, std::unique_ptr<channel::Endpoint> channel,
                   channel::Tag ignored_bits, void* context_)
    : domain_(domain),
      caps_(info.caps),
      send_flags_(info.tx_attr != nullptr ? info.tx_attr->op_flags : 0),
      receive_flags_(info.rx_attr != nullptr ? info.rx_attr->op_flags : 0),
      channel_(std::move(channel)),
      ignored_bits_(ignored_bits),
      least_multi_receive_(kLeastMultiReceive) {
  fid = {.fclass = FI_CLASS_EP, .context = context_, .ops = nullptr};
  collective = nullptr;
  ++domain_.users;
}

// Requests that end now end unheard. Who is in on_done() holds the channel's lock, which tell_puts() takes: behind it
// nobody adds to a queue or a counter.
Endpoint::~Endpoint() {
  enter(State::closing);
  channel_->tell_puts({});
  for (CompletionQueue* q : {send_queue_, receive_queue_}) {
    if (q == nullptr) continue;
    q->sources.remove(*channel_);
    q->forget(*this);
    --q->users;
  }
  for (Counter* c : counters_) {
    if (c == nullptr) continue;
    c->sources.remove(*channel_);
    --c->users;
  }
  // A claimed message may still be arriving until the channel is closed.
  channel_->close();
  claimed_.clear();
  channel_.reset();
  if (addresses_ != nullptr) --addresses_->users;
  --domain_.users;
}

int Endpoint::bind(struct fid* other, std::uint64_t flags) {
  if (state_.load() != State::binding) return -FI_EOPBADSTATE;
  switch (other->fclass) {
    case FI_CLASS_EQ:
      return 0;
    case FI_CLASS_AV:
      if (addresses_ != nullptr) return -FI_EINVAL;
      addresses_ = &object<AddressVector, fid_av>(other);
      ++addresses_->users;
      return 0;
    case FI_CLASS_CQ:
      return bind_queue(object<CompletionQueue, fid_cq>(other), flags);
    case FI_CLASS_CNTR:
      return bind_counter(object<Counter, fid_cntr>(other), flags);
    default:
      return -FI_EINVAL;
  }
}

int Endpoint::bind_queue(CompletionQueue& q, std::uint64_t flags) {
  if ((flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)) != 0) return -FI_EBADFLAGS;
  const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
  const auto take = [&](CompletionQueue*& slot, bool& selective_slot) {
    slot = &q;
    selective_slot = selective;
    ++q.users;
    q.sources.add(*channel_);
  };
  const bool sends = (flags & FI_TRANSMIT) != 0, receives = (flags & FI_RECV) != 0;
  if ((!sends && !receives) || (sends && send_queue_ != nullptr) || (receives && receive_queue_ != nullptr))
    return -FI_EINVAL;
  if (sends) take(send_queue_, selective_send_);
  if (receives) take(receive_queue_, selective_receive_);
  return 0;
}

int Endpoint::bind_counter(Counter& c, std::uint64_t flags) {
  static constexpr std::uint64_t kWhat[kCounters] = {FI_SEND,  FI_RECV,        FI_READ,
                                                     FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
  // What peers do to our memory counts with FI_RMA_EVENT alone, which nobody is promised; asked for without, it is
  // legal and stays 0.
  if ((flags & ~(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0) return -FI_EBADFLAGS;
  for (int i = 0; i < kCounters; ++i) {
    if ((flags & kWhat[i]) == 0) continue;
    if (counters_[i] != nullptr) return -FI_EINVAL;
    counters_[i] = &c;
    ++c.users;
    c.sources.add(*channel_);
  }
  return 0;
}

int Endpoint::enable() {
  if (state_.load() != State::binding) return -FI_EOPBADSTATE;
  if (addresses_ == nullptr) return -FI_ENOAV;
  if (send_queue_ == nullptr && counters_[kSent] == nullptr && (caps_ & FI_SEND) != 0) return -FI_ENOCQ;
  if (receive_queue_ == nullptr && counters_[kReceived] == nullptr && (caps_ & FI_RECV) != 0) return -FI_ENOCQ;
  const bool counts_own = counters_[kSent] != nullptr || counters_[kRead] != nullptr || counters_[kWritten] != nullptr;
  if (send_queue_ == nullptr && !counts_own && (caps_ & (FI_READ | FI_WRITE)) != 0) return -FI_ENOCQ;
  if (!selective_send_) send_flags_ |= FI_COMPLETION;
  if (!selective_receive_) receive_flags_ |= FI_COMPLETION;
  enter(State::enabled);
  channel_->tell_puts({.listener = this, .label = FI_RMA | FI_REMOTE_WRITE});
  channel_->answer_with(this);
  return 0;
}

// FI_GETOPSFLAG and FI_SETOPSFLAG.
int Endpoint::control_flags(int command, std::uint64_t* flags) {
  const bool sends = (*flags & FI_TRANSMIT) != 0, receives = (*flags & FI_RECV) != 0;
  if (sends == receives) return -FI_EINVAL;
  std::uint64_t& own = sends ? send_flags_ : receive_flags_;
  if (command == FI_GETOPSFLAG) {
    *flags = own;
    return 0;
  }
  const std::uint64_t wanted = *flags & ~(FI_TRANSMIT | FI_RECV);
  if ((wanted & ~(sends ? kSendFlags : kReceiveFlags)) != 0) return -FI_EINVAL;
  own = sends ? send_flags(wanted) : receive_flags(wanted);
  return 0;
}

bool Endpoint::is_outdated(Known& known, channel::PeerId peer, unsigned looked_at) const {
  if (is_lost(peer)) return true;
  const unsigned repeated = addresses_->repeated();
  if (looked_at == repeated) [[likely]]
    return false;
  if (!channel_->why_lost(peer).empty()) return true;
  known.repeated.store(repeated, std::memory_order_release);
  return false;
}

// A peer that was lost stays so until it comes back by itself: then it has another number.
channel::PeerId Endpoint::peer_of(fi_addr_t address) {
  channel::PeerId known = kUnknown;
  if (Known* k = peers_.find(address)) {
    const unsigned looked_at =
        k->repeated.load(std::memory_order_acquire);  // and the peer that was found then, or later
    known = k->peer.load(std::memory_order_relaxed);
    if (known != kUnknown && !is_outdated(*k, known, looked_at)) [[likely]]
      return known;
  }
  const auto there = addresses_ != nullptr ? addresses_->find(address) : std::nullopt;
  if (!there) return known;
  const unsigned repeated = addresses_->repeated();
  const auto living = known != kUnknown ? channel_->living_peer(*there) : channel_->peer(*there);
  if (!living) return known;
  const channel::PeerId peer = *living;
  if (peer == known) return peer;  // still being taken down: looked for again
  Known& k = peers_.make(address);
  k.peer.store(peer, std::memory_order_relaxed);
  k.repeated.store(repeated, std::memory_order_release);
  origins_.make(peer).at.store(address);
  return peer;
}

fi_addr_t Endpoint::address_of(channel::PeerId peer) {
  if (peer == channel::kAnySource) return FI_ADDR_NOTAVAIL;
  if (const Address* a = origins_.find(peer))
    if (const fi_addr_t at = a->at.load(); at != FI_ADDR_NOTAVAIL && addresses_->has(at)) return at;
  const auto there = channel::Address::parse(channel_->address_of(peer));
  const fi_addr_t at = there && addresses_ != nullptr ? addresses_->find(*there) : FI_ADDR_NOTAVAIL;
  if (at != FI_ADDR_NOTAVAIL) origins_.make(peer).at.store(at);
  return at;
}

// --- what became of requests ---

Endpoint::CounterOf Endpoint::counter_of(std::uint64_t label) {
  if ((label & FI_RECV) != 0) return kReceived;
  if ((label & FI_SEND) != 0) return kSent;
  if ((label & FI_READ) != 0) return kRead;
  return (label & FI_WRITE) != 0 ? kWritten : kCounters;
}

CompletionQueue* Endpoint::queue_of(std::uint64_t label) const {
  return (label & (FI_RECV | FI_REMOTE_WRITE)) != 0 ? receive_queue_ : send_queue_;
}

void Endpoint::on_done(const channel::Completion& c) noexcept {
  if (state_.load(std::memory_order_relaxed) == State::closing) return;
  if ((c.label & FI_ATOMIC) != 0) return answered(c);
  if (c.status.error != channel::Error::none) return report_failure(c, fabric_error(c.status.error));
  report(c);
}

void Endpoint::report(const channel::Completion& c) {
  tell(c);
  const CounterOf counter = counter_of(c.label & ~kQuiet);
  if (counter != kCounters && counters_[counter] != nullptr) counters_[counter]->add(1);
}

// That the buffer of a multi-receive is free is told even where messages are not.
void Endpoint::tell(const channel::Completion& c) {
  const std::uint64_t label = c.label & ~kQuiet;
  CompletionQueue* queue = queue_of(label);
  const bool ours = (label & (FI_RECV | FI_REMOTE_WRITE)) == 0, told = (c.label & kQuiet) == 0;
  if (queue != nullptr && (told || c.released))
    queue->add({.op_context = c.context,
                .flags = (told ? label : 0) | (c.released ? FI_MULTI_RECV : 0) |
                         (!ours && c.status.data ? FI_REMOTE_CQ_DATA : 0),
                .len = c.status.length,
                .buf = c.buffer.data(),
                .data = c.status.data.value_or(0),
                .tag = c.status.tag & kTagMask},
               {.endpoint = this, .peer = ours ? channel::kAnySource : c.status.source});
}

void Endpoint::report_failure(const channel::Completion& c, int error) {
  const std::uint64_t label = c.label & ~kQuiet;
  if (c.status.error == channel::Error::peer_down) lost_one_.store(true, std::memory_order_relaxed);
  // fi_inject(): Open MPI, for one, takes the context of each entry for a request of its own.
  const bool anonymous = (c.label & kQuiet) != 0 && c.context == nullptr;
  if (CompletionQueue* queue = anonymous ? nullptr : queue_of(label)) {
    const bool truncated = c.status.error == channel::Error::truncated;
    queue->add_error({.op_context = c.context,
                      .flags = label | (c.released ? FI_MULTI_RECV : 0) | (c.status.data ? FI_REMOTE_CQ_DATA : 0),
                      .len = truncated ? c.buffer.size() : 0,
                      .buf = c.buffer.data(),
                      .data = c.status.data.value_or(0),
                      .tag = c.status.tag & kTagMask,
                      .olen = truncated ? c.status.length - c.buffer.size() : 0,
                      .err = error,
                      .prov_errno = static_cast<int>(c.status.error),
                      .err_data = nullptr,
                      .err_data_size = 0});
  }
  const CounterOf counter = counter_of(label);
  if (counter != kCounters && counters_[counter] != nullptr) counters_[counter]->add_error(1);
}

// --- the calls ---

namespace {

int close_endpoint(struct fid* f) {
  delete &object<Endpoint, fid_ep>(f);
  return 0;
}

int bind(struct fid* f, struct fid* other, uint64_t flags) {
  return object<Endpoint, fid_ep>(f).bind(other, flags);
}

int control(struct fid* f, int command, void* argument) {
  Endpoint& e = object<Endpoint, fid_ep>(f);
  switch (command) {
    case FI_ENABLE:
      return e.enable();
    case FI_GETOPSFLAG:
    case FI_SETOPSFLAG:
      return e.control_flags(command, static_cast<std::uint64_t*>(argument));
    default:
      return -FI_ENOSYS;
  }
}

ssize_t cancel(struct fid* f, void* context) {
  return object<Endpoint, fid_ep>(f).cancel(context);
}

int get_option(struct fid* f, int level, int name, void* value, size_t* length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (*length < sizeof(size_t)) return -FI_ETOOSMALL;
  *static_cast<size_t*>(value) = object<Endpoint, fid_ep>(f).least_multi_receive();
  *length = sizeof(size_t);
  return 0;
}

int set_option(struct fid* f, int level, int name, const void* value, size_t length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (length < sizeof(size_t)) return -FI_EINVAL;
  object<Endpoint, fid_ep>(f).set_least_multi_receive(*static_cast<const size_t*>(value));
  return 0;
}

int get_name(struct fid* f, void* out, size_t* length) {
  return guarded([&] {
    const auto address = channel::Address::parse(object<Endpoint, fid_ep>(f).channel().address());
    if (!address) return -FI_EOTHER;
    const sockaddr_storage s = address->socket_address();
    const std::size_t size = address->v4() ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), room = *length;
    // Who asks for the length alone has no room, and perhaps no address of it, which memcpy() must not be given.
    if (room > 0) std::memcpy(out, &s, std::min(size, room));
    *length = size;
    return room < size ? -FI_ETOOSMALL : 0;
  });
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = entry<close_endpoint>,
                  .bind = entry<bind>,
                  .control = entry<control>,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_ep endpoint_ops = {.size = sizeof(fi_ops_ep),
                          .cancel = entry<cancel>,
                          .getopt = entry<get_option>,
                          .setopt = entry<set_option>,
                          .tx_ctx = kUnsupported,
                          .rx_ctx = kUnsupported,
                          .rx_size_left = [](fid_ep*) -> ssize_t { return kQueueSize; },
                          .tx_size_left = [](fid_ep*) -> ssize_t { return kQueueSize; }};

fi_ops_cm name_ops = {.size = sizeof(fi_ops_cm),
                      .setname = kUnsupported,
                      .getname = entry<get_name>,
                      .getpeer = kUnsupported,
                      .connect = kUnsupported,
                      .listen = kUnsupported,
                      .accept = kUnsupported,
                      .reject = kUnsupported,
                      .shutdown = kUnsupported,
                      .join = kUnsupported};

}  // namespace

int open_endpoint(fid_domain* d, fi_info* info, fid_ep** out, void* context) noexcept {
  return guarded([&] {
    Domain& domain = Domain::from(d);
    if (info->ep_attr != nullptr && info->ep_attr->type != FI_EP_UNSPEC && info->ep_attr->type != FI_EP_RDM)
      return -FI_EINVAL;
    channel::Address address = domain.address;
    if (info->src_addr != nullptr)
      if (const auto own = channel::Address::from(*static_cast<const sockaddr*>(info->src_addr))) address = *own;
    channel::EndpointOptions defaults;
    defaults.shares_cpu = too_few_cpus();
    // MPI libraries count on it (docs/design/channel.md, The order of ends).
    defaults.tuning.ordered_completions = true;
    auto options = channel::EndpointOptions::from_environment(defaults);
    options.address = address.text();
    options.device = domain.device;
    options.progress_thread = true;  // FI_PROGRESS_AUTO
    std::string error;
    int code = 0;
    auto channel = channel::Endpoint::open(options, &error, &code);
    if (!channel) {
      FI_WARN(&provider, FI_LOG_EP_CTRL, "%s: %s\n", address.text().c_str(), error.c_str());
      return -code;  // libfabric's codes of the system's errors are errnos
    }
    auto e = std::make_unique<Endpoint>(domain, *info, std::move(channel), options.tuning.ignored_bits, context);
    e->fid.ops = &fid_ops;
    e->ops = &endpoint_ops;
    e->cm = &name_ops;
    e->msg = &message_ops;
    e->tagged = &tagged_ops;
    e->rma = &rma_ops;
    static_cast<fid_ep&>(*e).atomic = &atomic_ops;
    *out = e.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
