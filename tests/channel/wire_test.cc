// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Control messages against octets written down from the figures of docs/design/channel.md, not made by emit().
#include <algorithm>

#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;
using wire::Kind;
using wire::Message;

namespace {

Bytes octets(std::initializer_list<unsigned> values) {
  Bytes out;
  for (const unsigned v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

struct Case {
  const char* name;
  Bytes wire;
  Message want;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  Message m;
  m.kind = Kind::note;
  m.flags = wire::flag::kReserve;
  m.credits = 0x01020304;
  m.release_count = 2;
  m.releases[0] = 5;
  m.releases[1] = 0x80000007;
  out.push_back({"note", octets({7, 0x10, 2, 0, 1,    2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                 0, 0,    0, 0, 0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                 0, 0,    0, 5, 0x80, 0, 0, 7}),
                 m});
  m = {};
  m.kind = Kind::sender_ready;
  m.flags = wire::flag::kHybrid | wire::flag::kFloor;
  m.tag = 0x1122334455667788;
  m.number = 9;
  m.size = 0x10000;
  m.floor = 0x40;
  m.remote = {.address = 0x7f0000001000, .key = 0xdeadbeef};
  m.id = 3;
  out.push_back({"SENDER_READY",
                 octets({2, 0x21, 0,    0, 0, 0, 0,    0,    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,  //
                         0, 0,    0,    0, 0, 0, 0,    9,    0,    0,    0,    0,    0,    1,    0,    0,     //
                         0, 0,    0,    0, 0, 0, 0,    0x40,                                                  //
                         0, 0,    0x7f, 0, 0, 0, 0x10, 0,    0xde, 0xad, 0xbe, 0xef, 0,    0,    0,    3}),
                 m});
  m = {};
  m.kind = Kind::receiver_ready;
  m.flags = wire::flag::kAnswer;
  m.tag = 1;
  m.number = 2;
  m.size = 4;
  m.remote = {.address = 8, .key = 16};
  m.id = 32;
  out.push_back({"RECEIVER_READY", octets({3, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 1,  //
                                           0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,  0, 0, 0, 4,  //
                                           0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0, 0, 32}),
                 m});
  m = {};
  m.kind = Kind::retract;
  m.tag = 0xff;
  out.push_back({"RETRACT", octets({5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff,  //
                                    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
                 m});
  return out;
}

void messages_agree_with_the_figures(void**) {
  for (const Case& c : cases()) {
    print_message("case: %s\n", c.name);
    std::size_t used = 0;
    const auto parsed = Message::parse(c.wire, &used);
    assert_true(parsed.has_value() && *parsed == c.want);
    assert_int_equal(used, c.wire.size());
    Bytes out(Message::kLongest, std::byte{0xa5});
    c.want.emit(out);
    assert_int_equal(c.want.octets(), c.wire.size());
    assert_memory_equal(out.data(), c.wire.data(), c.wire.size());
    for (std::size_t n = 0; n < c.wire.size(); ++n)
      assert_false(Message::parse(Octets(c.wire).first(n), &used).has_value());
    Bytes longer = c.wire;
    longer.push_back(std::byte{0});
    assert_false(Message::parse(longer, &used).has_value());
  }
}

// It may be less: the rest follows.
void an_eager_message_is_no_longer_than_it_says(void**) {
  const Bytes header = octets({1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,  //
                               0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3});
  for (std::size_t payload = 0; payload < 6; ++payload) {
    Bytes all(header.size() + payload);
    std::copy(header.begin(), header.end(), all.begin());
    std::size_t used = 0;
    assert_int_equal(Message::parse(all, &used).has_value(), payload <= 3);
  }
}

void what_no_peer_sends_is_refused(void**) {
  const Bytes good = cases()[0].wire;
  const struct {
    std::size_t at;
    unsigned value;
  } kBad[] = {{0, 0}, {0, 8}, {0, 255}, {1, 0x80}, {2, 16}, {2, 255}, {2, 3}};
  for (const auto& bad : kBad) {
    Bytes wire = good;
    wire[bad.at] = static_cast<std::byte>(bad.value);
    std::size_t used = 0;
    assert_false(Message::parse(wire, &used).has_value());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(messages_agree_with_the_figures),
      cmocka_unit_test(an_eager_message_is_no_longer_than_it_says),
      cmocka_unit_test(what_no_peer_sends_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
