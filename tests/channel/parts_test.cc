// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The small parts of the channel that need no adapter: addresses, the hello, what is copied and what registered, the
// records of requests, the states of connections, the rhythm of calls, when connections are looked at.
#include "mpi_shim/channel/rhythm.h"
#include "mpi_shim/channel/verbs/address.h"
#include "mpi_shim/channel/verbs/connection.h"
#include "mpi_shim/channel/verbs/connections_turn.h"
#include "mpi_shim/channel/verbs/copy_policy.h"
#include "mpi_shim/channel/verbs/frequent_buffers.h"
#include "mpi_shim/channel/verbs/hello.h"
#include "mpi_shim/channel/verbs/reasons.h"
#include "mpi_shim/channel/verbs/records.h"
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

void addresses_that_are_ones(void**) {
  const struct {
    const char* text;
    bool v4;
    std::uint16_t port;
  } kCases[] = {{"192.0.2.1:7000", true, 7000},
                {"127.0.0.1:0", true, 0},
                {"[2001:db8::1]:65535", false, 65535},
                {"[::1]:1", false, 1}};
  for (const auto& c : kCases) {
    const auto a = Address::parse(c.text);
    assert_true(a.has_value());
    assert_int_equal(a->v4(), c.v4);
    assert_int_equal(a->port, c.port);
    assert_string_equal(a->text().c_str(), c.text);
    const sockaddr_storage s = a->socket_address();
    assert_true(Address::from(reinterpret_cast<const sockaddr&>(s)) == a);
  }
  assert_true(Address::parse("0.0.0.0:1")->unspecified() && Address::parse("[::]:1")->unspecified());
  assert_false(Address::parse("127.0.0.1:1")->unspecified());
}

void addresses_that_are_none(void**) {
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1x",
                           "localhost:1", "::1:7000", "[::1]", "[127.0.0.1]:1", "127.0.0:1"})
    assert_false(Address::parse(text).has_value());
}

void a_hello_keeps_what_is_in_it(void**) {
  const Hello h{.address = *Address::parse("192.0.2.7:4791"),
                .eager_threshold = 1 << 20,
                .eager_piece = 1 << 20,
                .receive_depth = 64,
                .heartbeat = {.address = 0x7f1122334455, .key = 0xabcdef01},
                .ignored_bits = 0x8000000100000002,
                .answer = Hello::Answer::crossed,
                .proof = 0x1234567890abcdef};
  const HelloOctets octets = h.emit();
  // rdma_cm gives the private data of a connection in 56 octets over IB.
  static_assert(HelloOctets{}.size() <= 56);
  Bytes padded(octets.begin(), octets.end());
  padded.resize(196);
  const auto back = Hello::parse(padded.data(), padded.size());
  assert_true(back.has_value());
  assert_true(back->address == h.address && back->heartbeat == h.heartbeat && back->answer == h.answer);
  assert_int_equal(back->eager_threshold, h.eager_threshold);
  assert_int_equal(back->eager_piece, h.eager_piece);
  assert_int_equal(back->receive_depth, h.receive_depth);
  assert_int_equal(back->ignored_bits, h.ignored_bits);
  assert_int_equal(back->proof, h.proof);
  assert_false(Hello::parse(octets.data(), octets.size() - 1).has_value());
  assert_false(Hello::parse(nullptr, 100).has_value());
  padded[0] = std::byte{0};
  assert_false(Hello::parse(padded.data(), padded.size()).has_value());
}

// Of a newer one only what says so is read, whatever its length.
void a_hello_of_another_version_says_so(void**) {
  Hello h;
  h.address = *Address::parse("192.0.2.7:4791");
  h.version = Hello::kVersion + 1;
  h.answer = Hello::Answer::version;
  const HelloOctets octets = h.emit();
  for (const std::size_t n : {std::size_t{4}, std::size_t{20}, octets.size()}) {
    const auto back = Hello::parse(octets.data(), n);
    assert_true(back.has_value());
    assert_int_equal(back->version, Hello::kVersion + 1);
    assert_true(back->answer == Hello::Answer::version && back->address == Address{});
  }
  assert_false(Hello::parse(octets.data(), 3).has_value());
}

void a_proof_is_good_for_one_job_and_one_way(void**) {
  const Address a = *Address::parse("192.0.2.1:1"), b = *Address::parse("192.0.2.2:1"),
                other_port = *Address::parse("192.0.2.2:2");
  const JobSecret none(""), job("ours"), same("ours"), another("theirs");
  assert_int_equal(none.proof(a, b), 0);
  assert_true(job.proof(a, b) != 0 && job.proof(a, b) == same.proof(a, b));
  assert_true(job.proof(a, b) != another.proof(a, b));
  assert_true(job.proof(a, b) != job.proof(b, a) && job.proof(a, b) != job.proof(a, other_port));
}

void reasons_name_what_is_to_be_mended(void**) {
  const auto holds = [](const std::string& text, const std::string& part) { return text.find(part) != text.npos; };
  Hello mine;
  mine.eager_threshold = 1000;
  mine.receive_depth = 64;
  mine.ignored_bits = 1;
  Hello theirs = mine;
  theirs.eager_threshold = 2000;
  assert_true(reason::of_mismatch(mine, theirs) ==
              "EWARP_CHANNEL_EAGER_THRESHOLD is 1000 here and 2000 there; set one value for all processes of the job");
  theirs.ignored_bits = 0;
  const std::string two = reason::of_mismatch(mine, theirs);
  assert_true(holds(two, "2000 there, EWARP_CHANNEL_IGNORED_BITS is 1 here and 0 there") && !holds(two, "DEPTH"));
  theirs = mine;
  theirs.eager_piece = mine.eager_piece + 1024;
  assert_true(holds(reason::of_mismatch(mine, theirs), "EWARP_CHANNEL_EAGER_PIECE is"));
  assert_true(holds(reason::of_mismatch(mine, mine), "cannot make the connection"));
  assert_true(holds(reason::of_stranger(*Address::parse("192.0.2.7:4791")), "192.0.2.7:4791"));
  rdma_cm_event event{};
  event.event = RDMA_CM_EVENT_REJECTED;
  event.status = -ECONNREFUSED;
  assert_true(reason::of_event(event) == "RDMA_CM_EVENT_REJECTED, Connection refused");
  event.status = 28;
  assert_true(reason::of_event(event) == "RDMA_CM_EVENT_REJECTED, status 28");
  assert_true(holds(reason::of_silence(10'000'000'000, ""), "no answer within 10 s; "));
  assert_true(holds(reason::of_silence(1'500'000'000, "x"), "no answer within 1500 ms (x); "));
}

const MemoryCosts kCosts{.registration_ns = 20'000, .copy_ns_per_octet = 0.1, .lookup_ns = 50};

// The thesis' table 5.3: the larger the buffer, the sooner registering pays; the smallest never do.
void thresholds_fall_with_the_size(void**) {
  const FrequentBuffers f(kCosts);
  assert_int_equal(f.threshold(64), 0);
  assert_int_equal(f.threshold(500), 0);
  std::uint32_t before = ~0u;
  for (std::size_t octets = 1024; octets <= 8192; octets += 1024) {
    assert_true(f.threshold(octets) > 0 && f.threshold(octets) < before);
    before = f.threshold(octets);
  }
  assert_int_equal(f.threshold(1050), 91);  // 20000 / (105 - 50), a quarter of it
}

void a_buffer_becomes_hot_by_being_used(void**) {
  FrequentBuffers f(kCosts);
  Bytes buffer(4096);
  const std::uint32_t enough = f.threshold(buffer.size());
  for (std::uint32_t i = 1; i < enough; ++i) assert_false(f.used(buffer.data(), buffer.size()));
  for (int i = 0; i < 3; ++i) assert_true(f.used(buffer.data(), buffer.size()));
  // The same place with another length is another buffer.
  assert_false(f.used(buffer.data(), 2048));
}

// What a program did at first does not decide what is found later, wherever its buffers lie.
void buffers_of_one_use_do_not_keep_others_out(void**) {
  for (std::size_t place = 0; place < 64; ++place) {
    FrequentBuffers f(kCosts, 0.25, 16);
    Bytes memory(1 << 20);
    for (std::size_t i = 0; i < 10000; ++i) f.used(memory.data() + 64 * i, 4096);
    int hot = 0;
    for (int i = 0; i < 100; ++i) hot += f.used(memory.data() + 4096 * place + 8, 4096);
    assert_true(hot > 50);
  }
}

// Also while others are used in between, as long as it has its share.
void a_buffer_of_many_becomes_hot(void**) {
  FrequentBuffers f(kCosts, 0.25, 16);
  Bytes memory(1 << 20);
  int hot = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    f.used(memory.data() + 64 * i, 4096);
    hot += f.used(memory.data() + 8, 4096);
  }
  assert_true(hot > 900);
}

void as_many_become_hot_as_have_room(void**) {
  FrequentBuffers f(kCosts);
  Bytes memory(1 << 20);
  for (std::size_t i = 0; i < 200; ++i) {
    bool hot = false;
    for (int use = 0; use < 100; ++use) hot = f.used(memory.data() + 4096 * i, 4096);
    assert_true(hot);
  }
  int still = 0;
  for (std::size_t i = 0; i < 200; ++i) still += f.used(memory.data() + 4096 * i, 4096);
  assert_int_equal(still, 200);
}

// 2^20 are counted: more than a program sends from, as the thesis' rule has it.
void thousands_become_hot_together(void**) {
  FrequentBuffers f(kCosts);
  constexpr std::uintptr_t kBuffers = 50'000;
  const std::uint32_t enough = f.threshold(4096);
  std::uintptr_t hot = 0;
  for (std::uint32_t use = 1; use <= enough; ++use)
    for (std::uintptr_t i = 1; i <= kBuffers; ++i) hot += f.used(reinterpret_cast<void*>(i * 4096), 4096);
  assert_int_equal(hot, kBuffers);
}

void what_was_in_vain_is_counted_anew(void**) {
  FrequentBuffers f(kCosts);
  Bytes buffer(8192);
  const std::uint32_t enough = f.threshold(4096);
  for (std::uint32_t i = 0; i < enough; ++i) f.used(buffer.data(), 4096);
  f.in_vain(buffer.data(), 4096);
  f.in_vain(buffer.data() + 4096, 4096);  // unknown
  for (std::uint32_t i = 1; i < enough; ++i) assert_false(f.used(buffer.data(), 4096));
  assert_true(f.used(buffer.data(), 4096));
}

// What costs 20 us to register and 0.1 ns an octet to copy is worth registering above 200,000 octets.
void memory_is_registered_where_that_is_cheaper(void**) {
  const Bytes memory(400'000);
  const auto worth = [&](Registration how, double registration_ns, std::size_t octets) {
    CopyPolicy policy(how, {.registration_ns = registration_ns, .copy_ns_per_octet = 0.1, .lookup_ns = 50});
    return policy.worth_registration(Octets(memory).first(octets));
  };
  assert_true(worth(Registration::cheap, 20'000, 200'001));
  assert_false(worth(Registration::cheap, 20'000, 199'999));
  assert_true(worth(Registration::measured, 4'999, 50'000));
  assert_false(worth(Registration::measured, 5'000, 400'000));
  assert_false(worth(Registration::costly, 1, 400'000));
  assert_true(worth(Registration::cheap, 0, CopyPolicy::kAlwaysCopied + 1));
  assert_false(worth(Registration::cheap, 0, CopyPolicy::kAlwaysCopied));
}

void kept_registrations_are_for_frequent_buffers(void**) {
  const Bytes memory(4096);
  for (const auto how : {Registration::kept, Registration::monitored}) {
    CopyPolicy policy(how, kCosts);
    assert_true(policy.keeps());
    const std::uint32_t enough = FrequentBuffers(kCosts).threshold(memory.size());
    for (std::uint32_t i = 1; i < enough; ++i) assert_false(policy.worth_registration(memory));
    assert_true(policy.worth_registration(memory));
  }
}

void records_come_back_once_and_by_connection(void**) {
  Records records;
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 6; ++i) {
    ids.push_back(records.next());
    assert_int_equal(records.next(), ids.back());  // until it is put
    records.put(ids.back(), {.serial = 1 + i % 2, .cookie = i});
  }
  assert_int_equal(records.take(ids[2]).cookie, 2);
  std::vector<Cookie> seen;
  // What is put meanwhile belongs to another connection and stays.
  std::uint32_t other = 0;
  records.take_all_of(1, 2, [&](const Record& r) {
    seen.push_back(r.cookie);
    other = records.next();
    records.put(other, {.serial = 2, .cookie = 100 + r.cookie});
  });
  assert_true(seen == std::vector<Cookie>({0, 4}));
  assert_int_equal(records.take(other).cookie, 104);
  assert_int_equal(records.take(ids[5]).cookie, 5);
}

void connections_go_one_way(void**) {
  using enum Connection::State;
  constexpr Connection::State kAll[] = {resolving, connecting, accepting, up, draining};
  constexpr std::pair<Connection::State, Connection::State> kWays[] = {
      {resolving, connecting}, {connecting, up},      {accepting, up}, {resolving, draining},
      {connecting, draining},  {accepting, draining}, {up, draining}};
  for (const auto from : kAll)
    for (const auto to : kAll) {
      const bool way = std::find(std::begin(kWays), std::end(kWays), std::pair(from, to)) != std::end(kWays);
      assert_int_equal(Connection::allowed(from, to), way);
    }
}

struct Calls {
  Rhythm rhythm;
  std::uint64_t now = 1'000'000, used = 0;
  unsigned asked = 0;

  // Of a microsecond. True: it follows the one before at once.
  bool call(Rhythm::Kind kind) {
    const auto clock = [this] {
      ++asked;
      return used;
    };
    const bool at_once = rhythm.enter(now, clock);
    now += 1000;
    used += 1000;
    rhythm.leave(kind, now, clock);
    return at_once;
  }
  bool followed(Rhythm::Kind kind) const { return rhythm.followed(kind); }
  void compute(std::uint64_t ns) {
    now += ns;
    used += ns;
  }
  void others(std::uint64_t ns) { now += ns; }
};

void the_rhythm_is_of_each_kind(void**) {
  using enum Rhythm::Kind;
  Calls c;
  assert_false(c.call(send));
  assert_false(c.followed(send));
  c.compute(Rhythm::kAtOnceNs);
  assert_true(c.call(large_send));
  assert_true(c.followed(send));
  for (int i = 0; i < 3; ++i) {
    assert_false(c.followed(large_send));
    c.compute(8'000'000);
    assert_false(c.call(large_send));
  }
  // What followed the large ones late says nothing about small ones.
  assert_true(c.followed(send));
}

void one_pause_breaks_no_rhythm(void**) {
  using enum Rhythm::Kind;
  Calls c;
  c.call(send);
  c.call(send);
  for (int i = 0; i < 3; ++i) {
    c.compute(1'000'000);
    assert_false(c.call(send));
    assert_true(c.followed(send));
    assert_true(c.call(send));
  }
  for (int i = 0; i < 2; ++i) {
    assert_true(c.followed(send));
    c.compute(1'000'000);
    assert_false(c.call(send));
  }
  assert_false(c.followed(send));
  assert_true(c.call(send));
  assert_true(c.followed(send));
}

// Where calls follow each other the CPU time is not asked for: it would cost more than they do.
void what_others_take_is_no_pause(void**) {
  using enum Rhythm::Kind;
  Calls c;
  c.call(receive);
  c.call(receive);
  c.asked = 0;
  for (int i = 0; i < 10; ++i) assert_true(c.call(receive));
  assert_int_equal(c.asked, 0);
  c.others(1'000'000);
  assert_false(c.call(receive));  // nothing shows that it was others
  for (int i = 0; i < 10; ++i) {
    c.others(1'000'000);
    c.call(receive);
    assert_true(c.followed(receive));
  }
  assert_in_range(c.asked, 10, 20);
}

// A program that computes between its calls does not pay for the question each time. Once others do take its CPU, that
// is found out soon, and asked for every time.
void what_makes_no_difference_is_seldom_asked_for(void**) {
  using enum Rhythm::Kind;
  Calls c;
  const auto computing = [&c](int calls) {
    for (int i = 0; i < calls; ++i) {
      c.compute(300'000);
      c.call(send);
      c.call(other);
      c.call(other);
    }
  };
  computing(100);
  c.asked = 0;
  computing(160);
  assert_in_range(c.asked, 1, 2 * 160 / 8);
  for (int i = 0; i < 3; ++i) {
    c.compute(300'000);
    assert_false(c.call(send));
  }
  assert_false(c.followed(send));
  int late = 0;
  for (; !c.followed(send); ++late) {
    c.others(1'000'000);
    c.call(send);
  }
  assert_in_range(late, 1, 16);
  for (int i = 0; i < 10; ++i) {
    c.others(1'000'000);
    c.call(send);
    assert_true(c.followed(send));
  }
}

// Another thread's CPU time is another count.
void another_thread_that_comes_late_comes_late(void**) {
  using enum Rhythm::Kind;
  for (const std::uint64_t used : {std::uint64_t{0}, std::uint64_t{1'000'000'000'000}}) {
    Calls c;
    c.compute(1'000'000'000);
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t own = c.used;
      assert_false(c.call(send));
      c.others(1'000'000);
      c.used = used + static_cast<std::uint64_t>(i) * 1'000'000;
      assert_false(c.call(send));
      c.others(1'000'000);
      c.used = own;
    }
    assert_false(c.followed(send));
  }
}

struct Polls {
  ConnectionsTurn turn;
  std::uint64_t now = 1'000'000'000;

  // Looks that were taken in so many polls, a step apart.
  int looks(int polls, std::uint64_t step, bool idly = true) {
    int n = 0;
    for (int i = 0; i < polls; ++i) {
      now += step;
      turn.poll(now);
      n += turn.take(now, idly) ? 1 : 0;
    }
    return n;
  }
};

void who_waits_looks_at_connections(void**) {
  Polls p;
  assert_int_equal(p.looks(1, 1), 1);             // the first one
  assert_in_range(p.looks(10'000, 500), 40, 50);  // in 5 ms
  assert_int_equal(p.looks(10'000, 500, false), 0);
  p.turn.ask();
  assert_int_equal(p.looks(10, 500, false), 1);
}

// Five polls in a microsecond each, then 300 us of work: nothing but what has to be done now and then.
void who_comes_back_from_computing_does_not(void**) {
  Polls p;
  p.looks(1, 1);
  int n = 0;
  for (int i = 0; i < 1000; ++i) n += p.looks(1, 300'000) + p.looks(4, 1000);
  assert_in_range(n, 50, 61);  // in 304 ms
  p.turn.ask();
  assert_int_equal(p.looks(1, 300'000), 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(addresses_that_are_ones),
      cmocka_unit_test(addresses_that_are_none),
      cmocka_unit_test(a_hello_keeps_what_is_in_it),
      cmocka_unit_test(a_hello_of_another_version_says_so),
      cmocka_unit_test(a_proof_is_good_for_one_job_and_one_way),
      cmocka_unit_test(reasons_name_what_is_to_be_mended),
      cmocka_unit_test(thresholds_fall_with_the_size),
      cmocka_unit_test(a_buffer_becomes_hot_by_being_used),
      cmocka_unit_test(buffers_of_one_use_do_not_keep_others_out),
      cmocka_unit_test(a_buffer_of_many_becomes_hot),
      cmocka_unit_test(as_many_become_hot_as_have_room),
      cmocka_unit_test(thousands_become_hot_together),
      cmocka_unit_test(what_was_in_vain_is_counted_anew),
      cmocka_unit_test(memory_is_registered_where_that_is_cheaper),
      cmocka_unit_test(kept_registrations_are_for_frequent_buffers),
      cmocka_unit_test(records_come_back_once_and_by_connection),
      cmocka_unit_test(connections_go_one_way),
      cmocka_unit_test(the_rhythm_is_of_each_kind),
      cmocka_unit_test(one_pause_breaks_no_rhythm),
      cmocka_unit_test(what_others_take_is_no_pause),
      cmocka_unit_test(what_makes_no_difference_is_seldom_asked_for),
      cmocka_unit_test(another_thread_that_comes_late_comes_late),
      cmocka_unit_test(who_waits_looks_at_connections),
      cmocka_unit_test(who_comes_back_from_computing_does_not),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
