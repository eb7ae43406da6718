// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the parts of ewarp_limits share: objects of libibverbs that end themselves, and queue pairs that are joined by
// address within the process.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "possessions.h"

namespace limits {

using Clock = std::chrono::steady_clock;

// For what must come soon, on a machine that may take all CPUs away for seconds.
inline constexpr std::chrono::seconds kPatience{60};

[[noreturn]] inline void give_up(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

inline void must(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// For calls that return 0 or an errno, and those of rdma_cm that return -1 and set errno.
inline void checked(int result, const char* what) {
  if (result > 0) errno = result;
  if (result != 0) give_up(what);
}

template <class T>
T* needed(T* p, const char* what) {
  if (p == nullptr) give_up(what);
  return p;
}

template <auto kFunction>
struct By {
  template <class T>
  void operator()(T* p) const {
    kFunction(p);
  }
};
using Cq = std::unique_ptr<ibv_cq, By<ibv_destroy_cq>>;
using Mr = std::unique_ptr<ibv_mr, By<ibv_dereg_mr>>;
using Pd = std::unique_ptr<ibv_pd, By<ibv_dealloc_pd>>;
using Qp = std::unique_ptr<ibv_qp, By<ibv_destroy_qp>>;
using Verbs = std::unique_ptr<ibv_context, By<ibv_close_device>>;

inline double ms_since(Clock::time_point then) {
  return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

// How long something took, and how much of the CPU: on a busy machine the second is the better measure.
struct Stopwatch {
  Clock::time_point began = Clock::now();
  double cpu = cpu_seconds();

  void say(const char* what, double count, const char* unit) const {
    std::printf("%s: %.1f us, %.1f us of CPU per %s\n", what, ms_since(began) * 1000 / count,
                (cpu_seconds() - cpu) * 1e6 / count, unit);
  }
};

// The loopback device with a protection domain.
struct Loopback {
  Verbs verbs;
  Pd pd;
  ibv_gid gid{};

  Loopback();
  Cq cq(int entries) const {
    return Cq(needed(ibv_create_cq(verbs.get(), entries, nullptr, nullptr, 0), "ibv_create_cq"));
  }
  Mr region(std::span<std::byte> octets) const {
    return Mr(needed(ibv_reg_mr(pd.get(), octets.data(), octets.size(),
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
                     "ibv_reg_mr"));
  }
  Qp qp(ibv_cq* cq, std::uint32_t depth) const;
};

void to_init(ibv_qp* qp);
// To RTR and RTS, with the address of the other.
void join(const Loopback& device, ibv_qp* qp, std::uint32_t peer);
// The next completion, which must be a good one.
ibv_wc next(ibv_cq* cq);

// The roles, by the files they are in.
void many_server(const char* port, std::uint32_t count, std::uint32_t rounds);  // limits_many.cc
void many_client(const char* port, std::uint32_t count, std::uint32_t rounds);

}  // namespace limits
