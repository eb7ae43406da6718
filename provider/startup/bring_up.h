// Brings up the stream of an RC QP that was told its peer by ibv_modify_qp() instead of rdma_cm: {GID, QPN} of either
// side, over TCP with the MPA start-up exchange (docs/byaddr.md).
//
// Threading: engine held for everything.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <string>

#include "mpa/startup.h"
#include "provider/verbs/device.h"
#include "provider/verbs/pair_names.h"
#include "provider/verbs/startup_socket.h"

namespace ewarp::verbs {

class QueuePair;

// What IBV_QP_AV and IBV_QP_DEST_QPN say.
struct PeerAddress {
  ibv_gid local{}, remote{};
  unsigned interface = 0;  // of the local GID: the scope of link-local addresses
  std::uint32_t number = 0;
  bool is_here = false;  // on this host
};
// 0 or EINVAL, for attributes that name no peer.
int parse_peer(const ibv_qp_attr& attr, const Device& device, PeerAddress* out);

class BringUp final : public std::enable_shared_from_this<BringUp> {
 public:
  BringUp(QueuePair& qp, const PeerAddress& peer) : qp_(qp), peer_(peer) {}

  // Begins; the QP may have its stream when this returns. 0 or errno: EADDRNOTAVAIL if the peer could not reach us,
  // EMFILE or ENFILE if there is no file descriptor for the connection.
  int start();
  // Closes what is open; the QP may go away.
  void stop();
  // The stream carries messages.
  void established();
  // The stream ended before it did: the initiator will come again.
  void wait_again();

  // True if this QP waits for that one to connect.
  bool waits_for(const PairNames& names, const ibv_gid& from) const;
  // Takes the connection of the peer that it waits for: sends the Reply.
  void join(StartupSocket socket, mpa::Responder& responder);

  const PeerAddress& peer() const { return peer_; }

 private:
  enum class State { idle, waiting, connecting, joined, stopped };
  enum class Role { initiator, responder, loop };

  Role role() const;
  PairNames names() const;
  mpa::StartupConfig config() const;
  int connect();
  void on_connected();
  void on_reply();
  void on_deadline();
  void try_again(std::string why);
  int join_itself();
  void when_ready(std::uint32_t events, void (BringUp::*then)());

  QueuePair& qp_;
  const PeerAddress peer_;
  State state_ = State::idle;
  std::uint64_t deadline_ = 0, retry_ = 0;
  unsigned pause_ms_ = 0;
  StartupSocket socket_;
  std::optional<mpa::Initiator> initiator_;
  std::size_t sent_ = 0;
  std::string why_ = "nobody connected";  // the last failure
};

// --- the responders' side of the process (bring_up_accept.cc) ---

// Listens on the port of this number, for good. 0 or errno.
int accept_for(std::uint32_t number);
// Hands over the connections that came before their QP asked for them.
void serve_early(std::uint32_t number);
// After StartupSocket::close_all_in_child().
void forget_arrivals_in_child();

}  // namespace ewarp::verbs
