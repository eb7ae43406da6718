// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Thousands of operations between a few nodes in an order that a seed decides, with everything that can differ drawn at
// random too: thresholds, depths, protocols, bounds. A simple matcher says which receive must get which message; every
// octet is checked, buffers are spoilt as soon as they are the user's again, and looked at later. With
// ordered_completions messages end in the order in which their sends were done; and with or without it a message that
// has come waits for nothing but earlier messages of its sender that are being read from HYBRID's buffers.
//
//   channel_random_test [SEED [OPERATIONS]]    one seed instead of the usual ones
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/channel/reference.h"
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

constexpr std::byte kSpoilt{0xe5};

Tuning random_tuning(std::mt19937& random) {
  const auto one_of = [&random](std::initializer_list<std::size_t> values) {
    return values.begin()[random() % values.size()];
  };
  Tuning t;
  t.eager_threshold = one_of({16, 64, 200});
  t.eager_piece = one_of({1, 16, 50, 16 << 10});
  t.hybrid_threshold = one_of({16, 256, 600});
  t.write_window = one_of({1, 16, 100, 1000, 2 << 20});
  t.narrow_window = one_of({1, 50, 1000});
  t.rendezvous_by_read = random() % 2;
  t.announce = random() % 8 != 0;
  t.announce_threshold = one_of({16, 64, 12 << 10});
  t.adapt = random() % 2;
  t.receive_depth = static_cast<std::uint32_t>(one_of({1, 2, 3, 8, 64}));
  t.receive_memory = one_of({0, 300, 3000, 1 << 20});
  t.hybrid_buffers = one_of({0, 1, 4, 64});
  t.ordered_completions = random() % 2;
  t.copy_limit = one_of({0, 100, 1 << 20});
  t.counter_limit = one_of({1, 3, 8, 1000, 1000});
  t.ignored_bits = one_of({0, 0, 1, 2, 10});
  return t;
}

class Storm {
 public:
  Storm(unsigned seed, std::size_t operations)
      : seed_(seed),
        random_(seed),
        tuning_(random_tuning(random_)),
        net_(2 + seed % 4, tuning_, seed),
        operations_(operations),
        references_(net_.size()) {
    net_.depth = 1 + random_() % 20;
    net_.immediate = random_() % 4 != 0;
    wildcards_ = random_() % 3 == 0 ? 0 : 1 + random_() % 40;
    receives_first_ = random_() % 2;
    cancels_ = random_() % 4;
    planned_share_ = random_() % 100;
    attached_ = 1 + random_() % 3;
    net_.on_delivery = [this](PeerId from, PeerId to, const Packet& p) { delivered(from, to, p); };
  }

  void run() {
    for (std::size_t i = 0; i < operations_; ++i) {
      operate();
      look();
      for (auto moves = random_() % 4; moves > 0 && net_.step(); --moves) look();
      if (pick(40) == 0) drain();
    }
    finish();
    say();
  }

 private:
  struct Send {
    PeerId from, to;
    Tag tag;
    Bytes data;
    Request request;
    std::optional<std::uint64_t> attached;
    bool arrived = false;
    bool eager = false, hybrid = false;  // how it came; eager: in full
    std::uint64_t begun = 0, over = 0;   // when, counting sends' beginnings and ends; 0: not yet
    std::uint64_t in_full = 0;           // eager: matches until then
  };
  struct Receive {
    PeerId at;
    Bytes data;
    Request request;
    std::optional<Reference::Message> match;
    std::uint64_t matched = 0;  // when, counting matches
    bool cancelling = false;
    bool done = false;
  };
  struct Plan {
    PeerId from, to;
    Tag tag;
    std::size_t size;
  };
  struct Probed {
    PeerId at;
    std::unique_ptr<Stored> message;
    Reference::Message match;
  };

  std::size_t pick(std::size_t n) { return random_() % n; }
  PeerId node() { return static_cast<PeerId>(pick(net_.size())); }
  Tag tag() { return pick(10) == 0 ? 16 + pick(8) : pick(4); }
  std::size_t length() {
    static constexpr std::size_t kMost[] = {1, 16, 64, 200, 300, 2000};
    return pick(kMost[pick(std::size(kMost))] + 1);
  }
  // Nearly always the same, as who attaches its own number does.
  std::optional<std::uint64_t> attached() {
    return pick(8) == 0 ? std::nullopt : std::optional<std::uint64_t>(pick(attached_));
  }
  // What messages are numbered by, and keep their order by.
  Tag key(Tag tag) const { return tag & ~tuning_.ignored_bits; }
  // What a receive without a wildcard ignores: nearly always what all do.
  Tag usual() { return pick(10) == 0 ? pick(4) & tuning_.ignored_bits : tuning_.ignored_bits; }
  // The same key, the rest at random.
  Tag like(Tag tag) { return tag ^ (pick(16) & tuning_.ignored_bits); }
  void check(bool condition, const char* what) {
    if (!condition) broken(std::string(what) + ", seed " + std::to_string(seed_));
  }

  void operate() {
    switch (pick(24)) {
      case 0:
        return pick(4) < cancels_ ? cancel() : void();
      case 1:
        return probe();
      case 2:
        return matched_probe();
      case 3:
        return receive_probed();
      default:
        break;
    }
    if (pick(100) < planned_share_) return plans_.size() < 30 && pick(2) == 0 ? plan() : carry_out_plan();
    // Receives in the lead are announced, sends in the lead are not.
    const std::size_t open = receiving_.size();
    const bool wants_receive = receives_first_ ? open < 20 || pick(3) == 0 : open < 2 || pick(3) == 0;
    wants_receive ? receive(node()) : send(node(), node(), tag(), length(), pick(10) == 0);
  }

  void send(PeerId from, PeerId to, Tag tag, std::size_t size, bool synchronous) {
    if (synchronous) size = std::max<std::size_t>(size, 8);  // long enough to be known by its octets
    const std::uint64_t number = sends_.size();
    Bytes data = pattern(from, number, size);
    // Announcements may come between the copy and the choice of the protocol.
    std::optional<HybridBuffers::Buffer> copy;
    if (pick(2) == 0) {
      copy = net_[from].copy_ahead(to, data, {.synchronous = synchronous});
      for (auto moves = pick(4); moves > 0 && net_.step(); --moves) look();
    }
    sends_.push_back(std::make_unique<Send>(Send{from, to, tag, std::move(data), {}, attached()}));
    Send& s = *sends_.back();
    s.begun = ++clock_;
    on_the_way_[{from, to, key(tag)}].push_back(number);
    if (from == to) arrived(number);
    s.request = net_[from].send(to, tag, s.data, {.synchronous = synchronous, .data = s.attached}, copy);
    check(static_cast<bool>(s.request), "no request left");
    sending_.push_back(number);
  }

  void receive(PeerId at, bool anything = false) {
    const PeerId source = anything || pick(100) < wildcards_ ? kAnySource : node();
    const Tag ignore = anything ? kAnyTag : pick(100) < wildcards_ ? (pick(2) == 0 ? kAnyTag : Tag{3}) : usual();
    receive_from(at, source, tag(), ignore, anything ? 3000 : length());
  }

  void receive_from(PeerId at, PeerId source, Tag wanted, Tag ignore, std::size_t capacity) {
    const std::uint64_t id = receives_.size();
    receives_.push_back(std::make_unique<Receive>(Receive{at, Bytes(capacity), {}, {}}));
    Receive& r = *receives_.back();
    if (const auto m = references_[at].post({.id = id, .source = source, .tag = wanted, .ignore = ignore}))
      match(id, *m);
    r.request = net_[at].receive(source, wanted, ignore, r.data);
    check(static_cast<bool>(r.request), "no request left");
    receiving_.push_back(id);
  }

  // A receive that names its source, and later a send for it: what announcements are for.
  void plan() {
    const Plan p{.from = node(), .to = node(), .tag = tag(), .size = length()};
    receive_from(p.to, p.from, like(p.tag), usual(), pick(5) == 0 ? length() : p.size);
    plans_.push_back(p);
  }
  void carry_out_plan() {
    if (plans_.empty()) return;
    const std::size_t i = pick(std::min<std::size_t>(plans_.size(), 4));
    const Plan p = plans_[i];
    plans_.erase(plans_.begin() + static_cast<std::ptrdiff_t>(i));
    send(p.from, p.to, p.tag, p.size, pick(10) == 0);
  }

  void cancel() {
    if (receiving_.empty()) return;
    Receive& r = *receives_[receiving_[pick(receiving_.size())]];
    r.cancelling = true;
    net_[r.at].cancel(r.request);
  }

  void expect_probe(const Status& status, const std::optional<Reference::Message>& m) {
    check(m && status.source == m->source && status.tag == m->tag && status.length == sends_[m->number]->data.size(),
          "a probe saw another message");
  }

  void probe() {
    const PeerId at = node(), source = pick(2) == 0 ? kAnySource : node();
    const Tag ignore = pick(2) == 0 ? kAnyTag : usual(), wanted = tag();
    const auto want = references_[at].peek({.id = 0, .source = source, .tag = wanted, .ignore = ignore});
    const auto status = net_[at].probe(source, wanted, ignore);
    check(status.has_value() == want.has_value(), "a probe saw what is not there, or not what is");
    if (status) expect_probe(*status, want);
  }

  void matched_probe() {
    const PeerId at = node();
    const auto want = references_[at].take({.id = 0, .source = kAnySource, .tag = 0, .ignore = kAnyTag});
    Status status;
    auto message = net_[at].matched_probe(kAnySource, 0, kAnyTag, &status);
    check((message != nullptr) == want.has_value(), "a matched probe saw what is not there, or not what is");
    if (!message) return;
    expect_probe(status, want);
    probed_.push_back({at, std::move(message), *want});
  }

  void receive_probed() {
    if (probed_.empty()) return;
    std::swap(probed_[pick(probed_.size())], probed_.back());
    Probed p = std::move(probed_.back());
    probed_.pop_back();
    receives_.push_back(std::make_unique<Receive>(Receive{p.at, Bytes(length()), {}, {}}));
    Receive& r = *receives_.back();
    match(receives_.size() - 1, p.match);
    r.request = net_[p.at].receive_matched(p.message, r.data);
    receiving_.push_back(receives_.size() - 1);
  }

  // --- what the wires say ---

  void delivered(PeerId from, PeerId to, const Packet& p) {
    if (p.what == Packet::What::write) {
      // Only an answer can be for a buffer so short, and its message has arrived before.
      if (p.source.size() < 8) return;
      std::uint64_t number = 0;
      for (std::size_t i = 8; i > 0; --i) number = number << 8 | std::to_integer<std::uint64_t>(p.source[i - 1]);
      // The rest of a message whose head came with SENDER_READY begins with other octets: it has arrived before, too.
      if (number >= sends_.size() || p.source.size() > sends_[number]->data.size()) return;
      const Bytes begin = pattern(from, number, p.source.size());
      const bool whole = std::equal(p.source.begin(), p.source.end(), begin.begin());
      if (whole && !sends_[number]->arrived) arrived(number);
      return;
    }
    Bytes octets = p.header;
    octets.insert(octets.end(), p.source.begin(), p.source.end());
    std::size_t used = 0;
    const auto m = wire::Message::parse(octets, &used);
    check(m.has_value(), "a message that cannot be parsed");
    if (m->kind == wire::Kind::more) return came(from, to, m->size);
    if (m->kind == wire::Kind::sender_ready) ready_.insert({from, to, m->tag, m->number});
    const bool announced = m->kind == wire::Kind::written && !ready_.contains({from, to, m->tag, m->number});
    if (m->kind != wire::Kind::eager && m->kind != wire::Kind::sender_ready && !announced) return;
    const std::uint64_t number = on_the_way_[{from, to, key(m->tag)}].front();
    sends_[number]->hybrid = m->kind == wire::Kind::sender_ready && m->has(wire::flag::kHybrid);
    arrived(number);
    if (m->kind != wire::Kind::eager) return;
    coming_[{from, to}] = {number, m->size};
    came(from, to, octets.size() - used);
  }

  // So many octets of the EAGER message whose first piece was the last to come.
  void came(PeerId from, PeerId to, std::size_t octets) {
    auto& [number, missing] = coming_[{from, to}];
    check(octets <= missing, "a piece that is too long");
    missing -= octets;
    if (missing > 0) return;
    sends_[number]->eager = true;
    sends_[number]->in_full = matches_;
  }

  void arrived(std::uint64_t number) {
    Send& s = *sends_[number];
    auto& queue = on_the_way_[{s.from, s.to, key(s.tag)}];
    check(!queue.empty() && queue.front() == number, "a message overtook another of its (peer, key)");
    queue.pop_front();
    s.arrived = true;
    const Reference::Message m{.source = s.from, .tag = s.tag, .number = number};
    if (const auto id = references_[s.to].arrive(m)) match(*id, m);
  }

  void match(std::uint64_t receive, const Reference::Message& m) {
    receives_[receive]->match = m;
    receives_[receive]->matched = ++matches_;
  }

  // --- what the channel says ---

  void look() {
    std::erase_if(sending_, [this](std::uint64_t number) { return sent(*sends_[number]); });
    std::vector<std::uint64_t> ended;
    for (const std::uint64_t id : receiving_)
      if (net_[receives_[id]->at].done(receives_[id]->request)) ended.push_back(id);
    for (const std::uint64_t id : ended) check_order(*receives_[id]);
    std::erase_if(receiving_, [this](std::uint64_t id) { return received(*receives_[id], id); });
    for (const std::uint64_t id : receiving_) check_not_held(*receives_[id]);
  }

  // Nothing that the sender was done with before it sent this, and that was matched before, is still on its way.
  void check_order(const Receive& r) {
    if (!tuning_.ordered_completions || !r.match) return;
    const Send& s = *sends_[r.match->number];
    for (const std::uint64_t id : receiving_) {
      const Receive& other = *receives_[id];
      if (other.at != r.at || !other.match || other.matched > r.matched) continue;
      if (net_[other.at].done(other.request)) continue;
      const Send& before = *sends_[other.match->number];
      check(before.from != s.from || before.over == 0 || before.over > s.begun,
            "a message ended before one that its sender had been done with earlier");
    }
  }

  // A message that has come in full ends at once, or behind one that was being read then.
  void check_not_held(const Receive& r) {
    if (!r.match || !sends_[r.match->number]->eager) return;
    const std::uint64_t then = std::max(r.matched, sends_[r.match->number]->in_full);
    const auto reading = [&](std::uint64_t id) {
      const Receive& other = *receives_[id];
      return other.at == r.at && other.match && other.matched <= then && sends_[other.match->number]->hybrid &&
             other.match->source == r.match->source;
    };
    check(tuning_.ordered_completions && std::any_of(receiving_.begin(), receiving_.end(), reading),
          "a message that has come is held for nothing");
    ++held_;
  }

  bool sent(Send& s) {
    const auto status = net_[s.from].test(s.request);
    if (!status) return false;
    check(status->error == Error::none && status->length == s.data.size(), "a send failed");
    s.over = ++clock_;
    spoil(s.data);
    return true;
  }

  bool received(Receive& r, std::uint64_t id) {
    const auto status = net_[r.at].test(r.request);
    if (!status) return false;
    if (status->error == Error::cancelled) {
      check(r.cancelling && !r.match && references_[r.at].cancel(id), "cancelled, but there is a message for it");
      ++cancelled_;
    } else {
      check_message(r, *status);
    }
    spoil(r.data);
    spoilt_.push_back(id);
    r.done = true;
    return true;
  }

  void check_message(const Receive& r, const Status& status) {
    check(r.match.has_value(), "a receive is done that has no message");
    const Send& s = *sends_[r.match->number];
    const std::size_t size = s.data.size();
    check(status.error == (size > r.data.size() ? Error::truncated : Error::none),
          "another end than the sizes ask for");
    check(status.source == s.from && status.tag == s.tag && status.length == size, "the status of another message");
    check(status.data == s.attached, "other octets are attached");
    const Bytes want = pattern(s.from, r.match->number, size);
    check(std::equal(r.data.begin(), r.data.begin() + static_cast<std::ptrdiff_t>(std::min(size, r.data.size())),
                     want.begin()),
          "the octets are not those of the message");
  }

  static void spoil(Bytes& data) { std::fill(data.begin(), data.end(), kSpoilt); }

  void finish() {
    while (!plans_.empty()) carry_out_plan();
    drain();
    for (const std::uint64_t id : receiving_) {
      receives_[id]->cancelling = true;
      net_[receives_[id]->at].cancel(receives_[id]->request);
    }
    drain();
    while (!probed_.empty()) {
      receive_probed();
      look();
    }
    for (PeerId n = 0; n < net_.size(); ++n)
      while (references_[n].unexpected()) {
        receive(n, true);
        look();
      }
    drain();
    check(sending_.empty() && receiving_.empty(), "something never ended");
    for (PeerId n = 0; n < net_.size(); ++n) {
      check(net_[n].pending() == 0, "a request was forgotten");
      net_[n].begin_close();
    }
    drain();
    for (PeerId n = 0; n < net_.size(); ++n) check(net_[n].idle(), "a node does not come to rest");
    for (const std::uint64_t id : spoilt_)
      for (const std::byte b : receives_[id]->data)
        check(b == kSpoilt, "a buffer was written to after its receive was done");
    check(net_.failures.empty(), "a node complains of another");
  }

  void drain() {
    look();
    while (net_.step()) look();
    look();
  }

  void say() {
    std::uint64_t total[Counters::kSize] = {};
    for (PeerId n = 0; n < net_.size(); ++n)
      for (std::size_t c = 0; c < Counters::kSize; ++c) total[c] += net_[n].counters()[static_cast<Count>(c)];
    const auto of = [&total](Count c) { return static_cast<unsigned long>(total[static_cast<std::size_t>(c)]); };
    print_message(
        "seed %u: %zu sends: eager %lu, hybrid %lu, send_rndv %lu + %lu, recv_rndv %lu, self %lu; announced %lu, "
        "used %lu; copied %lu; cancelled %lu; looks at what was held %lu; divided %lu, passed %lu\n",
        seed_, sends_.size(), of(Count::eager), of(Count::hybrid), of(Count::send_rndv_write),
        of(Count::send_rndv_read), of(Count::recv_rndv), of(Count::self), of(Count::announced),
        of(Count::announcements_used), of(Count::recv_rndv_copied), static_cast<unsigned long>(cancelled_),
        static_cast<unsigned long>(held_), of(Count::writes_divided), of(Count::writes_passed));
    check(of(Count::announced) == 0 || of(Count::announcements_used) <= of(Count::announced),
          "more used than announced");
    check(of(Count::eager) + of(Count::hybrid) + of(Count::send_rndv_write) + of(Count::send_rndv_read) +
                  of(Count::recv_rndv) + of(Count::self) ==
              sends_.size(),
          "the protocols do not add up");
  }

  unsigned seed_;
  std::mt19937 random_;
  Tuning tuning_;
  Net net_;
  std::size_t operations_;
  std::vector<Reference> references_;
  std::vector<std::unique_ptr<Send>> sends_;
  std::vector<std::unique_ptr<Receive>> receives_;
  std::vector<std::uint64_t> sending_, receiving_, spoilt_;
  std::map<std::tuple<PeerId, PeerId, Tag>, std::deque<std::uint64_t>> on_the_way_;
  std::set<std::tuple<PeerId, PeerId, Tag, std::uint64_t>> ready_;
  std::map<std::pair<PeerId, PeerId>, std::pair<std::uint64_t, std::size_t>> coming_;  // a send, and octets of it
  std::vector<Probed> probed_;
  std::vector<Plan> plans_;
  std::size_t cancelled_ = 0, wildcards_ = 0, cancels_ = 0, planned_share_ = 0, held_ = 0;
  std::size_t attached_ = 1;  // octets to attach: so many are in use
  std::uint64_t clock_ = 0, matches_ = 0;
  bool receives_first_ = false;
};

unsigned only_seed = 0;
std::size_t operations = 3000;

void random_schedules_match_the_reference(void**) {
  if (only_seed != 0) return Storm(only_seed, operations).run();
  for (unsigned seed = 1; seed <= 60; ++seed) Storm(seed, operations).run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) only_seed = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 0));
  if (argc > 2) operations = std::strtoul(argv[2], nullptr, 0);
  const CMUnitTest tests[] = {cmocka_unit_test(random_schedules_match_the_reference)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
