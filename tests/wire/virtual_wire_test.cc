// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two endpoints joined by a wire in virtual time: no sockets, no threads, no clock. A seed decides the work, how the
// octets are cut and delayed in both directions, and (with CRC) which bit is hit. A simple model says what must come
// out.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "rdmap/endpoint.h"
#include "tests/wire/ahead.h"
#include "tests/wire/fake_consumer.h"
#include "tests/wire/peer.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::uint32_t kReadOnly = 0x501, kWritten = 0x502;
constexpr std::size_t kReadOnlyOctets = 200000, kWrittenOctets = 24000;

struct Plan {
  unsigned seed = 0;
  bool flip = false;
};

std::uint64_t hash(const Bytes& in) {
  std::uint64_t h = 1469598103934665603u;
  for (const std::byte b : in) h = (h ^ std::to_integer<unsigned>(b)) * 1099511628211u;
  return h;
}

// What the receiver of a Send has to see.
struct Expected {
  Bytes payload;
  bool solicited, invalidate;
  std::uint32_t stag;
  std::uint64_t written;  // hash of everything that was written before
};

class End {
 public:
  End(const char* name, const mpa::StreamParams& params, std::size_t mulpdu, std::mt19937& random)
      : name_(name), random_(random), params_(params), endpoint(consumer, params, mulpdu) {
    consumer.regions[kReadOnly] = {pattern(kReadOnlyOctets, params.initiator ? 5 : 6), true, true, false};
    consumer.regions[kWritten] = {Bytes(kWrittenOctets), true, true, true};
    consumer.on_started = [this](FakeRequest& r) { started(r); };
    consumer.on_send_done = [this](FakeRequest& r) { done(r); };
    consumer.on_receive_done = [this](const FakeReceive& b, const rdmap::Received& r) { received(b, r); };
  }

  void post_random(End& other);
  // Some of the receives that are still owed.
  bool post_receives(std::size_t n);
  std::size_t owed() const { return late_.size(); }
  bool transmit();
  bool take();

  std::deque<std::byte> wire;  // on its way to this end
  FakeConsumer consumer;
  std::deque<Expected> expected;
  Bytes model;  // what the other end's kWritten becomes
  std::size_t completed = 0;

 private:
  std::size_t pick(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random_); }
  std::size_t size();
  std::vector<Bytes> pieces(const Bytes& whole);
  void digest();
  void post_send(End& other);
  void post_write();
  void post_read(End& other);
  void started(FakeRequest& r);
  void done(FakeRequest& r);
  void received(const FakeReceive& buffer, const rdmap::Received& r);

  const char* name_;
  std::mt19937& random_;
  mpa::StreamParams params_;
  std::deque<FakeReceive> late_;  // a Send waits for its receive, within limits that time sets
  Bytes staged_;
  llp::Gather gather_;
  std::map<std::uint64_t, Bytes> reads_;  // by request: what has to be read
  std::size_t reads_open_ = 0, last_plain_ = 0, last_read_ = 0;
  std::uint32_t next_window_ = 0x1000;
  bool fence_next_ = false;

 public:
  rdmap::Endpoint endpoint;
  bool leftover() const { return !staged_.empty() || !wire.empty(); }
  End* peer = nullptr;
};

// Around the limits more often than elsewhere.
std::size_t End::size() {
  constexpr std::size_t kEdges[] = {0, 1, 2, 3, 4, 511, 512, 513, 2047, 2048, 4096, 16384, 16385};
  if (pick(3) == 0) return kEdges[pick(std::size(kEdges) - 1)];
  return pick(9) == 0 ? pick(kWrittenOctets) : pick(700);
}

std::vector<Bytes> End::pieces(const Bytes& whole) {
  std::vector<Bytes> out;
  std::size_t at = 0;
  for (std::size_t n = pick(4); n > 0; --n) {
    const std::size_t take = pick(whole.size() - at);
    out.push_back(slice(whole, at, take));
    at += take;
  }
  out.push_back(slice(whole, at, whole.size() - at));
  return out;
}

void End::post_random(End& other) {
  if (model.empty()) model.resize(kWrittenOctets);
  switch (pick(2)) {
    case 0:
      post_send(other);
      break;
    case 1:
      post_write();
      break;
    default:
      post_read(other);
  }
}

void End::post_send(End& other) {
  const Bytes payload = pattern(size(), static_cast<unsigned>(random_()));
  FakeRequest& r = consumer.post(rdmap::Operation::send, pieces(payload));
  r.solicited = pick(1) == 0;
  r.invalidate = pick(3) == 0;
  r.fence = std::exchange(fence_next_, false) || pick(7) == 0;
  if (r.invalidate) other.consumer.regions[r.invalidate_stag = next_window_++] = {};
  other.late_.push_back({0, pieces(Bytes(payload.size() + pick(100)))});
  if (other.params_.rx_markers || pick(1) == 0) other.post_receives(other.late_.size());
  other.expected.push_back({payload, r.solicited, r.invalidate, r.invalidate_stag, hash(model)});
}

void End::post_write() {
  const std::size_t n = size(), to = pick(kWrittenOctets - n);
  const Bytes payload = pattern(n, static_cast<unsigned>(random_()));
  FakeRequest& r = consumer.post(rdmap::Operation::write, pieces(payload));
  r.remote_stag = n == 0 ? 0xdead : kWritten;
  r.remote_to = to;
  r.fence = std::exchange(fence_next_, false) || pick(7) == 0;
  std::copy(payload.begin(), payload.end(), model.begin() + static_cast<std::ptrdiff_t>(to));
}

// Of what never changes; or of what was written just now, and then the next request has to wait for it, since a later
// Write may be seen by an earlier Read (RFC 5040 section 5.5).
void End::post_read(End& other) {
  const bool stable = pick(2) != 0;
  const std::size_t n = stable && pick(9) == 0 ? pick(kReadOnlyOctets) : size();
  const Bytes& source = stable ? other.consumer.regions[kReadOnly].octets : model;
  const std::size_t from = pick(source.size() - n);
  FakeRequest& r = consumer.post(rdmap::Operation::read, pieces(Bytes(n)));
  r.remote_stag = n == 0 ? 0xdead : stable ? kReadOnly : kWritten;
  r.remote_to = from;
  r.fence = std::exchange(fence_next_, !stable) || pick(7) == 0;
  reads_[r.id] = slice(source, from, n);
}

void End::started(FakeRequest& r) {
  if (r.fence && reads_open_ != 0) fail_msg("%s: request %lu passed its fence", name_, r.id);
  if (r.operation != rdmap::Operation::read) return;
  if (++reads_open_ > params_.ord) fail_msg("%s: %zu Reads outstanding, ORD %u", name_, reads_open_, params_.ord);
}

void End::done(FakeRequest& r) {
  if (r.status != rdmap::Status::success) return;
  ++completed;
  std::size_t& last = r.operation == rdmap::Operation::read ? last_read_ : last_plain_;
  if (r.id + 1 <= last) fail_msg("%s: request %lu completed after %zu", name_, r.id, last - 1);
  last = r.id + 1;
  if (r.operation != rdmap::Operation::read) return;
  --reads_open_;
  Bytes got;
  for (const Bytes& p : r.pieces) got.insert(got.end(), p.begin(), p.end());
  if (got != reads_[r.id])
    fail_msg("%s: Read %lu of %u octets from %lx brought others", name_, r.id, r.length, r.remote_to);
  reads_.erase(r.id);
}

void End::received(const FakeReceive& buffer, const rdmap::Received& r) {
  if (r.status != rdmap::Status::success) return;
  ++completed;
  if (expected.empty()) fail_msg("%s: a message that nobody sent", name_);
  const Expected want = std::move(expected.front());
  expected.pop_front();
  Bytes got;
  for (const Bytes& p : buffer.pieces) got.insert(got.end(), p.begin(), p.end());
  const Bytes behind = slice(got, want.payload.size(), got.size() - want.payload.size());
  got.resize(want.payload.size());
  if (r.length != want.payload.size() || got != want.payload)
    fail_msg("%s: message of %u octets, %zu sent, or others", name_, r.length, want.payload.size());
  if (behind != Bytes(behind.size())) fail_msg("%s: octets behind the message were written", name_);
  if (r.solicited != want.solicited || r.invalidated != want.invalidate || r.invalidated_stag != want.stag)
    fail_msg("%s: flags of the message", name_);
  if (want.invalidate && consumer.regions.contains(want.stag)) fail_msg("%s: STag %x is still valid", name_, want.stag);
  // RFC 5040 section 5.5: what was written before the Send is there.
  if (hash(consumer.regions[kWritten].octets) != want.written)
    fail_msg("%s: Writes before the Send are missing", name_);
}

bool End::post_receives(std::size_t n) {
  const bool any = n > 0;
  for (; n > 0; --n) {
    consumer.receives.push_back(std::move(late_.front()));
    late_.pop_front();
  }
  if (endpoint.stalled()) digest();
  return any;
}

void End::digest() {
  const Bytes exact = staged_;
  const std::size_t used = endpoint.receive(exact);
  staged_.erase(staged_.begin(), staged_.begin() + static_cast<std::ptrdiff_t>(used));
}

// Some of what there is to send goes on the wire.
bool End::transmit() {
  if (gather_.empty() && !endpoint.wants_transmit()) return false;
  endpoint.transmit(gather_, 1 + pick(100000));
  if (gather_.empty()) return false;
  const std::size_t n = pick(2) == 0 ? gather_.octets() : 1 + pick(gather_.octets() - 1);
  std::size_t left = n;
  for (const iovec& v : gather_.vectors()) {
    const std::size_t take = std::min(left, v.iov_len);
    const auto* at = static_cast<const std::byte*>(v.iov_base);
    peer->wire.insert(peer->wire.end(), at, at + take);
    if ((left -= take) == 0) break;
  }
  gather_.consume(n);
  endpoint.transmitted(n);
  return true;
}

// Some of what is on the wire arrives, in the order that Connection keeps: direct targets first, then staging.
bool End::take() {
  if (wire.empty() || endpoint.stalled()) return false;
  std::size_t n = 1 + pick(pick(3) == 0 ? wire.size() - 1 : std::min<std::size_t>(wire.size() - 1, 2000));
  Ahead ahead(endpoint);
  while (n > 0 && !endpoint.direct().empty()) {
    const llp::Extent e = endpoint.direct().front();
    const std::size_t take = std::min({n, e.length, 1 + pick(e.length)});
    std::copy_n(wire.begin(), take, e.address);
    wire.erase(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(take));
    endpoint.direct_received(take);
    n -= take;
  }
  const auto end = wire.begin() + static_cast<std::ptrdiff_t>(n);
  const Bytes behind(wire.begin(), end), standing = ahead.arrived(behind);
  staged_.insert(staged_.end(), standing.begin(), standing.end());
  wire.erase(wire.begin(), end);
  digest();
  return true;
}

struct Agreement {
  mpa::StreamParams initiator, responder;
  std::size_t mulpdu[2];
};

Agreement agree(std::mt19937& random, bool flip) {
  const auto pick = [&](unsigned n) { return random() % (n + 1); };
  Agreement a;
  a.initiator.initiator = true;
  a.initiator.crc = a.responder.crc = flip || pick(1) == 0;
  a.initiator.tx_markers = a.responder.rx_markers = pick(2) == 0;
  a.responder.tx_markers = a.initiator.rx_markers = pick(2) == 0;
  a.initiator.extensions = a.responder.extensions = pick(1) == 0;
  a.initiator.peer_to_peer = a.responder.peer_to_peer = true;
  a.responder.rtr = 7;
  a.initiator.rtr = static_cast<std::uint8_t>(1u << pick(2));
  a.initiator.ird = a.responder.ord = static_cast<std::uint16_t>(1 + pick(7));
  a.initiator.ord = a.responder.ird = static_cast<std::uint16_t>(1 + pick(7));
  constexpr std::size_t kLimits[] = {128, 130, 530, 1442, 8942, 16398, 64768};
  for (std::size_t& m : a.mulpdu) m = kLimits[pick(std::size(kLimits) - 1)];
  return a;
}

struct Outcome {
  std::size_t posted = 0, completed = 0;
  bool flipped = false, noticed = false;
};

Outcome run(const Plan& plan) {
  std::mt19937 random(plan.seed);
  const Agreement a = agree(random, plan.flip);
  End left("initiator", a.initiator, a.mulpdu[0], random), right("responder", a.responder, a.mulpdu[1], random);
  left.peer = &right;
  right.peer = &left;
  left.model.resize(kWrittenOctets);
  right.model.resize(kWrittenOctets);
  Outcome out;
  std::size_t to_post = 5 + random() % 40;
  const std::size_t flip_at = random() % 300;
  for (std::size_t step = 0, idle = 0; idle < 200; ++step) {
    End& end = random() % 2 == 0 ? left : right;
    bool moved = false;
    switch (random() % 5) {
      case 0:
        if (to_post > 0) {
          end.post_random(*end.peer);
          --to_post;
          ++out.posted;
          moved = true;
        }
        break;
      case 1:
        moved = end.transmit();
        break;
      case 2:
        moved = end.owed() > 0 && end.post_receives(1 + random() % end.owed());
        break;
      default:
        moved = end.take();
    }
    if (plan.flip && !out.flipped && step > flip_at && !end.wire.empty()) {
      end.wire[random() % end.wire.size()] ^= static_cast<std::byte>(1u << random() % 8);
      out.flipped = true;
    }
    idle = moved ? 0 : idle + 1;
    if (step > 10'000'000) fail_msg("no end in sight");
  }
  out.completed = left.completed + right.completed;
  out.noticed = left.endpoint.fault() || right.endpoint.fault() || left.leftover() || right.leftover();
  if (!out.flipped) {
    for (const End* e : {&left, &right}) {
      if (e->endpoint.fault() || e->endpoint.terminated()) fail_msg("a fault on a clean wire");
      if (!e->endpoint.quiescent() || e->leftover() || !e->expected.empty()) fail_msg("the work does not end");
      for (const auto& r : e->consumer.sends)
        if (!r->done || r->status != rdmap::Status::success) fail_msg("request %lu is not done", r->id);
    }
    if (left.consumer.regions[kWritten].octets != right.model || right.consumer.regions[kWritten].octets != left.model)
      fail_msg("written memory differs");
    return out;
  }
  // Nothing that succeeded was wrong: done() and received() have looked. Both ends must know, unless the octet that
  // was hit makes the rest of the stream look like one endless FPDU: then the end of the stream tells.
  const bool ended = left.endpoint.fault() || right.endpoint.fault();
  if (ended && !(left.endpoint.fault() || left.endpoint.terminated())) fail_msg("the initiator does not know");
  if (ended && !(right.endpoint.fault() || right.endpoint.terminated())) fail_msg("the responder does not know");
  return out;
}

unsigned seeds_wanted(unsigned usual) {
  const char* n = std::getenv("EWARP_SEEDS");
  return n == nullptr ? usual : static_cast<unsigned>(std::atoi(n));
}

// Tells with which seed a test failed.
unsigned the_seed = 0;
bool finished = false;
int tell_seed(void**) {
  if (!std::exchange(finished, false)) print_error("failed with EWARP_SEED=%u\n", the_seed);
  return 0;
}

// One seed alone: EWARP_SEED=<number>.
void run_seeds(bool flip, unsigned count) {
  std::size_t posted = 0, flipped = 0, noticed = 0;
  const char* only = std::getenv("EWARP_SEED");
  const unsigned first = only == nullptr ? 0 : static_cast<unsigned>(std::atoi(only));
  for (unsigned seed = first; seed < (only == nullptr ? count : first + 1); ++seed) {
    the_seed = seed;
    const Outcome o = run(Plan{seed, flip});
    posted += o.posted;
    flipped += o.flipped;
    noticed += o.flipped && o.noticed;
  }
  std::fprintf(stderr, "%u seeds, %zu requests, %zu bits hit, %zu noticed\n", count, posted, flipped, noticed);
  assert_true(posted > 0);
  if (flip && only == nullptr) {
    assert_true(flipped > count / 2);
    assert_int_equal(noticed, flipped);
  }
  finished = true;
}

constexpr unsigned kSeeds = test::kInstrumented ? 600 : 3000;

// Holds: MPA-4, DDP-4, DDP-23, RDM-12, RDM-13, RDM-24, RDM-26
void everything_arrives_once_and_in_order(void**) {
  run_seeds(false, seeds_wanted(kSeeds));
}
// Holds: MPA-7
void a_flipped_bit_never_becomes_data(void**) {
  run_seeds(true, seeds_wanted(kSeeds));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(everything_arrives_once_and_in_order, tell_seed),
      cmocka_unit_test_teardown(a_flipped_bit_never_becomes_data, tell_seed),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
