// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process of a job, from acp_init() to acp_finalize(): everything that it has, and the one loop in which all of it
// makes progress.
//
// Threading: everything but the constructor and the destructor is called with the lock held; wait_until() lets go of it
// while it sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <string>
#include <thread>

#include "llp/annotations.h"
#include "llp/clock.h"
#include "llp/mutex.h"
#include "mpi_shim/acp/accesses.h"
#include "mpi_shim/acp/channels.h"
#include "mpi_shim/acp/job/member.h"
#include "mpi_shim/acp/verbs/open_transport.h"

namespace ewarp::acp {

class Process final : private Member::Listener, private Channels::Listener {
 public:
  // Meets the others of the job. Null with a reason.
  static std::unique_ptr<Process> join(const Options& options, const JobPlace& place, std::string* why);
  ~Process();

  llp::Mutex mutex;  // of everything below
  std::uint32_t rank() const { return place_.rank; }
  std::uint32_t procs() const { return place_.procs; }
  const JobPlace& place() const { return place_; }
  Channels& channels() EWARP_REQUIRES(mutex) { return *channels_; }
  Accesses& accesses() EWARP_REQUIRES(mutex) { return *accesses_; }
  OwnRegions& regions() EWARP_REQUIRES(mutex) { return *regions_; }
  std::byte* starter() { return area_->starter(); }
  std::uint32_t starter_octets() const { return options_.starter_size; }

  // What has come, and what can be posted.
  void progress() EWARP_REQUIRES(mutex);
  // Until done() says so.
  template <class Done>
  void wait_until(Done done) EWARP_REQUIRES(mutex);
  // Until all have come here. 0, or ECONNRESET: one is gone.
  int meet() EWARP_REQUIRES(mutex);
  // Before the destructor. Where all have met, nobody waits for anything of this process. Where that cannot be, what is
  // under way to those that live goes out, for a bounded time, and the coordinator tells them that this one is gone.
  // 0, or ECONNRESET.
  int leave() EWARP_REQUIRES(mutex);
  void abort_job();
  // Where the program ends without leave(): the threads end; nothing is given back, because others may be in a call.
  void rest();
  // A forked child has none of this; what it must not keep open is closed.
  void forget_in_child();

 private:
  // A thread in wait_until(), until it leaves, by std::bad_alloc as well.
  class Waiting {
   public:
    explicit Waiting(unsigned& count) : count_(count) { ++count_; }
    ~Waiting() { --count_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    unsigned& count_;
  };
  struct FreeArea {
    void operator()(Area* area) const;
  };

  Process(const Options& options, const JobPlace& place);
  std::string open() EWARP_REQUIRES(mutex);
  void gone(std::uint32_t rank) override EWARP_REQUIRES(mutex);
  void aborted() override;
  void parted(std::uint32_t rank) override EWARP_REQUIRES(mutex);
  void lost(std::uint32_t rank) override EWARP_REQUIRES(mutex);
  void look_at_job() EWARP_REQUIRES(mutex);
  void lose_everybody() EWARP_REQUIRES(mutex);
  bool poll_completions(std::uint64_t now) EWARP_REQUIRES(mutex);
  void pause(std::uint64_t began) EWARP_REQUIRES(mutex);
  void sleep(int timeout_ms) EWARP_REQUIRES(mutex);
  void sleep_for_all(int timeout_ms) EWARP_REQUIRES(mutex);
  std::string check_peers() EWARP_REQUIRES(mutex);
  void start_threads();
  void run_progress_thread();
  void run_answering_thread();

  Options options_;
  JobPlace place_;
  std::uint64_t spin_ns_;
  Member member_ EWARP_GUARDED_BY(mutex);
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<PeerTable> peers_;
  std::unique_ptr<Area, FreeArea> area_;
  Registration area_region_;
  std::unique_ptr<Path> path_;
  std::unique_ptr<Channels> channels_ EWARP_GUARDED_BY(mutex);
  std::unique_ptr<OwnRegions> regions_ EWARP_GUARDED_BY(mutex);
  std::unique_ptr<Accesses> accesses_ EWARP_GUARDED_BY(mutex);
  std::uint64_t looked_ EWARP_GUARDED_BY(mutex) = 0;  // ns: at what the coordinator says
  bool somebody_gone_ EWARP_GUARDED_BY(mutex) = false;
  unsigned waiting_ EWARP_GUARDED_BY(mutex) = 0;  // threads in wait_until(): they make progress
  bool asleep_ EWARP_GUARDED_BY(mutex) = false;   // one sleeps on the descriptors, for all
  std::condition_variable_any woken_;             // it does not any more
  std::atomic<bool> ending_{false};
  std::thread thread_;     // of the option progress_thread
  std::thread answering_;  // where peers have to be answered
  int over_ = -1;          // its descriptor: it has to end
};

template <class Done>
void Process::wait_until(Done done) {
  const std::uint64_t began = monotonic_ns();
  const Waiting counted(waiting_);
  for (progress(); !done(); progress()) pause(began);
}

}  // namespace ewarp::acp
