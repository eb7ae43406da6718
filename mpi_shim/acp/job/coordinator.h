// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The process that starts a job (`etherwarp acprun`) tells its members of each other: once where they are, then when
// all have arrived somewhere, and at once when one is gone.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "mpi_shim/acp/job/protocol.h"

namespace ewarp::acp {

class Coordinator {
 public:
  static constexpr std::size_t kMostStrangers = 64;  // connections that have not said who they are

  Coordinator(std::uint32_t procs, std::string secret);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // At a port of 127.0.0.1 that is free. 0 or an errno.
  int listen();
  int port() const { return port_; }

  // What to sleep on: `more` (the caller's own) comes first. Then looks at what has come. False: interrupted.
  bool step(std::vector<pollfd>* more, int timeout_ms);

  // The rank's process has ended. Nothing new for one that was heard to leave.
  void ended(std::uint32_t rank);
  // A member called acp_abort().
  bool aborted() const { return aborted_; }
  bool has_left(std::uint32_t rank) const { return ranks_[rank] == Rank::left; }
  // Every member is there, or has been.
  bool complete() const { return met_ == ranks_.size(); }
  // Every member was there, and has left or is gone.
  bool finished() const;

 private:
  enum class Rank : std::uint8_t { expected, here, left, gone };
  static constexpr std::uint32_t kNobody = ~0u;
  // A connection; fd -1: closed, and about to be forgotten.
  struct Member {
    int fd;
    std::uint32_t rank = kNobody;
    std::string in, out;
    bool arrived = false;  // at the present meeting
  };
  static bool is_stranger(const Member& m) { return m.fd >= 0 && m.rank == kNobody; }

  void accept_all();
  bool too_many_strangers() const;
  void look(Member& m, short events);
  void read_some(Member& m);
  void write_some(Member& m);
  bool understand(Member& m);
  bool welcome(Member& m, std::uint32_t rank, const Hello& hello);
  bool hear(Member& m, Frame frame);
  void arrived(Member& m);
  bool parted(Member& m, std::uint32_t other);
  void say(Member& m, Word word, std::uint32_t value);
  void say_to_all(Word word, std::uint32_t value);
  void send_table();
  void hang_up(Member& m);

  std::vector<Rank> ranks_;
  std::vector<Contact> contacts_;
  std::vector<Member> members_;
  std::string secret_;
  std::uint32_t met_ = 0;  // ranks that were welcomed
  std::uint32_t arrivals_ = 0;
  int listener_ = -1;
  int port_ = 0;
  bool broken_ = false;  // one ended before all had met: there will be no job
  bool aborted_ = false;
};

}  // namespace ewarp::acp
