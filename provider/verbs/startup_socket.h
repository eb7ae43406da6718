// A TCP socket during a start-up without rdma_cm, and addresses as GIDs.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "llp/octets.h"
#include "provider/verbs/engine.h"

namespace ewarp::verbs {

// Never closed while the reactor watches it; closed in a forked child. Threading: engine held.
class StartupSocket {
 public:
  StartupSocket() = default;
  explicit StartupSocket(int fd);  // takes the fd
  StartupSocket(StartupSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  StartupSocket& operator=(StartupSocket&& other) noexcept;
  ~StartupSocket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  void abort();   // with RST
  int release();  // the caller takes the fd; nobody watches it any more; -1 in a child that inherited it

  // Octets, 0 at the stream's end, or -errno.
  long receive(MutableOctets into, int flags = 0) const;
  long send(Octets data) const;

  static void close_all_in_child();

 private:
  int fd_ = -1;
};

struct SocketName {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
SocketName socket_name(const ibv_gid& gid, std::uint16_t port, unsigned interface);
ibv_gid gid_of_peer(int fd);  // zero if it has none
bool is_ipv4(const ibv_gid& gid);
std::string text_of(const ibv_gid& gid);

// llp::tune_stream() with our options.
void tune_startup_socket(int fd, bool peer_is_local);

// What the reactor calls: f(object) with the engine held, if the object still lives. object: a shared_ptr or weak_ptr.
template <class Ref, class F>
auto with_engine(const Ref& object, F f) {
  return [weak = std::weak_ptr(object), f](auto...) {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    engine().enter();
    f(*alive);
    engine().leave();
  };
}

}  // namespace ewarp::verbs
