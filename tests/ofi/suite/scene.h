// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Endpoints that know each other, and what becomes of their requests. A provider may leave progress to the program, so
// everybody's queues are read whoever is waited for.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include <deque>
#include <memory>
#include <optional>

#include "tests/ofi/suite/bed.h"

namespace ewarp::ofi::suite {

using Octets = std::vector<std::uint8_t>;
Octets pattern(std::size_t seed, std::size_t size);

// Sizes at the bounds of what providers do in different ways.
inline constexpr std::size_t kSizes[] = {0,    1,    2,    7,     8,     63,    64,    65,     255,          1000,
                                         4095, 4096, 4097, 16383, 16384, 16385, 65536, 100003, (1 << 20) + 3};

struct EndOptions {
  fi_cq_format format = FI_CQ_FORMAT_TAGGED;
  fi_wait_obj wait = FI_WAIT_NONE;
  fi_av_type addresses = FI_AV_MAP;
  std::uint64_t send_flags = 0, receive_flags = 0;  // of the binding: FI_SELECTIVE_COMPLETION
  std::size_t queue_size = 0;
  bool counters = false;
};

// The end of a request.
struct Ended {
  fi_cq_tagged_entry entry{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  int error = 0;
  std::size_t lost = 0;  // octets
};

struct End {
  End(const Bed& bed, const EndOptions& options);
  // Reads what there is.
  void progress();
  Octets name() const;
  fi_addr_t insert(const End& other) { return insert(other.name()); }
  fi_addr_t insert(const Octets& name);

  Owned<fid_av> addresses;
  Owned<fid_cq> send_queue, receive_queue;
  Owned<fid_cntr> sends, receives, reads, writes;
  Owned<fid_ep> ep;
  std::deque<Ended> sent, received;

 private:
  static void read(fid_cq* queue, std::deque<Ended>& out);
};

class Scene {
 public:
  explicit Scene(std::uint64_t caps = FI_MSG | FI_TAGGED, const EndOptions& options = {}, std::size_t ends = 2);

  // The address of one for another.
  fi_addr_t to(std::size_t from, std::size_t other) const { return to_[from][other]; }
  End& operator[](std::size_t i) { return *ends_[i]; }
  std::size_t size() const { return ends_.size(); }
  void close(std::size_t i) { ends_[i].reset(); }
  // New at each call: a request in flight needs one of its own.
  void* context() { return &contexts_.emplace_back(); }

  void progress();
  // Until the provider takes the request.
  void post(const std::function<long()>& request);
#define POST(scene, call) (scene).post([&]() -> long { return (call); })
  // The next end of a request, which is no error.
  fi_cq_tagged_entry sent(std::size_t i) {
    return good(next((*this)[i].sent));
  }
  fi_cq_tagged_entry received(std::size_t i) {
    return good(next((*this)[i].received));
  }
  Ended next(std::deque<Ended>& queue);
  // Nothing comes for a while.
  void stays_quiet(std::deque<Ended>& queue);

  const Bed bed;

 private:
  static fi_cq_tagged_entry good(const Ended& e);
  std::deque<fi_context2> contexts_;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::vector<fi_addr_t>> to_;
};

// The caps of a provider, if they are there. Skips the test otherwise.
void need(std::uint64_t caps);

// Memory that peers reach, between octets that nobody may touch.
class Exposed {
 public:
  Exposed(const Scene& scene, std::size_t size, std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE);
  std::uint8_t* data() { return octets_.data() + kGuard; }
  std::size_t size() const { return octets_.size() - 2 * kGuard; }
  Octets content() { return {data(), data() + size()}; }
  // As peers name it.
  std::uint64_t address(std::size_t offset = 0);
  std::uint64_t key() { return fi_mr_key(region_.get()); }
  void check_guards() const;

 private:
  static constexpr std::size_t kGuard = 64;
  Octets octets_;
  const bool by_address_;
  Owned<fid_mr> region_;
};

Tests message_tests();
Tests matching_tests();
Tests traffic_tests();
Tests rma_tests();
Tests atomic_tests();

}  // namespace ewarp::ofi::suite
