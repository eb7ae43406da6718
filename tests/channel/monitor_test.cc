// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Registrations that are kept, on an adapter that pins, while the program unmaps, moves and empties its memory in every
// way. Most cases run twice: with the monitor what is sent is what the program sees; without it the adapter sends what
// was there before, which shows that the case can fail.
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "mpi_shim/channel/memory/monitor.h"
#include "mpi_shim/channel/verbs/registration_cache.h"
#include "tests/channel/pinning_adapter.h"
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

using Stay = RegistrationCache::Stay;

constexpr std::size_t kPage = 4096, kOctets = 16 * kPage;

MemoryMonitor* monitor() {
  std::string why;
  MemoryMonitor* const found = MemoryMonitor::of_process(&why);
  if (found == nullptr) {
    print_message("skipped: %s\n", why.c_str());
    skip();
  }
  return found;
}

// One end's cache, and what a send does with it.
struct End {
  explicit End(MemoryMonitor* by, std::size_t kept = 64) : watched_by(by), cache(nullptr, kept, by, counters) {}

  // Until nothing is under way, so that what is registered next is kept.
  void settle() {
    for (int i = 0; watched_by != nullptr && i < 10'000 && !watched_by->settled(); ++i) usleep(1000);
    cache.look();
  }

  // Whether the adapter sends what the program sees.
  bool sends_right(MutableOctets memory) {
    RegistrationCache::Region* const region = cache.take(memory, 0, Stay::if_it_may);
    assert_non_null(region);
    const auto sent = PinningAdapter::sends(*region->mr, memory);
    cache.give(*region);
    return std::equal(sent.begin(), sent.end(), memory.begin());
  }
  bool sends_right(void* memory, std::size_t octets = kOctets) {
    return sends_right({static_cast<std::byte*>(memory), octets});
  }

  // Until it is registered, and stays so.
  void registers(void* memory, std::size_t octets = kOctets) {
    const std::uint64_t hits = counters[Count::registration_hits];
    for (int i = 0; i < 1000 && counters[Count::registration_hits] == hits; ++i) {
      if (i > 2) usleep(10'000);
      settle();
      assert_true(sends_right(memory, octets));
    }
    assert_true(counters[Count::registration_hits] > hits);
  }

  MemoryMonitor* const watched_by;
  Counters counters;
  RegistrationCache cache;
};

void* map(std::size_t octets = kOctets, void* where = nullptr) {
  const int fixed = where == nullptr ? 0 : MAP_FIXED;
  void* const memory = mmap(where, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  return memory;
}

// A mapping that no other one becomes a part of.
class Alone {
 public:
  explicit Alone(std::size_t octets = kOctets) : octets_(octets + 2 * kPage), all_(map(octets_)) {
    mprotect(all_, kPage, PROT_NONE);
    mprotect(static_cast<std::byte*>(all_) + octets_ - kPage, kPage, PROT_NONE);
  }
  ~Alone() { munmap(all_, octets_); }
  void* memory() const { return static_cast<std::byte*>(all_) + kPage; }

 private:
  std::size_t octets_;
  void* all_;
};

void fill(void* memory, int what, std::size_t octets = kOctets) {
  std::memset(memory, what, octets);
}

// The memory is used and registered, then changed, then used anew.
template <class Change>
void memory_that_changes(Change change) {
  for (MemoryMonitor* const watched_by : {monitor(), static_cast<MemoryMonitor*>(nullptr)}) {
    End end(watched_by);
    const Alone place;
    fill(place.memory(), 1);
    end.registers(place.memory());
    change(place.memory());
    fill(place.memory(), 2);
    assert_int_equal(end.sends_right(place.memory()), watched_by != nullptr);
    end.settle();
    assert_int_equal(end.counters[Count::registrations_invalidated], watched_by != nullptr ? 1 : 0);
  }
  assert_int_equal(PinningAdapter::regions(), 0);
}

void unmapped_and_mapped_anew(void**) {
  memory_that_changes([](void* memory) {
    munmap(memory, kOctets);
    map(kOctets, memory);
  });
}

void a_part_is_mapped_anew(void**) {
  memory_that_changes([](void* memory) {
    munmap(static_cast<std::byte*>(memory) + 3 * kPage, kPage);
    map(kPage, static_cast<std::byte*>(memory) + 3 * kPage);
  });
}

void mapped_over(void**) {
  memory_that_changes([](void* memory) { map(kOctets, memory); });
}

void emptied(void**) {
  memory_that_changes([](void* memory) { madvise(memory, kOctets, MADV_DONTNEED); });
}

void moved_away(void**) {
  memory_that_changes([](void* memory) {
    void* const moved = mremap(memory, kOctets, 2 * kOctets, MREMAP_MAYMOVE);
    assert_ptr_not_equal(moved, MAP_FAILED);
    assert_ptr_not_equal(moved, memory);
    map(kOctets, memory);
    munmap(moved, 2 * kOctets);
  });
}

void moved_away_without_unmapping(void**) {
  memory_that_changes([](void* memory) {
    void* const moved = mremap(memory, kOctets, kOctets, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
    assert_ptr_not_equal(moved, MAP_FAILED);
    munmap(moved, kOctets);
  });
}

void moved_over(void**) {
  memory_that_changes([](void* memory) {
    void* const other = map();
    fill(other, 3);
    assert_ptr_equal(mremap(other, kOctets, kOctets, MREMAP_MAYMOVE | MREMAP_FIXED, memory), memory);
  });
}

void shrunk_and_grown(void**) {
  memory_that_changes([](void* memory) {
    assert_ptr_equal(mremap(memory, kOctets, kPage, 0), memory);
    assert_ptr_equal(mremap(memory, kPage, kOctets, 0), memory);
  });
}

// The memory that has moved is watched where it is now.
void moved_memory_goes_on_being_watched(void**) {
  End end(monitor());
  void* memory = map();
  fill(memory, 1);
  end.registers(memory);
  void* const moved = mremap(memory, kOctets, kOctets, MREMAP_MAYMOVE | MREMAP_FIXED, map());
  assert_ptr_not_equal(moved, MAP_FAILED);
  end.registers(moved);
  munmap(moved, kOctets);
  map(kOctets, moved);
  fill(moved, 2);
  assert_true(end.sends_right(moved));
  munmap(moved, kOctets);
}

// Under a sanitizer the allocator is not the C library's, and a child may start no thread.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// In a child, which has a monitor of its own. Its exit status.
template <class Work>
int in_a_child(Work work) {
  monitor();
  if (kSanitized) skip();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work());
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// --- what the C library unmaps by itself ---

// use(): gives memory of kOctets, which is at the same place each time, and takes it back. In a process of its own,
// whose allocator is in a known state.
template <class Use>
void memory_of_the_c_library(Use use) {
  for (const bool watched : {true, false}) {
    const int status = in_a_child([&] {
      std::string why;
      End end(watched ? MemoryMonitor::of_process(&why) : nullptr);
      int wrong = 0, same = 0;
      void* before = nullptr;
      for (int round = 1; round <= 8; ++round)
        use([&](void* memory) {
          same += memory == before;
          before = memory;
          fill(memory, round);
          wrong += !end.sends_right(memory);
          end.settle();
          wrong += !end.sends_right(memory);
        });
      return same < 4 ? 3 : wrong == 0 ? 0 : 1;
    });
    assert_int_equal(status, watched ? 0 : 1);
  }
}

void large_chunks_of_malloc(void**) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  memory_of_the_c_library([](auto used) {
    void* const memory = std::malloc(256 * kOctets);  // more than its heap may have free
    used(memory);
    std::free(memory);
  });
}

void a_heap_that_is_trimmed(void**) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  memory_of_the_c_library([](auto used) {
    void* const memory = std::malloc(4 * kOctets);
    used(static_cast<std::byte*>(memory) + 2 * kOctets);
    std::free(memory);
    malloc_trim(0);
  });
}

void a_heap_that_grows_and_shrinks_by_sbrk(void**) {
  std::free(std::malloc(100'000));  // so that the C library needs no more meanwhile
  memory_of_the_c_library([](auto used) {
    void* const memory = sbrk(kOctets);
    used(memory);
    assert_ptr_equal(sbrk(-static_cast<intptr_t>(kOctets)), static_cast<std::byte*>(memory) + kOctets);
  });
}

void the_heap_of_a_thread_that_is_trimmed(void**) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  memory_of_the_c_library([](auto used) {
    std::thread([&] {
      std::free(std::malloc(100));
      void* const memory = std::malloc(16 * kOctets);
      used(static_cast<std::byte*>(memory) + 8 * kOctets);
      std::free(memory);
      malloc_trim(0);
    }).join();
  });
}

// The C library keeps it for the next thread, without its pages.
void the_stack_of_a_thread_that_ended(void**) {
  memory_of_the_c_library([](auto used) {
    std::thread([&] {
      std::byte memory[8 * kOctets];
      used(memory);
    }).join();
  });
}

// --- memory whose pages may change while it stays mapped is not kept ---

std::byte in_the_program[kOctets] = {std::byte{1}};  // of its file

void shared_memory_and_files_are_not_kept(void**) {
  End end(monitor());
  const int file = memfd_create("file", MFD_CLOEXEC);
  assert_int_equal(ftruncate(file, kOctets), 0);
  void* const kinds[] = {mmap(nullptr, kOctets, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
                         mmap(nullptr, kOctets, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0),
                         mmap(nullptr, kOctets, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
  for (void* const memory : kinds) {
    fill(memory, 1);
    assert_true(end.sends_right(memory));
    assert_int_equal(end.cache.size(), 0);
    assert_null(end.cache.take({static_cast<std::byte*>(memory), kOctets}, 0, Stay::or_nothing));
  }
  assert_int_equal(ftruncate(file, 0), 0);
  assert_int_equal(ftruncate(file, kOctets), 0);
  for (void* const memory : kinds) {
    fill(memory, 2);
    assert_true(end.sends_right(memory));
    munmap(memory, kOctets);
  }
  close(file);
  assert_null(end.cache.take(in_the_program, 0, Stay::or_nothing));
}

// Two mappings of different kinds, one behind the other.
void memory_of_several_mappings(void**) {
  End end(monitor());
  const Alone place(2 * kOctets);
  auto* const memory = static_cast<std::byte*>(place.memory());
  madvise(memory, kOctets, MADV_DONTFORK);  // it becomes a mapping of its own
  fill(memory, 1, 2 * kOctets);
  end.registers(memory, 2 * kOctets);
  map(kPage, memory + kOctets);
  fill(memory, 2, 2 * kOctets);
  assert_true(end.sends_right(memory, 2 * kOctets));
}

// A mapping whose part is registered can be moved as before.
void the_program_moves_more_than_it_sent(void**) {
  End end(monitor());
  const Alone place(4 * kOctets);
  auto* const memory = static_cast<std::byte*>(place.memory());
  fill(memory, 1, 4 * kOctets);
  end.registers(memory + kOctets);
  void* const moved = mremap(memory, 4 * kOctets, 8 * kOctets, MREMAP_MAYMOVE);
  assert_ptr_not_equal(moved, MAP_FAILED);
  munmap(moved, 8 * kOctets);
  map(4 * kOctets, memory);
}

// --- nobody waits for anybody ---

struct Hang {  // ends the program
  Hang() { alarm(kSanitized ? 110 : 60); }
  ~Hang() { alarm(0); }
};

void the_adapter_itself_unmaps(void**) {
  const Hang limit;
  End end(monitor());
  Alone watched;
  fill(watched.memory(), 1);
  assert_true(end.sends_right(watched.memory()));
  int times = 0;
  PinningAdapter::meanwhile = [&] {
    map(kOctets, watched.memory());
    ++times;
  };
  for (int i = 0; i < 20; ++i) {
    const Alone other;
    fill(other.memory(), i);
    fill(watched.memory(), i);
    assert_true(end.sends_right(other.memory()));
    assert_true(end.sends_right(watched.memory()) || i == 0 || times > 0);
  }
  PinningAdapter::meanwhile = nullptr;
  assert_true(times > 20);
}

void* volatile remapped = nullptr;

void remap(int) {
  mmap(remapped, kOctets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void a_signal_handler_unmaps(void**) {
  const Hang limit;
  End end(monitor());
  const Alone place, other;
  remapped = place.memory();
  struct sigaction act {};
  act.sa_handler = remap;
  act.sa_flags = SA_RESTART;
  struct sigaction before {};
  sigaction(SIGVTALRM, &act, &before);
  const itimerval often{.it_interval = {0, 1000}, .it_value = {0, 1000}};
  setitimer(ITIMER_VIRTUAL, &often, nullptr);
  PinningAdapter::counts_only = true;
  for (int i = 0; end.counters[Count::registrations_invalidated] < 20; ++i) {
    const bool odd = i % 2 != 0;
    auto* const region =
        end.cache.take({static_cast<std::byte*>(odd ? place.memory() : other.memory()), kOctets}, 0, Stay::if_it_may);
    end.cache.give(*region);
  }
  const itimerval never{};
  setitimer(ITIMER_VIRTUAL, &never, nullptr);
  sigaction(SIGVTALRM, &before, nullptr);
  end.cache.forget(Range::everything());
  PinningAdapter::counts_only = false;
  fill(place.memory(), 7);
  assert_true(end.sends_right(place.memory()));
}

// Stops a thread of the parent's again and again, as a debugger does, and waits each time for a word. Exit status: 0,
// or 2 if that is not allowed.
[[noreturn]] void stop_again_and_again(pid_t thread, int rounds, int ready, int done) {
  if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) _exit(2);
  for (int round = 0; round < rounds; ++round) {
    char word = 0;
    const bool good = ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0 &&
                      waitpid(thread, nullptr, __WALL) == thread && write(ready, "s", 1) == 1 &&
                      read(done, &word, 1) == 1 && ptrace(PTRACE_CONT, thread, nullptr, nullptr) == 0;
    if (!good) _exit(1);
    usleep(300);
  }
  _exit(0);
}

// Wherever it stopped: it may hold any lock that the application's threads take.
void a_stopped_thread_keeps_nobody_from_unmapping(void**) {
  const Hang limit;
  constexpr int kRounds = 50;
  End end(monitor());
  PinningAdapter::counts_only = true;
  std::vector<Range> watched;
  for (int i = 0; i < kRounds; ++i) {
    const auto at = reinterpret_cast<std::uintptr_t>(map());
    watched.push_back({at, at + kOctets});
    bool good = false;
    for (int attempt = 0; attempt < 1000 && !good; ++attempt) {  // it may have been emptied just now
      if (attempt > 0) usleep(10'000);
      end.settle();
      good = end.watched_by->watch(watched.back());
    }
    assert_true(good);
  }
  std::atomic<bool> stop{false};
  std::atomic<pid_t> id{0};
  std::thread works([&] {
    id = static_cast<pid_t>(syscall(SYS_gettid));
    while (!stop) {
      const MutableOctets memory(static_cast<std::byte*>(map()), kOctets);
      for (int i = 0; i < 2; ++i) end.cache.give(*end.cache.take(memory, 0, Stay::if_it_may));
      munmap(memory.data(), kOctets);
    }
  });
  while (id == 0) usleep(100);
  int ready[2], done[2];
  assert_int_equal(pipe(ready) | pipe(done), 0);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const pid_t tracer = fork();
  if (tracer == 0) stop_again_and_again(id, kRounds, ready[1], done[0]);
  close(ready[1]);
  char word = 0;
  std::size_t rounds = 0;
  for (; read(ready[0], &word, 1) == 1; ++rounds) {
    munmap(reinterpret_cast<void*>(watched[rounds].begin), kOctets);
    assert_int_equal(write(done[1], "d", 1), 1);
  }
  int status = 0;
  assert_int_equal(waitpid(tracer, &status, 0), tracer);
  stop = true;
  works.join();
  end.cache.forget(Range::everything());
  PinningAdapter::counts_only = false;
  for (const int fd : {ready[0], done[0], done[1]}) close(fd);
  for (; rounds < kRounds; ++rounds) munmap(reinterpret_cast<void*>(watched[rounds].begin), kOctets);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
    print_message("skipped: ptrace is not allowed here\n");
    skip();
  }
  assert_int_equal(status, 0);
}

// What is closed is seen, and nothing is kept from then on. Unmapping goes on.
void the_program_closes_all_descriptors(void**) {
  const int status = in_a_child([] {
    std::string why;
    MemoryMonitor* const watched_by = MemoryMonitor::of_process(&why);
    PinningAdapter::counts_only = true;
    End end(watched_by);
    const MutableOctets memory(static_cast<std::byte*>(map()), kOctets);
    bool good = watched_by != nullptr;
    end.settle();
    for (int i = 0; i < 2; ++i) end.cache.give(*end.cache.take(memory, 0, Stay::if_it_may));
    good = good && end.counters[Count::registration_hits] == 1;
    closefrom(3);
    munmap(memory.data(), kOctets);
    map(kOctets, memory.data());
    for (int i = 0; i < 2; ++i) end.cache.give(*end.cache.take(memory, 0, Stay::if_it_may));
    good = good && end.counters[Count::registration_hits] == 1 && end.counters[Count::registrations] == 3;
    good = good && end.cache.take(memory, 0, Stay::or_nothing) == nullptr;
    munmap(memory.data(), kOctets);
    return good ? 0 : 1;
  });
  assert_int_equal(status, 0);
}

// None of the program's files stays open in the reader.
void the_reader_holds_no_file_of_the_programs(void**) {
  const int status = in_a_child([] {
    int ends[2];
    if (pipe(ends) != 0) return 2;
    std::string why;
    if (MemoryMonitor::of_process(&why) == nullptr) return 3;
    close(ends[1]);
    char byte = 0;
    return read(ends[0], &byte, 1) == 0 ? 0 : 1;  // the end of the file
  });
  assert_int_equal(status, 0);
}

// --- threads and processes ---

// Each maps, sends and unmaps, and soon gets what another one had. One lock is around the cache, as in an endpoint.
void threads_get_memory_of_each_other(MemoryMonitor* watched_by, std::atomic<int>& wrong) {
  End end(watched_by);
  std::mutex mutex;
  const auto work = [&](int number) {
    for (int i = 0; i < (kSanitized ? 100 : 400) && (watched_by != nullptr || wrong == 0); ++i) {
      void* const memory = map();
      fill(memory, number + i);
      for (int use = 0; use < 2; ++use) {
        const std::lock_guard lock(mutex);
        wrong += !end.sends_right(memory);
      }
      munmap(memory, kOctets);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, 50 * i);
  for (auto& t : threads) t.join();
  if (watched_by != nullptr) assert_true(end.counters[Count::registrations_kept] > 0);
}

void threads_unmap_while_others_send(void**) {
  const Hang limit;
  std::atomic<int> wrong{0};
  threads_get_memory_of_each_other(monitor(), wrong);
  assert_int_equal(wrong, 0);
  threads_get_memory_of_each_other(nullptr, wrong);
  assert_true(wrong > 0);
}

// A child has the parent's pages until one of both writes: what is pinned stays the parent's.
void children_are_forked_meanwhile(void**) {
  const Hang limit;
  End end(monitor());
  const Alone place;
  fill(place.memory(), 50);
  end.registers(place.memory());
  for (int i = 0; i < 50; ++i) {
    fill(place.memory(), i);
    assert_true(end.sends_right(place.memory()));
    const pid_t child = fork();
    if (child == 0) {
      fill(place.memory(), 99);
      munmap(place.memory(), kOctets);
      _exit(0);
    }
    fill(place.memory(), i + 100);
    assert_true(end.sends_right(place.memory()));
    assert_int_equal(waitpid(child, nullptr, 0), child);
  }
  assert_int_equal(end.counters[Count::registrations], 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(unmapped_and_mapped_anew),
      cmocka_unit_test(a_part_is_mapped_anew),
      cmocka_unit_test(mapped_over),
      cmocka_unit_test(emptied),
      cmocka_unit_test(moved_away),
      cmocka_unit_test(moved_away_without_unmapping),
      cmocka_unit_test(moved_over),
      cmocka_unit_test(shrunk_and_grown),
      cmocka_unit_test(moved_memory_goes_on_being_watched),
      cmocka_unit_test(large_chunks_of_malloc),
      cmocka_unit_test(a_heap_that_is_trimmed),
      cmocka_unit_test(a_heap_that_grows_and_shrinks_by_sbrk),
      cmocka_unit_test(the_heap_of_a_thread_that_is_trimmed),
      cmocka_unit_test(the_stack_of_a_thread_that_ended),
      cmocka_unit_test(shared_memory_and_files_are_not_kept),
      cmocka_unit_test(memory_of_several_mappings),
      cmocka_unit_test(the_program_moves_more_than_it_sent),
      cmocka_unit_test(the_adapter_itself_unmaps),
      cmocka_unit_test(a_signal_handler_unmaps),
      cmocka_unit_test(a_stopped_thread_keeps_nobody_from_unmapping),
      cmocka_unit_test(the_program_closes_all_descriptors),
      cmocka_unit_test(the_reader_holds_no_file_of_the_programs),
      cmocka_unit_test(threads_unmap_while_others_send),
      cmocka_unit_test(children_are_forked_meanwhile),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
