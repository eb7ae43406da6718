// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whole sessions of Linux's siw with itself (tests/vectors/siw_sessions.py made them from captures): our end takes the
// place of one siw, hears what that one heard, and must say what that one said and have in its memory what that one
// had, octet for octet.
#include <cstring>
#include <map>

#include "mpa/startup.h"
#include "rdmap/endpoint.h"
#include "tests/wire/fake_consumer.h"
#include "tests/wire/peer.h"

using namespace ewarp;
using namespace ewarp::wire;
using test::Json;

namespace {

// What the recorded programs had: a buffer with the alphabet, in which the receives lie, too.
constexpr std::size_t kBuffer = 1 << 18;
constexpr std::uint16_t kIrd = 4, kOrd = 3;  // of the initiator; the responder took the same

// What follows the length field of a DDP header: T 0x80, L 0x40 in its first octet.
constexpr std::size_t kTagged = 14, kUntagged = 18;

Bytes alphabet(char first, std::size_t octets) {
  const char base = first >= 'a' ? 'a' : 'A';
  Bytes out(octets);
  for (std::size_t i = 0; i < octets; ++i)
    out[i] = static_cast<std::byte>(base + (static_cast<std::size_t>(first - base) + i) % 26);
  return out;
}

Bytes fpdu_of(const Json& v) {
  Bytes payload;
  if (v.contains("hex")) payload = test::hex(v["hex"]);
  if (v.contains("runs"))
    for (const Json& run : v["runs"])
      payload = concat({payload, alphabet(run[0].get<std::string>()[0], run[1].get<std::size_t>())});
  return concat({test::hex(v["head"]), payload, test::hex(v["tail"])});
}

Bytes ulpdu_of(const Bytes& fpdu) {
  return slice(fpdu, 2, get_be<std::uint16_t>(fpdu, 0));
}

struct Half {
  Bytes frame;
  std::vector<Bytes> fpdus;
};

struct Session {
  explicit Session(const Json& v) : id(v["id"].get<std::string>()), siw{half(v["initiator"]), half(v["responder"])} {
    for (const Half* h : {&siw.initiator, &siw.responder})
      for (const Bytes& f : h->fpdus) largest = std::max<std::size_t>(largest, get_be<std::uint16_t>(f, 0));
    const Octets request(siw.initiator.frame), reply(siw.responder.frame);
    const auto flags = get_be<std::uint8_t>(request, 16) | get_be<std::uint8_t>(reply, 16);
    crc = (flags & 0x40) != 0;
    enhanced = (flags & 0x10) != 0;
    if (enhanced) {
      const auto ird = get_be<std::uint16_t>(request, 20), ord = get_be<std::uint16_t>(request, 22);
      peer_to_peer = (ird & 0x8000) != 0;
      rtr = static_cast<std::uint8_t>((ord & 0x8000 ? mpa::kRtrWrite : 0) | (ord & 0x4000 ? mpa::kRtrRead : 0));
    }
    // {address, key, length} of the responder's buffer in its own order of octets, as its program wrote them.
    const Bytes offer = private_data(siw.responder);
    assert_true(offer.size() >= 16);
    std::memcpy(&address, offer.data(), sizeof address);
    std::memcpy(&key, offer.data() + 8, sizeof key);
  }
  static Half half(const Json& v) {
    Half h{test::hex(v["frame"]), {}};
    for (const Json& f : v["fpdus"]) h.fpdus.push_back(fpdu_of(f));
    return h;
  }
  Bytes private_data(const Half& h) const {
    const std::size_t head = enhanced ? 24 : 20;
    return slice(h.frame, head, h.frame.size() - head);
  }
  bool has(const char* word) const { return id.find(word) != std::string::npos; }

  std::string id;
  struct {
    Half initiator, responder;
  } siw;
  std::size_t largest = kUntagged;  // ULPDU
  bool crc = false, enhanced = false, peer_to_peer = false;
  std::uint8_t rtr = 0;
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

std::vector<Session> sessions() {
  std::vector<Session> out;
  for (const Json& v : test::load("siw_sessions.json")) out.emplace_back(v);
  assert_true(out.size() >= 13);
  return out;
}

mpa::StartupConfig config(const Session& s, std::uint16_t ird, std::uint16_t ord) {
  return {.enhanced = s.enhanced,
          .want_crc = s.crc,
          .peer_to_peer = s.peer_to_peer,
          .rtr = s.rtr,
          .extensions = false,
          .ird = ird,
          .ord = ord};
}

template <class Machine>
void feed(Machine& machine, Octets in) {
  while (machine.want() > 0) {
    const std::size_t n = std::min(machine.want(), in.size());
    assert_true(n > 0);
    machine.feed(in.first(n));
    in = in.subspan(n);
  }
  assert_int_equal(in.size(), 0);
}

mpa::StreamParams start_as_responder(const Session& s) {
  mpa::Responder r;
  feed(r, s.siw.initiator.frame);
  assert_true(test::exact(r.private_data()) == s.private_data(s.siw.initiator));
  // siw as responder takes what the Request asks for.
  const Bytes reply = r.accept(config(s, kOrd, kIrd), s.private_data(s.siw.responder));
  test::expect_octets(reply, s.siw.responder.frame, s.id + ": Reply");
  mpa::StreamParams p = r.params();
  // Revision 1 carries no depths; the programs used these.
  p.ird = kOrd;
  p.ord = kIrd;
  return p;
}

mpa::StreamParams start_as_initiator(const Session& s) {
  mpa::Initiator i(config(s, kIrd, kOrd), s.private_data(s.siw.initiator));
  test::expect_octets(i.request(), s.siw.initiator.frame, s.id + ": Request");
  feed(i, s.siw.responder.frame);
  assert_true(test::exact(i.private_data()) == s.private_data(s.siw.responder));
  mpa::StreamParams p = i.params();
  assert_false(p.terminate.has_value());
  p.ird = kIrd;
  p.ord = kOrd;
  return p;
}

unsigned opcode(const Bytes& fpdu) {
  return get_be<std::uint8_t>(fpdu, 3) & 0x0f;
}
bool is_last(const Bytes& fpdu) {
  return (get_be<std::uint8_t>(fpdu, 2) & 0x40) != 0;
}
bool is_send(unsigned op) {
  return op >= kSend && op <= kSendSeInv;
}
// Of a Send, a Write or a Read Response.
Bytes payload_of(const Bytes& fpdu) {
  const Bytes ulpdu = ulpdu_of(fpdu);
  const std::size_t head = is_send(opcode(fpdu)) ? kUntagged : kTagged;
  return slice(ulpdu, head, ulpdu.size() - head);
}
bool is_zero(Octets in) {
  return std::all_of(in.begin(), in.end(), [](std::byte b) { return b == std::byte{}; });
}

// The Terminates name the same error. siw says 1/2/02 (no receive) of a message that is too long, the RFC 1/2/05; and a
// Read Request that it sends back has another MSN than the one that came.
void expect_same_terminate(const Session& s, const Bytes& ours, const Bytes& siws) {
  const Bytes o = ulpdu_of(ours), t = ulpdu_of(siws);
  test::expect_octets(slice(o, 0, kUntagged), slice(t, 0, kUntagged), s.id + ": header of the Terminate");
  const auto got = rdmap::Terminate::parse(Octets(o).subspan(kUntagged));
  const auto want = rdmap::Terminate::parse(Octets(t).subspan(kUntagged));
  assert_true(got.ok() && want.ok());
  EXPECT(s.id, want.value().swapped && !got.value().swapped);
  const Fault fault = s.has("longsend") ? fault::kDdpTooLong : want.value().fault;
  EXPECT(s.id, got.value().fault == fault);
  Bytes back = got.value().ddp_header, siws_back = want.value().ddp_header;
  constexpr std::size_t kMsn = 10;  // in an untagged header
  if (s.has("read")) put_be<std::uint32_t>(siws_back, kMsn, get_be<std::uint32_t>(back, kMsn));
  test::expect_octets(back, siws_back, s.id + ": DDP header that comes back");
  test::expect_octets(got.value().rdmap_header, want.value().rdmap_header, s.id + ": RDMAP header that comes back");
}

// FPDU by FPDU, in order; a Terminate by its meaning.
void expect_answers(const Session& s, Octets got, const std::vector<Bytes>& want) {
  for (const Bytes& w : want) {
    assert_true(got.size() > 2);
    const std::size_t n = 2 + get_be<std::uint16_t>(got, 0), whole = (n + 3) / 4 * 4 + 4;
    const Bytes ours = test::exact(got.first(whole));
    if (opcode(w) == kTerminate)
      expect_same_terminate(s, ours, w);
    else
      test::expect_octets(ours, w, s.id + ": FPDU");
    got = got.subspan(whole);
  }
  assert_int_equal(got.size(), 0);
}

// --- siw asks, we answer ---

// The memory that the responder's program had, worked out from what the initiator sent alone: its Writes, and its
// Sends, which came into the same buffer.
class Memory {
 public:
  explicit Memory(const Session& s) : session_(s), octets_(alphabet('a', kBuffer)) {}

  void hear(const Bytes& fpdu) {
    const Bytes ulpdu = ulpdu_of(fpdu), payload = payload_of(fpdu);
    const unsigned op = opcode(fpdu);
    const auto stag = get_be<std::uint32_t>(ulpdu, 2);
    if (op == kWrite && !payload.empty() && stag == session_.key && !invalid_)
      put(get_be<std::uint64_t>(ulpdu, 6) - session_.address, payload);
    if (!is_send(op)) return;
    if (std::exchange(whole_, false)) message_.clear();
    message_ = concat({message_, payload});
    solicited_ = op == kSendSe || op == kSendSeInv;
    invalidates_ = op == kSendInv || op == kSendSeInv;
    whole_ = is_last(fpdu);
  }
  // The Send is over, as the endpoint says; its receive, and the program's buffer with it.
  void expect(const FakeReceive& receive, const rdmap::Received& received) {
    const Bytes& got = receive.pieces[0];
    EXPECT(session_.id, whole_);
    if (received.status != rdmap::Status::success) {
      EXPECT(session_.id + ": a receive that was too short", session_.has("longsend") && is_zero(got));
      return;
    }
    test::expect_octets(slice(got, 0, received.length), message_, session_.id + ": message");
    EXPECT(session_.id + ": behind the message", is_zero(Octets(got).subspan(received.length)));
    EXPECT(session_.id, received.solicited == solicited_ && received.invalidated == invalidates_);
    EXPECT(session_.id, !invalidates_ || received.invalidated_stag == session_.key);
    put(0, message_);
    invalid_ = invalidates_;
    ++messages_;
  }
  const Bytes& octets() const { return octets_; }
  std::size_t messages() const { return messages_; }

 private:
  void put(std::uint64_t at, const Bytes& payload) {
    assert_true(at <= octets_.size() && payload.size() <= octets_.size() - at);
    std::copy(payload.begin(), payload.end(), octets_.begin() + static_cast<long>(at));
  }

  const Session& session_;
  Bytes octets_, message_;  // of the Send that is being heard
  bool whole_ = true, solicited_ = false, invalidates_ = false, invalid_ = false;
  std::size_t messages_ = 0;
};

// Holds: MPA-78, RDM-1
void mpa_78_what_siw_asks_is_answered_as_siw_does(void**) {
  for (const Session& s : sessions()) {
    FakeConsumer consumer;
    consumer.regions[s.key] = {.octets = alphabet('a', kBuffer), .base = s.address};
    if (!s.has("norecv"))
      for (std::uint64_t i = 0; i < 16; ++i)
        consumer.receives.push_back({i, {Bytes(s.has("longsend") ? 16 : std::size_t{65536})}});
    Memory memory(s);
    consumer.on_receive_done = [&](const FakeReceive& r, const rdmap::Received& received) {
      memory.expect(r, received);
      // The recorded program received into the buffer that it offered.
      const auto region = consumer.regions.find(s.key);
      if (region != consumer.regions.end() && received.status == rdmap::Status::success)
        std::memcpy(region->second.octets.data(), r.pieces[0].data(), received.length);
    };
    rdmap::Endpoint endpoint(consumer, start_as_responder(s), s.largest);
    endpoint.stop_waiting();
    Bytes answers;
    std::size_t asked = 0, heard = 0;
    for (const Bytes& fpdu : s.siw.initiator.fpdus) {
      if (is_send(opcode(fpdu)) && is_last(fpdu)) ++asked;
      memory.hear(fpdu);
      assert_int_equal(endpoint.receive(fpdu), fpdu.size());
      answers = concat({answers, drain(endpoint)});
      ++heard;
      const auto region = consumer.regions.find(s.key);
      EXPECT(s.id + ": memory after FPDU " + std::to_string(heard),
             region == consumer.regions.end() ? s.has("inv") : region->second.octets == memory.octets());
    }
    expect_answers(s, answers, s.siw.responder.fpdus);
    EXPECT(s.id, memory.messages() == asked - (s.has("longsend") || s.has("norecv") ? 1 : 0));
  }
}

// --- we ask as siw did, siw's answers are understood ---

// The initiator's messages as requests.
void post_all(const Session& s, FakeConsumer& consumer) {
  Bytes payload;
  std::uint64_t to = 0;
  bool first = true, rtr = s.peer_to_peer;
  for (const Bytes& fpdu : s.siw.initiator.fpdus) {
    const Bytes ulpdu = ulpdu_of(fpdu);
    const unsigned op = opcode(fpdu);
    if (std::exchange(rtr, false)) continue;  // nobody's request
    if (op == kReadRequest) {
      const auto r = rdmap::ReadRequest::parse(Octets(ulpdu).subspan(kUntagged)).value();
      FakeRequest& q = consumer.post(rdmap::Operation::read, {Bytes(r.length)});
      q.remote_stag = r.source_stag;
      q.remote_to = r.source_to;
      continue;
    }
    if (first) {
      payload.clear();
      if (op == kWrite) to = get_be<std::uint64_t>(ulpdu, 6);
    }
    payload = concat({payload, payload_of(fpdu)});
    first = is_last(fpdu);
    if (!first) continue;
    FakeRequest& q = consumer.post(op == kWrite ? rdmap::Operation::write : rdmap::Operation::send, {payload});
    if (op == kWrite) {
      q.remote_stag = get_be<std::uint32_t>(ulpdu, 2);
      q.remote_to = to;
    }
    q.solicited = op == kSendSe || op == kSendSeInv;
    q.invalidate = op == kSendInv || op == kSendSeInv;
    if (q.invalidate) q.invalidate_stag = get_be<std::uint32_t>(ulpdu, 2);
  }
}

// What every requester chooses for itself is put to 0: the sink of a Read, and the STags of an empty RTR.
Bytes without_choices(const Bytes& fpdu, bool rtr) {
  Bytes u = ulpdu_of(fpdu);
  const auto zero = [&u](std::size_t at, std::size_t n) {
    std::fill_n(u.begin() + static_cast<long>(at), n, std::byte{});
  };
  if (opcode(fpdu) == kReadRequest) {
    zero(kUntagged, 12);
    if (rtr) zero(kUntagged + 16, 12);
  } else if (rtr) {
    zero(2, 4);
  } else {
    return fpdu;
  }
  return u;
}

// Holds: MPA-78, RDM-1, RDM-23
void mpa_78_we_ask_as_siw_does_and_understand_its_answers(void**) {
  for (const Session& s : sessions()) {
    FakeConsumer consumer;
    const mpa::StreamParams p = start_as_initiator(s);
    rdmap::Endpoint endpoint(consumer, p, s.largest);
    post_all(s, consumer);
    // Responses that siw addressed to its sinks go to ours.
    std::vector<std::pair<std::uint32_t, std::uint64_t>> sinks;
    std::vector<Bytes> brought;  // what siw's responses carry
    std::size_t said = 0, response = 0;
    const auto speak = [&] {
      for (Bytes out = drain(endpoint, 1); !out.empty();) {
        const std::size_t n = 2 + get_be<std::uint16_t>(out, 0), whole = (n + 3) / 4 * 4 + 4;
        const Bytes ours = slice(out, 0, whole);
        out.erase(out.begin(), out.begin() + static_cast<long>(whole));
        assert_true(said < s.siw.initiator.fpdus.size());
        const bool rtr = s.peer_to_peer && said == 0;
        const Bytes& siws = s.siw.initiator.fpdus[said++];
        test::expect_octets(without_choices(ours, rtr), without_choices(siws, rtr), s.id + ": our FPDU");
        if (opcode(ours) == kReadRequest) {
          const Bytes u = ulpdu_of(ours);
          const auto r = rdmap::ReadRequest::parse(Octets(u).subspan(kUntagged)).value();
          sinks.emplace_back(r.sink_stag, r.sink_to);
        }
      }
    };
    speak();
    Peer framer(-1, s.crc);
    std::uint64_t base = 0;
    for (const Bytes& fpdu : s.siw.responder.fpdus) {
      if (opcode(fpdu) != kReadResponse) {
        endpoint.receive(fpdu);
        continue;
      }
      Bytes u = ulpdu_of(fpdu);
      const auto to = get_be<std::uint64_t>(u, 6);
      assert_true(response < sinks.size());
      if (base == 0) {  // the first segment of a response
        base = to + 1;
        brought.emplace_back();
      }
      brought.back() = concat({brought.back(), payload_of(fpdu)});
      put_be<std::uint32_t>(u, 2, sinks[response].first);
      put_be<std::uint64_t>(u, 6, sinks[response].second + (to + 1 - base));
      if (is_last(fpdu)) {
        ++response;
        base = 0;
      }
      const Bytes in = framer.frame(u);
      assert_int_equal(endpoint.receive(in), in.size());
      speak();
    }
    assert_int_equal(said, s.siw.initiator.fpdus.size());
    const Bytes* last = s.siw.responder.fpdus.empty() ? nullptr : &s.siw.responder.fpdus.back();
    const bool terminated = last != nullptr && opcode(*last) == kTerminate;
    EXPECT(s.id, terminated || response == sinks.size());
    EXPECT(s.id, endpoint.terminated().has_value() == terminated && !endpoint.fault());
    // The answer to the RTR is no request's. A Read that was refused brought nothing.
    std::size_t read = s.peer_to_peer && response > 0 ? 1 : 0;
    for (const auto& q : consumer.sends) {
      EXPECT(s.id, q->done || terminated);
      if (q->operation != rdmap::Operation::read) continue;
      if (read < brought.size())
        test::expect_octets(q->pieces[0], brought[read], s.id + ": sink of Read " + std::to_string(read));
      else
        EXPECT(s.id + ": sink of a Read that was refused", terminated && is_zero(q->pieces[0]));
      ++read;
    }
    EXPECT(s.id, read >= brought.size());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(mpa_78_what_siw_asks_is_answered_as_siw_does),
      cmocka_unit_test(mpa_78_we_ask_as_siw_does_and_understand_its_answers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
