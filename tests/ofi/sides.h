// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Endpoints of the provider etherwarp in one process, and what tests do with them again and again. Everything that
// waits has an end.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}
#undef fail

namespace ewarp::ofi::test {

inline constexpr int kPatienceMs = 20'000;

using Bytes = std::vector<std::uint8_t>;
Bytes pattern(unsigned seed, std::size_t size);

// Values that libfabric 2 names with a warning, or not at all.
inline constexpr int kOldUnspecified = 0, kOldBasic = 1 << 0;  // of mr_mode
inline constexpr std::uint64_t kOrderStrict = 0x1FF;

// Sizes that take every protocol of the channel.
inline constexpr std::size_t kSizes[] = {0, 1, 8, 200, 5000, 20'000, 300'000};

// libfabric's answer to hints, freed at the end. Null: -FI_ENODATA.
class Info {
 public:
  explicit Info(const fi_info* hints = nullptr, const char* node = nullptr, const char* service = nullptr,
                std::uint64_t flags = 0, std::uint32_t version = FI_VERSION(1, 17));
  ~Info() { fi_freeinfo(list_); }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
  fi_info* get() const { return list_; }
  fi_info* operator->() const { return list_; }
  int error() const { return error_; }

 private:
  fi_info* list_ = nullptr;
  int error_;
};

// Hints for this provider at 127.0.0.1 that allow everything.
class Hints {
 public:
  explicit Hints(std::uint64_t caps = 0);
  ~Hints() { fi_freeinfo(hints_); }
  Hints(const Hints&) = delete;
  Hints& operator=(const Hints&) = delete;
  fi_info* operator->() const { return hints_; }
  fi_info* get() const { return hints_; }

 private:
  fi_info* hints_;
};

void must(long result, const char* what);
#define MUST(call) ::ewarp::ofi::test::must((call), #call)

struct SideOptions {
  fi_cq_format format = FI_CQ_FORMAT_TAGGED;
  fi_wait_obj wait = FI_WAIT_FD;
  fi_av_type addresses = FI_AV_MAP;
  std::uint64_t bind_flags = 0;  // FI_SELECTIVE_COMPLETION
  std::uint64_t send_flags = 0;  // of the endpoint
  std::uint64_t receive_flags = 0;
  bool counters = false;
  const char* service = nullptr;              // the port; null: any
  std::uint32_t version = FI_VERSION(1, 17);  // before 1.5: without RMA
};

// An endpoint with queues of its own, in a domain of its own or of another side.
class Side {
 public:
  explicit Side(const SideOptions& options = {}, Side* in_domain_of = nullptr);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // The address of another side for this one.
  fi_addr_t insert(const Side& other);
  std::vector<std::uint8_t> name() const;

  // The next entry of a queue; whatever there is besides is an error of the test.
  fi_cq_tagged_entry completion(fid_cq* queue);
  fi_cq_err_entry failure(fid_cq* queue);
  bool quiet(fid_cq* queue);
  fi_cq_tagged_entry sent() { return completion(send_queue); }
  fi_cq_tagged_entry received() { return completion(receive_queue); }

  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* addresses = nullptr;
  fid_cq *send_queue = nullptr, *receive_queue = nullptr;
  fid_cntr *sends = nullptr, *receives = nullptr, *reads = nullptr, *writes = nullptr;
  fid_ep* ep = nullptr;

 private:
  bool owns_domain_;
};

// Two sides in one domain that know each other.
struct Pair {
  explicit Pair(const SideOptions& options = {});
  Side a, b;
  fi_addr_t to_a, to_b;  // for the other one
};

// Memory that is registered for everything.
class Registered {
 public:
  Registered(const Side& side, std::size_t size, std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE);
  ~Registered() { fi_close(&region->fid); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(octets.data()); }
  std::uint64_t key() const { return fi_mr_key(region); }
  Bytes octets;
  fid_mr* region = nullptr;
};

int echo(int reads, int writes);

// Tests by subject.
std::vector<CMUnitTest> address_tests();
std::vector<CMUnitTest> atomic_tests();
std::vector<CMUnitTest> info_tests();
std::vector<CMUnitTest> memory_tests();
std::vector<CMUnitTest> message_tests();
std::vector<CMUnitTest> multi_receive_tests();
std::vector<CMUnitTest> peek_tests();
std::vector<CMUnitTest> queue_tests();
std::vector<CMUnitTest> rma_tests();
std::vector<CMUnitTest> set_tests();
std::vector<CMUnitTest> thread_tests();

}  // namespace ewarp::ofi::test
