// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RDMAP on reliable datagrams over networks that lose, repeat, reorder and corrupt: several hosts do everything with
// one another at once, some of it wrong. Each request ends once, in its turn, as it must; each message arrives once, in
// order, with the right octets. EWARP_SEED=n repeats a run, EWARP_SEEDS=m makes m from there, EWARP_TRACE=1 shows
// datagrams.
#include <algorithm>
#include <set>

#include "tests/wire/rd_hosts.h"

using namespace ewarp;
using namespace ewarp::llp::rd;
using rdmap::Operation;
using rdmap::Status;
using rdsim::Network;
using wire::DatagramHost;
using wire::DatagramRequest;
using wire::FakeReceive;
using wire::joined;
using wire::pattern;
using wire::pieces_of;
using Bytes = std::vector<std::byte>;

namespace {

constexpr std::uint32_t kFixed = 0x501, kForeign = 0x502, kReadOnly = 0x503, kUnmapped = 0x504, kNobodys = 0x505;
constexpr std::uint32_t kWritten = 0x1000, kCounter = 0x2000;  // and the writer's number
constexpr std::size_t kFixedSize = 20000, kSlot = 6000, kSlots = 64;

// What all runs together have seen.
struct Tally {
  std::uint64_t datagrams = 0, requests = 0, messages = 0, placed_ahead = 0, reports = 0, refusals = 0, openings = 0;
  std::map<Status, std::uint64_t> ended;
} g_tally;

// How far a run may go wrong by itself.
enum class Trouble { none, breaks, restarts };

// What was promised of a message that takes a receive.
struct Expected {
  DatagramRequest* request;
  Status status = Status::success;
  Bytes payload;
  bool immediate = false, by_write = false, solicited = false, invalidate = false;
  std::uint32_t data = 0, stag = 0;
};

class Run {
 public:
  explicit Run(std::uint64_t seed);
  void go();

 private:
  struct Pair {  // one direction
    std::deque<Expected> expected;
    std::map<std::size_t, std::pair<DatagramRequest*, Bytes>> slots;
    std::multiset<std::uint64_t> counted;
    std::vector<DatagramRequest*> adds;
    std::size_t next_slot = 0;
  };
  void post(unsigned from, unsigned to, std::uint64_t seed);
  void post_send(DatagramHost& f, DatagramHost& t, Pair& pair, std::uint64_t seed, std::size_t n);
  void post_write(DatagramHost& f, DatagramHost& t, Pair& pair, std::uint64_t seed, std::size_t n);
  void post_read(DatagramHost& f, DatagramHost& t, std::size_t n);
  void post_atomic(DatagramHost& f, DatagramHost& t, Pair& pair);
  void sent(DatagramHost& f, DatagramRequest& r);
  void received(DatagramHost& t, unsigned from, const FakeReceive& buffer, const rdmap::Received& r);
  void make_trouble();
  void check();
  std::uint64_t key(const DatagramHost& h, const DatagramRequest& r) const { return h.number * 1000000ull + r.id; }
  bool wrong(unsigned one_in) { return errors_ && net_.below(one_in) == 0; }

  std::uint64_t seed_;
  Network net_;
  bool errors_;
  Trouble trouble_;
  std::vector<std::unique_ptr<DatagramHost>> hosts_;  // by number - 1
  std::map<std::pair<unsigned, unsigned>, Pair> pairs_;
  std::map<std::uint64_t, Status> due_;  // what must come of a request; success if it is not here
  std::map<std::uint64_t, Bytes> reads_;
  std::uint32_t window_ = 0x9000;
};

Run::Run(std::uint64_t seed) : seed_(seed), net_(seed, {}) {
  rdsim::name_run("rd_endpoint EWARP_SEED=" + std::to_string(seed));
  net_.conditions.loss = std::array{0.0, 0.02, 0.1, 0.3}[net_.below(4)];
  net_.conditions.duplicate = std::array{0.0, 0.05}[net_.below(2)];
  net_.conditions.corrupt = std::array{0.0, 0.02}[net_.below(2)];
  net_.conditions.congestion_mark = std::array{0.0, 0.05}[net_.below(2)];
  net_.conditions.spread_ms = std::array{0.2, 3.0}[net_.below(2)];
  errors_ = net_.below(3) != 0;
  trouble_ = std::array{Trouble::none, Trouble::none, Trouble::none, Trouble::breaks, Trouble::restarts}[net_.below(5)];
  Config c;
  c.idle_close = 300 * kMillisecond;
  c.dead_time = 300 * kSecond;
  c.handshake_tries = 40;
  c.credits = net_.below(2) == 0;
  c.max_seg = static_cast<std::uint16_t>(std::array{1472, 300, 1472, 9000}[net_.below(4)]);
  c.ord = c.ird = static_cast<std::uint16_t>(1 + net_.below(8));
  if (net_.below(4) == 0) c.max_held = 20000;
  const unsigned count = 2 + static_cast<unsigned>(net_.below(3));
  for (unsigned i = 1; i <= count; ++i) {
    hosts_.push_back(std::make_unique<DatagramHost>(net_, i, c, seed * 10 + i));
    DatagramHost& h = *hosts_.back();
    auto& r = h.queues.regions;
    r[kFixed] = {pattern(77, kFixedSize)};
    r[kForeign] = {Bytes(100), false};
    r[kReadOnly] = {pattern(78, 1000), true, true, false};
    r[kUnmapped] = {Bytes(5000), true, true, true, false};
    for (unsigned j = 1; j <= count; ++j) {
      r[kWritten + j] = {Bytes(kSlot * kSlots)};
      r[kCounter + j] = {Bytes(64)};
    }
    h.queues.on_send_done = [this, &h](DatagramRequest& q) { sent(h, q); };
    h.queues.on_receive_done = [this, &h](unsigned from, const FakeReceive& b, const rdmap::Received& q) {
      received(h, from, b, q);
    };
  }
}

void Run::post(unsigned from, unsigned to, std::uint64_t seed) {
  DatagramHost &f = *hosts_[from - 1], &t = *hosts_[to - 1];
  Pair& pair = pairs_[{from, to}];
  std::size_t n = seed % 3 == 0 ? net_.below(kSlot - 8) : seed % 7 == 0 ? 0 : net_.below(300);
  if (trouble_ != Trouble::none) n += 8;  // so that none is mistaken for another that never came
  switch (net_.below(6)) {
    case 0:
    case 1:
      post_send(f, t, pair, seed, n);
      break;
    case 2:
    case 3:
      post_write(f, t, pair, seed, n);
      break;
    case 4:
      post_read(f, t, n);
      break;
    default:
      post_atomic(f, t, pair);
      break;
  }
  DatagramRequest& r = *f.queues.requests.back();
  r.fence = net_.below(8) == 0;
  if (wrong(20) && r.length > 0) {  // its own memory is not there: nobody else hears of it
    r.good_for = 0;
    due_[key(f, r)] = Status::local_protection;
    if (!pair.expected.empty() && pair.expected.back().request == &r) pair.expected.pop_back();
    if (const auto s = pair.slots.find((pair.next_slot - 1) % kSlots); s != pair.slots.end() && s->second.first == &r)
      pair.slots.erase(s);
  }
  f.wake(to);
}

void Run::post_send(DatagramHost& f, DatagramHost& t, Pair& pair, std::uint64_t seed, std::size_t n) {
  Expected e;
  e.payload = pattern(seed, n);
  const bool long_one = wrong(8);
  if (long_one) e.payload = pattern(seed, kSlot + 1 + net_.below(3 * kSlot));
  DatagramRequest& r = f.queues.post(t.number, Operation::send, pieces_of(e.payload));
  e.request = &r;
  e.solicited = r.solicited = net_.below(2) == 0;
  e.data = r.immediate_data = static_cast<std::uint32_t>(seed);
  if (net_.below(4) == 0) {
    e.invalidate = r.invalidate = true;
    e.stag = r.invalidate_stag = window_++;
    if (wrong(4)) {
      due_[key(f, r)] = Status::remote_access;
      e.status = Status::flushed;
    } else {
      t.queues.regions[e.stag] = {};
    }
  } else {
    e.immediate = r.immediate = net_.below(3) == 0;
  }
  if (long_one) {
    due_[key(f, r)] = Status::remote_invalid;
    e.status = Status::local_length;
  }
  pair.expected.push_back(e);
}

void Run::post_write(DatagramHost& f, DatagramHost& t, Pair& pair, std::uint64_t seed, std::size_t n) {
  Expected e;
  e.payload = pattern(seed, n);
  DatagramRequest& r = f.queues.post(t.number, Operation::write, pieces_of(e.payload));
  e.request = &r;
  e.by_write = e.immediate = r.immediate = net_.below(2) == 0;
  e.solicited = r.solicited = net_.below(2) == 0;
  e.data = r.immediate_data = static_cast<std::uint32_t>(seed);
  r.remote_stag = kWritten + f.number;
  if (n > 0 && wrong(5)) {
    due_[key(f, r)] = Status::remote_access;
    const std::uint64_t how = net_.below(4);
    if (how < 3) {
      r.remote_stag = std::array{kNobodys, kForeign, kReadOnly}[how];
    } else {
      r.remote_to = kSlot * kSlots - net_.below(n);  // its end alone is out of bounds
      pair.slots.erase(kSlots - 1);
    }
    return;
  }
  const std::size_t slot = pair.next_slot++ % kSlots;
  r.remote_to = slot * kSlot;
  pair.slots[slot] = {&r, e.payload};
  if (e.immediate) pair.expected.push_back(e);
}

void Run::post_read(DatagramHost& f, DatagramHost& t, std::size_t n) {
  DatagramRequest& r = f.queues.post(t.number, Operation::read, pieces_of(Bytes(n)));
  r.remote_stag = kFixed;
  r.remote_to = net_.below(10000);
  const auto at = t.queues.regions[kFixed].octets.begin() + static_cast<std::ptrdiff_t>(r.remote_to);
  reads_[key(f, r)] = Bytes(at, at + static_cast<std::ptrdiff_t>(n));
  if (n == 0 || !wrong(4)) return;
  due_[key(f, r)] = Status::remote_access;
  switch (net_.below(5)) {
    case 0:
      r.remote_stag = kNobodys;
      break;
    case 1:
      r.remote_stag = kForeign;
      break;
    case 2:
      r.remote_to = kFixedSize - net_.below(n);
      break;
    case 3:
      r.remote_stag = kUnmapped;
      r.remote_to = 0;
      if (n > 5000) r.remote_stag = kNobodys;
      break;
    default:  // its sink goes while the answer is on its way
      r.good_for = 1;
      due_[key(f, r)] = Status::local_protection;
      break;
  }
}

void Run::post_atomic(DatagramHost& f, DatagramHost& t, Pair& pair) {
  DatagramRequest& r = f.queues.post(t.number, Operation::fetch_add, {Bytes(8)});
  r.remote_stag = kCounter + f.number;
  r.operand = 1 + net_.below(1000);
  if (!wrong(4)) return pair.adds.push_back(&r);
  if (net_.below(2) == 0) {
    r.remote_to = 4;
    due_[key(f, r)] = Status::remote_operation;
  } else {
    r.remote_stag = kNobodys;
    due_[key(f, r)] = Status::remote_access;
  }
}

void Run::sent(DatagramHost& f, DatagramRequest& r) {
  ++g_tally.requests;
  ++g_tally.ended[r.status];
  const auto due = due_.find(key(f, r));
  const Status expected = due == due_.end() ? Status::success : due->second;
  // connection_lost: an association that was being opened was refused.
  const bool broken =
      r.status == Status::remote_operation || r.status == Status::flushed || r.status == Status::connection_lost;
  if (r.status != expected && !(trouble_ != Trouble::none && broken))
    fail_msg("seed %lu: request %u/%lu ended with %d, not %d", seed_, f.number, r.id, static_cast<int>(r.status),
             static_cast<int>(expected));
  if (r.status != Status::success) return;
  if (r.operation == Operation::read && joined(r.pieces) != reads_.at(key(f, r)))
    fail_msg("seed %lu: Read %u/%lu brought others", seed_, f.number, r.id);
  if (r.operation == Operation::fetch_add) {
    std::uint64_t before = 0;
    std::memcpy(&before, r.pieces[0].data(), sizeof before);
    pairs_[{f.number, r.peer}].counted.insert(before);
  }
}

void Run::received(DatagramHost& t, unsigned from, const FakeReceive& buffer, const rdmap::Received& r) {
  ++g_tally.messages;
  if (trouble_ != Trouble::none) {
    net_.at(net_.now(), [&t] { t.post_receive(kSlot); });  // more are used up than was foreseen
    if (r.status == Status::flushed) return;
  }
  auto& list = pairs_[{from, t.number}].expected;
  Bytes got = joined(buffer.pieces);
  for (;; list.pop_front()) {
    if (list.empty()) fail_msg("seed %lu: %u had nothing to expect from %u", seed_, t.number, from);
    const Expected& e = list.front();
    bool it = r.status == e.status;
    if (it && r.status == Status::success)
      it = r.length == e.payload.size() && r.immediate == e.immediate && r.by_write == e.by_write &&
           r.solicited == e.solicited && r.invalidated == e.invalidate && r.invalidated_stag == e.stag &&
           (!e.immediate || r.immediate_data == e.data) &&
           (e.by_write || std::equal(e.payload.begin(), e.payload.end(), got.begin()));
    if (it) break;
    // Passed over, so it must have ended, or be about to, with the association that carried it.
    if (trouble_ == Trouble::none || (e.request->done && e.request->status == Status::success))
      fail_msg("seed %lu: %u did not expect this of %u", seed_, t.number, from);
  }
  if (list.front().by_write && trouble_ == Trouble::none) {
    const auto& octets = t.queues.regions[kWritten + from].octets;
    const auto at = octets.begin() + static_cast<std::ptrdiff_t>(list.front().request->remote_to);
    assert_true(std::equal(list.front().payload.begin(), list.front().payload.end(), at));
  }
  list.pop_front();
}

// Associations break off, or processes die, while work is under way.
void Run::make_trouble() {
  DatagramHost& h = *hosts_[net_.below(hosts_.size())];
  if (trouble_ == Trouble::restarts) return net_.below(2) == 0 ? h.restart() : h.reset();
  const unsigned peer = 1 + static_cast<unsigned>(net_.below(hosts_.size()));
  if (Association* a = h.table->find(h.key(peer))) h.table->abort(net_.now(), *a, ResetReason::administrative);
}

void Run::go() {
  Time t = net_.now();
  if (net_.below(4) == 0) {
    net_.conditions.dark_from = t + net_.below(200) * kMillisecond;
    net_.conditions.dark_to = net_.conditions.dark_from + 2 * kSecond;
  }
  const auto any = [&] { return 1 + static_cast<unsigned>(net_.below(hosts_.size())); };
  for (std::uint64_t i = 0; i < 80; ++i) {
    t += net_.below(3) == 0 ? net_.below(20) * kMillisecond : 0;
    if (i == 60) t += net_.below(2) * 3 * kSecond;  // long enough for an idle close
    const unsigned from = any(), to = any();        // itself too
    net_.at(t, [this, from, to, i] { post(from, to, seed_ * 1000 + i); });
    if (trouble_ != Trouble::none && i % 20 == 10) net_.at(t + 1, [this] { make_trouble(); });
  }
  t = net_.now();
  for (int i = 0; i < 80; ++i) {
    t += net_.below(200) * kMillisecond / 3;
    net_.at(t, [&] {
      for (auto& h : hosts_) h->post_receive(kSlot);
    });
  }
  net_.run();
  check();
}

void Run::check() {
  g_tally.datagrams += net_.datagrams;
  for (const auto& h : hosts_) {
    g_tally.placed_ahead += h->endpoint->counters.placed_ahead;
    g_tally.reports += h->endpoint->counters.reports_received;
    g_tally.refusals += h->table->counters().rnr_sent;
    g_tally.openings += h->table->counters().opened;
    if (trouble_ == Trouble::none) assert_int_equal(h->endpoint->counters.violations, 0);
    for (const auto& r : h->queues.requests)
      if (!r->done) fail_msg("seed %lu: request %u/%lu is not done", seed_, h->number, r->id);
    assert_int_equal(h->table->size(), 0);
    assert_int_equal(h->table->held(), 0);
    assert_int_equal(h->endpoint->active(), 0);
    assert_true(h->queues.taken.empty());
  }
  for (auto& [who, pair] : pairs_) {
    DatagramHost& t = *hosts_[who.second - 1];
    for (const Expected& e : pair.expected)
      if (trouble_ == Trouble::none || e.request->status == Status::success)
        fail_msg("seed %lu: request %u/%lu never arrived", seed_, who.first, e.request->id);
    for (const auto& [slot, what] : pair.slots) {
      const auto at = t.queues.regions[kWritten + who.first].octets.begin() + static_cast<std::ptrdiff_t>(slot * kSlot);
      if (what.first->status == Status::success) assert_true(std::equal(what.second.begin(), what.second.end(), at));
    }
    // Each addition that succeeded was made once; one whose end is unknown, at most once.
    std::uint64_t total = 0, least = 0, most = 0;
    std::memcpy(&total, t.queues.regions[kCounter + who.first].octets.data(), sizeof total);
    for (const DatagramRequest* r : pair.adds) {
      most += r->operand;
      if (r->status == Status::success) least += r->operand;
    }
    assert_true(total >= least && total <= most);
    if (trouble_ == Trouble::none) {
      for (const DatagramRequest* r : pair.adds) most -= r->status == Status::success ? 0 : r->operand;
      assert_int_equal(total, most);
    }
    for (const std::uint64_t before : pair.counted) assert_int_equal(pair.counted.count(before), 1);
  }
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSeeds = 60;
#else
constexpr std::uint64_t kSeeds = 600;
#endif

// Holds: RD-3, RD-17
void everything_over_a_bad_network(void**) {
  const char* one = std::getenv("EWARP_SEED");
  const char* many = std::getenv("EWARP_SEEDS");
  const char* full = std::getenv("EWARP_TEST_FULL");
  const std::uint64_t first = one ? std::strtoull(one, nullptr, 0) : 0;
  const std::uint64_t count = many ? std::strtoull(many, nullptr, 0) : one ? 1 : full ? 10 * kSeeds : kSeeds;
  for (std::uint64_t seed = first; seed < first + count; ++seed) Run(seed).go();
  const Tally& t = g_tally;
  print_message(
      "%lu datagrams, %lu associations opened, %lu requests, %lu messages received, %lu segments placed ahead, "
      "%lu reports, %lu times no receive\n",
      t.datagrams, t.openings, t.requests, t.messages, t.placed_ahead, t.reports, t.refusals);
  for (const auto& [status, n] : t.ended) print_message("  status %d: %lu\n", static_cast<int>(status), n);
  if (count < 50) return;
  for (const Status s : {Status::success, Status::local_protection, Status::remote_access, Status::remote_invalid,
                         Status::remote_operation, Status::flushed})
    assert_true(t.ended.contains(s));
  assert_true(t.placed_ahead > 0 && t.reports > 0 && t.refusals > 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(everything_over_a_bad_network)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
