// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/device.h"

#include <arpa/inet.h>
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

extern "C" {
#include <cmocka.h>
}

using namespace ewarp;
using namespace ewarp::verbs;

namespace {

llp::Interface made(const char* name) {
  llp::Interface i;
  i.name = name;
  i.index = 0x7fffff00;  // no such interface
  i.up = i.running = true;
  return i;
}

void names_and_numbers(void**) {
  llp::Interface i = made("eth7");
  const std::uint8_t mac[6] = {0x02, 0xfc, 0x00, 0x11, 0x22, 0x33};
  memcpy(i.mac, mac, sizeof mac);
  const Device device(i, 3);
  assert_string_equal(device.name().c_str(), "ewarp_eth7");
  assert_string_equal(device.interface_name().c_str(), "eth7");
  assert_true(device.guid() == 0x00fc00fffe112233);  // RFC 4291 appendix A: the local bit inverted, ff:fe between
  assert_int_equal(device.rdma_index(), 0x10003);
}

void a_guid_without_a_mac_is_stable_and_its_own(void**) {
  const Device lo(made("lo"), 0), again(made("lo"), 5), other(made("tun0"), 1);
  assert_true(lo.guid() != 0);
  assert_true(lo.guid() == again.guid());
  assert_true(lo.guid() != other.guid());
}

void an_interface_that_is_gone_is_a_port_that_is_down(void**) {
  const Device device(made("gone"), 0);
  ibv_port_attr port{};
  assert_int_equal(device.query_port(1, &port, sizeof port), 0);
  assert_int_equal(port.state, IBV_PORT_DOWN);
  assert_int_equal(port.gid_tbl_len, 0);
  assert_true(device.gids().empty());
}

void only_port_one_exists(void**) {
  const Device device(made("eth7"), 0);
  ibv_port_attr port{};
  assert_int_equal(device.query_port(0, &port, sizeof port), EINVAL);
  assert_int_equal(device.query_port(2, &port, sizeof port), EINVAL);
}

void a_short_port_attr_is_not_overrun(void**) {
  const Device device(made("eth7"), 0);
  std::array<unsigned char, sizeof(ibv_port_attr) + 16> room;
  room.fill(0xa5);
  assert_int_equal(device.query_port(1, reinterpret_cast<ibv_port_attr*>(room.data()), 40), 0);
  for (std::size_t i = 40; i < room.size(); ++i) assert_int_equal(room[i], 0xa5);
}

// The devices of this machine against its interfaces.
void devices_are_the_interfaces(void**) {
  std::set<std::uint64_t> guids;
  std::size_t usable = 0;
  for (const auto& i : llp::interfaces()) usable += i.up;
  usable = std::min(usable, kMaxInterfaces);
  assert_int_equal(devices().size(), 2 * usable);
  unsigned index = 0;
  for (Device* d : devices()) {
    print_message("device: %s\n", d->name().c_str());
    assert_int_equal(d->index(), index++);
    assert_ptr_equal(find_device(d->name()), d);
    assert_true(guids.insert(d->guid()).second);
    const auto interface = llp::interface(d->interface_index());
    assert_true(interface.has_value());

    ibv_port_attr port{};
    assert_int_equal(d->query_port(1, &port, sizeof port), 0);
    assert_int_equal(port.state, interface->up && interface->running ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
    assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(port.pkey_tbl_len, 1);
    const unsigned mtu = 128u << port.active_mtu;
    assert_true(mtu <= interface->mtu || port.active_mtu == IBV_MTU_256);
    assert_true(port.active_mtu == IBV_MTU_4096 || 2 * mtu > interface->mtu);

    const auto gids = d->gids();
    assert_int_equal(gids.size(), interface->addresses.size());
    assert_int_equal(port.gid_tbl_len, gids.size());
    for (std::size_t g = 0; g < gids.size(); ++g) {
      const auto& address = interface->addresses[g].address;
      assert_ptr_equal(device_of(reinterpret_cast<const sockaddr&>(address)), devices()[d->index() % usable]);
      const auto* in6 = reinterpret_cast<const in6_addr*>(gids[g].raw);
      if (address.ss_family == AF_INET) {
        assert_true(IN6_IS_ADDR_V4MAPPED(in6));
        assert_memory_equal(gids[g].raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
      } else {
        assert_memory_equal(gids[g].raw, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
      }
    }
  }
}

// The second half of the list, in the order of the first.
void each_device_has_a_twin(void**) {
  const auto all = devices();
  for (std::size_t i = 0, n = all.size() / 2; i < n; ++i) {
    const Device &device = *all[i], &twin = *all[n + i];
    assert_true(!device.twin() && device.node_type() == IBV_NODE_RNIC);
    assert_true(twin.twin() && twin.node_type() == IBV_NODE_CA);
    assert_string_equal(device.name().c_str(), ("ewarp_" + device.interface_name()).c_str());
    assert_string_equal(twin.name().c_str(), ("ewarpx_" + device.interface_name()).c_str());
    assert_int_equal(twin.interface_index(), device.interface_index());
    assert_int_equal(std::popcount(twin.guid() ^ device.guid()), 1);
  }
}

void speed_is_that_of_the_port(void**) {
  for (const Device* d : devices()) {
    ibv_port_attr port{};
    std::uint64_t speed = 0;
    assert_int_equal(d->query_port(1, &port, sizeof port), 0);
    assert_int_equal(d->query_speed(1, &speed), 0);
    const int lanes = port.active_width == 2 ? 4 : port.active_width == 16 ? 2 : 1;
    const std::uint64_t lane = port.active_speed == 1   ? 25
                               : port.active_speed == 2 ? 50
                               : port.active_speed == 4 ? 100
                                                        : 250 * (port.active_speed / 32);
    assert_int_equal(speed, lane * static_cast<unsigned>(lanes));
    assert_int_equal(d->query_speed(2, &speed), EINVAL);
  }
}

void attributes_keep_the_promises_of_the_header(void**) {
  const Device device(made("eth7"), 0);
  ibv_device_attr attr;
  device.query(attr);
  assert_int_equal(attr.phys_port_cnt, 1);
  assert_int_equal(attr.max_qp_wr, kMaxQpWr);
  assert_int_equal(attr.max_sge, kMaxSge);
  assert_int_equal(attr.max_cqe, kMaxCqe);
  assert_int_equal(attr.max_srq, kMaxSrq);
  assert_int_equal(attr.max_srq_wr, kMaxSrqWr);
  assert_int_equal(attr.max_srq_sge, kMaxSge);
  assert_int_equal(attr.atomic_cap, IBV_ATOMIC_GLOB);
  assert_int_equal(attr.vendor_id, kVendorId);
  assert_true(be64toh(attr.node_guid) == device.guid());
  assert_true(strlen(attr.fw_ver) > 0);
}

void rates_are_the_nearest(void**) {
  // Nothing but query_port() shows the rate, so the interface must be a real one: the loopback's has no speed.
  for (Device* d : devices()) {
    const auto interface = llp::interface(d->interface_index());
    if (!interface || interface->speed_mbps != 0) continue;
    ibv_port_attr port{};
    d->query_port(1, &port, sizeof port);
    assert_int_equal(port.active_width, 1);  // 1X
    assert_int_equal(port.active_speed, 4);  // 10 Gb/s
  }
}

}  // namespace

int main() {
  setenv("ETHERWARP_TWIN", "1", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(names_and_numbers),
      cmocka_unit_test(a_guid_without_a_mac_is_stable_and_its_own),
      cmocka_unit_test(an_interface_that_is_gone_is_a_port_that_is_down),
      cmocka_unit_test(only_port_one_exists),
      cmocka_unit_test(a_short_port_attr_is_not_overrun),
      cmocka_unit_test(devices_are_the_interfaces),
      cmocka_unit_test(each_device_has_a_twin),
      cmocka_unit_test(speed_is_that_of_the_port),
      cmocka_unit_test(attributes_keep_the_promises_of_the_header),
      cmocka_unit_test(rates_are_the_nearest),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
