// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the tests of the suite stand on: objects of the provider that was named, and what is done with them again and
// again. Nothing here is particular to a provider: the suite holds what libfabric's manual pages say.
#pragma once

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}
#undef fail

namespace ewarp::ofi::suite {

inline constexpr int kPatienceMs = 20'000;
inline constexpr const char* kNode = "127.0.0.1";

// Of mr_mode. libfabric 2 names them with a warning.
inline constexpr int kOldUnspecified = 0, kOldBasic = 1 << 0, kOldScalable = 1 << 1;

// "etherwarp", "tcp;ofi_rxm"
extern std::string provider;

// Not one of libfabric's own, which read a program's mistakes in ways of their own, or crash.
bool ours();
#define ONLY_OURS() \
  if (!ours()) skip()

void must(long result, const char* what);
#define MUST(call) ::ewarp::ofi::suite::must((call), #call)
// The provider may lack it, and says so.
#define MUST_OR_SKIP(call)                                                                \
  do {                                                                                    \
    const long result_ = (call);                                                          \
    if (result_ == -FI_ENOSYS || result_ == -FI_EOPNOTSUPP) {                             \
      print_message("skipped: %s: %s\n", #call, fi_strerror(static_cast<int>(-result_))); \
      skip();                                                                             \
    }                                                                                     \
    must(result_, #call);                                                                 \
  } while (false)

// For this provider; everything else is allowed.
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

class Answer {
 public:
  Answer(const fi_info* hints, const char* node, const char* service, std::uint64_t flags,
         std::uint32_t version = FI_VERSION(1, 17));
  explicit Answer(const Hints& hints) : Answer(hints.get(), nullptr, nullptr, 0) {}
  ~Answer() { fi_freeinfo(list_); }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  fi_info* get() const { return list_; }
  fi_info* operator->() const { return list_; }
  int error() const { return error_; }
  // At least one, and for all.
  void all(const std::function<void(const fi_info&)>& check) const;

 private:
  fi_info* list_ = nullptr;
  int error_;
};

// A fabric and a domain at kNode.
struct Bed {
  explicit Bed(std::uint64_t caps = FI_MSG | FI_TAGGED);
  ~Bed();
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
};

// Closed at the end, which has to succeed.
template <class T>
class Owned {
 public:
  Owned() = default;
  ~Owned() { close(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T** out() { return &object_; }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  fid& f() const { return object_->fid; }
  void close() {
    if (object_ != nullptr) MUST(fi_close(&object_->fid));
    object_ = nullptr;
  }

 private:
  T* object_ = nullptr;
};

// An endpoint with a queue and an address vector, which knows itself.
struct Speaker {
  explicit Speaker(const Bed& bed, fid_wait* set = nullptr);
  // A message to oneself, and its receive. Not waited for.
  void speak();
  // Reads the ends of both.
  void hear();

  Owned<fid_av> addresses;
  Owned<fid_cq> queue;
  Owned<fid_cntr> sends;
  Owned<fid_ep> ep;
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  std::uint64_t out = 1, in = 0;
};

sockaddr_in at(const char* ip, std::uint16_t port);
// Until it is true.
void until(const std::function<bool()>& what);

using Tests = std::vector<CMUnitTest>;
Tests info_tests();
Tests domain_tests();
Tests address_tests();
Tests event_tests();
Tests completion_tests();
Tests counter_tests();
Tests memory_tests();
Tests set_tests();

}  // namespace ewarp::ofi::suite
