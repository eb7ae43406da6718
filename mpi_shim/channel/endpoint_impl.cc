// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Opening, closing, and how an application's threads and the progress thread take turns.
#include "mpi_shim/channel/endpoint_impl.h"

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <new>

namespace ewarp::channel {
namespace {

// Where there are more processes than CPUs, what is waited for may need this one: who has polled for so long with
// nothing to show for it lets others run. Not every caller does so by himself: Open MPI's btl ofi waits without a
// break.
constexpr std::uint64_t kAloneNs = 50'000;
constexpr std::uint64_t kTickNs = 1'000'000;

std::uint64_t spin_ns(int spin_us) {
  if (spin_us >= 0) return static_cast<std::uint64_t>(spin_us) * 1000;
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) > 1 ? 1'000'000 : 0;
}

}  // namespace

Endpoint::Impl::Impl(const EndpointOptions& o, const Address& address)
    : options(o),
      transport(o.tuning, VerbsOptions{.address = address,
                                       .device = o.device,
                                       .job = o.job,
                                       .connect_timeout_ns = o.connect_timeout_ns,
                                       .registration = o.registration,
                                       .end_if_unreachable = o.end_if_unreachable}),
      spin_ns_(spin_ns(o.spin_us)),
      progress(*this) {}

Refusal Endpoint::Impl::open() {
  assert(!machine);
  if (Refusal why = transport.open()) return why;
  machine = std::make_unique<Machine>(options.tuning, transport);
  [[maybe_unused]] const PeerId self = machine->add_peer(true);
  assert(self == Endpoint::self());
  published.publish(machine->counters(), transport.address().text(), transport.address().port);
  transport.attach(*machine, machine->counters(), [this]() EWARP_NO_LOCK_ANALYSIS { return machine->add_peer(); });
  if (!progress.open()) return refused("eventfd");
  if (options.progress_thread && !progress.start()) return {.text = "no progress thread", .code = EAGAIN};
  return {};
}

void Endpoint::Impl::close() {
  if (closed_ || !machine) return;
  closed_ = true;
  progress.stop();
  const llp::Guard lock(mutex);
  const std::uint64_t until = transport.now() + options.close_timeout_ns;
  try {
    machine->begin_close();
  } catch (const std::bad_alloc&) {  // who is not asked gives them back later, or not at all
  }
  while (!machine->idle() && transport.now() < until)
    if (!transport.poll(transport.now())) usleep(50);
  transport.close(options.close_timeout_ns);
  machine->abandon();
  if (options.counters_at_close) say_counters();
}

void Endpoint::Impl::say_counters() {
  machine->counters().add(Count::progress_wakeups, progress.wakeups());
  machine->counters().add(Count::progress_takeovers, progress.takeovers());
  const std::string text = text_of([this]() EWARP_NO_LOCK_ANALYSIS { return machine->counters().text(); });
  std::fprintf(stderr, "channel %s, process %d:\n%s", text_of([this] { return transport.address().text(); }).c_str(),
               getpid(), text.c_str());
}

// --- the application's threads ---

// Help will wake up for what the requests may need it for.
void Endpoint::Impl::arm() {
  const Wake wake = machine->wake_for();
  if (!progress.running() || wake == Wake::nothing) return;
  // Once more: an adapter in software learns from it that nobody polls any more.
  if (progress.armed() >= wake) return transport.arm(wake);
  while (progress.armed() < machine->wake_for()) {
    arm_events(machine->wake_for());
    if (!transport.poll(transport.now(), false)) return;  // what came before raises no event
  }
}

// In this order: the progress thread may take the event, and say so, before the next line.
void Endpoint::Impl::arm_events(Wake wake) {
  assert(wake != Wake::nothing);
  progress.set_armed(wake);
  transport.arm(wake);
}

// As arm(), whatever there is to wait for. False if something had come before, or help is not running.
bool Endpoint::Impl::rest() {
  if (!progress.running()) return false;
  rests_ = true;
  if (transport.take_timers_changed()) progress.wake();
  if (progress.armed() == Wake::everything) return true;
  arm_events(Wake::everything);
  if (!transport.poll(transport.now())) return true;
  wake_waiters();
  return false;
}

bool Endpoint::Impl::waits_in_vain(std::uint64_t now, bool anew) {
  if (anew || vain_since_ == 0) vain_since_ = now;
  return options.shares_cpu && now - vain_since_ >= kAloneNs;
}

// Every peer is looked at, so not in every call.
void Endpoint::Impl::tick(std::uint64_t now) {
  if (now - std::min(now, ticked_at_) < kTickNs) return;
  ticked_at_ = now;
  look_after_peers();
}

void Endpoint::Impl::look_after_peers() {
  try {
    machine->tick();
  } catch (const std::bad_alloc&) {  // the next time
  }
}

// --- the progress thread ---

void Endpoint::Impl::drive(bool connections) {
  const llp::Guard lock(mutex);
  if (connections) transport.look_at_connections();
  while (transport.poll(transport.now(), connections)) {
  }
  Wake wake = Wake::nothing;
  do {
    wake = rests_ || !waiters_.empty() ? Wake::everything : std::max(machine->wake_for(), Wake::control);
    transport.arm(wake);
  } while (transport.poll(transport.now(), false));
  progress.set_armed(wake);
  note_help();
  look_after_peers();
  wake_waiters();
}

// Without the lock, which a polling thread has nearly all the time. In this order: events are armed again only when
// they are said not to be, so what is taken here are old ones.
void Endpoint::Impl::take_events() {
  transport.take_events();
  progress.set_armed(Wake::nothing);
}

int Endpoint::Impl::patience_ms() {
  const llp::Guard lock(mutex);
  const std::uint64_t now = transport.now(), at = transport.deadline();
  // Also where nothing is pending: a request that is posted later does not wake the progress thread, which is to
  // notice all the same that its peer is dead.
  std::uint64_t ns = options.tuning.death_ns / 8;
  if (at != 0) ns = std::min(ns, at > now ? at - now : 0);
  return static_cast<int>(std::min<std::uint64_t>(ns / 1'000'000 + 1, 1'000'000));
}

}  // namespace ewarp::channel
