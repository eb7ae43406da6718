// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Thousands of calls between a few processes in an order that a seed decides, against a reference: lists of what was
// posted, out of which a wait must get the first that matches. Every octet is checked; buffers are spoilt as soon as
// they are the application's again. In some runs a process ends in between.
//
//   gravel_storm_test [SEED]    one seed instead of the usual ones
#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <string>

#include "tests/gravel/fake_net.h"

using namespace ewarp::gravel;
using namespace ewarp::gravel::test;

namespace {

constexpr std::byte kSpoilt{0xe5};

class Storm {
 public:
  explicit Storm(unsigned seed)
      : seed_(seed), random_(seed), net_(2 + static_cast<int>(seed % 4)), kills_(seed % 3 == 0) {
    for (Proc i = 0; i < net_.size(); ++i) net_[i].room = kills_ || pick(2) ? 1000 : 1 + pick(8);
  }

  void run(std::size_t calls) {
    const std::size_t killed_at = pick(calls);
    for (std::size_t i = 0; i < calls; ++i) {
      call();
      for (auto steps = pick(4); steps > 0; --steps) step();
      if (kills_ && i == killed_at) kill();
    }
    finish();
  }
  std::size_t completed() const { return completed_; }

 private:
  // A message, from the first call about it to the last.
  struct Message {
    Proc producer, consumer;
    int tag;
    std::size_t size;
    std::uint64_t number;
    Arrival arrival;
    Bytes in, out, expected;
    RequestId consumer_request = 0, producer_request = 0;
    bool moving = false, fin = false;
  };
  using List = std::list<Message>;

  std::size_t pick(std::size_t n) { return random_() % n; }
  Proc node() {
    Proc p;
    do p = static_cast<Proc>(pick(static_cast<std::size_t>(net_.size())));
    while (!net_[p].alive);
    return p;
  }
  void check(bool condition, const char* what) {
    if (!condition) broken((std::string(what) + ", seed " + std::to_string(seed_)).c_str());
  }
  static Proc poster(const Message& m) { return m.arrival == Arrival::receive_buffer ? m.consumer : m.producer; }
  static Proc taker(const Message& m) { return m.arrival == Arrival::receive_buffer ? m.producer : m.consumer; }

  void step() {
    const Proc from = static_cast<Proc>(pick(static_cast<std::size_t>(net_.size())));
    const Proc to = static_cast<Proc>(pick(static_cast<std::size_t>(net_.size())));
    net_.step(from, to);
  }

  void call() {
    switch (pick(6)) {
      case 0:
      case 1:
        return post();
      case 2:
        return take();
      case 3:
        return move();
      default:
        return test();
    }
  }

  void post() {
    if (messages_.size() > 300) return;
    const Arrival kinds[] = {Arrival::receive_buffer, Arrival::receive_buffer, Arrival::send_request,
                             Arrival::send_buffer};
    Message m{.producer = node(),
              .consumer = node(),
              .tag = static_cast<int>(pick(4)),
              .size = pick(3) ? pick(300) : 0,
              .number = ++posted_,
              .arrival = kinds[pick(4)],
              .in = {},
              .out = {},
              .expected = {}};
    m.in.assign(m.size, kSpoilt);
    m.expected = m.in;
    m.out = pattern(static_cast<unsigned>(m.number), m.size);
    post(std::move(m));
  }

  void post(Message m) {
    Machine& machine = *net_[poster(m)];
    RequestId r = 0;
    Error e;
    if (m.arrival == Arrival::receive_buffer) {
      e = machine.post_receive_buffer(m.producer, local(m.in), m.tag, &r);
      m.consumer_request = r;
    } else if (m.arrival == Arrival::send_request) {
      e = machine.post_send_request(m.consumer, m.size, m.tag, &r);
      if (e == Error::none) ends(machine, r);
    } else {
      e = machine.post_send_buffer(m.consumer, local(m.out), m.tag, &r);
      m.producer_request = r;
    }
    check(e == Error::none || e == Error::full, "a post failed");
    if (e == Error::none) messages_.push_back(std::move(m));
  }

  // The first that was posted there, of this kind, and matches.
  List::iterator first(Arrival kind, Proc at, Proc from, int tag) {
    return std::find_if(messages_.begin(), messages_.end(), [&](const Message& m) {
      return m.arrival == kind && !m.moving && taker(m) == at && poster(m) == from && (tag == kAnyTag || m.tag == tag);
    });
  }

  void take() {
    take(node(), static_cast<Arrival>(pick(3)), pick(3) ? node() : kAnySource,
         pick(3) ? static_cast<int>(pick(4)) : kAnyTag);
  }

  bool take(Proc at, Arrival kind, Proc from, int tag) {
    Machine& machine = *net_[at];
    Proc proc = from;
    int found_tag = tag;
    std::uint64_t size = 0;
    RequestId r = 0;
    machine.look_around();
    const Error e = kind == Arrival::receive_buffer ? machine.take_receive_buffer(&proc, &found_tag, &size, &r)
                    : kind == Arrival::send_buffer  ? machine.take_send_buffer(&proc, &found_tag, &size, &r)
                                                    : machine.take_send_request(&proc, &found_tag, &size);
    if (e != Error::none) {
      check(e == Error::full || (e == Error::state && proc == at) || (e == Error::peer && from == kAnySource),
            "a wait failed");
      return false;
    }
    const auto m = first(kind, at, proc, tag);
    check(m != messages_.end() && m->tag == found_tag && m->size == size, "a wait got another message than the first");
    if (kind == Arrival::send_request) {
      // The consumer goes on as with any message.
      Message next = std::move(*m);
      messages_.erase(m);
      next.arrival = Arrival::receive_buffer;
      post(std::move(next));
      return true;
    }
    m->moving = true;
    (kind == Arrival::receive_buffer ? m->producer_request : m->consumer_request) = r;
    return true;
  }

  List::iterator any() {
    if (messages_.empty()) return messages_.end();
    return std::next(messages_.begin(), static_cast<std::ptrdiff_t>(pick(messages_.size())));
  }

  void move() {
    const auto m = any();
    if (m == messages_.end() || !m->moving || m->fin) return;
    const std::size_t begin = pick(m->size + 1), size = pick(m->size - begin + 1);
    const bool puts = m->arrival == Arrival::receive_buffer;
    if (pick(3) == 0) return finish_moving(*m);
    const Error e = puts ? (*net_[m->producer]).put(m->producer_request, local(m->out, begin, size), begin)
                         : (*net_[m->consumer]).get(m->consumer_request, local(m->in, begin, size), begin);
    check(e == Error::none || e == Error::full, "a transfer failed");
    if (e == Error::none && size > 0)
      std::copy_n(m->out.begin() + static_cast<std::ptrdiff_t>(begin), size,
                  m->expected.begin() + static_cast<std::ptrdiff_t>(begin));
  }

  // Of a fetch the next test says so.
  void finish_moving(Message& m) {
    if (m.arrival == Arrival::receive_buffer) {
      const Error e = (*net_[m.producer]).send_fin(m.producer_request);
      check(e == Error::none || e == Error::full, "a FIN failed");
      if (e != Error::none) return;
    }
    m.fin = true;
  }

  // True if it has ended, well.
  bool test(Proc at, RequestId& request) {
    std::optional<std::uint32_t> used;
    const Error e = (*net_[at]).test(request, &used);
    check(e == Error::none || e == Error::full, "a request failed");
    if (e != Error::none) return false;
    request = 0;
    return true;
  }

  void test() {
    const auto m = any();
    if (m != messages_.end()) test(m);
  }

  void test(List::iterator m) {
    const bool puts = m->arrival == Arrival::receive_buffer;
    if (m->consumer_request != 0 && (puts || m->fin) && test(m->consumer, m->consumer_request)) {
      check(m->fin, "a consumer was done before its producer was");
      check(m->in == m->expected, "other octets came");
      std::fill(m->in.begin(), m->in.end(), kSpoilt);
      m->expected = m->in;
    }
    if (m->producer_request != 0 && (!puts || m->fin) && test(m->producer, m->producer_request)) {
      check(m->fin, "a producer was done before its consumer was");
      std::fill(m->out.begin(), m->out.end(), kSpoilt);
    }
    if (!m->moving || m->consumer_request != 0 || m->producer_request != 0) return;
    check(m->in == m->expected, "octets came after the end");
    ++completed_;
    messages_.erase(m);
  }

  // Each request of its partners ends with an error, or well; all others go on.
  void kill() {
    const Proc victim = node();
    net_.kill(victim);
    for (auto m = messages_.begin(); m != messages_.end();) {
      const auto next = std::next(m);
      if (m->producer == victim || m->consumer == victim) {
        for (const auto& [proc, request] :
             {std::pair(m->producer, m->producer_request), {m->consumer, m->consumer_request}}) {
          std::optional<std::uint32_t> used;
          if (proc == victim || request == 0) continue;
          const Error e = (*net_[proc]).test(request, &used);
          check(e == Error::peer || (e == Error::none && m->fin), "a request of a dead peer is not done");
        }
        graves_.splice(graves_.end(), messages_, m);
      }
      m = next;
    }
  }

  void finish() {
    for (Proc i = 0; i < net_.size(); ++i) net_[i].room = 1000;
    for (int rounds = 0; !messages_.empty(); ++rounds) {
      check(rounds < 10000, "it does not end");
      for (Proc at = 0; at < net_.size(); ++at)
        for (const Arrival kind : {Arrival::receive_buffer, Arrival::send_request, Arrival::send_buffer})
          if (net_[at].alive) take(at, kind, kAnySource, kAnyTag);
      for (auto m = messages_.begin(); m != messages_.end();) {
        const auto next = std::next(m);
        if (m->moving && !m->fin) finish_moving(*m);
        test(m);
        m = next;
      }
      net_.run();
    }
    for (Proc i = 0; i < net_.size(); ++i)
      if (net_[i].alive) check(net_[i]->requests() == 0, "requests are left");
  }

  const unsigned seed_;
  std::mt19937 random_;
  Net net_;
  const bool kills_;
  List messages_;
  List graves_;  // of which octets may be under way
  std::uint64_t posted_ = 0;
  std::size_t completed_ = 0;
};

unsigned only_seed = 0;

void storms(void**) {
  const char* seeds = getenv("EWARP_SEEDS");
  const char* one = getenv("EWARP_SEED");
  if (only_seed == 0 && one != nullptr) only_seed = static_cast<unsigned>(strtoul(one, nullptr, 0));
  const unsigned last = only_seed != 0     ? only_seed
                        : seeds != nullptr ? static_cast<unsigned>(strtoul(seeds, nullptr, 0))
                                           : 60;
  std::size_t completed = 0;
  for (unsigned seed = only_seed != 0 ? only_seed : 1; seed <= last; ++seed) {
    Storm storm(seed);
    storm.run(8000);
    completed += storm.completed();
  }
  printf("seeds to %u: %zu messages\n", last, completed);
  assert_true(completed > 100);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) only_seed = static_cast<unsigned>(strtoul(argv[1], nullptr, 0));
  const CMUnitTest tests[] = {cmocka_unit_test(storms)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
