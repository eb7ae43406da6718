// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the peer did wrong, in the words that a Terminate message carries (RFC 5040 section 4.8 and figure 9, RFC 5041
// section 7, RFC 5044 section 8, RFC 6581 section 8). Errors of our own travel as "local catastrophic" alone, which
// says no more; here they are an errno or a completion status.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

namespace ewarp {

enum class Layer : std::uint8_t { rdmap = 0, ddp = 1, llp = 2 };

struct Fault {
  Layer layer;
  std::uint8_t type;
  std::uint8_t code;
  bool operator==(const Fault&) const = default;
};

namespace fault {
// RDMAP, RFC 5040 section 4.8.
inline constexpr Fault kRdmapLocalCatastrophic{Layer::rdmap, 0, 0x00};
inline constexpr Fault kRdmapInvalidStag{Layer::rdmap, 1, 0x00};
inline constexpr Fault kRdmapBounds{Layer::rdmap, 1, 0x01};
inline constexpr Fault kRdmapAccess{Layer::rdmap, 1, 0x02};
inline constexpr Fault kRdmapNotAssociated{Layer::rdmap, 1, 0x03};
inline constexpr Fault kRdmapWrap{Layer::rdmap, 1, 0x04};
inline constexpr Fault kRdmapCannotInvalidate{Layer::rdmap, 1, 0x09};
inline constexpr Fault kRdmapVersion{Layer::rdmap, 2, 0x05};
inline constexpr Fault kRdmapOpcode{Layer::rdmap, 2, 0x06};
inline constexpr Fault kRdmapStreamCatastrophic{Layer::rdmap, 2, 0x07};
inline constexpr Fault kRdmapUnspecified{Layer::rdmap, 2, 0xff};
// DDP, RFC 5041 section 7.2.
inline constexpr Fault kDdpLocalCatastrophic{Layer::ddp, 0, 0x00};
inline constexpr Fault kDdpInvalidStag{Layer::ddp, 1, 0x00};
inline constexpr Fault kDdpBounds{Layer::ddp, 1, 0x01};
inline constexpr Fault kDdpNotAssociated{Layer::ddp, 1, 0x02};
inline constexpr Fault kDdpWrap{Layer::ddp, 1, 0x03};
inline constexpr Fault kDdpTaggedVersion{Layer::ddp, 1, 0x04};
inline constexpr Fault kDdpInvalidQn{Layer::ddp, 2, 0x01};
inline constexpr Fault kDdpNoBuffer{Layer::ddp, 2, 0x02};
inline constexpr Fault kDdpMsnRange{Layer::ddp, 2, 0x03};
inline constexpr Fault kDdpInvalidMo{Layer::ddp, 2, 0x04};
inline constexpr Fault kDdpTooLong{Layer::ddp, 2, 0x05};
inline constexpr Fault kDdpUntaggedVersion{Layer::ddp, 2, 0x06};
// MPA, RFC 5044 section 8 and RFC 6581 section 8.
inline constexpr Fault kMpaLost{Layer::llp, 0, 0x01};
inline constexpr Fault kMpaCrc{Layer::llp, 0, 0x02};
inline constexpr Fault kMpaMarker{Layer::llp, 0, 0x03};
inline constexpr Fault kMpaStartup{Layer::llp, 0, 0x04};
inline constexpr Fault kMpaLocalCatastrophic{Layer::llp, 0, 0x05};
inline constexpr Fault kMpaInsufficientIrd{Layer::llp, 0, 0x06};
inline constexpr Fault kMpaNoRtr{Layer::llp, 0, 0x07};
}  // namespace fault

// A value or the reason why there is none (std::expected, once C++23 may be used).
template <class T, class E = Fault>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(E error) : v_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  const T& value() const { return std::get<0>(v_); }
  T& value() { return std::get<0>(v_); }
  const E& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, E> v_;
};

}  // namespace ewarp
