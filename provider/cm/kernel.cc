// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cm/kernel.h"

#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "llp/fd.h"
#include "provider/cm/socket.h"

namespace ewarp::cm {
namespace {

// Past the hooks of the preload library, which would send us in circles.
int open_kernel_cm() {
  const long fd = syscall(SYS_openat, AT_FDCWD, "/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  return fd < 0 ? -errno : static_cast<int>(fd);
}

ssize_t write_kernel_cm(int fd, const void* command, std::size_t size) {
  const long written = raw_write(fd, command, size);
  return written < 0 ? -errno : static_cast<ssize_t>(written);
}

template <class T>
struct Packet {
  rdma_ucm_cmd_hdr header{};
  T body{};
};

template <class T, class Response>
Packet<T> packet(std::uint32_t command, Response* response) {
  Packet<T> p;
  p.header.cmd = command;
  p.header.in = sizeof(T);
  p.header.out = sizeof(Response);
  p.body.response = reinterpret_cast<std::uintptr_t>(response);
  return p;
}

enum class Presence { unknown, absent, present };
std::atomic<Presence> presence{Presence::unknown};

}  // namespace

KernelCalls kernel_calls = {open_kernel_cm, write_kernel_cm};

int KernelChannel::open(std::unique_ptr<KernelChannel>* out) {
  if (presence == Presence::absent) return 0;
  const int fd = kernel_calls.open();
  if (fd < 0) {
    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || presence == Presence::present) return -fd;
    presence = Presence::absent;
    return 0;
  }
  presence = Presence::present;
  *out = std::make_unique<KernelChannel>(llp::high_fd(fd));
  return 0;
}

KernelChannel::~KernelChannel() {
  raw_close(fd_);
}

int KernelChannel::write(const void* command, std::size_t size) const {
  const ssize_t written = kernel_calls.write(fd_, command, size);
  return written < 0 ? static_cast<int>(-written) : 0;
}

int KernelChannel::create_id(std::uint64_t uid, std::uint16_t port_space, std::uint8_t qp_type,
                             std::uint32_t* number) const {
  rdma_ucm_create_id_resp response{};
  auto p = packet<rdma_ucm_create_id>(RDMA_USER_CM_CMD_CREATE_ID, &response);
  p.body.uid = uid;
  p.body.ps = port_space;
  p.body.qp_type = qp_type;
  const int error = write(&p, sizeof(p));
  *number = response.id;
  return error;
}

int KernelChannel::destroy_id(std::uint32_t number, std::uint32_t* events_reported) const {
  rdma_ucm_destroy_id_resp response{};
  auto p = packet<rdma_ucm_destroy_id>(RDMA_USER_CM_CMD_DESTROY_ID, &response);
  p.body.id = number;
  const int error = write(&p, sizeof(p));
  *events_reported += response.events_reported;
  return error;
}

int KernelChannel::migrate(const KernelChannel& from, std::uint32_t number, std::uint32_t* events_reported) const {
  rdma_ucm_migrate_resp response{};
  auto p = packet<rdma_ucm_migrate_id>(RDMA_USER_CM_CMD_MIGRATE_ID, &response);
  p.body.id = number;
  p.body.fd = static_cast<std::uint32_t>(from.fd());
  const int error = write(&p, sizeof(p));
  *events_reported += response.events_reported;
  return error;
}

}  // namespace ewarp::cm
