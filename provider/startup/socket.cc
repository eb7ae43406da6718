// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/startup/socket.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "llp/tcp.h"
#include "llp/tcp_stream.h"
#include "provider/engine/reactor.h"

namespace ewarp::verbs {
namespace {

FdRegistry& open_sockets() {
  static constinit FdRegistry registry;
  return registry;
}

// Until a stream has it, a child closes what belongs to it with the sockets.
std::unique_ptr<llp::LocalAgreement> listed(std::unique_ptr<llp::LocalAgreement> local) {
  if (local == nullptr) return nullptr;
  for (const int fd : local->descriptors()) open_sockets().add(fd);
  return local;
}

std::unique_ptr<llp::LocalAgreement> unlisted(std::unique_ptr<llp::LocalAgreement> local) {
  if (local == nullptr) return nullptr;
  for (const int fd : local->descriptors()) open_sockets().remove(fd);
  return local;
}

}  // namespace

bool FdRegistry::add(int fd) {
  if (fd < 0 || fd >= kLimit) return false;
  words_[fd / 64].fetch_or(std::uint64_t{1} << (fd % 64), std::memory_order_release);
  int seen = highest_.load(std::memory_order_relaxed);
  while (seen < fd && !highest_.compare_exchange_weak(seen, fd, std::memory_order_release)) {
  }
  return true;
}

bool FdRegistry::remove(int fd) {
  if (fd < 0) return false;
  if (fd >= kLimit) return true;
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  return (words_[fd / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0;
}

bool FdRegistry::contains(int fd) const {
  return fd >= 0 && fd < kLimit && (words_[fd / 64].load(std::memory_order_acquire) >> (fd % 64) & 1) != 0;
}

Socket::Socket(int fd) : fd_(fd) {
  open_sockets().add(fd);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    local_ = std::move(other.local_);
  }
  return *this;
}

int Socket::release() {
  const int fd = std::exchange(fd_, -1);
  if (!open_sockets().remove(fd)) return -1;
  reactor().unwatch(fd);
  return fd;
}

std::unique_ptr<llp::Stream> Socket::release_stream() {
  auto local = unlisted(std::move(local_));
  return llp::tcp_stream(release(), std::move(local));
}

bool Socket::listen_locally() {
  local_ = listed(llp::LocalAgreement::listen(fd_));
  return local_ != nullptr;
}

bool Socket::connect_locally() {
  local_ = listed(llp::LocalAgreement::connect(fd_));
  return local_ != nullptr;
}

void Socket::stay_with_tcp() {
  unlisted(std::move(local_)).reset();
}

void Socket::close() {
  stay_with_tcp();
  const int fd = release();
  if (fd < 0) return;
  // A poll that the kernel has not cancelled yet keeps the socket alive beyond close(): say now that it ends.
  ::shutdown(fd, SHUT_RDWR);
  raw_close(fd);
}

void Socket::abort() {
  stay_with_tcp();
  if (!open_sockets().contains(fd_)) return;
  llp::reset_connection(fd_);
  close();
}

long Socket::receive(MutableOctets into, int flags) const {
  return llp::receive_now(fd_, into, flags);
}

long Socket::send(Octets data) const {
  return llp::send_now(fd_, data);
}

void Socket::close_all_in_child() {
  open_sockets().for_each([](int fd) {
    open_sockets().remove(fd);
    raw_close(fd);
  });
}

void raw_close(int fd) {
  syscall(SYS_close, fd);
}

}  // namespace ewarp::verbs
