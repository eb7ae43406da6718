// The endpoint: one lock around the machine and its transport, and whoever waits.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
        transport(o.tuning, VerbsOptions{.address = address,
                                         .device = o.device,
                                         .connect_timeout_ns = o.connect_timeout_ns,
                                         .registration = o.registration}),
        spin_ns(static_cast<std::uint64_t>(o.spin_us >= 0      ? o.spin_us
                                           : usable_cpus() > 1 ? 1000
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

  // One call of an application thread. Leaving with a request that may need help, it arms the events for the progress
  // thread, unless a call like this one is usually followed by another at once: arming costs a wake-up then, for
  // nothing. Calls with large requests are of their own kind: what follows small ones, those of a barrier for instance,
  // says nothing about them.
  class Visit {
   public:
    enum class Kind : std::uint8_t { send, large_send, receive, large_receive, other };

    explicit Visit(Impl& impl, Kind kind = Kind::other) : impl_(impl), kind_(kind) {
      impl_.progress.enter();
      // Before the lock: what the progress thread does with it is no pause of the application's.
      entered_at_ = impl_.transport.now();
      impl_.mutex.lock();
      impl_.followed[static_cast<std::size_t>(impl_.last_visit)] =
          entered_at_ - std::min(entered_at_, impl_.left_at) <= kAtOnceNs;
    }
    ~Visit() {
      if (!followed() || impl_.armed_for_less()) impl_.arm();
      impl_.note_help();
      if (!impl_.waiters.empty()) impl_.wake_waiters();
      const bool timers = impl_.transport.take_timers_changed();
      impl_.last_visit = kind_;
      impl_.left_at = idle_ ? entered_at_ : impl_.transport.now();
      impl_.mutex.unlock();
      impl_.progress.leave();
      if (timers) impl_.progress.wake();
    }
    // Whether the last one of its kind was followed by another at once.
    bool followed() const { return impl_.followed[static_cast<std::size_t>(kind_)]; }
    std::uint64_t entered_at() const { return entered_at_; }
    // There was nothing to do, so it has taken no time worth a look at the clock.
    void was_idle() { idle_ = true; }
    // For others to have a turn.
    void pause() {
      if (!impl_.waiters.empty()) impl_.wake_waiters();
      impl_.mutex.unlock();
      impl_.mutex.lock();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    static constexpr std::uint64_t kAtOnceNs = 30'000;
    Impl& impl_;
    Kind kind_;
    std::uint64_t entered_at_;
    bool idle_ = false;
  };

  // More than the adapter alone may be needed for it.
  bool large(Octets data) const { return data.size() > options.tuning.always_eager(); }
  // Help will wake up for what the requests may need it for.
  void arm() {
    const Wake wake = machine->wake_for();
    if (!progress.running() || wake == Wake::nothing) return;
    // Once more: an adapter in software learns from it that nobody polls any more.
    if (progress.armed() >= wake) return transport.arm(wake);
    while (progress.armed() < machine->wake_for()) {
      arm_events(machine->wake_for());
      if (!transport.poll(false)) return;  // what came before raises no event
    }
  }
  // The progress thread relies on events, and would get too few.
  bool armed_for_less() const {
    const Wake armed = progress.armed();
    return armed != Wake::nothing && armed < machine->wake_for();
  }
  // In this order: the progress thread may take the event, and say so, before the next line.
  void arm_events(Wake wake) {
    progress.set_armed(wake);
    transport.arm(wake);
  }

  // As arm(), whatever there is to wait for. False if something had come before, or help is not running.
  bool rest() {
    if (!progress.running()) return false;
    rests = true;
    if (transport.take_timers_changed()) progress.wake();
    if (progress.armed() == Wake::everything) return true;
    arm_events(Wake::everything);
    if (!transport.poll()) return true;
    wake_waiters();
    return false;
  }

  // Every peer is looked at, so not in every call.
  void tick(std::uint64_t now) {
    if (now - std::min(now, ticked_at) < kTickNs) return;
    ticked_at = now;
    machine->tick();
  }

  // --- Driven: by the progress thread ---

  void drive(bool connections) override {
    const std::lock_guard lock(mutex);
    if (connections) transport.look_at_connections();
    while (transport.poll(connections)) {
    }
    Wake wake = Wake::nothing;
    do {
      wake = rests || !waiters.empty() ? Wake::everything : std::max(machine->wake_for(), Wake::control);
      transport.arm(wake);
    } while (transport.poll(false));
    progress.set_armed(wake);
    note_help();
    machine->tick();
    wake_waiters();
  }
  // Without the lock, which a polling thread has nearly all the time. In this order: events are armed again only when
  // they are said not to be, so what is taken here are old ones.
  void take_events() override {
    transport.take_events();
    progress.set_armed(Wake::nothing);
  }
  int completion_fd() const override { return transport.completion_fd(); }
  int connection_fd() const override { return transport.connection_fd(); }
  // Without the lock: while another thread polls, waiting for it costs both of them a system call each time.
  bool needs_help() override { return helps.load(std::memory_order_relaxed); }
  void note_help() { helps.store(machine->wake_for() != Wake::nothing, std::memory_order_relaxed); }
  int patience_ms() override {
    const std::lock_guard lock(mutex);
    const std::uint64_t now = transport.now(), at = transport.deadline();
    // Also where nothing is pending: a request that is posted later does not wake the progress thread, which is to
    // notice all the same that its peer is dead.
    std::uint64_t ns = options.tuning.death_ns / 8;
    if (at != 0) ns = std::min(ns, at > now ? at - now : 0);
    return static_cast<int>(std::min<std::uint64_t>(ns / 1'000'000 + 1, 1'000'000));
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
  // Whether the last visit of each kind was followed by another at once.
  std::array<bool, 5> followed{};
  Visit::Kind last_visit = Visit::Kind::other;
  bool rests = false;  // somebody sleeps on what a listener does, now and then
  std::atomic<bool> helps{false};
  static constexpr std::uint64_t kTickNs = 1'000'000;
  std::uint64_t left_at = 0, ticked_at = 0;
  bool closed = false;
  Progress progress;
};

// Where there are more processes than CPUs, what is waited for may need this one.
constexpr std::uint64_t kAloneNs = 50'000;

// Polls for a while, then leaves the work to the progress thread; without one, sleeps on the adapter itself.
bool Endpoint::Impl::wait(Request request, Status* status, std::uint64_t patience_ns) {
  const std::uint64_t began = transport.now();
  const auto ended = [&] {
    if (machine->pending_request(request)) return false;
    *status = machine->test(request).value_or(Status{.error = Error::cancelled});
    return true;
  };
  {
    Visit visit(*this);
    for (bool again = false;; again = true, visit.pause()) {
      if (ended() || (transport.poll(again) && ended())) return true;
      const std::uint64_t spent = transport.now() - began;
      if (spent >= patience_ns) return false;
      if (spent >= spin_ns) break;
      if (spent >= kAloneNs) sched_yield();
    }
  }
  std::unique_lock lock(mutex);
  while (!ended()) {
    const std::uint64_t spent = transport.now() - began;
    if (spent >= patience_ns) return false;
    sleep(lock, request, patience_ns - spent);
  }
  return true;
}

void Endpoint::Impl::sleep(std::unique_lock<std::mutex>& lock, Request request, std::uint64_t ns) {
  if (progress.running()) {
    if (progress.armed() != Wake::everything) {
      arm_events(Wake::everything);
      if (transport.poll()) return wake_waiters();
    }
    Waiter waiter{.request = request, .woken = {}};
    waiters.push_back(&waiter);
    waiter.woken.wait_for(lock, std::chrono::nanoseconds(std::min<std::uint64_t>(ns, 3'600'000'000'000)));
    std::erase(waiters, &waiter);
    return;
  }
  transport.arm(Wake::everything);
  if (!transport.poll() && machine->pending_request(request)) {
    pollfd fds[] = {{completion_fd(), POLLIN, 0}, {connection_fd(), POLLIN, 0}};
    lock.unlock();
    const int mine = static_cast<int>(std::min<std::uint64_t>(ns / 1'000'000 + 1, 1'000'000));
    ::poll(fds, 2, std::min(patience_ms(), mine));
    lock.lock();
    transport.take_events();
    transport.look_at_connections();
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

PeerId Endpoint::peer(const Address& address) {
  const Impl::Visit visit(*impl_);
  return impl_->transport.peer(address);
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
  return isend(peer, tag, data, SendOptions{.synchronous = synchronous});
}

Request Endpoint::isend(PeerId peer, Tag tag, Octets data, const SendOptions& options) {
  const Impl::Visit visit(*impl_, impl_->large(data) ? Impl::Visit::Kind::large_send : Impl::Visit::Kind::send);
  // An announcement that has come decides about the protocol of a large message.
  if (impl_->large(data) && !impl_->machine->announced(peer, tag)) impl_->transport.poll(false);
  const Request request = impl_->machine->send(peer, tag, data, options);
  if (impl_->machine->stalled()) impl_->transport.poll(false);  // completions, or credits, may make room
  return request;
}

Request Endpoint::irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore) {
  return irecv(source, tag, buffer, ignore, ReceiveOptions{});
}

Request Endpoint::irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore, const ReceiveOptions& options) {
  const Impl::Visit visit(*impl_, impl_->large(buffer) ? Impl::Visit::Kind::large_receive : Impl::Visit::Kind::receive);
  // A message that has come needs no announcement. Where it is known already its answer goes first: what else is found
  // may be an answer to a send of ours, and nothing passes a Write.
  const bool look = impl_->large(buffer), known = look && impl_->machine->probe(source, tag, ignore).has_value();
  if (look && !known) impl_->transport.poll(false);
  const Request request = impl_->machine->receive(source, tag, ignore, buffer, options, visit.followed());
  if (known) impl_->transport.poll(false);
  return request;
}

bool Endpoint::test(Request request, Status* status) {
  const Impl::Visit visit(*impl_);
  auto found = impl_->machine->test(request);
  if (!found) {
    impl_->transport.poll();
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
  impl_->transport.poll();
  impl_->machine->cancel(request);
}

bool Endpoint::cancel(const Listener& listener, const void* context) {
  const Impl::Visit visit(*impl_);
  impl_->transport.poll();
  const Request request = impl_->machine->find_posted(listener, context);
  if (request) impl_->machine->cancel(request);
  return static_cast<bool>(request);
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

void Endpoint::discard(Message message) {
  const Impl::Visit visit(*impl_);
  impl_->machine->discard(std::move(message.stored_));
}

Request Endpoint::mrecv(Message message, MutableOctets buffer, const Report& report) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->receive_matched(std::move(message.stored_), buffer, report);
}

std::optional<Window> Endpoint::expose(MutableOctets memory) {
  const Impl::Visit visit(*impl_);
  Exposed* exposed = impl_->transport.expose(memory, Transport::Reach::written);
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
  const std::lock_guard lock(impl_->mutex);
  impl_->machine->tell_puts(report);
}

Request Endpoint::call(PeerId peer, Octets question, MutableOctets answer, const Report& report) {
  const Impl::Visit visit(*impl_);
  return impl_->machine->call(peer, question, answer, report);
}

void Endpoint::answer_with(Answerer* answerer) {
  const std::lock_guard lock(impl_->mutex);
  impl_->machine->answer_with(answerer);
}

void Endpoint::forget(const void* memory, std::size_t octets) {
  const Impl::Visit visit(*impl_);
  impl_->transport.registrations().forget(memory, octets);
}

void Endpoint::progress() {
  Impl::Visit visit(*impl_);
  if (!impl_->transport.poll()) visit.was_idle();
  impl_->tick(visit.entered_at());
}

bool Endpoint::rest() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->rest();
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
