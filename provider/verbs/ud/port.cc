// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/ud/port.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <unordered_map>

#include "llp/netif.h"
#include "provider/base/options.h"
#include "provider/base/stats.h"
#include "provider/engine/engine.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/qp_numbers.h"

namespace ewarp::verbs {
namespace {

// Datagrams that were read wait in memory until they are handled: no more of it than the caches hold.
constexpr std::size_t kReadOctets = 512 * 1024;

using Ports = std::unordered_map<std::uint16_t, std::shared_ptr<DatagramPort>>;

Ports& ports() {
  static Ports* p = new Ports;  // outlives every thread
  return *p;
}

// 0: there is none, or it is not known yet.
std::atomic<unsigned> loopback_index{0};

void look_for_loopback() {
  if (loopback_index.load(std::memory_order_relaxed) != 0) return;
  for (const auto& i : llp::interfaces())
    if (i.loopback) return loopback_index.store(i.index, std::memory_order_relaxed);
}

constexpr std::size_t index_of(std::uint32_t number) {
  return number >> 16 & 0xff;
}

}  // namespace

llp::UdpInbox& datagram_inbox() {
  static auto* inbox = new llp::UdpInbox;
  return *inbox;
}

llp::UdpOutbox& datagram_outbox() {
  static auto* outbox = new llp::UdpOutbox;
  return *outbox;
}

bool came_by_loopback(const llp::UdpArrival& a) {
  return a.interface != 0 && a.interface == loopback_index.load(std::memory_order_relaxed);
}

// Flag N: who sends from this host may do without a CRC, as our own do (option crc).
bool may_lack_crc(const llp::UdpArrival& a) {
  return !asks_for_crc(came_by_loopback(a));
}

static_assert(llp::kDatagramDrops == stats::Datagrams::kCauses);

void count_drop(llp::DatagramDrop why) {
  stats::add(stats::page().datagrams.drops[static_cast<std::size_t>(why)]);
}

bool accept_datagram(const llp::UdpArrival& arrival, llp::Datagram* out) {
  const auto parsed = llp::parse_datagram(arrival.payload, may_lack_crc(arrival));
  if (!parsed.ok()) {
    count_drop(parsed.error());
    return false;
  }
  *out = parsed.value();
  return true;
}

void DatagramReader::adapt(unsigned got, std::size_t octets) {
  if (got == 0) {
    batch_ = 1;
    return;
  }
  const std::size_t each = std::max<std::size_t>(octets / got, 1);
  const auto most = static_cast<unsigned>(std::clamp<std::size_t>(kReadOctets / each, 1, llp::UdpInbox::kMost));
  batch_ = std::min(got == batch_ ? 2 * batch_ : got, most);
}

void DatagramPort::look_at_interfaces() {
  look_for_loopback();
  known_interfaces().look_unless_recent();
}

std::shared_ptr<DatagramPort> DatagramPort::of(Engine& engine, std::uint32_t number) {
  auto& port = ports()[port_of(number)];
  if (port == nullptr) {
    // The socket last: without memory for the rest it stays where the next queue pair finds it.
    auto made = std::make_shared<DatagramPort>(engine, llp::UdpSocket());
    made->socket_ = qp_numbers().claim_udp(port_of(number));
    port = std::move(made);
  }
  return port;
}

void DatagramPort::forget_in_child() {
  for (const auto& [number, port] : ports()) port->close_in_child();
  ports().clear();
}

void DatagramPort::leave_peers(std::chrono::steady_clock::time_point until) {
  for (const auto& [number, port] : ports())
    if (port->service_ != nullptr) port->service_->leave_peers(until);
}

DatagramPort::DatagramPort(Engine& engine, llp::UdpSocket socket) : engine_(engine), socket_(std::move(socket)) {}
DatagramPort::~DatagramPort() = default;

void DatagramPort::hold() {
  engine().assert_held();
  if (users_ == 0 && engine().add(*this) != 0) throw std::bad_alloc();
  ++users_;
}

void DatagramPort::let_go() {
  engine().assert_held();
  assert(users_ > 0);
  if (--users_ == 0) engine().remove(*this);
}

void DatagramPort::attach(std::uint32_t number, DatagramSink& sink, const Device& device) {
  assert(seats_[index_of(number)].sink == nullptr);
  devices_.reserve(devices_.size() + 1);
  hold();
  seats_[index_of(number)] = {&sink, number, &device};
  if (std::find(devices_.begin(), devices_.end(), &device) == devices_.end()) devices_.push_back(&device);
}

void DatagramPort::detach(std::uint32_t number, DatagramSink& sink) {
  assert(seats_[index_of(number)].sink == &sink);
  seats_[index_of(number)].sink = nullptr;
  std::erase(waiting_, &sink);
  std::erase(being_served_, &sink);
  let_go();
}

std::size_t DatagramPort::send(llp::UdpOutbox& outbox, int* error, bool whole) {
  engine().assert_held();
  if (std::exchange(whole_, whole) != whole) llp::set_fragmenting(socket_, !whole);
  const std::size_t sent = outbox.send(socket_, error);
  if (*error == EAGAIN || *error == EWOULDBLOCK) {
    *error = EAGAIN;
    blocked_ = true;
    engine().update(*this);
  }
  return sent;
}

void DatagramPort::wait(DatagramSender& sender) {
  engine().assert_held();
  if (std::find(waiting_.begin(), waiting_.end(), &sender) == waiting_.end()) waiting_.push_back(&sender);
  engine().update(*this);
}

// Each in its turn; who has more to send goes to the end of the line.
bool DatagramPort::serve_waiting() {
  assert(being_served_.empty());
  blocked_ = false;
  being_served_.swap(waiting_);
  const bool any = !being_served_.empty();
  for (DatagramSender* sender : being_served_)
    if (blocked_ || sender->transmit()) waiting_.push_back(sender);
  being_served_.clear();
  return any && !blocked_;
}

// By the number alone: what else is wrong with it is found later. One that nobody has, or has had, may come by any
// device that this port serves, so that a datagram whose number was damaged is counted as what it is.
bool DatagramPort::is_for_us(const llp::UdpArrival& arrival) {
  const std::uint32_t number = llp::destination_of(arrival.payload);
  const Seat& seat = seats_[index_of(number)];
  if (seat.number == number && number != 0) return gate_.admits(arrival, seat.device->interface_index());
  return std::any_of(devices_.begin(), devices_.end(),
                     [&](const Device* d) { return gate_.admits(arrival, d->interface_index()); });
}

void DatagramPort::arrived(const llp::UdpArrival& arrival) {
  if (!is_for_us(arrival)) return count_drop(llp::DatagramDrop::address);
  if (service_ != nullptr && service_->takes(arrival.payload)) return service_->receive(arrival);
  llp::Datagram d;
  if (!accept_datagram(arrival, &d)) return;
  const std::uint32_t number = d.prefix.destination;
  const Seat& seat = seats_[index_of(number)];
  if (seat.sink == nullptr || seat.number != number) {
    count_drop(llp::DatagramDrop::qp);
    return;
  }
  seat.sink->receive({d, arrival, this});
}

std::size_t DatagramPort::turn() {
  engine().assert_held();
  if (service_ != nullptr) service_->begin_turn();
  const bool any = reader_.read(socket_, [this](const llp::UdpArrival& a) { arrived(a); });
  if (service_ != nullptr) service_->end_turn(any);
  return (!waiting_.empty() && serve_waiting()) || any ? 1 : 0;
}

void DatagramPort::close_in_child() {
  socket_.close();
}

}  // namespace ewarp::verbs
