// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The public face: each function is one visit to what is behind it.
#include <sched.h>

#include "mpi_shim/channel/channel.h"
#include "mpi_shim/channel/endpoint_impl.h"

namespace ewarp::channel {
namespace {

std::optional<std::string> bad_tuning(const Tuning& t) {
  if (t.receive_depth == 0 || t.receive_depth > Tuning::kMostReceiveDepth) return "receive_depth is 1 to 16384";
  if (t.eager_threshold > Tuning::kMostEager) return "eager_threshold is 1 MiB at most";
  if (t.eager_piece < Tuning::kPieceUnit || t.eager_piece > Tuning::kMostEager ||
      t.eager_piece % Tuning::kPieceUnit != 0)
    return "eager_piece is a multiple of 1024, 1 MiB at most";
  if (t.hybrid_threshold > Tuning::kMostHybrid) return "hybrid_threshold is 16 MiB at most";
  if (t.write_window < Tuning::kLeastWindow || t.narrow_window < Tuning::kLeastWindow)
    return "write_window and narrow_window are 16 KiB at least";
  return std::nullopt;
}

}  // namespace

Message::Message() = default;
Message::~Message() = default;
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(Message&&) noexcept = default;

Endpoint::Endpoint(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)), most_injected_(impl_->options.tuning.eager_threshold) {}

Endpoint::~Endpoint() {
  close();
}

std::unique_ptr<Endpoint> Endpoint::open(const EndpointOptions& options, std::string* error, int* code) {
  const auto refuse = [&](const Refusal& why) {
    *error = why.text;
    if (code != nullptr) *code = why.code;
    return nullptr;
  };
  if (const auto bad = bad_tuning(options.tuning)) return refuse({.text = *bad, .code = EINVAL});
  const auto address = Address::parse(options.address);
  if (!address) return refuse({.text = "\"" + options.address + "\" is no address; ip:port is", .code = EINVAL});
  auto impl = std::make_unique<Impl>(options, *address);
  if (const Refusal why = impl->open()) return refuse(why);
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(impl)));
}

std::string Endpoint::address() const {
  return impl_->transport.address().text();
}

std::optional<PeerId> Endpoint::peer(const std::string& text) {
  const auto address = Address::parse(text);
  if (!address) return std::nullopt;
  const Impl::Visit visit(*impl_);
  return impl_->transport.peer(*address);
}

PeerId Endpoint::peer(const Address& address) {
  const Impl::Visit visit(*impl_);
  return impl_->transport.peer(address);
}

std::optional<PeerId> Endpoint::living_peer(const Address& address) const {
  const llp::Guard lock(impl_->mutex);
  return impl_->transport.living_peer(address);
}

std::string Endpoint::address_of(PeerId peer) const {
  const llp::Guard lock(impl_->mutex);
  return impl_->transport.address_of(peer).text();
}

std::string Endpoint::why_lost(PeerId peer) const {
  const llp::Guard lock(impl_->mutex);
  return impl_->transport.reason(peer);
}

Request Endpoint::isend(PeerId peer, Tag tag, Octets data, bool synchronous) {
  return isend(peer, tag, data, SendOptions{.synchronous = synchronous});
}

Request Endpoint::isend(PeerId peer, Tag tag, Octets data, const SendOptions& options) {
  const Impl::Visit visit(*impl_, impl_->large(data) ? Rhythm::Kind::large_send : Rhythm::Kind::send);
  // An announcement that has come decides about the protocol of a large message. One that comes during the copy of a
  // medium one counts, too.
  std::optional<HybridBuffers::Buffer> copy;
  if (impl_->large(data) && !impl_->machine->announced(peer, tag)) {
    copy = impl_->machine->copy_ahead(peer, data, options);
    impl_->poll(visit.entered_at(), false);
  }
  const Request request = impl_->machine->send(peer, tag, data, options, copy);
  if (impl_->machine->stalled()) impl_->poll(visit.entered_at(), false);  // completions, or credits, may make room
  return request;
}

Request Endpoint::irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore) {
  return irecv(source, tag, buffer, ignore, ReceiveOptions{});
}

Request Endpoint::irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore, const ReceiveOptions& options) {
  const Impl::Visit visit(*impl_, impl_->large(buffer) ? Rhythm::Kind::large_receive : Rhythm::Kind::receive);
  // Before the application computes: a message that has come needs no announcement. Where it is known already its
  // answer goes first: what else is found may be an answer to a send of ours, and nothing passes a Write. In a row of
  // receives nothing is looked for: the messages of those that follow would be found, and stored.
  const bool waits = visit.followed(), look = !waits && impl_->large(buffer);
  const bool known = look && impl_->machine->probe(source, tag, ignore).has_value();
  if (look && !known) impl_->poll(visit.entered_at(), false);
  const Request request = impl_->machine->receive(source, tag, ignore, buffer, options, waits);
  if (known) impl_->poll(visit.entered_at(), false);
  return request;
}

bool Endpoint::test(Request request, Status* status) {
  const Impl::Visit visit(*impl_);
  auto found = impl_->machine->test(request);
  if (!found) {
    impl_->poll(visit.entered_at());
    found = impl_->machine->test(request);
  }
  if (found) *status = *found;
  return found.has_value();
}

Status Endpoint::wait(Request request) {
  Status status;
  impl_->wait(request, &status, ~std::uint64_t{0});
  return status;
}

bool Endpoint::wait_for(Request request, Status* status, std::uint64_t patience_ns) {
  return impl_->wait(request, status, patience_ns);
}

void Endpoint::cancel(Request request) {
  const Impl::Visit visit(*impl_);
  impl_->poll(visit.entered_at());
  impl_->machine->cancel(request);
}

bool Endpoint::cancel(const Listener& listener, const void* context) {
  const Impl::Visit visit(*impl_);
  impl_->poll(visit.entered_at());
  const Request request = impl_->machine->find_posted(listener, context);
  if (request) impl_->machine->cancel(request);
  return static_cast<bool>(request);
}

std::optional<Status> Endpoint::iprobe(PeerId source, Tag tag, Tag ignore) {
  const Impl::Visit visit(*impl_);
  impl_->poll(visit.entered_at());
  return impl_->machine->probe(source, tag, ignore);
}

Message Endpoint::improbe(PeerId source, Tag tag, Tag ignore, Status* status) {
  const Impl::Visit visit(*impl_);
  impl_->poll(visit.entered_at());
  Message out;
  out.stored_ = impl_->machine->matched_probe(source, tag, ignore, status);
  return out;
}

void Endpoint::discard(Message message) {
  const Impl::Visit visit(*impl_);
  impl_->machine->discard(std::move(message.stored_));
}

Request Endpoint::mrecv(Message&& message, MutableOctets buffer, const Report& report) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->receive_matched(message.stored_, buffer, report);
}

std::optional<Window> Endpoint::expose(MutableOctets memory) {
  const Impl::Visit visit(*impl_);
  Exposed* exposed = impl_->transport.expose_window(memory);
  if (exposed == nullptr) return std::nullopt;
  Window out;
  out.remote = exposed->remote;
  out.exposed_ = exposed;
  return out;
}

void Endpoint::conceal(Window& window) {
  const Impl::Visit visit(*impl_);
  if (window.exposed_ != nullptr)
    impl_->transport.conceal(static_cast<Exposed*>(std::exchange(window.exposed_, nullptr)));
}

Request Endpoint::put(PeerId peer, Octets source, wire::Remote target, const SendOptions& options) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->put(peer, source, target, options);
}

Request Endpoint::get(PeerId peer, MutableOctets target, wire::Remote source, const Report& report) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->get(peer, target, source, report);
}

void Endpoint::tell_puts(const Report& report) {
  const llp::Guard lock(impl_->mutex);
  impl_->machine->tell_puts(report);
}

Request Endpoint::call(PeerId peer, Octets question, MutableOctets answer, const Report& report) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->call(peer, question, answer, report);
}

void Endpoint::answer_with(Answerer* answerer) {
  const llp::Guard lock(impl_->mutex);
  impl_->machine->answer_with(answerer);
}

void Endpoint::forget(const void* memory, std::size_t octets) {
  const Impl::Visit visit(*impl_);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  impl_->transport.registrations().forget({begin, begin + octets});
}

void Endpoint::progress() {
  bool alone = false;
  {
    Impl::Visit visit(*impl_);
    const bool found = impl_->poll(visit.entered_at());
    if (!found) visit.was_idle();
    alone = impl_->waits_in_vain(visit.entered_at(), found || !visit.at_once());
    impl_->tick(visit.entered_at());
  }
  if (alone) sched_yield();
}

bool Endpoint::rest() {
  const llp::Guard lock(impl_->mutex);
  return impl_->rest();
}

Counters Endpoint::counters() const {
  const llp::Guard lock(impl_->mutex);
  Counters out = impl_->machine->counters();
  out.add(Count::progress_wakeups, impl_->progress.wakeups());
  out.add(Count::progress_takeovers, impl_->progress.takeovers());
  return out;
}

void Endpoint::close() {
  impl_->close();
}

}  // namespace ewarp::channel
