// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Global memory access: copies and atomics between any processes, in the order that their handles ask for.
#pragma once

#include <memory>

#include "mpi_shim/acp/regions.h"

namespace ewarp::acp {

enum class Change : std::uint8_t { copy, cas, swap, add, exclusive_or, inclusive_or, conjunction };

struct Wanted {
  Change what;
  std::uint64_t to, from;  // global addresses; of an atomic: of the result, of the target
  std::uint64_t octets;    // of an atomic 4 or 8
  std::uint64_t value = 0, expected = 0;
  std::int64_t order = 0;
};

class Accesses {
 public:
  static constexpr std::int64_t kMost = 512;  // that are kept
  static constexpr std::int64_t kAll = -1, kContinue = -2;
  static constexpr std::uint32_t kChunk = 1u << 20;    // octets of one post
  static constexpr std::uint32_t kMostChunks = 64;     // of one access that are under way
  static constexpr std::uint32_t kBounce = 64u << 10;  // octets at a time between two other processes

  // std::bad_alloc.
  Accesses(Path& path, OwnRegions& own, std::uint32_t starter_octets);
  ~Accesses();
  Accesses(const Accesses&) = delete;
  Accesses& operator=(const Accesses&) = delete;

  // A handle; 0 with errno. Requires: has_room().
  std::int64_t begin(const Wanted& wanted);
  // Forgets ended ones if it must.
  bool has_room();
  bool begun(std::int64_t handle) const { return handle < next_; }
  // All up to this one have ended.
  bool ended(std::int64_t handle) const { return last_of(handle) < active_; }
  // Forgets all up to this one, which have ended; the errno of the first that failed, or 0.
  int take(std::int64_t handle);

  void completed(const Completion& c);
  void gone(std::uint32_t rank);
  void advance();
  bool idle() const { return active_ == next_; }
  // Something is to be done that no completion will tell of.
  bool restless() const { return restless_; }

 private:
  // To one peer, of accesses that used an entry from the cache. From then on its entries are read for each access: an
  // adapter of RD ends an association at the eighth wrong key.
  static constexpr std::uint8_t kMostRefusals = 4;

  enum class State : std::uint8_t {
    ordered,  // waits for those before it
    finding,  // the entry of a region is being read
    moving,   // octets are under way, or have no room yet
    reading,  // an atomic that adapters do not have: what is there is being read
    trying,   // the atomic is under way
    done,     // well, or with an error
  };
  // A place in another process, or of this one as others see it.
  struct Target {
    std::uint64_t address;
    std::uint32_t rkey;
    bool known;
    bool read;  // the entry of the region was read for this access
  };
  struct Access {
    Wanted wanted;
    Target to, from;
    std::uint64_t posted;     // octets of a copy
    std::uint64_t seen;       // of an atomic: the 8 octets that were read
    std::uint32_t under_way;  // posts
    std::uint32_t with;       // the rank of the latest
    int error;
    State state;
    bool again;  // an entry from the cache was refused: the entries are read
    bool relaying_out;
  };
  // Memory of an access that the adapter writes: an entry that it reads, what an atomic found.
  struct Landing {
    RegionEntry entry;
    std::uint64_t word;
  };

  Access& at(std::int64_t handle) { return ring_[handle % kMost]; }
  Landing& landing(std::int64_t handle) { return landings_[handle % kMost]; }
  std::int64_t last_of(std::int64_t handle) const;
  static bool allowed(State from, State to);
  static void enter(Access& a, State to);
  void end(std::int64_t handle, int error);
  int check(const Wanted& w) const;
  void post(std::int64_t handle, const GlobalAddress& with, Post p);

  // Each: false: there is no room on the path.
  bool step(std::int64_t handle);
  bool start(std::int64_t handle);
  bool resolve(std::int64_t handle, std::uint64_t ga, std::uint64_t octets, Target* out);
  bool read_entry(std::int64_t handle, const GlobalAddress& ga, Target* out);
  void entry_read(std::int64_t handle);
  bool move(std::int64_t handle);
  bool move_with(std::int64_t handle, bool out);
  bool relay(std::int64_t handle);
  void posts_done(std::int64_t handle);
  bool try_again(std::int64_t handle);
  // Atomics (accesses_atomic.cc).
  bool begin_atomic(std::int64_t handle);
  bool word_is_in_use(std::int64_t handle);
  bool read_word(std::int64_t handle);
  bool try_word(std::int64_t handle);
  void word_read(std::int64_t handle);
  void word_tried(std::int64_t handle);
  void store_result(std::int64_t handle, std::uint64_t found);

  Path& path_;
  OwnRegions& own_;
  std::uint32_t starter_octets_;
  std::int64_t first_ = 1;   // the oldest that is kept
  std::int64_t active_ = 1;  // the oldest that is not done
  std::int64_t next_ = 1;
  // That has_room() had to forget: the first that nobody has asked for, and the last. error 0: none.
  struct Failure {
    std::int64_t handle;
    int error;
  };
  Failure forgotten_{}, last_forgotten_{};
  bool restless_ = false;
  std::unique_ptr<RegionCache> cache_;
  std::unique_ptr<Access[]> ring_;
  std::unique_ptr<Landing[]> landings_;
  std::unique_ptr<std::byte[]> bounce_;  // on the way between two others
  std::int64_t bounce_user_ = 0;
  Registration landing_region_, bounce_region_;
};

}  // namespace ewarp::acp
