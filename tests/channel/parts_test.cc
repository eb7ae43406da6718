// The small parts of the verbs transport that need no adapter: addresses, the hello, frequently used buffers.
#include "mpi_shim/channel/address.h"
#include "mpi_shim/channel/frequent_buffers.h"
#include "mpi_shim/channel/hello.h"
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
                .eager_threshold = 12288,
                .receive_depth = 64,
                .heartbeat = {.address = 0x7f1122334455, .key = 0xabcdef01},
                .ignored_bits = 0x8000000100000002,
                .answer = Hello::Answer::crossed};
  const HelloOctets octets = h.emit();
  // rdma_cm gives the private data of a connection in 56 octets over IB.
  static_assert(HelloOctets{}.size() <= 56);
  Bytes padded(octets.begin(), octets.end());
  padded.resize(196);
  const auto back = Hello::parse(padded.data(), padded.size());
  assert_true(back.has_value());
  assert_true(back->address == h.address && back->heartbeat == h.heartbeat && back->answer == h.answer);
  assert_int_equal(back->eager_threshold, h.eager_threshold);
  assert_int_equal(back->receive_depth, h.receive_depth);
  assert_int_equal(back->ignored_bits, h.ignored_bits);
  assert_false(Hello::parse(octets.data(), octets.size() - 1).has_value());
  assert_false(Hello::parse(nullptr, 100).has_value());
  padded[0] = std::byte{0};
  assert_false(Hello::parse(padded.data(), padded.size()).has_value());
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
  assert_int_equal(f.hot(), 1);
  // The same place with another length is another buffer.
  assert_false(f.used(buffer.data(), 2048));
}

void a_table_of_cold_buffers_stops_growing(void**) {
  FrequentBuffers f(kCosts, 0.25, 16);
  Bytes memory(1 << 20);
  for (std::size_t i = 0; i < 10000; ++i) f.used(memory.data() + 64 * i, 4096);
  assert_true(f.known() <= 16);
  // What it knows it goes on counting.
  for (int i = 0; i < 100; ++i) f.used(memory.data(), 4096);
  assert_int_equal(f.hot(), 1);
}

void a_table_of_hot_buffers_grows_on(void**) {
  FrequentBuffers f(kCosts, 0.25, 16);
  Bytes memory(1 << 20);
  for (std::size_t i = 0; i < 200; ++i)
    for (int use = 0; use < 100; ++use) f.used(memory.data() + 4096 * i, 4096);
  assert_int_equal(f.known(), 200);
  assert_int_equal(f.hot(), 200);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(addresses_that_are_ones),
      cmocka_unit_test(addresses_that_are_none),
      cmocka_unit_test(a_hello_keeps_what_is_in_it),
      cmocka_unit_test(thresholds_fall_with_the_size),
      cmocka_unit_test(a_buffer_becomes_hot_by_being_used),
      cmocka_unit_test(a_table_of_cold_buffers_stops_growing),
      cmocka_unit_test(a_table_of_hot_buffers_grows_on),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
