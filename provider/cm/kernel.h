// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The kernel's own rdma_cm, where a machine has RDMA hardware: librdmacm opens one channel and expects every device
// behind it. Each channel of ours then has one of the kernel's beside it, and each id exists in both, under the number
// that the kernel gave it. The first address that an id is given decides whose it is: ours where one of our devices
// has the address, or the route to it; else the kernel's, which gets the consumer's commands as they are.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace ewarp::cm {

// Whose an id is. Ids of a channel without a kernel beside it are always `ours`.
enum class Claim : std::uint8_t {
  undecided,  // no address yet, or the unspecified one
  ours,
  kernel,
  both,  // listens on the unspecified address
};

// The two system calls, so that tests can stand in for the kernel.
struct KernelCalls {
  int (*open)();                                                    // the fd, non-blocking, or -errno
  ssize_t (*write)(int fd, const void* command, std::size_t size);  // as write(2), -errno on failure
};
extern KernelCalls kernel_calls;

// One channel of the kernel's. Threading: as a file descriptor.
class KernelChannel {
 public:
  // Null with 0: this process has no kernel rdma_cm. That is settled by the first call: numbers of ids must come from
  // one place. Null with an errno: out of descriptors or memory.
  static int open(std::unique_ptr<KernelChannel>* out);
  explicit KernelChannel(int fd) : fd_(fd) {}
  ~KernelChannel();
  KernelChannel(const KernelChannel&) = delete;
  KernelChannel& operator=(const KernelChannel&) = delete;

  // Non-blocking; readable while the kernel has an event.
  int fd() const { return fd_; }
  // All return 0 or errno. Of the kernel's own commands none waits but destroy_id(), for its callbacks on that id.
  int write(const void* command, std::size_t size) const;
  int create_id(std::uint64_t uid, std::uint16_t port_space, std::uint8_t qp_type, std::uint32_t* number) const;
  // *events_reported: how many events of the id the kernel handed out; added.
  int destroy_id(std::uint32_t number, std::uint32_t* events_reported) const;
  int migrate(const KernelChannel& from, std::uint32_t number, std::uint32_t* events_reported) const;

 private:
  const int fd_;
};

}  // namespace ewarp::cm
