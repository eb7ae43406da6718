// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which small buffers are used so often that registering them costs less than copying them each time (Rashti 2010,
// chapter 5). Pure: no memory is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ewarp::channel {

// Of this machine and adapter, in nanoseconds.
struct MemoryCosts {
  double registration_ns = 20'000;  // of a small buffer, with its end
  double copy_ns_per_octet = 0.1;
  double lookup_ns = 50;  // what the method itself costs per use
};

class FrequentBuffers {
 public:
  static constexpr std::size_t kWays = 8;
  static constexpr std::size_t kSets = std::size_t{1} << 17;

  // fraction: of the uses that pay for the registration, after how many it is done, hoping for the rest.
  // sets: of kWays buffers each; so many are counted at most. Memory: 8 octets a buffer, a page when it is first used.
  explicit FrequentBuffers(const MemoryCosts& costs, double fraction = 0.25, std::size_t sets = kSets);

  // One more use. True: it is one to register, if it is not registered yet.
  bool used(const void* buffer, std::size_t octets);
  // It could not be registered: its uses are counted anew.
  void in_vain(const void* buffer, std::size_t octets);
  // How many uses make a buffer of this size worth registering; 0: none do.
  std::uint32_t threshold(std::size_t octets) const;

 private:
  // The upper 40 bits tell buffers of a set apart, the lower ones are the uses; no uses: free. Two buffers that are
  // taken for one are counted together, so one may be registered early.
  using Entry = std::uint64_t;
  static constexpr int kUseBits = 24;
  static constexpr Entry kUses = (Entry{1} << kUseBits) - 1;
  // One line of the cache.
  struct alignas(64) Set {
    Entry ways[kWays];
  };
  struct Unmap {
    std::size_t octets;
    void operator()(Set* sets) const;
  };
  static std::unique_ptr<Set[], Unmap> zeroes(std::size_t sets);

  struct Place {
    Set& set;
    Entry tag;  // without uses
  };
  Place place_of(const void* buffer, std::size_t octets);

  MemoryCosts costs_;
  double fraction_;
  int set_bits_;
  std::unique_ptr<Set[], Unmap> sets_;
};

}  // namespace ewarp::channel
