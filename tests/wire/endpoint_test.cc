// The RDMAP endpoint alone, against the vectors to the octet: here the STags are the vectors' own.
#include "rdmap/endpoint.h"
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

// RDM-17, RDM-18
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

// RDM-19: after 2048 of 3000 octets the STag is gone. The header that goes back has moved on.
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
      cmocka_unit_test(trm_1_a_local_error),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
