// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A stream of octets between two processes, reliable and in order: what MPA runs over (RFC 5044 section 3).
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "llp/host_watch.h"

namespace ewarp::llp {

class LocalAgreement;

// What is known of the peer's end of a stream that nobody reads.
enum class PeerEnd : std::uint8_t {
  open,
  ended,   // it has ended its direction, or the stream is lost
  hidden,  // it may have: more octets wait than the peer may send beyond, and an end would stand behind those
};

// In full operation from the start, but for what take_agreement() says: who made it has connected it. No call waits,
// and none raises SIGPIPE. tcp_stream.cc has the one that is a socket, local_stream.cc the one that is none.
// Threading: one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;  // as close()

  // Readable while receive() gives something, writable while send() takes something, for poll() and what is built upon
  // it: level-triggered, so that who read only a part hears of the rest. Stays the same until close(), then -1. A
  // stream that is no socket gives any descriptor that poll() takes; what it does not tell, watched_for() and arm() do.
  // Ready too often costs a call that finds nothing; ready too seldom, and the stream stands still.
  virtual int fd() const = 0;
  // Whether recvmsg() on fd() is what receive() does, so that many streams can share a system call (batch.h).
  virtual bool is_socket() const = 0;
  // Whether receive() is a call of the kernel: one that brings little costs as much as one that brings all.
  virtual bool reads_by_call() const { return true; }
  // POLLIN and POLLOUT: what fd() has to be watched for by who wants to read, or to write.
  virtual std::uint32_t watched_for(bool reads, bool writes) const {
    return (reads ? POLLIN : 0U) | (writes ? POLLOUT : 0U);
  }
  // For streams whose fd() does not tell of everything: called before somebody sleeps on fd() until he can read, or
  // write (ActiveSet::watch()). True: he can already, and must not sleep. False: fd() becomes ready when he can. rang:
  // fd() was found ready since the last call, which is over with this one; a caller that does not know says true.
  virtual bool arm(bool /*reads*/, bool /*writes*/, bool /*rang*/) { return false; }
  // By the peer's word fd() has become ready since the last arm(). Makes no call. A peer that lies costs the sleeper a
  // wake-up for nothing, behind which he says rang.
  virtual bool rung() const { return false; }

  // Octets; 0: the peer has ended its direction; -EAGAIN, -EINTR: nothing now; -EFAULT: the memory cannot be written,
  // and what was meant for it is still there; or why the stream has ended, as -errno.
  virtual long receive(std::span<const iovec> into) = 0;
  // Octets; -EAGAIN, -EINTR, -ENOBUFS: no room now; -EFAULT: the memory cannot be read, and nothing was taken; or why
  // the stream has ended.
  virtual long send(std::span<const iovec> from) = 0;
  // POLLIN and POLLOUT, as far as they hold now. Both at the end of the stream, which the calls above then tell.
  virtual short ready() const = 0;
  // For an owner that reads nothing for a while. Asks the kernel: not for every message.
  virtual PeerEnd peer_end() const { return PeerEnd::hidden; }

  // Nothing follows in our direction; what was sent arrives.
  virtual void half_close() = 0;
  // Both directions end now.
  virtual void end() = 0;
  // For the end of a stream: what was sent is dropped if the peer takes none of it for so long, behind close(), too.
  // TCP's kernel would offer it for minutes to a peer that reads nothing.
  virtual void give_up_after(std::chrono::milliseconds /*time*/) {}
  // The descriptor goes back, and nothing else is done: in a forked child the stream is the parent's. receive()
  // and send() give -EBADF from then on.
  virtual void close() = 0;

  // Octets that the largest segment carries at present, for RFC 5044 section 4.5; 0: it has no segments.
  virtual std::size_t segment_octets() const = 0;
  // "address:port", for people; may be empty.
  virtual std::string peer() const = 0;

  // The peer is on another host, which may vanish without a word. Never changes.
  virtual bool is_distant() const { return false; }
  // Not null: its ends try to agree on shared memory instead (local_agreement.h). Nothing goes over this stream before
  // that has an outcome.
  virtual std::unique_ptr<LocalAgreement> take_agreement();
  // Nothing: all that was sent is acknowledged, or it cannot be told.
  virtual std::optional<Unanswered> unanswered() const { return std::nullopt; }
};

// One that is closed (tcp_stream.cc).
Stream& no_stream();

}  // namespace ewarp::llp
