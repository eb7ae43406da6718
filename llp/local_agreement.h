// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How two ends of a TCP connection on one host agree to use shared memory instead (docs/protocol/local.md). Before the
// first octet of the stream, and so that no end changes alone: the memory is offered, taken, and its use begun.
//
//   initiator                    responder
//                                listens, then sends its Reply
//   has the Reply, connects
//   hello, with the memory  ->
//                           <-   taken
//   begin                   ->
//
// Whatever fails before `begin`, the initiator closes and goes on by TCP; the responder goes on by TCP where TCP has
// octets, or where it finds this connection closed.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "llp/local_memory.h"
#include "llp/stream.h"

namespace ewarp::llp {

// Threading: one thread at a time. No call waits.
class LocalAgreement {
 public:
  // The responder's, of this connected TCP socket. Null: none can be had (the name is somebody's, no descriptors; 16
  // connections of other users are being closed).
  static std::unique_ptr<LocalAgreement> listen(int tcp);
  // The initiator's. Null: nobody of this user listens there.
  static std::unique_ptr<LocalAgreement> connect(int tcp);
  // What each end needs can be had here: 0, or errno (EPERM, EACCES: a sandbox forbids it; EMFILE; ENOSYS).
  static int try_out();
  ~LocalAgreement() { close(); }
  LocalAgreement(const LocalAgreement&) = delete;
  LocalAgreement& operator=(const LocalAgreement&) = delete;

  // Readable when step() would do something. Stays the same, and open, until take() or the end of this object, before
  // which nobody may watch it any more.
  int fd() const { return watched_; }
  enum class Outcome { more, tcp, local };
  // Once it is not `more`, it stays.
  Outcome step();
  // It takes too long. False: a responder that has taken the memory must wait for what the initiator does.
  bool give_up();
  // Outcome::local. Throws std::bad_alloc.
  std::unique_ptr<Stream> take(std::string peer);
  void close_in_child();
  // What a child must not keep open, where it does not call close_in_child(); -1: none. They change with step() only.
  std::array<int, 3> descriptors() const { return {watched_, door_, connection_}; }

 private:
  explicit LocalAgreement(bool initiator);
  Outcome fail();
  void close();
  void close_door();
  bool watch(int fd);
  enum class Arrived { nobody, initiator, no_one_of_ours };
  Arrived accept();
  Outcome answer();
  Outcome hear();

  const bool initiator_;
  Outcome outcome_ = Outcome::more;
  bool memory_taken_ = false;  // by the responder
  int tcp_ = -1;               // the caller's; the responder looks at it
  int watched_ = -1, door_ = -1, connection_ = -1;
  const int process_;  // whose they are
  LocalMemory memory_;
};

}  // namespace ewarp::llp
