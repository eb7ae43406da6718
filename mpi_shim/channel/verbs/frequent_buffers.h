// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which small buffers are used so often that registering them costs less than copying them each time (Rashti 2010,
// chapter 5). Pure: no memory is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ewarp::channel {

// Of this machine and adapter, in nanoseconds.
struct MemoryCosts {
  double registration_ns = 20'000;  // of a small buffer, with its end
  double copy_ns_per_octet = 0.1;
  double lookup_ns = 50;  // what the method itself costs per use
};

class FrequentBuffers {
 public:
  // fraction: of the uses that pay for the registration, after how many it is done, hoping for the rest.
  // sets: of kWays buffers each; so many are counted at most.
  explicit FrequentBuffers(const MemoryCosts& costs, double fraction = 0.25, std::size_t sets = 512);

  // One more use. True: it is one to register, if it is not registered yet.
  bool used(const void* buffer, std::size_t octets);
  // How many uses make a buffer of this size worth registering; 0: none do.
  std::uint32_t threshold(std::size_t octets) const;

  static constexpr std::size_t kWays = 8;

 private:
  // uses == 0: free.
  struct Entry {
    const void* buffer = nullptr;
    std::size_t octets = 0;
    std::uint32_t uses = 0;
  };

  MemoryCosts costs_;
  double fraction_;
  std::vector<Entry> entries_;  // sets, a power of two, of kWays
};

}  // namespace ewarp::channel
