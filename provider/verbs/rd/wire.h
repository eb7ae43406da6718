// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The reliable service's way to the socket: its frames are gathered and leave together.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "llp/rd/upper.h"
#include "provider/verbs/rd/paths.h"
#include "provider/verbs/ud/port.h"

namespace ewarp::verbs {

// A frame is headers, copied here, and payload: copied if it is short or in no region, else named only, and entered,
// read for the CRC and handed to the kernel in flush(). Between the two anything may happen to it; what is no longer
// registered then, or was given back to its owner, is not sent. Nothing is allocated after construction.
// Threading: engine held.
class RdWire final : public llp::rd::Wire, public DatagramSender {
 public:
  // route(to, number of the sending queue pair): null, the frame is dropped.
  using Route = std::function<const RdPath*(const llp::rd::Address&, std::uint32_t)>;
  RdWire(DatagramPort& port, Route route);

  void send(const llp::rd::Address& to, const llp::rd::Frame& frame) override;
  // To the kernel. Where it has no room the rest waits until it has.
  void flush();
  bool transmit() override;
  // Whose memory they name gets it back: what the kernel has no room for now is lost.
  void let_go();
  // The same for the memory of a message that its peer has: what names it still is not needed. An acknowledgement that
  // such a frame carried is lost with it, as on the way.
  void acknowledged(const llp::rd::MessageId& message);
  bool empty() const { return count_ == 0; }

  // Hosts that refused datagrams of a size that their path was thought to carry, since the last call.
  std::vector<sockaddr_in6> take_refused();

 private:
  static constexpr std::size_t kFrames = 256, kPieces = 4096, kArena = 512 * 1024;
  struct Pending {
    llp::UdpDestination to;
    std::size_t head, head_size;  // in arena_; with a copied payload and its CRC; 0: not to be sent
    std::size_t first, pieces;    // in pieces_
    llp::rd::MessageId message;   // that these are of
    bool crc;                     // to be computed
    bool fragments;               // may be cut by IP
  };
  bool has_room(std::size_t octets, std::size_t pieces) const;
  bool copy_payload(Pending& p, std::span<const llp::Extent> payload, std::size_t octets);
  std::size_t gather(bool fragments);
  bool append(llp::UdpOutbox& out, const Pending& p);
  bool settle(std::size_t sent, std::size_t built, int error);
  void clear();

  DatagramPort& port_;
  Route route_;
  std::unique_ptr<std::byte[]> arena_;
  std::vector<Pending> frames_;
  std::vector<llp::Extent> pieces_;
  std::size_t count_ = 0, arena_used_ = 0, pieces_used_ = 0;
  std::size_t next_ = 0;  // the first that was not sent
  std::array<std::size_t, llp::UdpOutbox::kMessages> built_{};
  std::vector<sockaddr_in6> refused_;
};

}  // namespace ewarp::verbs
