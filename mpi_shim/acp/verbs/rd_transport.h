// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One queue pair of reliable datagrams for all peers (docs/design/rd.md): an address handle for each peer that is
// talked to, and nothing else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mpi_shim/acp/verbs/device.h"

namespace ewarp::acp {

class RdTransport final : public Transport {
 public:
  static constexpr std::uint32_t kReceives = 1024;  // notices that wait to be polled; peers wait for more
  static constexpr std::uint32_t kCopied = 256;     // octets

  // qkey: of all processes of the job. Empty, or why not.
  std::string open(const std::string& device, bool prefer_loopback, std::uint32_t qkey);
  ~RdTransport() override;

  bool register_memory(void* memory, std::size_t octets, Registration* out) override {
    return device_.register_memory(memory, octets, out);
  }
  void deregister(void* handle) override { Device::deregister(handle); }
  Registration registration(void* handle) const override { return Device::registration(handle); }
  void introduce(Contact* out) const override;
  bool fits(const Contact& contact) const override { return (contact.qpn & Contact::kListens) == 0; }
  std::uint32_t room() const override { return kSends - under_way_; }
  void post(Peer& to, const Post& post) override;
  std::uint32_t most_copied() const override { return kCopied; }
  int poll(Completion* out, int most) override;
  int descriptor() const override { return device_.descriptor(); }
  void arm() override { device_.arm(); }
  void drain() override { device_.drain(); }
  void forget(Peer& peer) override;

 private:
  std::string create_queue_pair();
  bool bring_up();
  ibv_ah* path_to(Peer& peer);
  int build(Peer& to, const Post& p);
  void begin_operation(const Post& p);
  void post_receives();
  bool take(const ibv_wc& wc, Completion* out);

  Device device_;
  std::uint32_t qkey_ = 0;
  ibv_qp* qp_ = nullptr;
  ibv_qp_ex* qpx_ = nullptr;
  std::uint64_t was_ = 0;  // where the results of `publish` go, which nobody reads
  Registration was_region_;
  std::uint32_t under_way_ = 0;
  std::uint32_t missing_receives_ = kReceives;
  std::vector<Completion> refused_;  // posts that the adapter did not take
};

}  // namespace ewarp::acp
