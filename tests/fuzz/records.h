// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Inputs that are a head and a list of records of one size: what targets that are told deeds, not octets, are given.
// The mutator works on whole records and on fields of one, so that what it makes of a conversation is a conversation.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/fuzz/fuzz.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace ewarp::fuzz {

// Head: octets in front of the records. Record: octets of one; what is missing at the end of the input is zero.
template <std::size_t Head, std::size_t Record>
class Records {
 public:
  static constexpr std::size_t kHead = Head, kRecord = Record;
  Records(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::array<std::uint8_t, Head> head() const { return piece<Head>(0); }
  std::size_t count() const { return size_ <= Head ? 0 : (size_ - Head + Record - 1) / Record; }
  std::array<std::uint8_t, Record> operator[](std::size_t i) const { return piece<Record>(Head + i * Record); }

  // The body of a LLVMFuzzerCustomMutator.
  static std::size_t mutate(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
    std::minstd_rand random(seed);
    random.discard(4);
    const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
    const std::size_t most = max_size < Head ? 0 : (max_size - Head) / Record;
    if (most == 0) return LLVMFuzzerMutate(data, size, max_size);
    if (size < Head) {
      std::fill(data + size, data + Head, std::uint8_t{0});
      size = Head;
    }
    std::size_t n = std::min(most, (size - Head) / Record);
    const auto at = [&](std::size_t i) { return data + Head + i * Record; };
    const auto make_room = [&](std::size_t i) {
      std::memmove(at(i + 1), at(i), (n - i) * Record);
      ++n;
    };
    for (std::size_t times = 1 + below(3); times > 0; --times) {
      const std::size_t i = below(n), j = below(n);
      switch (n == 0 ? 4 : below(10)) {
        case 0:  // one less
          std::memmove(at(i), at(i + 1), (n - i - 1) * Record);
          --n;
          break;
        case 1:  // one twice
          if (n < most) make_room(i), std::memcpy(at(i), at(i + 1), Record);
          break;
        case 2:  // one at another place, too
          if (n < most) {
            std::array<std::uint8_t, Record> copy;
            std::memcpy(copy.data(), at(j), Record);
            make_room(i);
            std::memcpy(at(i), copy.data(), Record);
          }
          break;
        case 3:  // two change places
          std::swap_ranges(at(i), at(i) + Record, at(j));
          break;
        case 4:  // a new one
          if (n < most) {
            make_room(i);
            std::generate_n(at(i), Record, [&] { return below(3) == 0 ? static_cast<std::uint8_t>(random()) : 0; });
          }
          break;
        case 5:  // the head
          LLVMFuzzerMutate(data, Head, Head);
          break;
        default:  // fields of one
          LLVMFuzzerMutate(at(i), Record, Record);
          break;
      }
    }
    return Head + n * Record;
  }

 private:
  template <std::size_t N>
  std::array<std::uint8_t, N> piece(std::size_t at) const {
    std::array<std::uint8_t, N> out{};
    if (at < size_) std::memcpy(out.data(), data_ + at, std::min(N, size_ - at));
    return out;
  }
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace ewarp::fuzz

// Makes the mutator of this kind of records the program's.
#define FUZZ_MUTATES(Kind)                                                                              \
  extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max, \
                                                 unsigned int seed) {                                   \
    return Kind::mutate(data, size, max, seed);                                                         \
  }
