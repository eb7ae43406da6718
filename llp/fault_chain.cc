// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/fault_chain.h"
#include "llp/mutex.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

namespace ewarp::llp {

namespace {

using Action = struct sigaction;
using Handler = void (*)(int, siginfo_t*, void*);

// The kernel knows one handler a signal, and a program that replaces ours keeps ours to call or to restore it later. So
// that it finds then what was there when it came, every time the place is taken a *different* function is installed,
// which goes on to the action that it replaced: its generation.
constexpr unsigned kGenerations = 32;

struct Generation {
  Action below{};
  std::atomic<bool> spent{false};  // below had SA_RESETHAND and has been called
  unsigned parent = 0;             // our generation in force before `below` was installed; always a lower number
};

struct Place {
  int signal;
  std::array<Generation, kGenerations> generations{};
  std::atomic<unsigned> used{0};  // released after generations[used] is written; those before never change
  unsigned current = 0;
};

constinit Place g_places[] = {{SIGSEGV}, {SIGBUS}};
constinit Mutex g_mutex;  // for taking the place; no handler takes it
constinit std::atomic<RecoverFault> g_recover{nullptr};

// Which generations a fault has been through, for newcomers that chain to us in a circle. A jump out of a handler
// leaves it as it is: the next fault at the same depth then has the same context, but not a deeper frame.
struct Passage {
  const void* context;
  const char* frame;
  std::uint32_t visited;
};
// initial-exec: the general model may allocate at the first use, here within a signal handler.
[[gnu::tls_model("initial-exec")]] constinit thread_local Passage t_passage{};

void default_action(int signal, const siginfo_t& info) {
  Action action{};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  if (!from_instruction(signal, info)) raise(signal);
}

void call(const Action& action, int signal, siginfo_t* info, void* context) {
  sigset_t mask = action.sa_mask;
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, signal);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &mask, &before);
  if ((action.sa_flags & SA_SIGINFO) != 0)
    action.sa_sigaction(signal, info, context);
  else
    action.sa_handler(signal);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void run_below(Generation& generation, int signal, siginfo_t* info, void* context) {
  const Action& action = generation.below;
  if (action.sa_handler == SIG_IGN) {
    // The kernel ignores only what others sent: a fault that was ignored would repeat for ever.
    if (from_instruction(signal, *info)) default_action(signal, *info);
  } else if (action.sa_handler == SIG_DFL || generation.spent.load()) {
    default_action(signal, *info);
  } else {
    if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) generation.spent.store(true);
    call(action, signal, info, context);
  }
}

// The generation to go on with: `at`, or where the newcomer below it has led back to it, the next one further down.
std::optional<unsigned> unvisited(const Place& place, unsigned at, std::uint32_t visited) {
  while ((visited & (1u << at)) != 0) {
    if (at == 0) return std::nullopt;
    at = place.generations[at].parent;
  }
  return at;
}

[[gnu::noinline]] void on_fault(Place& place, unsigned at, siginfo_t* info, void* context) {
  if (g_recover.load()(place.signal, *info, context)) return;
  const int saved_errno = errno;
  const Passage before = t_passage;
  const auto* frame = static_cast<const char*>(__builtin_frame_address(0));
  const bool nested = before.context == context && frame < before.frame;
  t_passage = nested ? before : Passage{context, frame, 0};
  place.used.load();  // pairs with the store in generation_for()
  if (const auto next = unvisited(place, at, t_passage.visited)) {
    t_passage.visited |= 1u << *next;
    run_below(place.generations[*next], place.signal, info, context);
  } else {
    default_action(place.signal, *info);
  }
  t_passage = before;
  errno = saved_errno;
}

template <std::size_t kPlace, unsigned kGeneration>
void entry(int, siginfo_t* info, void* context) {
  on_fault(g_places[kPlace], kGeneration, info, context);
}

template <std::size_t kPlace, std::size_t... kIndex>
constexpr std::array<Handler, kGenerations> entries(std::index_sequence<kIndex...>) {
  return {&entry<kPlace, static_cast<unsigned>(kIndex)>...};
}

constexpr std::array<Handler, kGenerations> kEntries[] = {entries<0>(std::make_index_sequence<kGenerations>()),
                                                          entries<1>(std::make_index_sequence<kGenerations>())};

const std::array<Handler, kGenerations>& entries_of(const Place& place) {
  return kEntries[&place - g_places];
}

// Whatever the flags: signal() puts a handler back that it returned, but without SA_SIGINFO.
std::optional<unsigned> our_generation(const Place& place, const Action& action) {
  for (unsigned i = 0; i < kGenerations; ++i)
    if (entries_of(place)[i] == action.sa_sigaction) return i;
  return std::nullopt;
}

bool same(const Action& a, const Action& b) {
  if (a.sa_handler != b.sa_handler || a.sa_flags != b.sa_flags) return false;
  for (int signal = 1; signal <= SIGRTMAX; ++signal)
    if (sigismember(&a.sa_mask, signal) != sigismember(&b.sa_mask, signal)) return false;
  return true;
}

// The generation that goes on to `below`: the one that did so before, or a new one while there are any.
std::optional<unsigned> generation_for(Place& place, const Action& below) {
  const unsigned used = place.used.load();
  for (unsigned i = 0; i < used; ++i) {
    if (!same(place.generations[i].below, below)) continue;
    place.generations[i].spent.store(false);
    return i;
  }
  if (used == kGenerations) return std::nullopt;
  place.generations[used].below = below;
  place.generations[used].parent = place.current;
  place.used.store(used + 1);  // pairs with the load in on_fault()
  return used;
}

Action installed(int signal) {
  Action action{};
  sigaction(signal, nullptr, &action);
  return action;
}

Action install(Place& place, unsigned generation, int flags_below) {
  Action ours{};
  Action replaced{};
  ours.sa_sigaction = entries_of(place)[generation];
  // SA_NODEFER: the mask of the handler below is set around it instead, so that a jump out of it finds what it expects.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | (flags_below & SA_RESTART);
  sigaction(place.signal, &ours, &replaced);
  place.current = generation;
  return replaced;
}

bool in_place(const Place& place, const Action& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && our_generation(place, action);
}

// False: the handlers below have used up all generations, and ours is not in its place.
bool take(Place& place) {
  if (in_place(place, installed(place.signal))) return true;
  const Guard lock(g_mutex);
  Action found = installed(place.signal);
  while (!in_place(place, found)) {
    auto generation = our_generation(place, found);
    if (!generation) generation = generation_for(place, found);
    if (!generation) return false;
    const Action replaced = install(place, *generation, found.sa_flags);
    if (same(replaced, found)) return true;
    // Another thread installed something between the two calls.
    found = replaced;
    if (const auto ours = our_generation(place, found)) {
      install(place, *ours, found.sa_flags);
      return true;
    }
  }
  return true;
}

}  // namespace

bool from_instruction(int signal, const siginfo_t& info) {
  // The kernel fills the siginfo only for SA_SIGINFO, which is lost when a program puts our handler back by signal().
  if (info.si_signo != signal) return true;
  return info.si_code > 0 && !(signal == SIGBUS && info.si_code == BUS_MCEERR_AO);
}

bool take_fault_signals(RecoverFault recover) {
  g_recover.store(recover);
  bool all = true;
  for (Place& place : g_places) all = take(place) && all;
  return all;
}

void fault_signals_before_fork() EWARP_NO_LOCK_ANALYSIS {
  g_mutex.lock();
}

void fault_signals_after_fork() EWARP_NO_LOCK_ANALYSIS {
  g_mutex.unlock();
}

void fault_signals_forget_in_child() {
  g_mutex.renew_in_child();
}

}  // namespace ewarp::llp
