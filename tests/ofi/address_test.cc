// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Address vectors.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

sockaddr_in at(const char* ip, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  inet_pton(AF_INET, ip, &out.sin_addr);
  return out;
}

void what_is_inserted_is_found(void**) {
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    const Side side({.addresses = type});
    const sockaddr_in in[] = {at("127.0.0.1", 7001), at("127.0.0.1", 7002), at("127.0.0.2", 7001)};
    fi_addr_t out[3];
    assert_int_equal(fi_av_insert(side.addresses, in, 3, out, 0, nullptr), 3);
    for (int i = 0; i < 3; ++i) {
      if (type == FI_AV_TABLE) assert_int_equal(out[i], i);
      sockaddr_in found{};
      std::size_t length = sizeof found;
      MUST(fi_av_lookup(side.addresses, out[i], &found, &length));
      assert_int_equal(length, sizeof found);
      assert_memory_equal(&found, &in[i], sizeof found);
    }
    // A short buffer gets a beginning, and learns what it takes.
    char little[4];
    std::size_t length = sizeof little;
    MUST(fi_av_lookup(side.addresses, out[0], little, &length));
    assert_int_equal(length, sizeof(sockaddr_in));
    length = 0;  // who asks for the length alone
    MUST(fi_av_lookup(side.addresses, out[0], nullptr, &length));
    assert_int_equal(length, sizeof(sockaddr_in));
  }
}

void what_is_removed_is_gone(void**) {
  const Side side;
  const sockaddr_in in = at("127.0.0.1", 7001);
  fi_addr_t first, again;
  assert_int_equal(fi_av_insert(side.addresses, &in, 1, &first, 0, nullptr), 1);
  assert_int_equal(fi_av_insert(side.addresses, &in, 1, &again, 0, nullptr), 1);
  assert_int_equal(first, again);
  sockaddr_in found{};
  std::size_t length = sizeof found;
  // It was inserted twice.
  assert_int_equal(fi_av_remove(side.addresses, &first, 1, 0), 0);
  assert_int_equal(fi_av_lookup(side.addresses, first, &found, &length), 0);
  assert_int_equal(fi_av_remove(side.addresses, &first, 1, 0), 0);
  assert_int_equal(fi_av_lookup(side.addresses, first, &found, &length), -FI_EINVAL);
  assert_int_equal(fi_av_remove(side.addresses, &first, 1, 0), -FI_EINVAL);
  assert_int_equal(fi_tsend(side.ep, nullptr, 0, nullptr, first, 1, nullptr), -FI_EINVAL);
}

void bad_addresses_are_told_apart(void**) {
  const Side side;
  const sockaddr_in in[] = {at("127.0.0.1", 7001), at("127.0.0.1", 0), at("0.0.0.0", 7001)};
  fi_addr_t out[3];
  int errors[3];
  assert_int_equal(fi_av_insert(side.addresses, in, 3, out, FI_SYNC_ERR, errors), 1);
  assert_int_equal(errors[0], 0);
  assert_int_equal(errors[1], FI_EINVAL);
  assert_int_equal(errors[2], FI_EINVAL);
  assert_true(out[0] != FI_ADDR_NOTAVAIL);
  assert_true(out[1] == FI_ADDR_NOTAVAIL && out[2] == FI_ADDR_NOTAVAIL);
}

void services_and_ranges_of_them(void**) {
  const Side side;
  fi_addr_t one;
  assert_int_equal(fi_av_insertsvc(side.addresses, "127.0.0.1", "7001", &one, 0, nullptr), 1);
  fi_addr_t many[6];
  assert_int_equal(fi_av_insertsym(side.addresses, "127.0.0.1", 2, "7001", 3, many, 0, nullptr), 6);
  assert_int_equal(many[0], one);
  sockaddr_in found{};
  std::size_t length = sizeof found;
  MUST(fi_av_lookup(side.addresses, many[5], &found, &length));
  const sockaddr_in expected = at("127.0.0.2", 7003);
  assert_memory_equal(&found, &expected, sizeof found);
}

void an_address_as_text(void**) {
  const Side side;
  const sockaddr_in in = at("127.0.0.1", 7001);
  char text[64];
  std::size_t length = sizeof text;
  assert_string_equal(fi_av_straddr(side.addresses, &in, text, &length), "fi_sockaddr_in://127.0.0.1:7001");
  assert_int_equal(length, std::strlen(text) + 1);
  char little[8];
  length = sizeof little;
  fi_av_straddr(side.addresses, &in, little, &length);
  assert_string_equal(little, "fi_sock");
}

void a_name_says_where_an_endpoint_is(void**) {
  const Side side;
  char little[4];
  std::size_t length = sizeof little;
  assert_int_equal(fi_getname(&side.ep->fid, little, &length), -FI_ETOOSMALL);
  assert_int_equal(length, sizeof(sockaddr_in));
  length = 0;  // who asks for the length alone
  assert_int_equal(fi_getname(&side.ep->fid, nullptr, &length), -FI_ETOOSMALL);
  assert_int_equal(length, sizeof(sockaddr_in));
  const auto name = side.name();
  const auto* address = reinterpret_cast<const sockaddr_in*>(name.data());
  assert_int_equal(address->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  assert_true(address->sin_port != 0);
}

// What is in use is not closed.
void nothing_is_closed_under_its_users(void**) {
  Side side;
  for (fid* f :
       {&side.addresses->fid, &side.send_queue->fid, &side.receive_queue->fid, &side.domain->fid, &side.fabric->fid})
    assert_int_equal(fi_close(f), -FI_EBUSY);
}

}  // namespace

std::vector<CMUnitTest> address_tests() {
  return {cmocka_unit_test(what_is_inserted_is_found),
          cmocka_unit_test(what_is_removed_is_gone),
          cmocka_unit_test(bad_addresses_are_told_apart),
          cmocka_unit_test(services_and_ranges_of_them),
          cmocka_unit_test(an_address_as_text),
          cmocka_unit_test(a_name_says_where_an_endpoint_is),
          cmocka_unit_test(nothing_is_closed_under_its_users)};
}

}  // namespace ewarp::ofi::test
