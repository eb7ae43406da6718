// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Arbitrary segments from a peer whose association is in order: RDMAP on reliable datagrams must neither break, nor
// touch memory that is not meant, nor end a request twice or out of turn, nor keep anything when all is over.
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "rdmap/datagram/endpoint.h"
#include "tests/fuzz/fuzz.h"
#include "tests/wire/rd_intruder.h"

namespace ewarp::fuzz {
namespace {

using namespace llp::rd;
using rdmap::Opcode;
using rdmap::Operation;
using rdmap::SendRequest;
using rdmap::Status;
using wire::Intruder;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kOpen = 1, kForeign = 2, kGoing = 3;

struct Request : SendRequest {
  Bytes memory;  // of exactly its size
};

class Victim final : public rdmap::DatagramConsumer, public Entropy {
 public:
  Victim() : endpoint(*this) {
    Config c;
    c.ird = 3;
    c.ord = 3;
    c.max_held = 30000;
    table.emplace(c, endpoint, peer, *this);
    peer.table = &*table;
    regions = {{kOpen, Bytes(300)}, {kForeign, Bytes(300)}, {kGoing, Bytes(300)}};
    peer.open(now);
  }
  void post(unsigned what, unsigned length) {
    auto r = std::make_unique<Request>();
    r->operation = static_cast<Operation>(what % 5);
    r->fence = what & 8;
    r->immediate = (what & 16) && !rdmap::has_response(r->operation);
    r->invalidate = (what & 32) && r->operation == Operation::send && !r->immediate;
    r->length = rdmap::is_atomic(r->operation) ? 8 : length * 300;
    r->memory.resize(r->length);
    waiting.push_back(r.get());
    requests.push_back(std::move(r));
    table->wake(now, Intruder::key(), Intruder::address().port);
  }
  void post_receive(unsigned size) {
    posted.emplace_back(size);
    while (Association* a = endpoint.next_refused()) table->receives_posted(now, *a);
  }
  void pass(Time t) {
    const Time until = now + t;
    for (int i = 0; table->deadline() <= until; ++i) {
      FUZZ_CHECK(i < 100000);
      now = std::max(now, table->deadline());
      table->expire(now);
    }
    now = until;
  }
  // All that was begun has ended, all receives are back.
  void end() {
    ended = true;
    if (requests.size() % 2 == 1) {  // as a queue pair that goes to ERR: nothing is told any more
      endpoint.abandon();
      table->reset_qp(now, Intruder::kVictim);
      begun.clear();
      taken.clear();
    } else if (Association* a = table->find(Intruder::key())) {
      table->abort(now, *a, ResetReason::administrative);
    }
    pass(600 * kSecond);
    FUZZ_CHECK(table->size() == 0 && table->held() == 0 && endpoint.active() == 0 && taken.empty());
    FUZZ_CHECK(begun.empty() && !endpoint.has_refused());
  }

  Time now = kSecond;
  Intruder peer;
  rdmap::DatagramEndpoint endpoint;
  std::optional<Table> table;
  std::map<std::uint32_t, Bytes> regions;
  std::deque<std::unique_ptr<Request>> requests;
  std::deque<Request*> waiting, begun;
  std::deque<Bytes> posted;
  std::map<Receive, Bytes> taken;
  bool ended = false, mapped = true;

 private:
  Admission admit(const rdmap::Peer&) override { return ended ? Admission::qp_gone : Admission::welcome; }
  SendRequest* next_send(const rdmap::Peer&) override { return ended || waiting.empty() ? nullptr : waiting.front(); }
  void send_started(const rdmap::Peer&) override {
    begun.push_back(waiting.front());
    waiting.pop_front();
  }
  void send_done(SendRequest& r, Status) override {
    FUZZ_CHECK(!begun.empty() && begun.front() == &r);
    begun.front()->memory = {};
    begun.pop_front();
  }
  static Status piece(Bytes& of, std::uint64_t at, std::uint64_t n, rdmap::ExtentList& out) {
    FUZZ_CHECK(at <= of.size() && n <= of.size() - at);
    out.clear();
    out.add({of.data() + at, n / 2, nullptr, 0});
    out.add({of.data() + at + n / 2, n - n / 2, nullptr, 0});
    return Status::success;
  }
  Status request_memory(const SendRequest& r, std::uint64_t at, std::uint64_t n, rdmap::ExtentList& out) override {
    return piece(const_cast<Request&>(static_cast<const Request&>(r)).memory, at, n, out);
  }
  std::uint32_t receives() const override { return static_cast<std::uint32_t>(posted.size()); }
  std::optional<Receive> take_receive() override {
    if (posted.empty()) return {};
    taken[++last_] = std::move(posted.front());
    posted.pop_front();
    return last_;
  }
  std::uint64_t receive_capacity(Receive r) override { return taken.at(r).size(); }
  Status receive_memory(Receive r, std::uint64_t at, std::uint64_t n, rdmap::ExtentList& out) override {
    return piece(taken.at(r), at, n, out);
  }
  void receive_done(Receive r, const rdmap::Peer&, const rdmap::Received& what) override {
    FUZZ_CHECK(taken.contains(r) &&
               (what.by_write || what.status != Status::success || what.length <= taken.at(r).size()));
    taken.erase(r);
  }
  ddp::Verdict resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight,
                       llp::Extent& out) override {
    FUZZ_CHECK(n > 0);
    const auto r = regions.find(stag);
    if (r == regions.end()) return ddp::Verdict::invalid_stag;
    if (stag == kForeign) return ddp::Verdict::not_associated;
    if (to + n < to) return ddp::Verdict::wrap;
    if (to + n > r->second.size()) return ddp::Verdict::bounds;
    out = {r->second.data() + to, n, nullptr, 0};
    return ddp::Verdict::ok;
  }
  ddp::Verdict invalidate(std::uint32_t stag) override {
    return stag == kGoing && regions.erase(stag) == 1 ? ddp::Verdict::ok : ddp::Verdict::invalid_stag;
  }
  bool copy_in(const llp::Extent& to, const std::byte* from) override {
    if (!mapped) return false;
    std::copy_n(from, to.length, to.address);
    return true;
  }
  bool atomic(const llp::Extent& target, const rdmap::AtomicRequest&, std::uint64_t* original) override {
    std::memcpy(original, target.address, sizeof *original);
    return mapped;
  }
  bool readable(const llp::Extent&) override { return mapped; }
  bool hold(const llp::Extent&) override { return true; }
  void let_go(const llp::Extent&) override {}
  std::uint32_t draw() override { return static_cast<std::uint32_t>(random_()); }
  std::mt19937 random_{1};
  Receive last_ = 0;
};

// Segments that are right but for a few bits: MSNs and offsets are those that would come next, unless the input says
// otherwise.
class Speech {
 public:
  explicit Speech(Victim& v) : v_(v) { v.peer.heard.clear(); }
  void say(Input& in) {
    const unsigned what = in.octet(), how = in.octet();
    const unsigned opcode = what & 15;
    const bool last = how & 1;
    const Bytes payload = body(opcode, in);
    const auto control = static_cast<std::uint8_t>((how & 0xe0) == 0xe0 ? what : 0x40 | opcode);
    const bool tagged = (opcode == 0 || opcode == 2) != ((how & 0x1e) == 0x1e);
    const Lane lane = (opcode == 2 || opcode == 11 || opcode == 7) != ((how & 0x1e) == 0x1c) ? Lane::rsp : Lane::req;
    Bytes segment;
    if (tagged) {
      const std::uint32_t stag = opcode == 2 ? asked() : in.octet() & 3;
      segment = wire::tagged_segment(control, stag, opcode == 2 ? at_ : in.octet(), last, payload);
      if (opcode == 2) at_ = last ? 0 : at_ + payload.size();
    } else {
      const std::uint32_t qn = opcode == 7 ? 2 : opcode == 11 ? 3 : opcode == 1 || opcode == 10 ? 1 : 0;
      const unsigned off = in.octet();
      segment = wire::untagged_segment(control, off == 0xff ? off : qn, msn_[qn] + (off == 0xfe ? 1 : 0),
                                       mo_[qn] + (off == 0xfd ? 1 : 0), last, payload, kGoing);
      mo_[qn] = last ? 0 : mo_[qn] + static_cast<std::uint32_t>(payload.size());
      msn_[qn] += last;
    }
    const auto immediate = (how & 0x0e) == 0x0e ? std::optional(7u) : std::nullopt;
    const auto error = opcode == 7 ? std::optional(v_.peer.first_heard + in.octet() % 8) : std::nullopt;
    answered_ += (opcode == 2 || opcode == 11) && last;
    v_.peer.say(v_.now, lane, segment, immediate, error, how >> 4 == 5 ? how & 3 : 0);
  }

 private:
  // The key of the Read or atomic that is to be answered next.
  std::uint32_t asked() const {
    std::size_t n = 0;
    for (const auto& h : v_.peer.heard) {
      const bool read = h.segment.size() == 18 + 28, atomic = h.segment.size() == 18 + 52;
      if (h.lane == Lane::req && (read || atomic) && n++ == answered_)
        return get_be<std::uint32_t>(h.segment, read ? 18 : 22);
    }
    return 0;
  }
  Bytes body(unsigned opcode, Input& in) const {
    if (opcode == 1) {
      Bytes b(rdmap::ReadRequest::kSize);
      rdmap::ReadRequest{1, 0, in.octet() * 2u, in.octet() & 3, in.octet()}.emit(
          std::span(b).first<rdmap::ReadRequest::kSize>());
      return b;
    }
    if (opcode == 10) {
      Bytes b(rdmap::AtomicRequest::kSize);
      rdmap::AtomicRequest a;
      a.op = static_cast<std::uint8_t>(in.octet() & 3);
      a.stag = in.octet() & 3;
      a.to = in.octet();
      a.emit(std::span(b).first<rdmap::AtomicRequest::kSize>());
      return b;
    }
    if (opcode == 11) {
      Bytes b(rdmap::AtomicResponse::kSize);
      rdmap::AtomicResponse{asked(), 5}.emit(std::span(b).first<rdmap::AtomicResponse::kSize>());
      return b;
    }
    if (opcode == 8 || opcode == 9) return Bytes(in.octet() == 1 ? 4 : 8);
    return Bytes(in.octet() % 200, std::byte{0x77});
  }
  Victim& v_;
  std::array<std::uint32_t, 4> msn_{1, 1, 1, 1}, mo_{};
  std::uint64_t at_ = 0;
  std::size_t answered_ = 0;
};

void check(Input in) {
  Victim v;
  auto speech = std::make_unique<Speech>(v);
  for (int i = 0; i < 400 && !in.rest().empty(); ++i) {
    const unsigned what = in.octet();
    switch (what >> 5) {
      case 0:
        v.post(what, in.octet());
        break;
      case 1:
        v.post_receive(what & 16 ? 2000 : what & 15);
        break;
      case 2:
        v.pass(Time{in.octet()} * 50 * kMicrosecond);
        break;
      case 3:
        if (what & 1) v.mapped = !v.mapped;
        v.peer.acknowledge(v.now);
        break;
      default:
        if (v.table->find(Intruder::key()) == nullptr) {
          v.peer.open(v.now);
          speech = std::make_unique<Speech>(v);
        }
        speech->say(in);
        break;
    }
  }
  v.end();
}

}  // namespace
}  // namespace ewarp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ewarp::fuzz::check(ewarp::fuzz::Input(data, size));
  return 0;
}
