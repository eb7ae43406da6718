// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The side that connects; failures, and the loop of a QP with itself.
#include "provider/startup/bring_up.h"

#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <chrono>

#include "llp/fd.h"
#include "llp/netif.h"
#include "llp/tcp.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/startup/terms.h"
#include "provider/verbs/qp_numbers.h"

namespace ewarp::verbs {
namespace {

// Two sides are seldom ready at the same moment: the first tries follow closely.
constexpr unsigned kFirstPauseMs = 2, kLongestPauseMs = 200;

auto after(unsigned milliseconds) {
  return Reactor::Clock::now() + std::chrono::milliseconds(milliseconds);
}

bool is_unicast(const ibv_gid& gid) {
  if (is_ipv4(gid)) return gid.raw[12] != 0 && gid.raw[12] < 224;
  return gid.raw[0] != 0xff &&
         std::any_of(std::begin(gid.raw), std::end(gid.raw), [](auto octet) { return octet != 0; });
}

bool same(const ibv_gid& a, const ibv_gid& b) {
  return memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

// A non-blocking TCP socket bound to the GID. late_port: its port is chosen at connect(), for one peer only.
Socket open_at(const SocketName& local, bool late_port) {
  const int fd = llp::make_high_fd(
      [&] { return ::socket(local.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  Socket socket(fd);
  if (!socket) return socket;
  const int late = late_port;
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof late);
  if (::bind(fd, local.get(), local.size) == 0) return socket;
  const int error = errno;
  socket.close();
  errno = error;
  return socket;
}

}  // namespace

int parse_peer(const ibv_qp_attr& attr, const Device& device, PeerAddress* out) {
  const ibv_ah_attr& ah = attr.ah_attr;
  const auto gids = device.gids();
  const char* wrong = nullptr;
  if (ah.is_global == 0)
    wrong = "the address has no GID (is_global = 0); programs take an option for it, such as -g 0 or -x 0";
  else if (ah.port_num != 1)
    wrong = "the address names a port other than 1";
  else if (ah.grh.sgid_index >= gids.size())
    wrong = "there is no such GID index";
  else if (!is_unicast(ah.grh.dgid))
    wrong = "the peer's GID is no unicast address";
  else if (is_ipv4(ah.grh.dgid) != is_ipv4(gids[ah.grh.sgid_index]))
    wrong = "one GID is IPv4, the other IPv6";
  else if (attr.dest_qp_num > 0xffffff)
    wrong = "the peer's QP number has more than 24 bits";
  if (wrong != nullptr) {
    log::warn("ibv_modify_qp() to RTR: {}", wrong);
    return EINVAL;
  }
  out->local = gids[ah.grh.sgid_index];
  out->remote = ah.grh.dgid;
  out->interface = device.interface_index();
  out->number = attr.dest_qp_num;
  out->is_here = std::any_of(gids.begin(), gids.end(), [&](const ibv_gid& own) { return same(own, out->remote); }) ||
                 llp::is_local(*socket_name(out->remote, 0, out->interface).get());
  return 0;
}

constexpr bool BringUp::allowed(State from, State to) {
  switch (to) {
    case State::idle:
      return false;
    case State::waiting:  // joined: the stream ended before it carried anything
      return from == State::idle || from == State::joined;
    case State::connecting:
      return from == State::idle;
    case State::joined:
      return from != State::stopped && from != State::joined;
    case State::stopped:
      return true;
  }
  return false;
}

void BringUp::enter(State next) {
  engine().assert_held();
  assert(allowed(state_, next));
  state_ = next;
}

// GID, then QPN, as big-endian octets: the smaller one connects.
BringUp::Role BringUp::role() const {
  const int gids = memcmp(peer_.local.raw, peer_.remote.raw, sizeof peer_.local.raw);
  if (gids != 0) return gids < 0 ? Role::initiator : Role::responder;
  if (number_ == peer_.number) return Role::loop;
  return number_ < peer_.number ? Role::initiator : Role::responder;
}

PairNames BringUp::names() const {
  return {peer_.number, number_, user_.send_psn()};
}

mpa::StartupConfig BringUp::config() const {
  std::uint16_t ird = 0, ord = 0;
  user_.read_limits(&ird, &ord);
  mpa::StartupConfig c = terms(peer_.is_here);
  c.rtr = mpa::kRtrWrite | mpa::kRtrRead;
  // At least one, or a Read that the peer posts would wait for ever instead of failing by its key.
  c.ird = c.max_ird = std::max<std::uint16_t>(ird, 1);
  c.ord = ord;  // the device's limit before RTS: the peer's IRD cuts it
  return c;
}

int BringUp::start() {
  deadline_ = engine().add_timer(after(options().bring_up_timeout_ms),
                                 with_engine(engine(), shared_from_this(), [](BringUp& b) { b.on_deadline(); }));
  int rc = 0;
  switch (role()) {
    case Role::loop:
      rc = join_itself();
      break;
    case Role::responder:
      enter(State::waiting);
      rc = accept_for(number_);
      if (rc == 0) serve_early(number_);
      break;
    case Role::initiator:
      enter(State::connecting);
      rc = connect();
      // Somebody has to close something first: the application is the one who can.
      if (rc != EMFILE && rc != ENFILE) rc = 0;
      break;
  }
  if (rc != 0) {
    log::explain_shortage(rc);
    stop();
  }
  return rc;
}

void BringUp::stop() {
  enter(State::stopped);
  engine().cancel_timer(std::exchange(deadline_, 0));
  engine().cancel_timer(std::exchange(retry_, 0));
  socket_.abort();
  initiator_.reset();
}

void BringUp::established() {
  engine().cancel_timer(std::exchange(deadline_, 0));
}

void BringUp::wait_again() {
  why_ = "the peer went away during the start-up";
  enter(State::waiting);
  // Not from here: the QP is in the middle of its stream's end.
  engine().post(with_engine(engine(), shared_from_this(), [](BringUp& b) {
    if (b.state_ == State::waiting) serve_early(b.number_);
  }));
}

void BringUp::broken() {
  if (state_ == State::waiting || state_ == State::connecting) user_.bring_up_failed("out of memory");
}

bool BringUp::waits_for(const PairNames& names, const ibv_gid& from) const {
  return state_ == State::waiting && names.destination == number_ && names.source == peer_.number &&
         same(from, peer_.remote);
}

void BringUp::on_deadline() {
  if (deadline_ == 0) return;  // cancelled while it was on its way
  deadline_ = 0;
  user_.bring_up_failed(fmt::format("no connection with QP {:#08x} at {} within {} ms: {}", peer_.number,
                                    text_of(peer_.remote), options().bring_up_timeout_ms, why_));
}

// --- the initiator ---

void BringUp::when_ready(std::uint32_t events, void (BringUp::*then)()) {
  engine().watch(socket_.fd(), events, with_engine(engine(), shared_from_this(), [then, fd = socket_.fd()](BringUp& b) {
                   // What was on its way when the socket was given up is for nobody.
                   if (b.state_ == State::connecting && b.socket_.fd() == fd) (b.*then)();
                 }));
}

// 0, or why it has to be tried again.
int BringUp::connect() {
  const auto failed = [this](int error) {
    try_again(strerror(error));
    return error;
  };
  retry_ = 0;
  const SocketName remote = socket_name(peer_.remote, port_of(peer_.number), peer_.interface);
  socket_ = open_at(socket_name(peer_.local, 0, peer_.interface), true);
  if (!socket_) return failed(errno);
  tune_socket(socket_.fd(), peer_.is_here);
  if (::connect(socket_.fd(), remote.get(), remote.size) != 0 && errno != EINPROGRESS) return failed(errno);
  when_ready(POLLOUT, &BringUp::on_connected);
  return 0;
}

void BringUp::try_again(std::string why) {
  log::debug("QP {:#08x}: connecting to QP {:#08x} at {}: {}", number_, peer_.number, text_of(peer_.remote), why);
  why_ = std::move(why);
  socket_.abort();
  initiator_.reset();
  pause_ms_ = std::clamp(2 * pause_ms_, kFirstPauseMs, kLongestPauseMs);
  retry_ = engine().add_timer(after(pause_ms_), with_engine(engine(), shared_from_this(), [](BringUp& b) {
                                if (b.state_ == State::connecting && b.retry_ != 0) b.connect();
                              }));
}

void BringUp::on_connected() {
  int error = llp::take_error(socket_.fd());
  if (error == 0 && llp::connected_to_itself(socket_.fd())) error = ECONNREFUSED;
  if (error != 0) return try_again(strerror(error));
  if (!initiator_) {
    initiator_.emplace(config(), names().emit());
    sent_ = 0;
  }
  while (sent_ < initiator_->request().size()) {
    const long n = socket_.send(initiator_->request().subspan(sent_));
    if (n == -EAGAIN || n == -EINTR) return when_ready(POLLOUT, &BringUp::on_connected);
    if (n < 0) return try_again(strerror(static_cast<int>(-n)));
    sent_ += static_cast<std::size_t>(n);
  }
  when_ready(POLLIN, &BringUp::on_reply);
}

void BringUp::on_reply() {
  assert(state_ == State::connecting && initiator_);
  std::array<std::byte, mpa::kStartupHeader + mpa::kMaxPrivateData> buffer;
  auto outcome = mpa::Initiator::Outcome::more;
  while (outcome == mpa::Initiator::Outcome::more) {
    // Never beyond the frame: what follows is the stream's.
    const long n = socket_.receive(MutableOctets(buffer).first(std::min(initiator_->want(), buffer.size())));
    if (n == -EAGAIN || n == -EINTR) return when_ready(POLLIN, &BringUp::on_reply);
    if (n <= 0) return try_again(n == 0 ? "the peer's process closed the connection" : strerror(static_cast<int>(-n)));
    outcome = initiator_->feed(Octets(buffer).first(static_cast<std::size_t>(n)));
  }
  if (outcome == mpa::Initiator::Outcome::rejected) return try_again("the peer's QP does not wait for this one");
  if (outcome == mpa::Initiator::Outcome::failed) return try_again("no MPA Reply, but something else");
  const auto theirs = PairNames::parse(initiator_->private_data());
  if (!theirs || theirs->destination != number_ || theirs->source != peer_.number)
    return try_again("another QP answered");
  const mpa::StreamParams params = initiator_->params();
  initiator_.reset();
  if (params.local) socket_.connect_locally();
  enter(State::joined);
  user_.take_stream(socket_.release_stream(), params);
}

// --- the responder ---

void BringUp::join(Socket socket, mpa::Responder& responder) {
  const auto alive = shared_from_this();  // the QP may be done with us before we are
  // The peer may have left, or spoken out of turn (RFC 5044 section 7.1.2), while its Request waited for us.
  std::byte octet;
  if (socket.receive(MutableOctets(&octet, 1), MSG_PEEK) != -EAGAIN) return;
  const auto reply = responder.accept(responder_terms(config(), responder, socket), names().emit());
  // Into an empty send buffer: it fits or the connection is dead.
  if (socket.send(reply) != static_cast<long>(reply.size())) return;
  enter(State::joined);
  user_.take_stream(socket.release_stream(), responder.params());
}

// --- a QP that is its own peer ---

// TCP connects a socket to its own address; what is written there comes back to be read. One stream then has both ends.
int BringUp::join_itself() {
  SocketName self = socket_name(peer_.local, 0, peer_.interface);
  Socket socket = open_at(self, false);
  if (!socket) return errno;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&self.storage), &self.size);
  tune_socket(socket.fd(), true);
  if (::connect(socket.fd(), self.get(), self.size) != 0 && errno != EINPROGRESS) return errno;
  mpa::StreamParams params;
  params.initiator = true;
  params.crc = asks_for_crc(true);
  params.extensions = options().extensions;
  std::uint16_t ird = 0, ord = 0;
  user_.read_limits(&ird, &ord);
  params.ird = params.ord = std::max<std::uint16_t>(ird, 1);
  enter(State::joined);
  user_.take_stream(socket.release_stream(), params);
  return 0;
}

}  // namespace ewarp::verbs
