// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The message channel with peers of another mind: what they send, in the channel's own form but with any field wrong,
// or as octets; what their adapters complete, in order or not at all; and an application that sends, receives, puts,
// gets, asks, probes and cancels meanwhile. Every request ends once, no memory stays reachable, nothing but the
// application's own buffers is touched. The first octets are a hello and a message, too.
#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "mpi_shim/channel/core/machine.h"
#include "mpi_shim/channel/verbs/hello.h"
#include "tests/fuzz/records.h"

namespace ewarp::fuzz {
namespace {

using namespace channel;
using Bytes = std::vector<std::byte>;
// Head: 0 tuning, 1 adapter.
using Talk = Records<2, 24>;
using Record = std::array<std::uint8_t, Talk::kRecord>;

constexpr PeerId kPeers = 3;  // the first is ourselves

Tuning tuning_of(unsigned how) {
  Tuning t;
  t.eager_threshold = 64;
  t.eager_piece = how & 256 ? 20 : 16 << 10;
  t.receive_memory = how & 512 ? 0 : 2000;
  t.hybrid_threshold = 256;
  t.hybrid_buffers = how & 1 ? 0 : 4;
  t.receive_depth = how & 2 ? 4 : 16;
  t.rendezvous_by_read = how & 4;
  t.announce = (how & 8) == 0;
  t.announce_threshold = how & 16 ? 16 : 64;
  t.ordered_completions = how & 16;
  t.adapt = how & 32;
  t.copy_limit = how & 64 ? 100 : 4096;
  t.counter_limit = 8;
  t.ignored_bits = how & 128 ? 4 : 0;
  return t;
}

// The application's side of one request.
struct Asked {
  Bytes buffer;
  Request request;
  bool listens = false, multi = false, over = false;
};

class Adversary final : public Transport, public Listener, public Answerer {
 public:
  Adversary(unsigned tuning, unsigned adapter) : immediate_(adapter & 1), tuning_(tuning_of(tuning)) {
    machine_ = std::make_unique<Machine>(tuning_, *this);
    for (PeerId p = 0; p < kPeers; ++p) machine_->add_peer(p == 0);
    machine_->tell_puts({this, nullptr, 0});
    if (adapter & 2) machine_->answer_with(this);
    depth_ = adapter & 4 ? 3 : 64;
  }
  ~Adversary() override { machine_.reset(); }

  void act(const Record& r) {
    const PeerId peer = 1 + (r[1] & 1), any = r[1] & 4 ? kAnySource : r[1] & 2 ? 0 : peer;
    const std::size_t length = (r[9] + 256u * r[10]) % 1500;
    switch (r[0] % 24) {
      case 8: {
        Bytes raw;
        for (const std::uint8_t b : std::span(r).subspan(2)) raw.push_back(static_cast<std::byte>(b));
        raw.resize(r[0] & 128 ? 32 : raw.size());
        arrives(peer, [&] { machine_->on_received(peer, exact(raw)); });
        break;
      }
      case 9: {
        const std::uint32_t id = heard(r).id + r[12];
        if (immediate_)
          arrives(peer, [&] { machine_->on_immediate(peer, id | (r[3] & 1 ? wire::kSameData : 0), length); });
        break;
      }
      case 10:
        for (int n = 0; n <= (r[2] & 7); ++n) complete(peer);
        break;
      case 11:
        depth_ = depth_ == 1 ? 64 : 1;
        break;
      case 12:
        failing_[peer] = true;
        break;
      case 13:
        if (Asked* a = ask(r, length))
          a->request = machine_->send(any == kAnySource ? peer : any, tag(r), a->buffer,
                                      SendOptions{.synchronous = (r[3] & 3) == 1,
                                                  .inject = (r[3] & 2) != 0 && length <= tuning_.eager_threshold,
                                                  .delivered = (r[3] & 4) != 0,
                                                  .data = r[3] & 8 ? std::optional<std::uint64_t>(r[4]) : std::nullopt,
                                                  .report = report(*a)});
        break;
      case 14:
      case 15:
        if (Asked* a = ask(r, length)) {
          a->multi = a->listens && (r[3] & 1);
          a->request = machine_->receive(any, tag(r),
                                         r[4] & 1   ? kAnyTag
                                         : r[4] & 2 ? 7
                                                    : tuning_.ignored_bits,
                                         a->buffer, {.multi = a->multi, .least = r[5], .report = report(*a)}, r[3] & 2);
        }
        break;
      case 16:
        if (Asked* a = ask(r, length)) {
          const wire::Remote remote = heard(r).remote;
          a->request = r[3] & 1 ? machine_->get(peer, a->buffer, remote, report(*a))
                                : machine_->put(peer, a->buffer, remote,
                                                {.inject = (r[3] & 2) != 0 && length <= tuning_.eager_threshold,
                                                 .delivered = (r[3] & 4) != 0,
                                                 .data = r[3] & 8 ? std::optional<std::uint64_t>(r[4]) : std::nullopt,
                                                 .report = report(*a)});
        }
        break;
      case 17:
        if (Asked* a = ask(r, length)) {
          question_.assign(r[3], std::byte{1});
          a->request = machine_->call(peer, question_, a->buffer, report(*a));
        }
        break;
      case 18:
        if (Asked* a = some(r[2]); a != nullptr && !a->over) machine_->cancel(a->request);
        break;
      case 19:
        probe(r, any, length);
        break;
      case 20:
        now_ += std::uint64_t{r[2]} << (r[3] % 40);
        machine_->tick();
        break;
      case 21:
        write_into(r, length);
        break;
      case 22:
        r[2] & 1 ? machine_->begin_close() : (void)machine_->idle();
        break;
      case 23:
        refuse_memory_ = r[2] & 1;
        refuse_receives_ = r[2] & 2;
        break;
      default:
        say(r, peer, length);
        break;
    }
    settle();
    test_some();
  }

  void end() {
    for (PeerId p = 1; p < kPeers; ++p) failing_[p] = true;
    settle();
    for (PeerId p = 1; p < kPeers; ++p)
      if (!down_[p]) take_down(p);
    machine_->abandon();
    test_some();
    for (const Asked& a : asked_) FUZZ_CHECK(a.over);
    FUZZ_CHECK(machine_->pending() == 0);
    machine_.reset();
    FUZZ_CHECK(regions_.empty());
  }

 private:
  struct Region : Exposed {
    MutableOctets octets;
    Reach reach = Reach::own;
  };
  struct Work {
    Cookie cookie;
    MutableOctets target;  // of a Read
  };

  // --- the application ---
  static Tag tag(const Record& r) { return r[7] & 7; }
  Asked* ask(const Record& r, std::size_t length) {
    if (asked_.size() >= 200) return nullptr;
    Asked& a = asked_.emplace_back();
    a.buffer.resize(length, std::byte{0x5a});
    a.listens = r[3] & 128;
    a.over = true;  // until there is a request
    return &a;
  }
  Report report(Asked& a) {
    a.over = false;
    return a.listens ? Report{this, &a, 1} : Report{};
  }
  Asked* some(unsigned i) {
    if (asked_.empty()) return nullptr;
    auto at = asked_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(i % asked_.size()));
    return &*at;
  }
  void test_some() {
    for (Asked& a : asked_) {
      if (a.over) continue;
      if (!a.request) {  // refused: no end is told of
        a.over = true;
        continue;
      }
      if (a.listens) continue;
      FUZZ_CHECK(machine_->done(a.request) || machine_->pending_request(a.request));
      if (const auto status = machine_->test(a.request)) {
        FUZZ_CHECK(!machine_->test(a.request).has_value());
        a.over = true;
        a.buffer = {};  // whoever touches it now is caught
      }
    }
  }
  void on_done(const Completion& c) override {
    auto* a = static_cast<Asked*>(c.context);
    if (a == nullptr) return;  // a peer's put
    FUZZ_CHECK(!a->over && a->listens);
    if (c.status.error == Error::none && !c.buffer.empty())
      FUZZ_CHECK(c.buffer.data() >= a->buffer.data() &&
                 c.buffer.data() + c.buffer.size() <= a->buffer.data() + a->buffer.size());
    a->over = c.released || !a->multi;
  }
  std::size_t on_call(PeerId, Octets question, MutableOctets answer) override {
    FUZZ_CHECK(answer.size() == tuning_.eager_threshold);
    const std::size_t n = std::min(question.size() / 2, answer.size());
    std::copy_n(question.begin(), n, answer.begin());
    return n;
  }
  void probe(const Record& r, PeerId any, std::size_t length) {
    const Tag ignore = r[4] & 1 ? kAnyTag : 0;
    (void)machine_->probe(any, tag(r), ignore);
    if ((r[3] & 1) == 0) return;
    Status status;
    auto stored = machine_->matched_probe(any, tag(r), ignore, &status);
    if (stored == nullptr) return;
    Asked* a = r[3] & 2 ? nullptr : ask(r, length);
    if (a == nullptr)
      machine_->discard(std::move(stored));
    else
      a->request = machine_->receive_matched(stored, a->buffer, report(*a));
  }

  // --- the peers ---
  const wire::Message& heard(const Record& r) const {
    static const wire::Message kNothing{};
    return heard_.empty() ? kNothing : heard_[heard_.size() - 1 - r[11] % heard_.size()];
  }
  template <class F>
  void arrives(PeerId peer, F what) {
    if (!up_[peer] || down_[peer]) return;
    if (receives_[peer] == 0) return;  // an adapter would end the connection
    what();
    if (surplus_[peer] > 0) --surplus_[peer], --receives_[peer];
  }
  void say(const Record& r, PeerId peer, std::size_t length) {
    const wire::Message& like = heard(r);
    wire::Message m;
    m.kind = static_cast<wire::Kind>(r[2] % 16);
    m.flags = r[3];
    m.extras = r[5];
    m.credits = said_[peer] + 2u + r[6];
    m.tag = r[12] & 1 ? like.tag : tag(r);
    m.number = (r[12] & 2 ? like.number : next_[{peer, m.tag}]) + r[8];
    m.size = r[12] & 4 ? like.size : length;
    m.floor = r[13];
    m.data = r[14];
    m.id = r[12] & 8 ? like.id + r[15] : r[15];
    m.remote = r[12] & 16 ? like.remote : wire::Remote{0x1000, r[16]};
    m.release_count = std::min<std::uint8_t>(r[4], 4);
    for (std::size_t i = 0; i < m.release_count; ++i)
      m.releases[i] = r[12] & 32 ? like.id + r[20 + i] : r[20 + i] | (r[12] & 64 ? wire::kRequestId : 0);
    ++next_[{peer, m.tag}];
    ++said_[peer];
    Bytes octets(wire::Message::kLongest);
    m.emit(octets);
    octets.resize(m.octets());
    if (m.has_payload()) {
      const bool bare = m.kind == wire::Kind::sender_ready && r[9] & 1;
      const std::size_t whole = bare ? 0 : std::min<std::size_t>(m.size, tuning_.piece());
      const std::size_t n = r[12] & 128 ? length / 2 : whole;
      octets.resize(octets.size() + n, std::byte{0x77});
    }
    arrives(peer, [&] { machine_->on_received(peer, exact(octets)); });
  }
  // What a peer's adapter stores where it may.
  void write_into(const Record& r, std::size_t length) {
    std::size_t n = r[2];
    for (auto& [key, region] : regions_) {
      if (region->reach != Reach::written || region->octets.empty() || n-- > 0) continue;
      const std::size_t at = r[3] % region->octets.size(), size = std::min(length, region->octets.size() - at);
      std::fill_n(region->octets.begin() + static_cast<std::ptrdiff_t>(at), size, std::byte{0x33});
      return;
    }
  }
  void complete(PeerId peer) {
    if (work_[peer].empty()) return;
    const Work w = work_[peer].front();
    work_[peer].pop_front();
    std::fill(w.target.begin(), w.target.end(), std::byte{0x44});
    machine_->on_complete(w.cookie, true);
    if (std::exchange(refused_[peer], false)) machine_->on_writable(peer);
  }
  void take_down(PeerId peer) {
    down_[peer] = true;
    while (!work_[peer].empty()) {
      const Work w = work_[peer].front();
      work_[peer].pop_front();
      machine_->on_complete(w.cookie, false);
    }
    machine_->on_peer_down(peer);
  }
  void settle() {
    for (PeerId p = 1; p < kPeers; ++p) {
      if (std::exchange(connecting_[p], false) && !up_[p] && !down_[p]) {
        up_[p] = true;
        receives_[p] = Link::receives(Link::kFirstWindow);
        machine_->on_peer_up(p);
      }
      if (std::exchange(failing_[p], false) && up_[p] && !down_[p]) take_down(p);
    }
  }

  // --- Transport ---
  std::uint64_t now() override { return now_ += 100; }
  std::uint64_t polled_at() override { return now_; }
  void connect(PeerId peer) override { connecting_[peer] = true; }
  void fail(PeerId peer, const char*) override { failing_[peer] = true; }
  bool post(PeerId peer, Cookie cookie, MutableOctets target = {}) {
    FUZZ_CHECK(!followed_);
    FUZZ_CHECK(up_[peer] && !down_[peer]);
    if (work_[peer].size() >= depth_) {
      refused_[peer] = true;
      return false;
    }
    work_[peer].push_back({cookie, target});
    return true;
  }
  Taken send(PeerId peer, Octets header, Octets payload, bool copy, bool, bool followed, Cookie cookie) override {
    FUZZ_CHECK(payload.size() <= tuning_.piece());
    FUZZ_CHECK(!followed_ || *followed_ == peer);
    followed_.reset();
    if (!post(peer, cookie)) return Taken::refused;
    if (followed) followed_ = peer;
    Bytes all(header.begin(), header.end());
    all.insert(all.end(), payload.begin(), payload.end());
    std::size_t used = 0;
    const auto m = wire::Message::parse(exact(all), &used);
    FUZZ_CHECK(m.has_value());
    heard_.push_back(*m);
    return copy ? Taken::copied : Taken::in_place;
  }
  Taken write(PeerId peer, Octets source, const Exposed* memory, wire::Remote, std::optional<std::uint32_t> immediate,
              bool copy, bool, Cookie cookie) override {
    FUZZ_CHECK(memory != nullptr || source.size() <= tuning_.eager_threshold);
    FUZZ_CHECK(!immediate || immediate_);
    if (!post(peer, cookie)) return Taken::refused;
    (void)exact(source);  // it can be read
    return copy ? Taken::copied : Taken::in_place;
  }
  bool read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote, Cookie cookie) override {
    FUZZ_CHECK(!target.empty() && (memory != nullptr || target.size() <= tuning_.eager_threshold));
    return post(peer, cookie, target);
  }
  bool ping(PeerId peer, Cookie cookie) override { return post(peer, cookie); }
  bool has_immediate(PeerId) override { return immediate_; }
  bool add_receives(PeerId peer, std::uint32_t count) override {
    FUZZ_CHECK(up_[peer] && !down_[peer]);
    if (refuse_receives_) return false;
    receives_[peer] += count;
    FUZZ_CHECK(receives_[peer] - surplus_[peer] <= Link::receives(tuning_.receive_depth));
    return true;
  }
  void take_receive(PeerId peer) override {
    ++surplus_[peer];
    FUZZ_CHECK(surplus_[peer] <= receives_[peer]);
  }
  std::size_t longest_transfer() const override { return 700; }
  Exposed* expose(MutableOctets memory, Reach reach) override {
    if (refuse_memory_) return nullptr;
    auto region = std::make_unique<Region>();
    region->octets = memory;
    region->reach = reach;
    region->remote = {reinterpret_cast<std::uint64_t>(memory.data()), ++last_key_};
    Exposed* out = region.get();
    regions_[last_key_] = std::move(region);
    return out;
  }
  void conceal(Exposed* memory) override { FUZZ_CHECK(regions_.erase(memory->remote.key) == 1); }

  bool immediate_;
  std::optional<PeerId> followed_;  // the next request is a send to this peer
  Tuning tuning_;
  std::unique_ptr<Machine> machine_;
  std::list<Asked> asked_;
  Bytes question_;
  std::map<std::uint32_t, std::unique_ptr<Region>> regions_;
  std::uint32_t last_key_ = 100;
  std::uint64_t now_ = 1'000'000;
  std::size_t depth_ = 64;
  bool refuse_memory_ = false, refuse_receives_ = false;
  std::array<bool, kPeers> connecting_{}, failing_{}, up_{}, down_{}, refused_{};
  std::array<std::size_t, kPeers> receives_{}, surplus_{};
  std::array<std::uint32_t, kPeers> said_{};
  std::array<std::deque<Work>, kPeers> work_;
  std::vector<wire::Message> heard_;
  std::map<std::pair<PeerId, Tag>, std::uint64_t> next_;
};

void check_codecs(Octets in) {
  const Bytes copy = exact(in);
  if (const auto hello = Hello::parse(copy.data(), copy.size())) {
    const HelloOctets octets = hello->emit();
    const auto again = Hello::parse(octets.data(), octets.size());
    FUZZ_CHECK(again.has_value() && again->emit() == octets);
  }
  std::size_t used = 0;
  const auto m = wire::Message::parse(copy, &used);
  if (!m) return;
  FUZZ_CHECK(used <= copy.size() && used == m->octets());
  Bytes octets(wire::Message::kLongest);
  m->emit(octets);
  octets.resize(used);
  octets.insert(octets.end(), copy.begin() + static_cast<std::ptrdiff_t>(used), copy.end());
  FUZZ_CHECK(wire::Message::parse(octets, &used) == m);
}

}  // namespace
}  // namespace ewarp::fuzz

FUZZ_MUTATES(ewarp::fuzz::Talk)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  check_codecs(Input(data, size).rest());
  const Talk talk(data, size);
  Adversary adversary(talk.head()[0] | talk.head()[1] / 8 % 4 * 256u, talk.head()[1]);
  for (std::size_t i = 0; i < talk.count() && i < 200; ++i) adversary.act(talk[i]);
  adversary.end();
  return 0;
}
