// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A port's table: what arrives, what is sent, time.
#include "provider/verbs/rd/port.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <system_error>

#include "llp/datagram_header.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/base/stats.h"
#include "provider/engine/at_exit.h"
#include "provider/engine/engine.h"

namespace ewarp::verbs {
namespace {

using namespace llp::rd;
using Clock = Reactor::Clock;

constexpr std::size_t kRoomForWindow = 4 * 1024 * 1024;  // octets of receive buffer
constexpr std::size_t kLeastInBuffer = 24;               // datagrams of the largest size
constexpr auto kTimerSlack = std::chrono::microseconds(50);
constexpr unsigned kBusyTurns = 16;                    // a socket that is never empty does not stop the timers
constexpr std::uint8_t kCongestionExperienced = 0x03;  // RFC 3168 section 5

// A small receive buffer (net.core.rmem_max) is better filled with many datagrams than with a few: what is lost for
// lack of room costs less, and so does sending it again.
Config config_for(const llp::UdpSocket& socket) {
  Config c;
  const std::size_t room = llp::receive_buffer(socket);
  c.max_seg = static_cast<std::uint16_t>(std::clamp<std::size_t>(room / kLeastInBuffer, 1472, llp::kMaxDatagram));
  c.window = room >= kRoomForWindow ? 256 : 64;
  c.ird = c.ord = RdPort::kMaxRdAtomic;
  c.without_crc = options().crc != CrcPolicy::always;
  return c;
}

}  // namespace

RdPort& RdPort::of(DatagramPort& port) {
  if (port.service() == nullptr) port.set_service(std::make_unique<RdPort>(port));
  return static_cast<RdPort&>(*port.service());
}

RdPort::RdPort(DatagramPort& port)
    : port_(port),
      wire_(port, [this](const Address& to, std::uint32_t number) { return route(to, number); }),
      table_(config_for(port.socket()), *this, wire_, *this) {
  touched_.reserve(seats_.size());  // touch() must not fail halfway
}

RdPort::~RdPort() = default;

Time RdPort::now() {
  return static_cast<Time>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

std::uint32_t RdPort::draw() {
  if (dice_left_ == 0) {
    if (getrandom(dice_.data(), sizeof dice_, 0) != static_cast<ssize_t>(sizeof dice_))
      throw std::system_error(errno, std::generic_category(), "getrandom");
    dice_left_ = dice_.size();
  }
  return std::exchange(dice_[--dice_left_], 0);
}

void RdPort::attach(std::uint32_t number, RdUser& user, unsigned device) {
  engine().assert_held();
  reset(number);  // what a former owner of the number left behind
  Seat& seat = seats_[index_of(number)];
  seat.user = &user;
  seat.endpoint = &user.endpoint();
  seat.number = number;
  seat.device = device;
}

void RdPort::detach(std::uint32_t number, std::uint32_t qkey) {
  engine().assert_held();
  table_.leave_qp(now(), number);
  Seat& seat = seats_[index_of(number)];
  seat.user = nullptr;
  seat.endpoint = nullptr;
  seat.qkey = qkey;
  settle();
}

rdmap::DatagramEndpoint* RdPort::touch(const Association& a) {
  const std::size_t i = index_of(a.key().local_qpn);
  if (!std::exchange(seats_[i].touched, true)) touched_.push_back(static_cast<std::uint8_t>(i));
  return seats_[i].endpoint;
}

void RdPort::tell_users() {
  while (!touched_.empty()) {
    Seat& seat = seats_[touched_.back()];
    touched_.pop_back();
    seat.touched = false;
    if (seat.user != nullptr) seat.user->progress();
  }
}

void RdPort::receive(const llp::UdpArrival& arrival) {
  engine().assert_held();
  const Octets octets = arrival.payload;
  if (octets.size() > 1 && (std::to_integer<unsigned>(octets[1]) & llp::kFlagNoCrc) != 0 && !may_lack_crc(arrival))
    return count_drop(llp::DatagramDrop::crc);
  received_ = true;
  assert(arrival_ == nullptr);
  const AtExit over([this] { arrival_ = nullptr; });
  arrival_ = &arrival;
  const bool marked = (arrival.tos & kCongestionExperienced) == kCongestionExperienced;
  table_.receive(turn_, RdPaths::address_of(arrival), octets, marked, true);
}

void RdPort::begin_turn() {
  engine().assert_held();
  turn_.store(now(), std::memory_order_relaxed);
}

void RdPort::end_turn(bool any) {
  engine().assert_held();
  if (table_.finish(turn_, engine().application_drives())) received_ = true;
  if (!any || ++busy_turns_ == kBusyTurns) {
    busy_turns_ = 0;
    seen_until_ = turn_;
  }
  const bool due = table_.deadline() <= seen_until_;
  if (due) table_.expire(turn_);
  if (std::exchange(received_, false) || due) settle();
}

void RdPort::wake(const Key& peer, const AddressHandle& ah) {
  engine().assert_held();
  const Key key = peer;  // of a request that may end here
  const RdPath way = RdPaths::of(ah);
  assert(fresh_ == nullptr);
  const AtExit over([this] { fresh_ = nullptr; });
  fresh_ = &way;
  table_.wake(now(), key, static_cast<std::uint16_t>(key.remote_qpn));
}

void RdPort::receives_posted(rdmap::DatagramEndpoint& endpoint) {
  while (Association* a = endpoint.next_refused()) table_.receives_posted(now(), *a);
}

void RdPort::reset(std::uint32_t number) {
  engine().assert_held();
  table_.reset_qp(now(), number);
  settle();
}

// After anything that the table was told.
void RdPort::settle() {
  engine().assert_held();
  tell_users();
  if (!wire_.empty() && port_.blocked())
    port_.wait(wire_);
  else if (!wire_.empty())
    wire_.flush();
  limit_paths();
  if (const bool any = table_.size() > 0; any != holds_) {
    holds_ = any;
    any ? port_.hold() : port_.let_go();
  }
  schedule();
  publish();
}

// A path carries less than its interface: what is not numbered yet is cut smaller.
void RdPort::limit_paths() {
  for (const sockaddr_in6& to : wire_.take_refused()) {
    const auto ip = RdPaths::ip_of(to.sin6_addr);
    const std::uint16_t most = payload_of_mtu(llp::path_mtu(to), llp::is_v4(to.sin6_addr));
    if (paths_.limit(ip, most)) table_.limit_segments(ip, most);
  }
}

void RdPort::leave_peers(std::chrono::steady_clock::time_point end) {
  const auto until = static_cast<Time>(std::chrono::nanoseconds(end.time_since_epoch()).count());
  for (const Seat& seat : seats_)
    if (seat.user != nullptr) table_.leave_qp(now(), seat.number);
  settle();
  while (table_.size() > 0 && now() < until) {
    pollfd p{port_.fd(), POLLIN, 0};
    poll(&p, 1, 1);
    port_.turn();
  }
}

// The datagram that is being received came from this host, to this address of ours.
bool RdPort::arrived_from(const RdPaths::Ip& ip, std::uint32_t local) const {
  return arrival_ != nullptr && RdPaths::ip_of(arrival_->from.sin6_addr) == ip &&
         RdPaths::local_of(arrival_->to) == local;
}

const RdPath* RdPort::route(const Address& to, std::uint32_t number) {
  if (const RdPath* p = paths_.find({to.ip, to.local, seats_[index_of(number)].device})) return p;
  if (!arrived_from(to.ip, to.local)) return nullptr;
  static RdPath back;  // an answer to a stranger
  back = RdPaths::of(*arrival_);
  return &back;
}

const RdPath* RdPort::path(const Key& peer) {
  return paths_.find(name_of(peer));
}

// --- time ---

// Passes of the engine look at the deadline themselves (end_turn). While an application makes them, the timer is for
// the case that it stops: a background thread that came for each deadline would take the engine, and with it the
// application's work, to another CPU.
Time RdPort::looked_after_until() const {
  if (!engine().application_drives()) return 0;
  return turn_.load(std::memory_order_relaxed) + options().takeover_us * kMicrosecond;
}

// One timer of the engine, at the time of the table's deadline or earlier: a deadline that moves away costs nothing.
// It comes a little later than that and finds most of them kept.
void RdPort::schedule() {
  const Time due = table_.deadline();
  due_.store(due);
  const Time at = std::max(due, looked_after_until());
  if (at >= timer_at_.load()) return;
  engine().cancel_timer(timer_.load());
  set_timer(at, ++timer_generation_);
}

void RdPort::set_timer(Time due, std::uint64_t generation) {
  timer_at_.store(due);
  timer_ = engine().add_timer(Clock::time_point(std::chrono::nanoseconds(due) + kTimerSlack),
                              [this, alive = port_.weak_from_this(), generation] {
                                if (const auto port = alive.lock()) on_timer(generation);
                              });
}

// Engine not held: an application that makes passes is not disturbed for what it has done.
void RdPort::on_timer(std::uint64_t generation) {
  for (;;) {
    if (generation != timer_generation_.load()) return;
    const Time due = due_.load(), at = std::max(due, looked_after_until());
    if (at <= now()) break;
    if (due == kNever)
      timer_at_.store(due);
    else
      set_timer(at, generation);
    // Pairs with schedule(): it says what is due, then looks at the timer; we set the timer, then look at what is due.
    if (due_.load() >= due) return;
  }
  engine().run([&] {
    if (generation != timer_generation_.load()) return;
    timer_at_.store(kNever);
    const Time time = now();
    while (table_.deadline() <= time && seen_until_ < time) port_.turn();
    settle();
  });
}

// --- counters ---

namespace {

struct Published {
  std::uint64_t Counters::*from;
  stats::Counter stats::Reliable::*to;
};
constexpr Published kPublished[] = {
    {&Counters::opened, &stats::Reliable::opened},
    {&Counters::accepted, &stats::Reliable::accepted},
    {&Counters::closed, &stats::Reliable::closed},
    {&Counters::unreachable, &stats::Reliable::unreachable},
    {&Counters::sent, &stats::Reliable::tx_segments},
    {&Counters::retransmitted, &stats::Reliable::retransmitted},
    {&Counters::timeouts, &stats::Reliable::timeouts},
    {&Counters::losses, &stats::Reliable::losses},
    {&Counters::probes, &stats::Reliable::probes},
    {&Counters::received, &stats::Reliable::rx_segments},
    {&Counters::duplicates, &stats::Reliable::duplicates},
    {&Counters::out_of_order, &stats::Reliable::out_of_order},
    {&Counters::not_held, &stats::Reliable::not_held},
    {&Counters::rnr_sent, &stats::Reliable::rnr_sent},
    {&Counters::rnr_received, &stats::Reliable::rnr_received},
    {&Counters::reports_sent, &stats::Reliable::reports_sent},
    {&Counters::reports_received, &stats::Reliable::reports_received},
    {&Counters::resets_sent, &stats::Reliable::resets_sent},
    {&Counters::resets_received, &stats::Reliable::resets_received},
    {&Counters::violations, &stats::Reliable::violations},
    {&Counters::challenges, &stats::Reliable::challenges},
    {&Counters::dropped_runt, &stats::Reliable::dropped_runt},
    {&Counters::dropped_version, &stats::Reliable::dropped_version},
    {&Counters::dropped_length, &stats::Reliable::dropped_length},
    {&Counters::dropped_crc, &stats::Reliable::dropped_crc},
    {&Counters::dropped_qp, &stats::Reliable::dropped_qp},
    {&Counters::dropped_tag, &stats::Reliable::dropped_tag},
    {&Counters::dropped_full, &stats::Reliable::dropped_full},
};
static_assert(sizeof(Counters) == std::size(kPublished) * sizeof(std::uint64_t));

}  // namespace

// The page is of all ports: each adds what is new.
void RdPort::publish() {
  stats::Reliable& page = stats::page().reliable;
  const Counters& c = table_.counters();
  for (const Published& p : kPublished)
    if (const std::uint64_t news = c.*p.from - published_.*p.from; news != 0) stats::add(page.*p.to, news);
  published_ = c;
  if (table_.size() != published_size_) {
    stats::add(page.associations, table_.size() - published_size_);
    published_size_ = table_.size();
  }
  if (round_trip_ != 0) page.round_trip_ns.store(round_trip_, std::memory_order_relaxed);
}

}  // namespace ewarp::verbs
