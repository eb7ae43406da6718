// One TCP stream of a queue pair: moves octets between the socket and the RDMAP endpoint.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <memory>
#include <string>

#include "llp/gather.h"
#include "mpa/startup.h"
#include "rdmap/endpoint.h"

namespace ewarp::verbs {

class Engine;
class QueuePair;

// Threading: engine held for everything.
class Connection {
 public:
  // Takes the fd.
  Connection(Engine& engine, QueuePair& qp, int fd, const mpa::StreamParams& params);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  // The fd's new owner closes it.
  int release_fd();
  QueuePair& queue_pair() { return qp_; }
  rdmap::Endpoint& endpoint() { return endpoint_; }
  const std::string& peer() const { return peer_; }

  enum class End { none, peer_closed, peer_closed_early, lost, local_memory };
  End end() const { return end_; }

  // One receive in two halves, so that many streams can share a system call: prepare() fills the message header,
  // completed() takes the result (octets or -errno). True: something arrived.
  msghdr* prepare();
  bool completed(ssize_t result);
  // The system call is over. completed() does it too, but may come after other streams' octets were handled.
  void leave_regions();
  std::size_t asked() const { return asked_; }  // octets that prepare() made room for
  // Both halves, repeated while much is waiting. True: something happened.
  bool receive();
  // Nothing is read while a Send waits for its receive.
  bool readable() const { return !endpoint_.stalled(); }
  // A receive was posted for it, or the wait is over.
  void resume() { parse(); }
  // Writes what there is to write. True: something happened. blocked() tells whether the socket is full.
  bool transmit();
  bool blocked() const { return blocked_; }
  bool has_output() const { return !fin_sent_ && ((out_ != nullptr && !out_->empty()) || endpoint_.wants_transmit()); }
  void shut_down();  // sends FIN
  bool fin_sent() const { return fin_sent_; }
  // Drops what was not written yet (it refers to memory of requests that end now); a Terminate of ours is kept when no
  // FPDU was cut by that.
  void drop_output();
  // Gives its buffers back while nothing is in them.
  void rest();

  // For the engine's lists.
  bool active = false;
  bool armed = false;
  std::uint32_t armed_events = 0;
  unsigned last_tick = 0;

  std::uint64_t tx_octets = 0, rx_octets = 0;

 private:
  bool enter_regions();
  bool still_full() const;
  void parse();

  Engine& engine_;
  QueuePair& qp_;
  int fd_;
  rdmap::Endpoint endpoint_;
  bool direct_possible_;
  std::string peer_;

  std::unique_ptr<std::byte[]> staging_;
  std::size_t begin_ = 0, end_at_ = 0;
  msghdr message_{};
  std::array<iovec, rdmap::ExtentList::kMax + 1> vectors_{};
  std::size_t direct_wanted_ = 0;   // octets of message_ that go to the direct target
  std::size_t direct_entered_ = 0;  // extents whose regions are held
  std::size_t asked_ = 0;
  std::uint64_t regions_entered_ = 0;  // bit per region of out_

  std::unique_ptr<llp::Gather> out_;
  bool blocked_ = false;
  bool fin_sent_ = false;
  bool fpdu_cut_ = false;  // part of what is in out_ was written
  End end_ = End::none;
};

}  // namespace ewarp::verbs
