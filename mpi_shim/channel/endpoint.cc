// The endpoint: one lock around the machine and its transport, and whoever waits.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "mpi_shim/channel/channel.h"
#include "mpi_shim/channel/machine.h"
#include "mpi_shim/channel/progress.h"
#include "mpi_shim/channel/published_counters.h"
#include "mpi_shim/channel/verbs_transport.h"

namespace ewarp::channel {
namespace {

int usable_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::optional<std::string> bad_tuning(const Tuning& t) {
  if (t.receive_depth == 0 || t.receive_depth > 16384) return "receive_depth is 1 to 16384";
  if (t.eager_threshold > 1 << 20) return "eager_threshold is 1 MiB at most";
  if (t.hybrid_threshold > 16 << 20) return "hybrid_threshold is 16 MiB at most";
  return std::nullopt;
}

}  // namespace

// Locks: `mutex` covers everything but the atomics of Progress.
class Endpoint::Impl final : public Driven {
 public:
  Impl(const EndpointOptions& o, const Address& address)
      : options(o),
        transport(o.tuning,
                  VerbsOptions{
                      .address = address, .connect_timeout_ns = o.connect_timeout_ns, .registration = o.registration}),
        spin_ns(static_cast<std::uint64_t>(o.spin_us >= 0      ? o.spin_us
                                           : usable_cpus() > 1 ? 100
                                                               : 0) *
                1000),
        progress(*this) {}

  std::string open() {
    if (std::string error = transport.open(); !error.empty()) return error;
    machine = std::make_unique<Machine>(options.tuning, transport);
    machine->add_peer(true);
    published.publish(machine->counters(), transport.address().text(), transport.address().port);
    transport.attach(*machine, machine->counters(), [this] { return machine->add_peer(); });
    if (options.progress_thread && !progress.start()) return "no progress thread";
    return {};
  }

  // One call of an application thread. Leaving with a request that may need help, it sees to it that help wakes up.
  class Visit {
   public:
    explicit Visit(Impl& impl) : impl_(impl) {
      impl_.progress.enter();
      impl_.mutex.lock();
    }
    ~Visit() {
      Progress& progress = impl_.progress;
      if (progress.running() && !progress.armed() && impl_.machine->needs_progress()) {
        impl_.transport.arm();
        progress.set_armed(true);
        impl_.transport.poll();  // what came before arming raises no event
      }
      if (!impl_.waiters.empty()) impl_.wake_waiters();
      const bool timers = impl_.transport.take_timers_changed();
      impl_.mutex.unlock();
      progress.leave();
      if (timers) progress.wake();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Impl& impl_;
  };

  // --- Driven: by the progress thread ---

  void drive() override {
    const std::lock_guard lock(mutex);
    while (transport.poll()) {
    }
    do {
      transport.arm();
    } while (transport.poll());
    progress.set_armed(true);
    machine->tick();
    wake_waiters();
  }
  // Without the lock, which a polling thread has nearly all the time. In this order: events are armed again only when
  // they are said not to be, so what is taken here are old ones.
  void take_events() override {
    transport.take_events();
    progress.set_armed(false);
  }
  int completion_fd() const override { return transport.completion_fd(); }
  int connection_fd() const override { return transport.connection_fd(); }
  int patience_ms() override {
    const std::lock_guard lock(mutex);
    const std::uint64_t now = transport.now(), at = transport.deadline();
    std::uint64_t ns = at == 0 ? ~std::uint64_t{0} : at > now ? at - now : 0;
    if (machine->pending() > 0) ns = std::min(ns, options.tuning.death_ns / 8);
    return ns == ~std::uint64_t{0} ? -1 : static_cast<int>(std::min<std::uint64_t>(ns / 1'000'000 + 1, 1'000'000));
  }

  // --- waiting ---

  struct Waiter {
    Request request;
    std::condition_variable woken;
  };
  void wake_waiters() {
    for (Waiter* w : waiters)
      if (!machine->pending_request(w->request)) w->woken.notify_one();
  }

  bool wait(Request request, Status* status, std::uint64_t patience_ns);
  void sleep(std::unique_lock<std::mutex>& lock, Request request, std::uint64_t ns);
  void close();

  const EndpointOptions options;
  mutable std::mutex mutex;
  VerbsTransport transport;
  PublishedCounters published;
  std::unique_ptr<Machine> machine;
  std::vector<Waiter*> waiters;
  std::uint64_t spin_ns;
  bool closed = false;
  Progress progress;
};

// Polls for a while, then leaves the work to the progress thread; without one, sleeps on the adapter itself.
bool Endpoint::Impl::wait(Request request, Status* status, std::uint64_t patience_ns) {
  const std::uint64_t began = transport.now();
  for (;;) {
    const Visit visit(*this);
    transport.poll();
    if (const auto found = machine->test(request)) {
      *status = *found;
      return true;
    }
    if (!machine->pending_request(request)) {
      status->error = Error::cancelled;
      return true;
    }
    const std::uint64_t spent = transport.now() - began;
    if (spent >= patience_ns) return false;
    if (spent >= spin_ns) break;
  }
  std::unique_lock lock(mutex);
  for (;;) {
    if (!machine->pending_request(request)) {
      if (const auto found = machine->test(request)) *status = *found;
      return true;
    }
    const std::uint64_t spent = transport.now() - began;
    if (spent >= patience_ns) return false;
    sleep(lock, request, patience_ns - spent);
  }
}

void Endpoint::Impl::sleep(std::unique_lock<std::mutex>& lock, Request request, std::uint64_t ns) {
  if (progress.running()) {
    Waiter waiter{.request = request, .woken = {}};
    waiters.push_back(&waiter);
    if (!progress.armed()) progress.wake();
    waiter.woken.wait_for(lock, std::chrono::nanoseconds(std::min<std::uint64_t>(ns, 3'600'000'000'000)));
    std::erase(waiters, &waiter);
    return;
  }
  transport.arm();
  if (!transport.poll() && machine->pending_request(request)) {
    pollfd fds[] = {{completion_fd(), POLLIN, 0}, {connection_fd(), POLLIN, 0}};
    lock.unlock();
    const int most = patience_ms(), mine = static_cast<int>(std::min<std::uint64_t>(ns / 1'000'000 + 1, 1'000'000));
    ::poll(fds, 2, most < 0 ? mine : std::min(most, mine));
    lock.lock();
    transport.take_events();
  }
  transport.poll();
  machine->tick();
}

void Endpoint::Impl::close() {
  if (closed || !machine) return;
  closed = true;
  progress.stop();
  const std::lock_guard lock(mutex);
  const std::uint64_t until = transport.now() + options.close_timeout_ns;
  machine->begin_close();
  while (!machine->idle() && transport.now() < until)
    if (!transport.poll()) usleep(50);
  transport.close(options.close_timeout_ns);
  machine->abandon();
  if (!options.counters_at_close) return;
  machine->counters().add(Count::progress_wakeups, progress.wakeups());
  machine->counters().add(Count::progress_takeovers, progress.takeovers());
  std::fprintf(stderr, "channel %s, process %d:\n%s", transport.address().text().c_str(), getpid(),
               machine->counters().text().c_str());
}

// --- the public face ---

Message::Message() = default;
Message::~Message() = default;
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(Message&&) noexcept = default;

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Endpoint::~Endpoint() {
  close();
}

std::unique_ptr<Endpoint> Endpoint::open(const EndpointOptions& options, std::string* error) {
  const auto address = Address::parse(options.address);
  if (const auto bad = bad_tuning(options.tuning)) {
    *error = *bad;
    return nullptr;
  }
  if (!address) {
    *error = "\"" + options.address + "\" is no address; ip:port is";
    return nullptr;
  }
  auto impl = std::make_unique<Impl>(options, *address);
  *error = impl->open();
  if (!error->empty()) return nullptr;
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

std::string Endpoint::address_of(PeerId peer) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->transport.address_of(peer).text();
}

std::string Endpoint::why_lost(PeerId peer) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->transport.reason(peer);
}

Request Endpoint::isend(PeerId peer, Tag tag, Octets data, bool synchronous) {
  const Impl::Visit visit(*impl_);
  impl_->transport.poll();  // an announcement that has come decides about the protocol
  return impl_->machine->send(peer, tag, data, synchronous);
}

Request Endpoint::irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore) {
  const Impl::Visit visit(*impl_);
  impl_->transport.poll();
  return impl_->machine->receive(source, tag, ignore, buffer);
}

bool Endpoint::test(Request request, Status* status) {
  const Impl::Visit visit(*impl_);
  impl_->transport.poll();
  const auto found = impl_->machine->test(request);
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
  impl_->transport.poll();
  impl_->machine->cancel(request);
}

std::optional<Status> Endpoint::iprobe(PeerId source, Tag tag, Tag ignore) {
  const Impl::Visit visit(*impl_);
  impl_->transport.poll();
  return impl_->machine->probe(source, tag, ignore);
}

Message Endpoint::improbe(PeerId source, Tag tag, Tag ignore, Status* status) {
  const Impl::Visit visit(*impl_);
  impl_->transport.poll();
  Message out;
  out.stored_ = impl_->machine->matched_probe(source, tag, ignore, status);
  return out;
}

Request Endpoint::mrecv(Message message, MutableOctets buffer) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->receive_matched(std::move(message.stored_), buffer);
}

std::optional<Window> Endpoint::expose(MutableOctets memory) {
  const Impl::Visit visit(*impl_);
  Exposed* exposed = impl_->transport.expose(memory, true);
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

Request Endpoint::put(PeerId peer, Octets source, wire::Remote target) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->put(peer, source, target);
}

Request Endpoint::get(PeerId peer, MutableOctets target, wire::Remote source) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->get(peer, target, source);
}

void Endpoint::forget(const void* memory, std::size_t octets) {
  const Impl::Visit visit(*impl_);
  impl_->transport.registrations().forget(memory, octets);
}

void Endpoint::progress() {
  const Impl::Visit visit(*impl_);
  impl_->transport.poll();
  impl_->machine->tick();
}

Counters Endpoint::counters() const {
  const std::lock_guard lock(impl_->mutex);
  Counters out = impl_->machine->counters();
  out.add(Count::progress_wakeups, impl_->progress.wakeups());
  out.add(Count::progress_takeovers, impl_->progress.takeovers());
  return out;
}

void Endpoint::close() {
  impl_->close();
}

}  // namespace ewarp::channel
