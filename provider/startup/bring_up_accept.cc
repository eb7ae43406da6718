// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The side that is connected to: the ports of this process's QP numbers, and the Requests that arrive there.
//
// Bounds: kMaxArrivals connections between accept() and their QP, each for request_timeout_ms, and one more
// for a moment; of those that were refused kMostRefused linger (linger.h). Beyond that PendingConnections says who
// gives up a place; while nobody has to, connections wait in TCP's own queue. A connection goes to no QP but the one
// that its Request names, and only if that one named this peer.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llp/fd.h"
#include "llp/netif.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/startup/bring_up.h"
#include "provider/startup/linger.h"
#include "provider/startup/pending.h"
#include "provider/startup/terms.h"
#include "provider/verbs/qp_numbers.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::verbs {
namespace {

constexpr std::size_t kMaxArrivals = 512;
// All queue pairs of a program may be connected at once, and a full queue costs a peer seconds: its SYNs are lost. The
// kernel cuts it to net.core.somaxconn.
constexpr int kTcpBacklog = 1 << 16;
constexpr std::size_t kAcceptsAtOnce = 64;  // then others get the engine
constexpr auto kStarvedRetry = std::chrono::milliseconds(100);

// A connection whose QP is not known yet, or not ready for it.
struct Arrival : std::enable_shared_from_this<Arrival> {
  Socket socket;
  ibv_gid from{};
  mpa::Responder responder;
  std::optional<PairNames> names;  // once the Request is complete
  std::uint64_t timer = 0;
  std::uint64_t number = 0;  // in the order of accept()
};
using ArrivalRef = std::shared_ptr<Arrival>;

struct Listener : std::enable_shared_from_this<Listener> {
  explicit Listener(int f) : fd(f) {}
  const int fd;
  bool watching = false;
  bool starved = false;  // and that was said
};

struct Arrivals {
  std::unordered_map<std::uint64_t, ArrivalRef> all;  // by number
  PendingConnections pending{kMaxArrivals};
  std::uint64_t accepted = 0;  // ever
  bool waits = false;          // for the time at which somebody must give up a place
  std::unordered_map<std::uint16_t, std::shared_ptr<Listener>> listeners;  // by port
};

Arrivals& arrivals() {
  static auto* a = new Arrivals;
  return *a;
}

void accept_connections(const std::weak_ptr<Listener>& weak);

void watch_all();

bool has_room() {
  Arrivals& a = arrivals();
  const auto now = Reactor::Clock::now();
  if (a.pending.has_room(now)) return true;
  const auto next = a.pending.next_victim_at(now);
  if (next && !std::exchange(a.waits, true))
    engine().add_timer(*next, [] {
      engine().run([] {
        arrivals().waits = false;
        watch_all();
      });
    });
  return false;
}

void watch(Listener& l) {
  if (l.watching || !has_room()) return;
  l.watching = true;
  engine().watch(l.fd, POLLIN, [weak = l.weak_from_this()](std::uint32_t) { accept_connections(weak); });
}

void watch_all() {
  for (const auto& [port, l] : arrivals().listeners) watch(*l);
}

// The socket, if it was not handed on, is closed. The caller holds a reference.
void forget(Arrival& a) {
  engine().cancel_timer(std::exchange(a.timer, 0));
  a.socket.close();
  const ArrivalRef alive = a.shared_from_this();
  arrivals().pending.remove(a.number);
  arrivals().all.erase(a.number);
  watch_all();
}

// The Reply says no; the initiator tries again later.
void refuse(Arrival& a, const char* why) {
  log::debug("QP {:#08x} at {} asked for QP {:#08x}: {}", a.names->source, text_of(a.from), a.names->destination, why);
  const auto reply = a.responder.reject(mpa::StartupConfig{}, {});
  if (a.socket.send(reply) == static_cast<long>(reply.size())) linger_refused(engine(), a.socket.release_stream());
  forget(a);
}

void on_early_noise(Arrival& a) {
  if (a.socket) forget(a);  // it left, or spoke before the Reply
}

// To the QP that it names; keeps it while that QP has not been told its peer.
void dispatch(Arrival& a) {
  const auto qp = find_qp(a.names->destination);
  BringUpUser* user = qp == nullptr ? nullptr : qp->bring_up_user();
  if (user == nullptr) return refuse(a, "no such QP");
  if (user->bring_up() == nullptr) {
    if (!user->may_be_told_its_peer()) return refuse(a, "it is not connected by address");
    engine().watch(a.socket.fd(), POLLIN, with_engine(engine(), a.shared_from_this(), on_early_noise));
    return;
  }
  if (!user->bring_up()->waits_for(*a.names, a.from)) return refuse(a, "it has, or waits for, another peer");
  // Forgotten first: joining may lead to anything, the end of the QP's stream included.
  Socket socket = std::move(a.socket);
  forget(a);
  user->bring_up()->join(std::move(socket), a.responder);
}

// Once in a process: the initiator tries again and again.
void say_version(const Arrival& a) {
  static std::atomic<bool> said{false};
  const std::uint8_t theirs = PairNames::version_of(a.responder.private_data());
  if (theirs == 0 || theirs == PairNames::kVersion >> 24 || said.exchange(true)) return;
  log::error("{} speaks version {} of the start-up by address, this EtherWARP version {}: they cannot connect",
             text_of(a.from), theirs, PairNames::kVersion >> 24);
}

void read_request(Arrival& a) {
  std::array<std::byte, mpa::kStartupHeader + mpa::kMaxPrivateData> buffer;
  auto outcome = mpa::Responder::Outcome::more;
  while (outcome == mpa::Responder::Outcome::more) {
    const long n = a.socket.receive(MutableOctets(buffer).first(std::min(a.responder.want(), buffer.size())));
    if (n == -EAGAIN || n == -EINTR) {
      engine().watch(a.socket.fd(), POLLIN, with_engine(engine(), a.shared_from_this(), [](Arrival& ready) {
                       if (ready.socket) read_request(ready);
                     }));
      return;
    }
    if (n <= 0) return forget(a);
    outcome = a.responder.feed(Octets(buffer).first(static_cast<std::size_t>(n)));
  }
  if (outcome == mpa::Responder::Outcome::request) a.names = PairNames::parse(a.responder.private_data());
  if (!a.names) say_version(a);
  // RFC 5044 section 7.1.2: no Reply. A Request without our private data is meant for somebody else.
  if (!a.names || !a.responder.request().enhanced) {
    log::info("bad MPA Request from {} for a QP of this process", text_of(a.from));
    return forget(a);
  }
  arrivals().pending.complete(a.number);
  dispatch(a);
}

void make_way(Reactor::Clock::time_point now) {
  const auto victim = arrivals().pending.victim(now);
  if (!victim) return;
  const ArrivalRef a = arrivals().all.at(*victim);
  log::debug("too many connections wait for a QP; one from {} is closed", text_of(a->from));
  arrivals().pending.evict(*victim, now);
  forget(*a);
}

void admit(Socket socket) {
  const auto now = Reactor::Clock::now();
  if (arrivals().pending.size() >= kMaxArrivals) make_way(now);
  const auto a = std::make_shared<Arrival>();
  a->from = gid_of_peer(socket.fd());
  a->socket = std::move(socket);
  a->number = ++arrivals().accepted;
  arrivals().all.emplace(a->number, a);
  arrivals().pending.add(a->number, std::to_array(a->from.raw), now);
  a->timer = engine().add_timer(now + std::chrono::milliseconds(options().request_timeout_ms),
                                with_engine(engine(), a, [](Arrival& late) {
                                  if (late.timer != 0) forget(late);
                                }));
  read_request(*a);
}

// The listening socket stays readable, so waiting for readiness would spin.
void starve(Listener& l, int error) {
  if (!std::exchange(l.starved, true))
    log::error("cannot accept connections for QPs: {}; raise the hard limit on open files (ulimit -Hn)",
               strerror(error));
  l.watching = true;
  engine().add_timer(Reactor::Clock::now() + kStarvedRetry,
                     with_engine(engine(), l.shared_from_this(), [](Listener& again) {
                       again.watching = false;
                       watch_all();
                     }));
}

std::vector<Socket> accept_some(Listener& l) {
  std::vector<Socket> sockets;
  l.watching = false;
  // When all places are taken, one at a time: each needs a victim of its own.
  const auto fits = [&sockets] {
    return arrivals().pending.size() + sockets.size() < kMaxArrivals || (sockets.empty() && has_room());
  };
  while (sockets.size() < kAcceptsAtOnce && fits()) {
    const int fd = llp::make_high_fd([&] { return ::accept4(l.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (fd >= 0) {
      l.starved = false;
      sockets.emplace_back(fd);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      starve(l, errno);
      break;
    }
  }
  return sockets;
}

// Background thread, engine not held: whether the peer is on this host takes a look at all interfaces.
void accept_connections(const std::weak_ptr<Listener>& weak) {
  const auto l = weak.lock();
  if (l == nullptr) return;
  std::vector<Socket> sockets;
  engine().run([&] { sockets = accept_some(*l); });
  for (const Socket& s : sockets) tune_socket(s.fd(), llp::is_local(*socket_name(gid_of_peer(s.fd()), 0, 0).get()));
  engine().run([&] {
    for (Socket& s : sockets) admit(std::move(s));
    watch(*l);
  });
}

}  // namespace

int accept_for(std::uint32_t number) {
  const int fd = qp_numbers().socket_of(number);
  if (fd < 0) {
    log::error("QP {:#08x} has no TCP port (none was free), so its peer cannot connect", number);
    return EADDRNOTAVAIL;
  }
  auto& l = arrivals().listeners[port_of(number)];
  if (l != nullptr) return 0;
  if (::listen(fd, kTcpBacklog) != 0) {
    arrivals().listeners.erase(port_of(number));
    return errno;
  }
  l = std::make_shared<Listener>(fd);
  watch(*l);
  return 0;
}

void serve_early(std::uint32_t number) {
  std::vector<ArrivalRef> mine;
  for (const auto& [order, a] : arrivals().all)
    if (a->names && a->names->destination == number) mine.push_back(a);
  for (const ArrivalRef& a : mine)
    if (a->socket) dispatch(*a);
}

void forget_arrivals_in_child() {
  arrivals().all.clear();
  arrivals().pending = PendingConnections(kMaxArrivals);
  arrivals().waits = false;
  arrivals().listeners.clear();
}

}  // namespace ewarp::verbs
