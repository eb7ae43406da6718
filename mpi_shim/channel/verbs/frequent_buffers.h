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
  explicit FrequentBuffers(const MemoryCosts& costs, double fraction = 0.25, std::size_t buckets = 4096);

  // One more use. True: it is one to register, if it is not registered yet.
  bool used(const void* buffer, std::size_t octets);
  // How many uses make a buffer of this size worth registering; 0: none do.
  std::uint32_t threshold(std::size_t octets) const;
  std::size_t known() const { return entries_.size(); }
  std::size_t hot() const { return hot_; }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  struct Entry {
    const void* buffer;
    std::size_t octets;
    std::uint32_t uses;
    std::uint32_t next;  // of the same bucket
  };
  // The table takes no more where that would make searching slow for little use.
  bool may_grow(std::uint32_t bucket) const;

  MemoryCosts costs_;
  double fraction_;
  std::vector<std::uint32_t> buckets_;
  std::vector<Entry> entries_;
  std::size_t hot_ = 0, chained_ = 0;
};

}  // namespace ewarp::channel
