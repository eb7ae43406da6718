// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The active side against a scripted peer: what is sent, and which event each answer makes.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "provider/base/options.h"
#include "tests/cm/channel.h"
#include "tests/cm/standins.h"

// cmocka last: its fail() is a macro.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

constexpr unsigned kS = 0x10, kR = 0x20, kC = 0x40;
constexpr unsigned kOffer = 0x02, kConsent = 0x01, kLocalOffer = 0x08;
constexpr unsigned kWrite = 2, kAllForms = 7;

std::string numbered(std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += static_cast<char>(i);
  return out;
}

// A connection whose Request has arrived at the raw peer.
struct Pending {
  Channel channel;
  RawSocket listener = RawSocket::listening("127.0.0.1");
  std::uint32_t qp = make_qp();
  std::uint32_t id;
  explicit Pending(std::string_view data = {}, unsigned ird = 4, unsigned ord = 5) {
    id = channel.resolved("127.0.0.1", listener.port(), 77);
    assert_int_equal(channel.connect(id, qp, data, ird, ord), 0);
  }
};

void request_says_what_the_consumer_asked(void**) {
  for (const std::size_t size : {0, 1, 19, 20, 100, 251, 252, 253, 254, 255}) {
    print_message("case: %zu octets\n", size);
    Pending p(numbered(size), 3, 200);
    const Frame request = p.listener.accept().receive_frame();
    assert_false(request.reply);
    // Loopback: no wire, so no CRC is asked for (docs/protocol/start-up.md section 5).
    const bool local = ewarp::options().local;
    assert_int_equal(request.flags, kS | kOffer | (local ? kLocalOffer : 0));
    assert_int_equal(request.revision, 2);
    // ORD is cut to the queue pair's limit.
    assert_true(request.data == enhanced_word(true, kAllForms, 3, 128) + numbered(size));
    p.channel.destroy(p.id);
  }
}

void answers_make_events(void**) {
  const struct {
    const char* name;
    std::string reply;
    std::uint32_t event;
    int status;
    const char* data;
    bool attached;
    int initiator_depth, responder_resources;
  } cases[] = {
      {"accepted", encode({true, kS, 2, enhanced_word(true, kWrite, 9, 2) + "hello"}), kEstablished, 0, "hello", true,
       5, 4},
      {"own ORD falls to the peer's IRD", encode({true, kS, 2, enhanced_word(true, kWrite, 1, 2)}), kEstablished, 0, "",
       true, 1, 4},
      {"rejected with data", encode({true, kS | kR, 2, enhanced_word(true, kWrite, 7, 6) + "no"}), kRejected,
       -ECONNRESET, "no", false, 7, 6},
      {"rejected, bare", encode({true, kR, 2, ""}), kRejected, -ECONNRESET, "", false, 0, 0},
      {"a Request instead of a Reply", encode({false, kS, 2, enhanced_word(true, kWrite, 1, 1)}), kConnectError,
       -EPROTO, "", false, 0, 0},
      {"revision 3", encode({true, kS, 3, enhanced_word(true, kWrite, 1, 1)}), kConnectError, -EPROTO, "", false, 0, 0},
      {"not enhanced", encode({true, 0, 2, ""}), kConnectError, -EPROTO, "", false, 0, 0},
      {"peer's ORD above our maximum", encode({true, kS, 2, enhanced_word(true, kWrite, 9, 2000)}), kConnectError,
       -ENOMEM, "", true, 0, 0},
      {"no RTR form", encode({true, kS, 2, enhanced_word(true, 0, 9, 2)}), kConnectError, -EPROTO, "", true, 0, 0},
      {"FIN inside the frame", encode({true, kS, 2, enhanced_word(true, kWrite, 9, 2)}).substr(0, 22), kRejected,
       -ECONNRESET, "", false, 0, 0},
  };
  for (const auto& c : cases) {
    print_message("case: %s\n", c.name);
    const auto failures = failures_counted();
    Pending p;
    RawSocket peer = p.listener.accept();
    peer.receive_frame();
    peer.send(c.reply);
    if (c.reply.size() < 24 && c.reply.size() > 20) peer.close();
    const Event e = p.channel.expect(c.event);
    assert_int_equal(e.uid, 77);
    assert_int_equal(e.id, p.id);
    assert_int_equal(e.status, c.status);
    assert_string_equal(e.data().c_str(), c.data);
    assert_int_equal(e.conn.initiator_depth, c.initiator_depth);
    assert_int_equal(e.conn.responder_resources, c.responder_resources);
    settle();
    assert_int_equal(view_qp(p.qp).attached, c.attached);
    if (c.attached) assert_int_equal(view_qp(p.qp).params.terminate.has_value(), c.event != kEstablished);
    assert_int_equal(failures_counted() - failures, c.event != kEstablished);
    assert_false(p.channel.readable());
    assert_int_equal(p.channel.destroy(p.id), 3);
  }
}

// Holds: MPA-61
void every_cut_of_the_reply_is_the_same(void**) {
  const std::string reply = encode({true, kS | kC | kConsent, 2, enhanced_word(true, kWrite, 9, 2) + "data"});
  for (std::size_t cut = 1; cut < reply.size(); ++cut) {
    Pending p;
    RawSocket peer = p.listener.accept();
    peer.receive_frame();
    peer.send(reply.substr(0, cut));
    settle();
    assert_false(p.channel.readable());
    // What follows the Reply belongs to the queue pair.
    peer.send(reply.substr(cut) + "12345678");
    assert_string_equal(p.channel.expect(kEstablished).data().c_str(), "data");
    peer.receive(20);
    settle();
    const QpView qp = view_qp(p.qp);
    assert_int_equal(qp.received, 8);
    assert_true(qp.params.initiator && qp.params.crc && qp.params.extensions && qp.params.enhanced);
    assert_int_equal(qp.params.rtr, kWrite);
  }
}

// Holds: MPA-75
void falls_back_to_revision_1(void**) {
  Pending p("who");
  {
    RawSocket old = p.listener.accept();
    assert_int_equal(old.receive_frame().revision, 2);
  }  // closes without a word
  RawSocket again = p.listener.accept();
  const Frame request = again.receive_frame();
  assert_int_equal(request.revision, 1);
  assert_int_equal(request.flags & kS, 0);
  assert_string_equal(request.data.c_str(), "who");
  again.send(encode({true, 0, 1, "me"}));
  const Event e = p.channel.expect(kEstablished);
  assert_string_equal(e.data().c_str(), "me");
  assert_int_equal(e.conn.initiator_depth, 5);
  assert_false(view_qp(p.qp).params.enhanced);
}

// Holds: MPA-75
void falls_back_once(void**) {
  Pending p;
  p.listener.accept().receive_frame();
  p.listener.accept().receive_frame();
  assert_int_equal(p.channel.expect(kRejected).status, -ECONNRESET);
}

void falls_back_with_the_consumers_own_port(void**) {
  const RawSocket spare = RawSocket::listening("127.0.0.1", -1);
  const std::uint16_t port = spare.port();
  const_cast<RawSocket&>(spare).close();
  Channel channel;
  RawSocket listener = RawSocket::listening("127.0.0.1");
  const auto id = channel.create(1);
  assert_int_equal(channel.bind(id, address("127.0.0.1", port)), 0);
  assert_int_equal(channel.resolve(id, address("127.0.0.1", listener.port())), 0);
  channel.expect(kAddrResolved);
  assert_int_equal(channel.resolve_route(id), 0);
  channel.expect(kRouteResolved);
  assert_int_equal(channel.port(id), port);
  assert_int_equal(channel.connect(id, make_qp()), 0);
  listener.accept().receive_frame();
  RawSocket again = listener.accept();
  again.receive_frame();
  again.send(encode({true, 0, 1, ""}));
  channel.expect(kEstablished);
}

void nobody_listens(void**) {
  RawSocket bound = RawSocket::listening("127.0.0.1", -1);  // a port that is taken and refuses
  Channel channel;
  const auto id = channel.resolved("127.0.0.1", bound.port(), 5);
  assert_int_equal(channel.connect(id, make_qp()), 0);
  assert_int_equal(channel.expect(kRejected).status, -ECONNREFUSED);
  // It is over with this id.
  assert_int_equal(channel.connect(id, make_qp()), EINVAL);
  assert_int_equal(channel.disconnect(id), EINVAL);
}

void no_way_there(void**) {
  for (const char* host : {"192.0.2.1", "2001:db8::1"}) {  // documentation addresses
    Channel channel;
    const auto id = channel.create(5);
    assert_int_equal(channel.resolve(id, address(host, 7471)), 0);
    // ENODEV where a default route leads over an interface that is no device of this test.
    const int status = channel.expect(kAddrError).status;
    assert_true(status == -ENETUNREACH || status == -EHOSTUNREACH || status == -ENODEV || status == -EADDRNOTAVAIL);
    assert_int_equal(channel.resolve_route(id), EINVAL);
    // The id may be used again.
    assert_int_equal(channel.resolve(id, address("127.0.0.1", 7471)), 0);
    channel.expect(kAddrResolved);
  }
}

void queue_pair_must_exist_and_agree(void**) {
  RawSocket listener = RawSocket::listening("127.0.0.1");
  Channel channel;
  const auto id = channel.resolved("127.0.0.1", listener.port(), 5);
  assert_int_equal(channel.connect(id, 0xffffff), EINVAL);
  const auto qp = make_qp();
  refuse_attach(qp, EINVAL);
  assert_int_equal(channel.connect(id, qp), 0);
  RawSocket peer = listener.accept();
  peer.receive_frame();
  peer.send(encode({true, kS, 2, enhanced_word(true, kWrite, 9, 2)}));
  assert_int_equal(channel.expect(kConnectError).status, -EINVAL);
  assert_true(peer.at_end());
}

void queue_pair_destroyed_meanwhile(void**) {
  Pending p;
  RawSocket peer = p.listener.accept();
  peer.receive_frame();
  destroy_qp(p.qp);
  peer.send(encode({true, kS, 2, enhanced_word(true, kWrite, 9, 2)}));
  assert_int_equal(p.channel.expect(kConnectError).status, -ENOTCONN);
  assert_true(peer.at_end());
}

// Returns the peer of an established connection.
RawSocket establish(Pending& p) {
  RawSocket peer = p.listener.accept();
  peer.receive_frame();
  peer.send(encode({true, kS, 2, enhanced_word(true, kWrite, 9, 2)}));
  p.channel.expect(kEstablished);
  assert_int_equal(peer.receive(20).size(), 20);  // the stand-in's RTR
  return peer;
}

void disconnected_once_whoever_begins(void**) {
  for (const bool peer_first : {false, true}) {
    Pending p;
    RawSocket peer = establish(p);
    if (peer_first) {
      peer.close();
      p.channel.expect(kDisconnected);
      assert_int_equal(p.channel.disconnect(p.id), 0);
    } else {
      assert_int_equal(p.channel.disconnect(p.id), 0);
      assert_true(peer.at_end());
      settle();
      assert_false(p.channel.readable());  // the peer's half is still open
      peer.close();
      assert_int_equal(p.channel.expect(kDisconnected).status, 0);
      assert_int_equal(p.channel.disconnect(p.id), 0);
    }
    settle();
    assert_false(p.channel.readable());
    assert_int_equal(p.channel.destroy(p.id), 4);
    assert_int_equal(view_qp(p.qp).graceful_calls, peer_first ? 0 : 1);
    assert_int_equal(view_qp(p.qp).abort_calls, 0);
  }
}

void destroying_a_live_id_aborts(void**) {
  Pending p;
  RawSocket peer = establish(p);
  assert_int_equal(p.channel.destroy(p.id), 3);
  assert_true(peer.at_end());
  settle();
  assert_false(p.channel.readable());
  assert_int_equal(view_qp(p.qp).abort_calls, 1);
}

void destroying_an_id_that_closes_lets_it(void**) {
  Pending p;
  RawSocket peer = establish(p);
  assert_int_equal(p.channel.disconnect(p.id), 0);
  p.channel.destroy(p.id);
  assert_true(peer.at_end());
  assert_int_equal(view_qp(p.qp).abort_calls, 0);
}

void destroying_while_connecting_is_silent(void**) {
  Pending p;
  RawSocket peer = p.listener.accept();
  peer.receive_frame();
  assert_int_equal(p.channel.destroy(p.id), 2);
  assert_true(peer.at_end());
  settle();
  assert_false(p.channel.readable());
  assert_false(view_qp(p.qp).attached);
}

void closing_the_channel_ends_all(void**) {
  const int fds = open_fds();
  {
    Pending connecting, connected;
    RawSocket half = connecting.listener.accept();
    half.receive_frame();
    RawSocket peer = establish(connected);
    connecting.channel.close();
    connected.channel.close();
    assert_true(half.at_end());
    assert_true(peer.at_end());
  }
  expect_open_fds(fds);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "300", 1);
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(request_says_what_the_consumer_asked),
      cmocka_unit_test(answers_make_events),
      cmocka_unit_test(every_cut_of_the_reply_is_the_same),
      cmocka_unit_test(falls_back_to_revision_1),
      cmocka_unit_test(falls_back_once),
      cmocka_unit_test(falls_back_with_the_consumers_own_port),
      cmocka_unit_test(nobody_listens),
      cmocka_unit_test(no_way_there),
      cmocka_unit_test(queue_pair_must_exist_and_agree),
      cmocka_unit_test(queue_pair_destroyed_meanwhile),
      cmocka_unit_test(disconnected_once_whoever_begins),
      cmocka_unit_test(destroying_a_live_id_aborts),
      cmocka_unit_test(destroying_an_id_that_closes_lets_it),
      cmocka_unit_test(destroying_while_connecting_is_silent),
      cmocka_unit_test(closing_the_channel_ends_all),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
