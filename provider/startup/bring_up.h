// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Brings up the stream of an RC QP that was told its peer by ibv_modify_qp() instead of rdma_cm: {GID, QPN} of either
// side, over TCP with the MPA start-up exchange (docs/user/byaddr.md).
//
// Threading: engine held for everything.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <string>

#include "mpa/startup.h"
#include "provider/engine/engine.h"
#include "provider/startup/gid_name.h"
#include "provider/startup/pair_names.h"
#include "provider/startup/socket.h"
#include "provider/verbs/device/device.h"

namespace ewarp::verbs {

class BringUp;

// What IBV_QP_AV and IBV_QP_DEST_QPN say.
struct PeerAddress {
  ibv_gid local{}, remote{};
  unsigned interface = 0;  // of the local GID: the scope of link-local addresses
  std::uint32_t number = 0;
  bool is_here = false;  // on this host
};
// 0 or EINVAL, for attributes that name no peer.
int parse_peer(const ibv_qp_attr& attr, const Device& device, PeerAddress* out);

// The queue pair that is brought up, as the start-up sees it. Threading: engine held.
class BringUpUser {
 public:
  virtual BringUp* bring_up() const = 0;          // null: not told its peer
  virtual bool may_be_told_its_peer() const = 0;  // it may still be, without a RESET
  virtual std::uint32_t send_psn() const = 0;
  virtual void read_limits(std::uint16_t* ird, std::uint16_t* ord) = 0;
  // A stream in full operation.
  virtual void take_stream(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params) = 0;
  virtual void bring_up_failed(const std::string& why) = 0;

 protected:
  ~BringUpUser() = default;
};

class BringUp final : public std::enable_shared_from_this<BringUp> {
 public:
  BringUp(Engine& engine, BringUpUser& user, std::uint32_t number, const PeerAddress& peer)
      : engine_(engine), user_(user), number_(number), peer_(peer) {}

  // Begins; the QP may have its stream when this returns. 0 or errno: EADDRNOTAVAIL if the peer could not reach us,
  // EMFILE or ENFILE if there is no file descriptor for the connection.
  int start();
  // Closes what is open; the QP may go away.
  void stop();
  // The stream carries messages.
  void established();
  // The stream ended before it did: the initiator will come again.
  void wait_again();
  // Something of it found no memory: the QP is told, instead of waiting for nothing.
  void broken();

  // True if this QP waits for that one to connect.
  bool waits_for(const PairNames& names, const ibv_gid& from) const;
  // Takes the connection of the peer that it waits for: sends the Reply.
  void join(Socket socket, mpa::Responder& responder);

  const PeerAddress& peer() const { return peer_; }

 private:
  enum class State : std::uint8_t {
    idle,        // not begun
    waiting,     // for the peer to connect
    connecting,  // again and again, until the peer answers or the time is up
    joined,      // the QP has its stream
    stopped,     // the QP needs it no more
  };
  static constexpr bool allowed(State from, State to);
  void enter(State next);
  enum class Role { initiator, responder, loop };

  Role role() const;
  PairNames names() const;
  mpa::StartupConfig config() const;
  Engine& engine() const { return engine_; }
  int connect();
  void on_connected();
  void on_reply();
  void on_deadline();
  void try_again(std::string why);
  int join_itself();
  void when_ready(std::uint32_t events, void (BringUp::*then)());

  Engine& engine_;
  BringUpUser& user_;
  const std::uint32_t number_;  // of the QP
  const PeerAddress peer_;
  State state_ = State::idle;
  std::uint64_t deadline_ = 0, retry_ = 0;
  unsigned pause_ms_ = 0;
  Socket socket_;
  std::optional<mpa::Initiator> initiator_;
  std::size_t sent_ = 0;
  std::string why_ = "nobody connected";  // the last failure
};

// --- the responders' side of the process (bring_up_accept.cc) ---

// Listens on the port of this number, for good. 0 or errno.
int accept_for(std::uint32_t number);
// Hands over the connections that came before their QP asked for them.
void serve_early(std::uint32_t number);
// After Socket::close_all_in_child().
void forget_arrivals_in_child();

}  // namespace ewarp::verbs
