// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two ends of reliable datagrams, from RDMAP down to the datagrams, in virtual time. The input says what each posts,
// and what becomes of the datagrams between them: lost, late, twice, again much later, or with a field changed and the
// CRC made right. Where nothing was changed every request ends well, with its octets; and in any case everything ends.
#include <array>
#include <deque>
#include <optional>

#include "tests/fuzz/records.h"
#include "tests/llp/rd_seal.h"
#include "tests/wire/rd_hosts.h"

namespace ewarp::fuzz {
namespace {

using rdmap::Operation;
using rdmap::Status;
using rdsim::Address;
using rdsim::kMillisecond;
using rdsim::kSecond;
using rdsim::Network;
using rdsim::Time;
using wire::Bytes;
using wire::DatagramHost;
using wire::DatagramRequest;

// Head: 0 credits, CRC, size of segments, depths; 1 receives at the start; 2, 3 seed of delays.
using Talk = Records<4, 16>;
using Record = std::array<std::uint8_t, Talk::kRecord>;

constexpr std::uint32_t kRegion = 0x500, kForeign = 0x501;
constexpr std::size_t kRegionSize = 20000, kLongest = 6000;

llp::rd::Config config_of(unsigned how) {
  llp::rd::Config c;
  c.idle_close = 300 * kMillisecond;
  c.dead_time = 100 * kSecond;
  c.handshake_tries = 40;
  c.credits = (how & 1) == 0;
  c.without_crc = how & 2;
  c.max_seg = static_cast<std::uint16_t>(std::array{1472, 300, 9000, 500}[how >> 2 & 3]);
  c.ord = c.ird = static_cast<std::uint16_t>(1 + (how >> 4 & 3));
  c.window = how & 64 ? 8 : 256;
  if (how & 128) c.max_held = 20000;
  return c;
}

// What is to become of one of the next datagrams.
struct Fate {
  enum class What : std::uint8_t { lost, twice, late, changed, cut, again } what;
  std::uint8_t at, with, delay;
};

class Run {
 public:
  explicit Run(const std::array<std::uint8_t, 4>& head) : net_(head[2] + 256u * head[3], {}) {
    const llp::rd::Config c = config_of(head[0]);
    for (unsigned n = 1; n <= 2; ++n) {
      hosts_[n - 1] = std::make_unique<DatagramHost>(net_, n, c, n);
      DatagramHost& h = *hosts_[n - 1];
      h.queues.regions[kRegion] = {wire::pattern(n, kRegionSize)};
      h.queues.regions[kForeign] = {Bytes(100), false};
      h.queues.on_send_done = [this](DatagramRequest& r) { sent(r); };
      h.queues.on_receive_done = [this](unsigned, const wire::FakeReceive& b, const rdmap::Received& r) {
        received(b, r);
      };
      for (unsigned i = 0; i < head[1] % 16u; ++i) h.post_receive(kLongest);
    }
    net_.filter = [this](const Address& to, const Bytes& d) { return passes(to, d); };
  }

  void act(const Record& r) {
    DatagramHost& h = *hosts_[r[1] & 1];
    switch (r[0] & 15) {
      case 0:
      case 1:
      case 2:
      case 3:
        post(h, r);
        break;
      case 4:
        h.post_receive(r[2] & 1 ? kLongest : r[3] * 8u);
        if ((r[2] & 1) == 0) changed_ = true;  // a message may be too long for it
        break;
      case 5:
      case 6:
        net_.run(net_.now() + (Time{r[2]} << (r[3] % 20)) * 1000);
        break;
      case 7:
        if (r[2] % 8 == 0) {
          h.reset();
          changed_ = true;
        } else if (r[2] % 8 == 1) {
          h.restart();
          changed_ = true;
        }
        break;
      default:
        if (fates_.size() < 100)
          fates_.push_back({static_cast<Fate::What>(r[2] % 6), r[3], r[4], r[5]}), wait_.push_back(r[6] % 8);
        break;
    }
  }
  void end() {
    fates_.clear();
    wait_.clear();
    for (auto& h : hosts_)
      for (unsigned i = 0; i < 300; ++i) h->post_receive(kLongest);
    net_.run(net_.now() + 2000 * kSecond);
    for (auto& h : hosts_) {
      for (const auto& r : h->queues.requests) {
        if (changed_) continue;
        FUZZ_CHECK(r->done && r->status == Status::success);
      }
      h->endpoint->abandon();
      h->table->reset_qp(net_.now(), rdsim::qpn_of(h->number));
      h->queues.flush();
    }
    net_.run(net_.now() + 2000 * kSecond);
    for (auto& h : hosts_) {
      FUZZ_CHECK(h->table->size() == 0 && h->table->held() == 0 && h->endpoint->active() == 0);
      FUZZ_CHECK(h->queues.taken.empty());
    }
    if (!changed_) FUZZ_CHECK(awaited_.empty());
  }

 private:
  void post(DatagramHost& h, const Record& r) {
    if (h.queues.requests.size() >= 60) return;
    const unsigned to = 3 - h.number;
    const auto op = static_cast<Operation>(r[2] % 5);
    const std::size_t n = rdmap::is_atomic(op) ? 8 : (r[3] + 256u * r[4]) % kLongest;
    const Bytes octets = op == Operation::send || op == Operation::write ? wire::pattern(++sent_, n) : Bytes(n);
    DatagramRequest& q = h.queues.post(to, op, wire::pieces_of(octets));
    q.fence = r[5] & 1;
    q.solicited = r[5] & 2;
    q.immediate = (r[5] & 4) && !rdmap::has_response(op);
    q.remote_stag = kRegion;
    q.remote_to = op == Operation::write ? 10000 : (r[6] * 8u) % 4000;
    if (r[5] & 8) {  // not what the peer allows
      changed_ = true;
      if (r[5] & 16) q.remote_stag = r[5] & 32 ? kForeign : 7;
      if (r[5] & 64) q.remote_to = kRegionSize - r[6];
      if (r[5] & 128) q.good_for = r[7] % 3;
      q.invalidate = (r[7] & 128) && op == Operation::send && !q.immediate;
      q.invalidate_stag = kRegion;
    }
    if (const auto there = hosts_[to - 1]->queues.regions.find(kRegion);
        op == Operation::read && there != hosts_[to - 1]->queues.regions.end() && q.remote_to + n <= 10000) {
      const auto from = there->second.octets.begin() + static_cast<std::ptrdiff_t>(q.remote_to);
      reads_[&q] = Bytes(from, from + static_cast<std::ptrdiff_t>(n));
    }
    if (op == Operation::send) awaited_.push_back(octets);
    h.wake(to);
  }
  void sent(DatagramRequest& r) {
    const auto read = reads_.find(&r);
    // What atomics did meanwhile is not known here.
    if (r.status == Status::success && read != reads_.end() && !changed_ && !atomics_)
      FUZZ_CHECK(wire::joined(r.pieces) == read->second);
    atomics_ = atomics_ || rdmap::is_atomic(r.operation);
  }
  void received(const wire::FakeReceive& buffer, const rdmap::Received& r) {
    if (r.by_write || r.status != Status::success) return;
    Bytes got = wire::joined(buffer.pieces);
    FUZZ_CHECK(r.length <= got.size());
    got.resize(r.length);
    if (changed_) return;
    const auto at = std::find(awaited_.begin(), awaited_.end(), got);
    FUZZ_CHECK(at != awaited_.end());
    awaited_.erase(at);
  }

  static Address from_of(const Address& to) { return rdsim::address_of(3 - std::to_integer<unsigned>(to.ip[15])); }
  void deliver(const Address& to, Bytes datagram, Time after) {
    const unsigned n = std::to_integer<unsigned>(to.ip[15]);
    net_.at(net_.now() + after,
            [this, n, to, d = std::move(datagram)] { hosts_[n - 1]->receive(from_of(to), d, false); });
  }
  bool passes(const Address& to, const Bytes& datagram) {
    if (seen_.size() < 64) seen_.emplace_back(to, datagram);
    if (fates_.empty()) return true;
    if (wait_.front() > 0) {
      --wait_.front();
      return true;
    }
    const Fate f = fates_.front();
    fates_.pop_front();
    wait_.pop_front();
    const Time delay = (Time{f.delay} << (f.with % 16)) * 1000;
    switch (f.what) {
      case Fate::What::lost:
        return false;
      case Fate::What::twice:
        deliver(to, datagram, delay);
        return true;
      case Fate::What::late:
        deliver(to, datagram, delay);
        return false;
      case Fate::What::again: {
        const auto& [then, old] = seen_[f.at % seen_.size()];
        deliver(then, old, delay);
        changed_ = true;  // of an association that may be over
        return true;
      }
      case Fate::What::cut:
      case Fate::What::changed:
        break;
    }
    changed_ = true;
    Bytes d(datagram.begin(), datagram.end() - llp::rd::kCrcField);
    if (f.what == Fate::What::cut)
      d.resize(f.at % (d.size() + 1));
    else
      d[f.at % d.size()] ^= static_cast<std::byte>(f.with);
    deliver(to, f.delay & 1 ? d : rdtest::seal(d), kMillisecond);
    return f.delay & 2;
  }

  Network net_;
  std::array<std::unique_ptr<DatagramHost>, 2> hosts_;
  std::deque<Fate> fates_;
  std::deque<unsigned> wait_;  // datagrams in front of it
  std::vector<std::pair<Address, Bytes>> seen_;
  std::vector<Bytes> awaited_;
  std::map<const DatagramRequest*, Bytes> reads_;
  std::uint64_t sent_ = 0;
  bool changed_ = false;  // not all has to end well
  bool atomics_ = false;
};

}  // namespace
}  // namespace ewarp::fuzz

FUZZ_MUTATES(ewarp::fuzz::Talk)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  const Talk talk(data, size);
  Run run(talk.head());
  for (std::size_t i = 0; i < talk.count() && i < 150; ++i) run.act(talk[i]);
  run.end();
  return 0;
}
