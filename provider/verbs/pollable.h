// What takes part in every pass of the engine beside the streams: a socket for datagrams.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>

namespace ewarp::verbs {

// Threading: engine held for everything.
class Pollable : public std::enable_shared_from_this<Pollable> {
 public:
  virtual ~Pollable() = default;
  virtual int fd() const = 0;
  // Reads and writes what does not block, a bounded amount. True: something happened.
  virtual bool turn() = 0;
  // It could not write all it has: the kernel says when it can go on.
  virtual bool wants_to_write() const = 0;
  // After fork(): the socket is the parent's.
  virtual void close_in_child() = 0;

 private:
  friend class Engine;
  bool active_ = false;
  std::uint32_t armed_ = 0;  // events that the kernel watches for
  unsigned last_tick_ = 0;
};

}  // namespace ewarp::verbs
