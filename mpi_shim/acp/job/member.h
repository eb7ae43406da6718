// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process's connection to the coordinator of its job.
#pragma once

#include <string>
#include <vector>

#include "mpi_shim/acp/job/place.h"
#include "mpi_shim/acp/job/protocol.h"

namespace ewarp::acp {

class Member {
 public:
  Member() = default;
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Tells the coordinator where this process is, and waits until all are known. Empty, or why not.
  std::string meet(const JobPlace& place, const Contact& own, PeerTable& peers);
  void close();
  int descriptor() const { return fd_; }  // -1: none

  // Reads what has come, without waiting; what it says to the listener. False, once: the coordinator is gone.
  class Listener {
   public:
    virtual void gone(std::uint32_t rank) = 0;
    virtual void aborted() = 0;
    // The two have lost their channels, and both live.
    virtual void parted(std::uint32_t rank) = 0;

   protected:
    ~Listener() = default;
  };
  bool look(Listener& listener);

  void arrive() { say(Word::arrived); }
  // How often all have arrived.
  std::uint64_t meetings() const { return meetings_; }
  void leave() { say(Word::leaving); }
  void abort() { say(Word::abort); }
  // An end of a channel with that rank was lost. parted() follows, unless the rank is gone.
  void part(std::uint32_t rank) { say(Word::parted, rank); }

 private:
  std::string connect_to(const std::string& root);
  bool read_all(void* to, std::size_t octets);
  void say(Word word, std::uint32_t value = 0);
  bool hear(Frame frame, Listener& listener);
  bool lose();

  int fd_ = -1;
  bool lost_ = false;  // there was a coordinator
  std::uint64_t meetings_ = 0;
  Frame part_{};
  std::size_t part_octets_ = 0;  // of part_, so far
};

}  // namespace ewarp::acp
