// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/guarded_copy.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "../vectors/vectors.h"
#include "llp/page_memory.h"
#include "tests/llp/guarded_pages.h"
#include "tests/llp/signal_mask.h"

namespace {

using namespace ewarp::llp;
using namespace ewarp::llp::test;

using Copy = bool (*)(void*, const void*, std::size_t) noexcept;
constexpr struct {
  const char* name;
  Copy copy;
} kCopies[] = {{"guarded_copy", guarded_copy},
               {"guarded_copy_past_caches", guarded_copy_past_caches},
               {"guarded_copy_by_kernel", guarded_copy_by_kernel}};

// The address of a page that nothing is mapped at.
std::byte* unmapped_page() {
  void* page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page, kPage);
  return static_cast<std::byte*>(page);
}

std::byte* page_of(int protection) {
  return static_cast<std::byte*>(mmap(nullptr, kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// A file mapping whose file no longer reaches so far: SIGBUS.
std::byte* truncated_page() {
  const int fd = memfd_create("truncated", MFD_CLOEXEC);
  assert_int_equal(ftruncate(fd, static_cast<off_t>(kPage)), 0);
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_int_equal(ftruncate(fd, 0), 0);
  close(fd);
  return static_cast<std::byte*>(page);
}

// 300 covers every short path and its neighbours; the others the loops and `rep movsb`.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 300; ++n) all.push_back(n);
  for (const std::size_t n : {511u, 512u, 513u, 1000u, 2047u, 2048u, 2049u, 2063u, 4000u}) all.push_back(n);
  return all;
}

void copies_as_memcpy_does(void**) {
  install_copy_guard();
  Pages source;
  std::vector<std::byte> got(kPage + 64);
  std::vector<std::byte> want(kPage + 64);
  for (const auto& [name, copy] : kCopies) {
    for (const std::size_t n : sizes()) {
      for (const auto& [to, from] : {std::pair{0u, 0u}, {1u, 0u}, {0u, 3u}, {7u, 5u}, {15u, 17u}, {33u, 31u}}) {
        std::fill(got.begin(), got.end(), std::byte{0xa5});
        want = got;
        std::memcpy(want.data() + to, source.at(from), n);
        EXPECT(name, copy(got.data() + to, source.at(from), n));
        if (got != want) fail_msg("%s: %zu octets, target +%u, source +%u", name, n, to, from);
      }
    }
  }
}

// Where the target lies a little further behind the begin of a page than the source, another loop does it.
void copies_to_a_little_behind(void**) {
  install_copy_guard();
  constexpr std::size_t kMost = 12 * 1024;
  const auto source = page_memory(kMost), target = page_memory(kMost);
  for (std::size_t i = 0; i < kMost; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const auto& [name, copy] : kCopies)
    for (std::size_t behind = 0; behind <= 80; ++behind)
      for (const std::size_t n : {2048u, 2049u, 2063u, 2111u, 2112u, 4096u, 5000u}) {
        std::fill_n(target.get(), kMost, std::byte{0xa5});
        EXPECT(name, copy(target.get() + behind, source.get(), n));
        EXPECT(name, std::memcmp(target.get() + behind, source.get(), n) == 0);
        EXPECT(name, target[behind + n] == std::byte{0xa5} && (behind == 0 || target[behind - 1] == std::byte{0xa5}));
      }
}

// Neither reads nor writes one octet too many: both end where their page does.
void stays_within_its_bounds(void**) {
  install_copy_guard();
  Pages source;
  Pages target;
  for (const auto& [name, copy] : kCopies)
    for (const std::size_t n : sizes()) {
      EXPECT(name, copy(target.edge() - n, source.edge() - n, n));
      EXPECT(name, std::memcmp(target.edge() - n, source.edge() - n, n) == 0);
    }
}

// Who has seen the last octet owns the memory: what he writes there stays.
void nothing_is_written_after_the_last_octet(void**) {
  install_copy_guard();
  constexpr unsigned char kPlaced = 1;
  constexpr unsigned char kTaken = 2;
  constexpr unsigned kRounds = 100'000;
  constexpr auto kLongest = std::chrono::milliseconds(300);  // a length; matters where both threads share a CPU
  alignas(64) std::array<unsigned char, 256> target{};
  std::array<unsigned char, 256> source;
  source.fill(kPlaced);
  for (const std::size_t n : {1u, 2u, 3u, 4u, 7u, 8u, 12u, 15u, 16u, 24u, 31u, 32u, 33u, 64u, 65u, 128u, 256u}) {
    const auto octet = [&target](std::size_t i) { return std::atomic_ref(target[i]); };
    const auto fill = [&octet, n](unsigned char value) {
      for (std::size_t i = 0; i < n; ++i) octet(i).store(value, std::memory_order_relaxed);
    };
    const auto wait_until = [](auto&& holds) {
      for (unsigned turn = 1; !holds(); ++turn)
        if (turn % 1000 == 0) std::this_thread::yield();
    };
    std::atomic<unsigned> placed{0};  // rounds begun; kRounds + 1 is the end
    std::atomic<unsigned> taken{0};
    std::thread taker([&] {
      for (unsigned round = 1;; ++round) {
        wait_until([&] { return placed.load() >= round; });
        if (placed.load() > kRounds) return;
        wait_until([&] { return octet(n - 1).load(std::memory_order_relaxed) == kPlaced; });
        fill(kTaken);
        taken.store(round);
      }
    });
    unsigned undone = 0;
    const auto until = std::chrono::steady_clock::now() + kLongest;
    for (unsigned round = 1; round <= kRounds && std::chrono::steady_clock::now() < until; ++round) {
      fill(0);
      placed.store(round);
      guarded_copy(target.data(), source.data(), n);
      wait_until([&] { return taken.load() == round; });
      for (std::size_t i = 0; i < n; ++i) {
        if (octet(i).load(std::memory_order_relaxed) == kTaken) continue;
        ++undone;
        break;
      }
    }
    placed.store(kRounds + 1);
    taker.join();
    if (undone != 0) fail_msg("%zu octets: %u times", n, undone);
  }
}

void atomics_do_what_the_cpu_does(void**) {
  install_copy_guard();
  alignas(8) std::uint64_t word = 40;
  std::uint64_t value = 2;
  assert_true(guarded_fetch_add(&word, &value));
  assert_true(value == 40 && word == 42);
  value = 41;
  assert_true(guarded_compare_exchange(&word, &value, 7));
  assert_true(value == 42 && word == 42);
  assert_true(guarded_compare_exchange(&word, &value, 7));
  assert_true(value == 42 && word == 7);
}

void an_atomic_on_a_page_that_is_not_there(void**) {
  install_copy_guard();
  for (std::byte* page : {unmapped_page(), page_of(PROT_NONE), page_of(PROT_READ), truncated_page()}) {
    std::uint64_t value = 0;
    assert_false(guarded_fetch_add(page, &value));
    assert_false(guarded_compare_exchange(page + 8, &value, 1));
    assert_true(value == 0);
  }
}

void a_fault_is_false(void**) {
  install_copy_guard();
  std::byte* const good = page_of(PROT_READ | PROT_WRITE);
  std::byte* const unmapped = unmapped_page();
  std::byte* const none = page_of(PROT_NONE);
  std::byte* const read_only = page_of(PROT_READ);
  std::byte* const truncated = truncated_page();
  auto* const not_canonical = reinterpret_cast<std::byte*>(std::uintptr_t{0x8000'0000'0000'0000});
  const struct {
    const char* name;
    std::byte* to;
    std::byte* from;
  } cases[] = {
      {"source unmapped", good, unmapped},
      {"target unmapped", unmapped, good},
      {"source PROT_NONE", good, none},
      {"target PROT_NONE", none, good},
      {"target PROT_READ", read_only, good},
      {"source beyond the end of its file", good, truncated},
      {"target beyond the end of its file", truncated, good},
      {"source null", good, nullptr},
      {"target null", nullptr, good},
      {"source no address at all", good, not_canonical},
      {"target no address at all", not_canonical, good},
  };
  for (const auto& [name, copy] : kCopies)
    for (const auto& c : cases)
      for (const std::size_t n : {1u, 2u, 3u, 4u, 8u, 16u, 17u, 33u, 64u, 200u, 300u, 2048u, 4096u})
        if (copy(c.to, c.from, n)) fail_msg("%s: %s, %zu octets", name, c.name, n);
  // No octet, no access.
  for (const auto& [name, copy] : kCopies) EXPECT(name, copy(none, unmapped, 0));
  munmap(good, kPage);
  munmap(none, kPage);
  munmap(read_only, kPage);
  munmap(truncated, kPage);
}

// The mapping ends within the piece, at every octet of it.
void a_page_ends_in_the_middle(void**) {
  install_copy_guard();
  Pages pages;
  std::vector<std::byte> other(4096);
  for (const auto& [name, copy] : kCopies) {
    for (const std::size_t n : {2u, 3u, 7u, 15u, 31u, 63u, 64u, 100u, 256u, 300u, 2100u}) {
      for (std::size_t inside = 1; inside < n; inside += n < 300 ? 1 : 37) {
        EXPECT(name, !copy(other.data(), pages.edge() - inside, n));
        EXPECT(name, !copy(pages.edge() - inside, other.data(), n));
      }
    }
  }
}

void a_long_copy_keeps_what_came_before_the_fault(void**) {
  install_copy_guard();
  Pages pages;
  std::vector<std::byte> target(2 * kPage + 100);
  assert_false(guarded_copy(target.data(), pages.at(0), target.size()));
  assert_memory_equal(target.data(), pages.at(0), kPage);
}

void a_thread_may_block_all_other_signals(void**) {
  install_copy_guard();
  bool good = true;
  bool bad = true;
  std::thread thread([&] {
    sigset_t mask;
    sigfillset(&mask);
    sigdelset(&mask, SIGSEGV);
    sigdelset(&mask, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    std::array<std::byte, 64> from{};
    std::array<std::byte, 64> to{};
    good = guarded_copy(to.data(), from.data(), from.size());
    bad = guarded_copy(to.data(), unmapped_page(), to.size());
  });
  thread.join();
  assert_true(good);
  assert_false(bad);
}

void the_signal_mask_is_as_before(void**) {
  install_copy_guard();
  std::array<std::byte, 64> to{};
  const sigset_t before = ewarp::test::mask_now();
  for (int i = 0; i < 3; ++i) assert_false(guarded_copy(to.data(), unmapped_page(), to.size()));
  assert_true(ewarp::test::same(ewarp::test::mask_now(), before));
}

void threads_fault_at_the_same_time(void**) {
  install_copy_guard();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  std::byte* const bad = page_of(PROT_NONE);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::array<std::byte, 128> from{};
      std::array<std::byte, 128> to{};
      for (int i = 0; i < 1000; ++i) {
        if (guarded_copy(to.data(), bad, to.size())) ++wrong;
        if (!guarded_copy(to.data(), from.data(), to.size())) ++wrong;
        if (i % 100 == 0) install_copy_guard();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  munmap(bad, kPage);
  assert_int_equal(wrong.load(), 0);
}

// ---- The handlers of the application. Each case is a process of its own. ----

// The thread sanitizer installs every handler with a full mask of its own.
#if defined(__SANITIZE_THREAD__)
constexpr bool kMasksAreReplaced = true;
#else
constexpr bool kMasksAreReplaced = false;
#endif

constexpr int kHolds = 42;  // what a child says whose claims all held

// A body returns kHolds, another number for the claim that failed, or is ended by a signal.
int status_of(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    _exit(body());
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

bool copy_fails() {
  std::array<std::byte, 64> to{};
  return !guarded_copy(to.data(), unmapped_page(), to.size());
}

volatile std::byte* g_page;  // what the bodies fault on
volatile int g_calls;
volatile int g_other_calls;
volatile sig_atomic_t g_code;
struct sigaction g_saved;
sigjmp_buf g_escape;

void fault() {
  *g_page = std::byte{1};
}

void make_accessible(int) {
  g_calls = g_calls + 1;
  mprotect(const_cast<std::byte*>(g_page), kPage, PROT_READ | PROT_WRITE);
}

void make_accessible_info(int signal, siginfo_t* info, void* context) {
  g_code = info->si_addr == const_cast<std::byte*>(g_page) && context != nullptr ? info->si_code : -1;
  make_accessible(signal);
}

void count_and_chain(int signal, siginfo_t* info, void* context) {
  g_other_calls = g_other_calls + 1;
  if (g_other_calls > 100) _exit(99);
  if ((g_saved.sa_flags & SA_SIGINFO) != 0)
    g_saved.sa_sigaction(signal, info, context);
  else if (g_saved.sa_handler == SIG_DFL)
    signal = 0;
  else
    g_saved.sa_handler(signal);
}

void jump_out(int) {
  g_calls = g_calls + 1;
  siglongjmp(g_escape, 1);
}

void set_handler(int signal, void (*handler)(int), int flags = 0, struct sigaction* old = nullptr) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, old);
}

void set_handler(int signal, void (*handler)(int, siginfo_t*, void*), int flags = 0, struct sigaction* old = nullptr) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO;
  sigaction(signal, &action, old);
}

void fresh_page() {
  g_page = page_of(PROT_NONE);
  g_calls = 0;
  g_other_calls = 0;
}

int handler_before() {
  fresh_page();
  set_handler(SIGSEGV, make_accessible);
  install_copy_guard();
  if (!copy_fails()) return 1;
  if (g_calls != 0) return 2;
  fault();
  return g_calls == 1 ? kHolds : 3;
}

int info_handler_before() {
  fresh_page();
  set_handler(SIGSEGV, make_accessible_info);
  install_copy_guard();
  if (!copy_fails() || g_calls != 0) return 1;
  fault();
  return g_calls == 1 && g_code == SEGV_ACCERR ? kHolds : 2;
}

int handler_after() {
  fresh_page();
  set_handler(SIGSEGV, SIG_DFL);
  install_copy_guard();
  set_handler(SIGSEGV, make_accessible);
  install_copy_guard();
  if (!copy_fails() || g_calls != 0) return 1;
  fault();
  return g_calls == 1 ? kHolds : 2;
}

int handler_after_that_chains() {
  fresh_page();
  set_handler(SIGSEGV, make_accessible_info);
  install_copy_guard();
  set_handler(SIGSEGV, count_and_chain, 0, &g_saved);
  install_copy_guard();
  if (!copy_fails() || g_other_calls != 0) return 1;
  fault();
  return g_calls == 1 && g_other_calls == 1 ? kHolds : 2;
}

// It notes what it replaced each time it is installed: the second time that is us, in front of itself.
int handler_that_chains_in_a_circle() {
  fresh_page();
  set_handler(SIGSEGV, make_accessible_info);
  install_copy_guard();
  set_handler(SIGSEGV, count_and_chain, 0, &g_saved);
  install_copy_guard();
  set_handler(SIGSEGV, count_and_chain, 0, &g_saved);
  install_copy_guard();
  if (!copy_fails()) return 1;
  fault();
  return g_calls == 1 && g_other_calls >= 1 ? kHolds : 2;
}

int handler_put_back() {
  fresh_page();
  set_handler(SIGSEGV, make_accessible);
  install_copy_guard();
  struct sigaction old {};
  set_handler(SIGSEGV, count_and_chain, 0, &old);
  install_copy_guard();
  sigaction(SIGSEGV, &old, nullptr);  // count_and_chain wants to hear nothing any more
  install_copy_guard();
  if (!copy_fails()) return 1;
  fault();
  return g_calls == 1 && g_other_calls == 0 ? kHolds : 2;
}

// What the kernel leaves unwritten of the next signal frame makes no sense.
[[gnu::noinline]] void dirty_the_stack() {
  volatile unsigned char below[32768];
  for (std::size_t i = 0; i < sizeof below; ++i) below[i] = 0xff;
}

// signal() returns our handler, and puts it back without SA_SIGINFO.
int handler_put_back_by_signal() {
  fresh_page();
  set_handler(SIGSEGV, make_accessible);
  install_copy_guard();
  auto* const old = signal(SIGSEGV, SIG_DFL);
  signal(SIGSEGV, old);
  dirty_the_stack();
  if (!copy_fails()) return 1;
  install_copy_guard();
  if (!copy_fails()) return 2;
  struct sigaction now {};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) == 0) return 3;
  fault();
  return g_calls == 1 ? kHolds : 4;
}

int handler_that_jumps_out() {
  set_handler(SIGSEGV, jump_out);
  install_copy_guard();
  for (int i = 1; i <= 5; ++i) {
    fresh_page();
    if (sigsetjmp(g_escape, 1) == 0) {
      fault();
      return 1;
    }
    if (g_calls != 1) return 2;
    if (!copy_fails()) return 3;
  }
  return kHolds;
}

// Without its flags: a jump that does not restore the mask works, if SA_NODEFER asked for that.
int nodefer_is_kept() {
  if (kMasksAreReplaced) return kHolds;
  set_handler(SIGSEGV, jump_out, SA_NODEFER);
  install_copy_guard();
  for (int i = 0; i < 3; ++i) {
    fresh_page();
    if (sigsetjmp(g_escape, 0) == 0) fault();
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (sigismember(&mask, SIGSEGV)) return 1;
  }
  return copy_fails() ? kHolds : 2;
}

volatile int g_mask_wrong;
void note_mask(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  g_mask_wrong = sigismember(&mask, SIGSEGV) != 1 || sigismember(&mask, SIGUSR1) != 1 || sigismember(&mask, SIGUSR2);
  make_accessible(signal);
}

int mask_of_the_handler_is_kept() {
  if (kMasksAreReplaced) return kHolds;
  fresh_page();
  g_mask_wrong = 1;
  struct sigaction action {};
  action.sa_handler = note_mask;
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(SIGSEGV, &action, nullptr);
  install_copy_guard();
  fault();
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  if (sigismember(&mask, SIGUSR1) || sigismember(&mask, SIGSEGV)) return 1;
  return g_mask_wrong == 0 ? kHolds : 2;
}

int sigbus_handler() {
  g_calls = 0;
  set_handler(SIGBUS, jump_out);
  install_copy_guard();
  g_page = truncated_page();
  std::array<std::byte, 64> to{};
  if (guarded_copy(to.data(), const_cast<std::byte*>(g_page), to.size())) return 1;
  if (sigsetjmp(g_escape, 1) == 0) fault();
  return g_calls == 1 ? kHolds : 2;
}

int default_action() {
  fresh_page();
  set_handler(SIGSEGV, SIG_DFL);
  install_copy_guard();
  if (!copy_fails()) return 1;
  fault();
  return 2;
}

int default_action_of_sigbus() {
  set_handler(SIGBUS, SIG_DFL);
  install_copy_guard();
  g_page = truncated_page();
  fault();
  return 1;
}

int default_action_when_sent() {
  set_handler(SIGSEGV, SIG_DFL);
  install_copy_guard();
  kill(getpid(), SIGSEGV);
  return 1;
}

int default_action_below_a_chaining_handler() {
  fresh_page();
  set_handler(SIGSEGV, SIG_DFL);
  install_copy_guard();
  set_handler(SIGSEGV, count_and_chain, 0, &g_saved);
  install_copy_guard();
  fault();
  return 1;
}

// The kernel does not let a fault be ignored either.
int ignored_fault() {
  fresh_page();
  set_handler(SIGSEGV, SIG_IGN);
  install_copy_guard();
  fault();
  return 1;
}

int ignored_when_sent() {
  set_handler(SIGSEGV, SIG_IGN);
  install_copy_guard();
  kill(getpid(), SIGSEGV);
  return copy_fails() ? kHolds : 1;
}

int sent_to_a_handler() {
  fresh_page();
  set_handler(SIGSEGV, make_accessible);
  install_copy_guard();
  kill(getpid(), SIGSEGV);
  return g_calls == 1 ? kHolds : 1;
}

void count_only(int) {
  g_calls = g_calls + 1;
}

// SA_RESETHAND: called once, then the default action.
int reset_after_one_call() {
  fresh_page();
  set_handler(SIGSEGV, count_only, static_cast<int>(SA_RESETHAND));
  install_copy_guard();
  fault();  // comes back to the same instruction
  return 1;
}

int on_the_alternate_stack() {
  fresh_page();
  static std::array<char, 65536> memory;
  const stack_t stack{memory.data(), 0, memory.size()};
  if (sigaltstack(&stack, nullptr) != 0) return 1;
  set_handler(SIGSEGV, make_accessible, SA_ONSTACK);
  install_copy_guard();
  if (!copy_fails()) return 2;
  fault();
  return g_calls == 1 && copy_fails() ? kHolds : 3;
}

void handler_in_place(struct sigaction* action) {
  sigaction(SIGSEGV, nullptr, action);
}

int idempotent() {
  install_copy_guard();
  struct sigaction first {};
  struct sigaction second {};
  handler_in_place(&first);
  install_copy_guard();
  handler_in_place(&second);
  return first.sa_sigaction == second.sa_sigaction ? kHolds : 1;
}

// Programs that install and remove theirs all the time do not use the places up.
int the_same_newcomer_a_thousand_times() {
  set_handler(SIGSEGV, SIG_DFL);
  install_copy_guard();
  for (int i = 0; i < 1000; ++i) {
    struct sigaction old {};
    set_handler(SIGSEGV, make_accessible, 0, &old);
    install_copy_guard();
    if (!copy_fails()) return 1;
    sigaction(SIGSEGV, &old, nullptr);
    install_copy_guard();
    if (!copy_fails()) return 2;
  }
  return kHolds;
}

void other_handlers_keep_their_say(void**) {
  const struct {
    const char* name;
    int (*body)();
    int signal;  // that ends it; 0: it ends well
  } cases[] = {
      {"handler installed before", handler_before, 0},
      {"sa_sigaction installed before", info_handler_before, 0},
      {"handler installed after", handler_after, 0},
      {"handler installed after that chains to us", handler_after_that_chains, 0},
      {"handler that chains in a circle", handler_that_chains_in_a_circle, 0},
      {"handler that puts ours back", handler_put_back, 0},
      {"handler that puts ours back by signal()", handler_put_back_by_signal, 0},
      {"handler that jumps out", handler_that_jumps_out, 0},
      {"SA_NODEFER", nodefer_is_kept, 0},
      {"sa_mask", mask_of_the_handler_is_kept, 0},
      {"SIGBUS handler", sigbus_handler, 0},
      {"default action", default_action, SIGSEGV},
      {"default action of SIGBUS", default_action_of_sigbus, SIGBUS},
      {"default action when sent", default_action_when_sent, SIGSEGV},
      {"default action below a chaining handler", default_action_below_a_chaining_handler, SIGSEGV},
      {"ignored, and a fault", ignored_fault, SIGSEGV},
      {"ignored, and sent", ignored_when_sent, 0},
      {"sent to a handler", sent_to_a_handler, 0},
      {"SA_RESETHAND", reset_after_one_call, SIGSEGV},
      {"alternate stack", on_the_alternate_stack, 0},
      {"idempotent", idempotent, 0},
      {"the same newcomer a thousand times", the_same_newcomer_a_thousand_times, 0},
  };
  for (const auto& c : cases) {
    const int status = status_of(c.body);
    if (c.signal != 0) {
      if (!WIFSIGNALED(status) || WTERMSIG(status) != c.signal)
        fail_msg("%s: wait status %#x, expected signal %d", c.name, static_cast<unsigned>(status), c.signal);
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != kHolds) {
      fail_msg("%s: wait status %#x", c.name, static_cast<unsigned>(status));
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(copies_as_memcpy_does),
      cmocka_unit_test(copies_to_a_little_behind),
      cmocka_unit_test(stays_within_its_bounds),
      cmocka_unit_test(nothing_is_written_after_the_last_octet),
      cmocka_unit_test(atomics_do_what_the_cpu_does),
      cmocka_unit_test(an_atomic_on_a_page_that_is_not_there),
      cmocka_unit_test(a_fault_is_false),
      cmocka_unit_test(a_page_ends_in_the_middle),
      cmocka_unit_test(a_long_copy_keeps_what_came_before_the_fault),
      cmocka_unit_test(a_thread_may_block_all_other_signals),
      cmocka_unit_test(the_signal_mask_is_as_before),
      cmocka_unit_test(threads_fault_at_the_same_time),
      cmocka_unit_test(other_handlers_keep_their_say),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
