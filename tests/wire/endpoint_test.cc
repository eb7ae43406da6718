// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The RDMAP endpoint alone, against the vectors to the octet: here the STags are the vectors' own.
#include "rdmap/endpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include "llp/guarded_copy.h"
#include "tests/wire/fake_consumer.h"
#include "tests/wire/peer.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

mpa::StreamParams params() {
  mpa::StreamParams p;
  p.crc = true;
  p.ird = p.ord = 4;
  return p;
}

test::Json vector_of(const char* id) {
  for (const test::Json& v : test::load("terminate.json", "vectors"))
    if (v.at("id") == id) return v;
  fail_msg("no vector %s", id);
  return {};
}

// The regions that the vectors speak of.
void fill(FakeConsumer& c) {
  c.regions[0x100] = {Bytes(4096), true, true, true};
  c.regions[0x200] = {Bytes(4096), false, true, true};
  c.regions[0x300] = {Bytes(4096), true, false, true};
}

Bytes framed(const Bytes& ulpdu) {
  Peer framer(-1, true);
  return framer.frame(ulpdu);
}

// Holds: RDM-17, RDM-18
void terminate_vectors_to_the_octet(void**) {
  for (const test::Json& v : test::load("terminate.json", "vectors")) {
    const std::string id = v.at("id");
    // Atomics and immediates do not exist here; the start-up's own are in terminate_test; TRM-24 needs markers.
    if (v.at("offending_ulpdu_hex").is_null() || id == "TRM-21" || id == "TRM-22" || id == "TRM-27") continue;
    FakeConsumer consumer;
    fill(consumer);
    if (id != "TRM-8") consumer.receives.push_back({1, {Bytes(32)}});
    rdmap::Endpoint endpoint(consumer, params(), 1442);
    endpoint.stop_waiting();
    const Bytes in = framed(test::hex(v.at("offending_ulpdu_hex")));
    assert_int_equal(endpoint.receive(in), in.size());
    EXPECT(id, endpoint.fault().has_value());
    test::expect_octets(drain(endpoint), test::hex(v.at("fpdu_hex")), id);
    EXPECT(id, endpoint.terminate_sent());
    EXPECT(id, !endpoint.wants_transmit());
  }
}

// Holds: RDM-19
// After 2048 of 3000 octets the STag is gone. The header that goes back has moved on.
void trm_27_a_partly_served_read(void**) {
  const test::Json v = vector_of("TRM-27");
  FakeConsumer consumer;
  fill(consumer);
  consumer.regions[0x100].octets = pattern(8192);
  rdmap::Endpoint endpoint(consumer, params(), 14 + 2048);
  const Bytes in = framed(test::hex(v.at("offending_ulpdu_hex")));
  assert_int_equal(endpoint.receive(in), in.size());
  llp::Gather gather;
  endpoint.transmit(gather, 1);  // one segment
  assert_int_equal(gather.octets(), 2 + 14 + 2048 + 4);
  gather.clear();
  consumer.regions.erase(0x100);
  test::expect_octets(drain(endpoint), test::hex(v.at("fpdu_hex")), "TRM-27");
}

// Holds: RDM-6
// When the receive is told of, the key is good for nothing any more; until the last segment it is. So nobody who sees
// the completion can meet a peer that still writes.
void rdm_6_invalid_before_the_receive_is_told_of(void**) {
  for (const unsigned opcode : {kSendInv, kSendSeInv}) {
    FakeConsumer consumer;
    fill(consumer);
    consumer.receives.push_back({1, {Bytes(64)}});
    int told = 0;
    consumer.on_receive_done = [&](const FakeReceive&, const rdmap::Received& received) {
      ++told;
      assert_true(received.status == rdmap::Status::success);
      assert_true(received.invalidated);
      assert_int_equal(received.invalidated_stag, 0x100);
      assert_int_equal(consumer.regions.count(0x100), 0);
    };
    rdmap::Endpoint endpoint(consumer, params(), 1442);
    const auto take = [&](const Bytes& ulpdu) {
      const Bytes in = framed(ulpdu);
      assert_int_equal(endpoint.receive(in), in.size());
    };
    take(send_segment(1, pattern(10), 0, false, opcode, 0x100));
    take(write_segment(0x100, 8, pattern(4)));
    assert_false(endpoint.fault().has_value());
    assert_int_equal(told, 0);
    take(send_segment(1, pattern(10), 10, true, opcode, 0x100));
    assert_int_equal(told, 1);
    const Bytes late = write_segment(0x100, 8, pattern(4));
    take(late);
    test::expect_octets(drain(endpoint), framed(answer_to(late, 1, 1, 0)), "Terminate");
  }
}

// Takes the region back at the last moment: after it was resolved, before it is read.
struct Revoker : FakeConsumer {
  bool hold(const llp::Extent&) override { return revoked(); }
  bool readable(const llp::Extent&) override { return revoked(); }
  bool atomic(const llp::Extent&, const rdmap::AtomicRequest&, std::uint64_t*) override { return revoked(); }
  bool revoked() {
    regions.clear();
    return false;
  }
};

// Holds: RDM-11, RDM-19
// What was deregistered is an invalid STag, not pages that are gone.
void a_region_taken_back_between_check_and_use(void**) {
  const Bytes asked[] = {read_request(1, 0x55, 0x1000, 3000, 0x100, 0), read_request(1, 0x55, 0x1000, 8000, 0x100, 0),
                         atomic_request(1, AtomicFields{.op = 0, .id = 7, .stag = 0x100, .data = 1})};
  for (const Bytes& request : asked)
    for (const bool crc : {true, false}) {
      Revoker consumer;
      consumer.regions[0x100].octets = pattern(8192);
      mpa::StreamParams p = params();
      p.crc = crc;
      p.extensions = true;
      rdmap::Endpoint endpoint(consumer, p, 14 + 2048);
      const Bytes in = Peer(-1, crc).frame(request);
      assert_int_equal(endpoint.receive(in), in.size());
      Bytes want = answer_to(request, 0, 1, 0);
      if (request.size() == 18 + 28) {  // a Read Request's own header is told too
        want[20] = std::byte{0xe0};
        want = concat({want, slice(request, 18, 28)});
      }
      test::expect_octets(drain(endpoint), Peer(-1, crc).frame(want), "Terminate");
    }
}

// Each message once, whatever it is; `etherwarp stat` shows these.
void what_is_sent_and_received_is_counted(void**) {
  FakeConsumer consumer;
  fill(consumer);
  consumer.receives.push_back({1, {Bytes(32)}});
  mpa::StreamParams p = params();
  p.extensions = p.initiator = true;
  rdmap::Endpoint endpoint(consumer, p, 1442);
  const auto take = [&](const Bytes& ulpdu) {
    const Bytes in = framed(ulpdu);
    assert_int_equal(endpoint.receive(in), in.size());
    drain(endpoint);
  };
  const rdmap::EndpointCounters& counted = endpoint.counters;
  consumer.post(rdmap::Operation::send, {Bytes(5000)});
  consumer.post(rdmap::Operation::write, {Bytes(10)}).immediate = true;
  consumer.post(rdmap::Operation::read, {Bytes(10)});
  consumer.post(rdmap::Operation::fetch_add, {Bytes(8)});
  drain(endpoint);
  assert_int_equal(counted.tx_messages, 5);  // the immediate is one of its own
  assert_int_equal(counted.tx_sends, 1);
  assert_int_equal(counted.tx_writes, 1);
  assert_int_equal(counted.tx_reads, 1);
  take(read_request(1, 0x55, 0x1000, 3000, 0x100, 0));
  assert_int_equal(counted.tx_messages, 6);
  assert_int_equal(counted.rx_reads, 1);
  take(atomic_request(2, AtomicFields{.op = 0, .id = 7, .stag = 0x100, .data = 1}));
  assert_int_equal(counted.tx_messages, 7);
  take(write_segment(0x100, 0, pattern(10)));
  assert_int_equal(counted.rx_write_segments, 1);
  take(send_segment(1, pattern(10)));
  assert_int_equal(counted.rx_sends, 1);
  assert_int_equal(counted.terminates_sent, 0);
  take(write_segment(0x999, 0, pattern(10)));
  assert_int_equal(counted.terminates_sent, 1);
  assert_int_equal(counted.tx_messages, 8);
}

struct Prober : FakeConsumer {
  bool readable(const llp::Extent& e) override {
    asked.push_back(e);
    return true;
  }
  std::vector<llp::Extent> asked;
};

// Nothing of a response can be taken back once its header is on the wire: the pages of its source are asked for before
// that, a mebibyte at a time, all of them and none twice.
void sources_are_probed_before_they_are_sent(void**) {
  constexpr std::size_t kStep = 1 << 20, kOctets = 3 * kStep, kPayload = 8192;
  Prober consumer;
  consumer.regions[0x100].octets = pattern(kOctets);
  mpa::StreamParams p = params();
  p.crc = false;
  rdmap::Endpoint endpoint(consumer, p, 14 + kPayload);
  const Bytes in = Peer(-1, false).frame(read_request(1, 0x55, 0x1000, kOctets, 0x100, 0));
  assert_int_equal(endpoint.receive(in), in.size());
  assert_int_equal(drain(endpoint).size(), kOctets / kPayload * (2 + 14 + kPayload + 4));
  assert_int_equal(consumer.asked.size(), kOctets / kStep);
  for (std::size_t i = 0; i < consumer.asked.size(); ++i) {
    assert_ptr_equal(consumer.asked[i].address, consumer.regions[0x100].octets.data() + i * kStep);
    assert_int_equal(consumer.asked[i].length, kStep);
  }
}

// Takes the pages away between the moment they may be read and the CRC.
struct Snatcher : FakeConsumer {
  bool hold(const llp::Extent& e) override {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<std::uintptr_t>(e.address) / page * page + page;
    return mprotect(reinterpret_cast<void*>(at), page, PROT_NONE) == 0;
  }
};

void a_source_that_goes_before_its_crc(void**) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  assert_true(llp::install_copy_guard());
  for (const auto op : {rdmap::Operation::send, rdmap::Operation::write})
    for (const bool markers : {false, true}) {
      Snatcher consumer;
      mpa::StreamParams p = params();
      p.initiator = true;
      p.tx_markers = markers;
      rdmap::Endpoint endpoint(consumer, p, 16384);
      FakeRequest& r = consumer.post(op, {Bytes(4 * page)});
      drain(endpoint);
      mprotect(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(r.pieces[0].data()) / page * page), 3 * page,
               PROT_READ | PROT_WRITE);
      assert_true(r.done);
      assert_true(r.status == rdmap::Status::local_protection);
      assert_true(endpoint.terminate_sent());
    }
}

// The same of a short message, which is copied: its page goes, or its second piece is its owner's again.
struct Taker : FakeConsumer {
  bool hold(const llp::Extent& e) override {
    held += e.length == kFirst;
    return e.length == kFirst;
  }
  void let_go(const llp::Extent&) override { --held; }
  static constexpr std::size_t kFirst = 100;
  int held = 0;
};

void a_short_source_that_goes(void**) {
  for (const auto op : {rdmap::Operation::send, rdmap::Operation::write})
    for (const bool crc : {false, true})
      for (const bool markers : {false, true}) {
        Taker consumer;
        mpa::StreamParams p = params();
        p.initiator = true;
        p.crc = crc;
        p.tx_markers = markers;
        rdmap::Endpoint endpoint(consumer, p, 16384);
        FakeRequest& r = consumer.post(op, {Bytes(Taker::kFirst), Bytes(1000)});
        drain(endpoint);
        assert_true(r.done);
        assert_true(r.status == rdmap::Status::local_protection);
        assert_true(endpoint.terminate_sent());
        assert_int_equal(consumer.held, 0);
      }
}

// Where nothing can be read any more, nothing of no octets can be missing.
struct Unmapped : FakeConsumer {
  bool hold(const llp::Extent&) override { return false; }
  bool readable(const llp::Extent&) override { return false; }
};

void a_read_of_nothing_asks_for_no_memory(void**) {
  for (const bool crc : {false, true})
    for (const bool markers : {false, true}) {
      Unmapped consumer;
      consumer.regions[0x100].octets = pattern(100);
      mpa::StreamParams p = params();
      p.crc = crc;
      p.tx_markers = markers;
      rdmap::Endpoint endpoint(consumer, p, 1442);
      endpoint.stop_waiting();
      const Bytes in = Peer(-1, crc).frame(read_request(1, 0x55, 0x1000, 0, 0x100, 100));
      assert_int_equal(endpoint.receive(in), in.size());
      const Bytes out = drain(endpoint);
      assert_int_equal(out.size() - (markers ? 4 : 0), 2 + 14 + 4);
      assert_false(endpoint.terminate_sent());
    }
}

// The wait is over before all of the message is here, and it gets its receive after all. The next one waits anew.
void every_message_has_a_wait_of_its_own(void**) {
  FakeConsumer consumer;
  mpa::StreamParams p = params();
  p.initiator = true;
  rdmap::Endpoint endpoint(consumer, p, 1442);
  const Bytes first = framed(send_segment(1, pattern(20))), second = framed(send_segment(2, pattern(20, 2)));
  const Octets part = Octets(first).first(30);
  assert_int_equal(endpoint.receive(part), 0);
  assert_true(endpoint.stalled());
  endpoint.stop_waiting();
  assert_int_equal(endpoint.receive(part), 0);
  assert_false(endpoint.stalled() || endpoint.fault().has_value());
  consumer.receives.push_back({1, {Bytes(20)}});
  assert_int_equal(endpoint.receive(first), first.size());
  assert_true(consumer.receives.empty());
  assert_int_equal(endpoint.receive(second), 0);
  assert_true(endpoint.stalled());
  assert_false(endpoint.fault().has_value());
  endpoint.stop_waiting();
  assert_int_equal(endpoint.receive(second), second.size());
  assert_true(endpoint.fault() == fault::kDdpNoBuffer);
}

// What recvmsg() does with the octets of a stream: those that go direct, then the rest to receive().
class DirectReceiver {
 public:
  explicit DirectReceiver(rdmap::Endpoint& endpoint) : endpoint_(endpoint) {}
  // Everything up to the next direct payload is handled, and that payload stored.
  void take(Octets in, std::size_t staged) {
    const std::size_t head = endpoint_.receive(in.first(staged));
    in = in.subspan(head);
    for (const llp::Extent& e : endpoint_.direct()) {
      std::memcpy(e.address, in.data(), e.length);
      in = in.subspan(e.length);
      stored_ += e.length;
    }
    endpoint_.direct_received(stored_);
    rest_ = in;
  }
  std::size_t stored() const { return stored_; }
  void finish() { assert_int_equal(endpoint_.receive(rest_), rest_.size()); }

 private:
  rdmap::Endpoint& endpoint_;
  std::size_t stored_ = 0;
  Octets rest_;
};

mpa::StreamParams without_crc() {
  mpa::StreamParams p = params();
  p.initiator = true;
  p.crc = false;
  return p;
}

constexpr std::size_t kLong = 20000;
constexpr std::size_t kDirect = 1000;  // of an FPDU of kLong, in staging when the rest goes direct

// A receive of one piece. Two may overlap: what is read there for the CRC would not be what arrived. Without a CRC
// nothing is read.
void what_goes_direct(void**) {
  for (const bool crc : {false, true})
    for (const std::size_t pieces : {1u, 2u}) {
      FakeConsumer consumer;
      consumer.receives.push_back({1, std::vector<Bytes>(pieces, Bytes(kLong / pieces))});
      mpa::StreamParams p = without_crc();
      p.crc = crc;
      rdmap::Endpoint endpoint(consumer, p, 60000);
      const Bytes in = Peer(-1, crc).frame(send_segment(1, pattern(kLong)));
      endpoint.receive(Octets(in).first(kDirect));
      assert_int_equal(endpoint.direct().empty(), crc && pieces == 2);
      assert_false(endpoint.fault().has_value());
    }
}

// What is no good is told by its header: the rest is not waited for, as a peer may never send it.
void a_bad_write_ends_before_it_is_whole(void**) {
  FakeConsumer consumer;
  fill(consumer);
  rdmap::Endpoint endpoint(consumer, without_crc(), 60000);
  const Bytes in = Peer(-1, false).frame(write_segment(0xbad, 1, pattern(kLong)));
  endpoint.receive(Octets(in).first(kDirect));
  assert_true(endpoint.direct().empty());
  assert_true(endpoint.fault() == fault::kDdpInvalidStag);
}

// A system call of its own is worth it from 2048 octets on that have not arrived yet.
void what_is_nearly_there_comes_to_staging(void**) {
  for (const std::size_t missing : {2047u, 2048u}) {
    FakeConsumer consumer;
    consumer.receives.push_back({1, {Bytes(kLong)}});
    rdmap::Endpoint endpoint(consumer, without_crc(), 60000);
    const std::size_t ulpdu = kDirect - 2 + missing;
    const Bytes in = Peer(-1, false).frame(send_segment(1, pattern(ulpdu - 18)));
    endpoint.receive(Octets(in).first(kDirect));
    assert_int_equal(endpoint.direct().empty(), missing < 2048);
  }
}

// Who waits for the end of a Write finds all of it there.
void the_end_of_a_direct_write_is_stored_last(void**) {
  for (const bool last : {true, false}) {
    FakeConsumer consumer;
    fill(consumer);
    consumer.regions[0x100].octets = Bytes(kLong + 2, std::byte{0xee});
    rdmap::Endpoint endpoint(consumer, without_crc(), 60000);
    const Bytes want = pattern(kLong);
    const Bytes in = Peer(-1, false).frame(write_segment(0x100, 1, want, last));
    DirectReceiver receiver(endpoint);
    receiver.take(in, kDirect);
    const Bytes& region = consumer.regions[0x100].octets;
    // Not the last octets of the message; the end of a segment that is followed by others says nothing.
    const std::size_t kept = last ? 64 : 0;
    assert_int_equal(receiver.stored(), kLong - (kDirect - 16) - kept);
    assert_memory_equal(region.data() + 1, want.data(), kLong - kept);
    for (std::size_t i = 0; i < kept; ++i) assert_int_equal(region[1 + kLong - 1 - i], 0xee);
    receiver.finish();
    assert_memory_equal(region.data() + 1, want.data(), kLong);
    assert_int_equal(region[kLong + 1], 0xee);
    assert_int_equal(endpoint.counters.rx_messages, last);
    assert_false(endpoint.fault().has_value());
  }
}

// A sink of three pieces, whose borders lie in what goes direct and in the end.
void the_end_of_a_direct_read_is_stored_last(void**) {
  FakeConsumer consumer;
  rdmap::Endpoint endpoint(consumer, without_crc(), 60000);
  FakeRequest& r = consumer.post(rdmap::Operation::read, {Bytes(9000), Bytes(kLong - 9000 - 30), Bytes(30)});
  drain(endpoint);
  const Bytes want = pattern(kLong);
  const Bytes in = Peer(-1, false).frame(read_response(1, 0, want));
  DirectReceiver receiver(endpoint);
  receiver.take(in, kDirect);
  assert_int_equal(receiver.stored(), kLong - (kDirect - 16) - 64);
  assert_int_equal(r.pieces[2][29], 0);
  assert_false(r.done);
  receiver.finish();
  assert_true(r.done && r.status == rdmap::Status::success);
  test::expect_octets(concat({r.pieces[0], r.pieces[1], r.pieces[2]}), want, "sink");
}

// What needs the peer's consent is not said without it, should it have been taken.
void no_extension_is_sent_without_consent(void**) {
  for (const auto op : {rdmap::Operation::send, rdmap::Operation::write, rdmap::Operation::fetch_add}) {
    FakeConsumer consumer;
    rdmap::Endpoint endpoint(consumer, without_crc(), 1442);
    FakeRequest& r = consumer.post(op, {Bytes(8)});
    r.immediate = !rdmap::is_atomic(op);
    test::expect_octets(drain(endpoint), Peer(-1, false).frame(terminate(0, 0, 0)), "Terminate");
    assert_true(r.done && r.status == rdmap::Status::remote_invalid);
  }
}

// The end arrives octet by octet.
void the_end_of_a_direct_write_comes_in_pieces(void**) {
  FakeConsumer consumer;
  fill(consumer);
  consumer.regions[0x100].octets = Bytes(kLong);
  rdmap::Endpoint endpoint(consumer, without_crc(), 60000);
  const Bytes want = pattern(kLong);
  const Bytes in = Peer(-1, false).frame(write_segment(0x100, 0, want));
  DirectReceiver receiver(endpoint);
  receiver.take(in, kDirect);
  const std::size_t at = kDirect + receiver.stored();
  for (std::size_t n = 0; at + n < in.size(); ++n) assert_int_equal(endpoint.receive(Octets(in).subspan(at, n)), 0);
  assert_int_equal(std::to_integer<int>(consumer.regions[0x100].octets[kLong - 1]), 0);
  assert_int_equal(endpoint.receive(Octets(in).subspan(at)), in.size() - at);
  test::expect_octets(consumer.regions[0x100].octets, want, "region");
}

// Its memory is taken back behind the first segment.
struct Withdrawer : FakeConsumer {
  rdmap::Status request_memory(const rdmap::SendRequest& request, std::uint64_t offset, std::uint64_t n,
                               rdmap::ExtentList& out) override {
    return offset > 0 ? rdmap::Status::local_protection : FakeConsumer::request_memory(request, offset, n, out);
  }
};

// A request that fails in the middle has not ended while octets of it wait to be written out of its memory: its owner
// may use that again from then on.
void a_failed_request_ends_behind_its_octets(void**) {
  for (const bool written : {true, false}) {
    Withdrawer consumer;
    mpa::StreamParams p = params();
    p.initiator = true;
    p.crc = false;
    rdmap::Endpoint endpoint(consumer, p, 1442);
    const FakeRequest& r = consumer.post(rdmap::Operation::send, {pattern(5000)});
    llp::Gather gather;
    endpoint.transmit(gather, 1);
    assert_false(gather.empty());
    const std::size_t first = gather.octets();
    endpoint.transmit(gather, 10'000);
    assert_true(endpoint.fault().has_value() && gather.octets() > first);  // the Terminate
    assert_false(r.done);
    if (written) {
      gather.consume(first - 1);
      endpoint.transmitted(first - 1);
      assert_false(r.done);
      gather.consume(1);
      endpoint.transmitted(1);
    } else {
      endpoint.abandon();
    }
    assert_true(r.done);
    assert_int_equal(r.status, rdmap::Status::local_protection);
  }
}

// Holds: RDM-18
// TRM-1: an end for a reason of our own, between two segments.
void trm_1_a_local_error(void**) {
  FakeConsumer consumer;
  mpa::StreamParams p = params();
  p.initiator = true;
  rdmap::Endpoint endpoint(consumer, p, 1442);
  consumer.post(rdmap::Operation::write, {pattern(10000)});
  llp::Gather gather;
  endpoint.transmit(gather, 1);
  gather.clear();
  endpoint.fail(fault::kRdmapLocalCatastrophic);
  endpoint.fail(fault::kDdpBounds);  // the first counts
  test::expect_octets(drain(endpoint), test::hex(vector_of("TRM-1").at("fpdu_hex")), "TRM-1");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(terminate_vectors_to_the_octet),
      cmocka_unit_test(trm_27_a_partly_served_read),
      cmocka_unit_test(rdm_6_invalid_before_the_receive_is_told_of),
      cmocka_unit_test(trm_1_a_local_error),
      cmocka_unit_test(a_failed_request_ends_behind_its_octets),
      cmocka_unit_test(a_region_taken_back_between_check_and_use),
      cmocka_unit_test(what_is_sent_and_received_is_counted),
      cmocka_unit_test(sources_are_probed_before_they_are_sent),
      cmocka_unit_test(a_source_that_goes_before_its_crc),
      cmocka_unit_test(a_short_source_that_goes),
      cmocka_unit_test(a_read_of_nothing_asks_for_no_memory),
      cmocka_unit_test(every_message_has_a_wait_of_its_own),
      cmocka_unit_test(what_goes_direct),
      cmocka_unit_test(a_bad_write_ends_before_it_is_whole),
      cmocka_unit_test(what_is_nearly_there_comes_to_staging),
      cmocka_unit_test(the_end_of_a_direct_write_is_stored_last),
      cmocka_unit_test(the_end_of_a_direct_read_is_stored_last),
      cmocka_unit_test(the_end_of_a_direct_write_comes_in_pieces),
      cmocka_unit_test(no_extension_is_sent_without_consent),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
