// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Domains, endpoints and memory (fi_domain(3), fi_endpoint(3), fi_mr(3)).
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "tests/ofi/suite/bed.h"

namespace ewarp::ofi::suite {
namespace {

void several_domains(void**) {
  const Bed bed;
  Owned<fid_domain> more[8];
  for (auto& domain : more) MUST(fi_domain(bed.fabric, bed.info, domain.out(), &domain));
  for (auto& domain : more) assert_ptr_equal(domain.f().context, &domain);
  // In no particular order.
  for (const int i : {3, 0, 7}) more[i].close();
}

// What others stand on is not closed.
void what_is_used_stays_open(void**) {
  ONLY_OURS();
  const Bed bed;
  assert_int_equal(fi_close(&bed.fabric->fid), -FI_EBUSY);
  Owned<fid_cq> queue;
  fi_cq_attr attributes{};
  MUST(fi_cq_open(bed.domain, &attributes, queue.out(), nullptr));
  assert_int_equal(fi_close(&bed.domain->fid), -FI_EBUSY);
  const Speaker s(bed);
  for (fid* f : {&s.addresses.f(), &s.queue.f(), &s.sends.f()}) assert_int_equal(fi_close(f), -FI_EBUSY);
}

void names_that_nobody_has(void**) {
  const Bed bed;
  fid_fabric* fabric = nullptr;
  fi_fabric_attr attributes = *bed.info->fabric_attr;
  char nobody[] = "no such provider";
  attributes.prov_name = nobody;
  assert_int_equal(fi_fabric(&attributes, &fabric, nullptr), -FI_ENODEV);
}

// An address vector and a queue, which no endpoint has yet.
struct Unbound {
  explicit Unbound(const Bed& bed) {
    fi_av_attr av{};
    MUST(fi_av_open(bed.domain, &av, addresses.out(), nullptr));
    fi_cq_attr cq{};
    MUST(fi_cq_open(bed.domain, &cq, queue.out(), nullptr));
  }
  Owned<fid_av> addresses;
  Owned<fid_cq> queue;
};

// With and without what they need.
void nothing_is_taken_before_fi_enable(void**) {
  ONLY_OURS();
  const Bed bed;
  auto [addresses, queue] = Unbound(bed);
  Owned<fid_ep> ep;
  MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
  std::uint64_t word = 0;
  for (const bool bound : {false, true}) {
    if (bound) {
      MUST(fi_ep_bind(ep.get(), &addresses.f(), 0));
      MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT | FI_RECV));
    }
    assert_int_equal(fi_send(ep.get(), &word, sizeof word, nullptr, 0, &word), -FI_EOPBADSTATE);
    assert_int_equal(fi_inject(ep.get(), &word, sizeof word, 0), -FI_EOPBADSTATE);
    assert_int_equal(fi_recv(ep.get(), &word, sizeof word, nullptr, FI_ADDR_UNSPEC, &word), -FI_EOPBADSTATE);
    assert_int_equal(fi_tsend(ep.get(), &word, sizeof word, nullptr, 0, 1, &word), -FI_EOPBADSTATE);
    assert_int_equal(fi_trecv(ep.get(), &word, sizeof word, nullptr, FI_ADDR_UNSPEC, 1, 0, &word), -FI_EOPBADSTATE);
    assert_int_equal(fi_write(ep.get(), &word, sizeof word, nullptr, 0, 0, 1, &word), -FI_EOPBADSTATE);
    assert_int_equal(fi_read(ep.get(), &word, sizeof word, nullptr, 0, 0, 1, &word), -FI_EOPBADSTATE);
    assert_int_equal(fi_atomic(ep.get(), &word, 1, nullptr, 0, 0, 1, FI_UINT64, FI_SUM, &word), -FI_EOPBADSTATE);
  }
}

// An endpoint is not enabled without what its capabilities need.
void an_endpoint_needs_queues_and_addresses(void**) {
  ONLY_OURS();
  const Bed bed;
  auto [addresses, queue] = Unbound(bed);
  {
    Owned<fid_ep> ep;
    MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
    MUST(fi_ep_bind(ep.get(), &addresses.f(), 0));
    assert_int_equal(fi_enable(ep.get()), -FI_ENOCQ);
    MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT));
    assert_int_equal(fi_enable(ep.get()), -FI_ENOCQ);
    MUST(fi_ep_bind(ep.get(), &queue.f(), FI_RECV));
    MUST(fi_enable(ep.get()));
  }
  Owned<fid_ep> ep;
  MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
  MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT | FI_RECV));
  assert_true(fi_enable(ep.get()) < 0);
}

// What only reads and writes memory of others hears of that, and receives nothing.
void an_endpoint_for_memory_needs_a_queue_to_hear_of_it(void**) {
  ONLY_OURS();
  const Bed bed(FI_RMA);
  auto [addresses, queue] = Unbound(bed);
  Owned<fid_cntr> counter;
  fi_cntr_attr attributes{};
  MUST(fi_cntr_open(bed.domain, &attributes, counter.out(), nullptr));
  for (const bool counts : {false, true}) {
    Owned<fid_ep> ep;
    MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
    MUST(fi_ep_bind(ep.get(), &addresses.f(), 0));
    assert_int_equal(fi_enable(ep.get()), -FI_ENOCQ);
    if (counts)
      MUST(fi_ep_bind(ep.get(), &counter.f(), FI_WRITE));
    else
      MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT));
    MUST(fi_enable(ep.get()));
  }
}

void what_cannot_be_bound(void**) {
  ONLY_OURS();
  const Bed bed;
  Owned<fid_cq> queue, other;
  fi_cq_attr cq{};
  MUST(fi_cq_open(bed.domain, &cq, queue.out(), nullptr));
  MUST(fi_cq_open(bed.domain, &cq, other.out(), nullptr));
  Owned<fid_cntr> counter;
  fi_cntr_attr attributes{};
  MUST(fi_cntr_open(bed.domain, &attributes, counter.out(), nullptr));
  Owned<fid_ep> ep;
  MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
  assert_int_equal(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT | FI_REMOTE_READ), -FI_EBADFLAGS);
  MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT));
  assert_int_equal(fi_ep_bind(ep.get(), &other.f(), FI_TRANSMIT), -FI_EINVAL);
  assert_int_equal(fi_ep_bind(ep.get(), &counter.f(), FI_SEND | FI_MULTI_RECV), -FI_EBADFLAGS);
  assert_int_equal(fi_ep_bind(ep.get(), &bed.domain->fid, 0), -FI_EINVAL);
}

// Every kind, and several at once.
void each_kind_of_counter_is_bound(void**) {
  const Bed bed(FI_MSG | FI_RMA);
  for (const std::uint64_t what :
       {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND | FI_RECV, FI_READ | FI_WRITE,
        FI_WRITE | FI_REMOTE_WRITE, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE}) {
    Owned<fid_av> addresses;
    fi_av_attr av{};
    MUST(fi_av_open(bed.domain, &av, addresses.out(), nullptr));
    Owned<fid_cq> queue;
    fi_cq_attr cq{};
    MUST(fi_cq_open(bed.domain, &cq, queue.out(), nullptr));
    Owned<fid_cntr> counter;
    fi_cntr_attr attributes{};
    MUST(fi_cntr_open(bed.domain, &attributes, counter.out(), nullptr));
    Owned<fid_ep> ep;
    MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
    MUST(fi_ep_bind(ep.get(), &addresses.f(), 0));
    MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(ep.get(), &counter.f(), what));
    MUST(fi_enable(ep.get()));
    assert_int_equal(fi_cntr_read(counter.get()), 0);
    if (ours()) assert_int_equal(fi_close(&counter.f()), -FI_EBUSY);
  }
}

void an_endpoint_talks(void**) {
  const Bed bed;
  Speaker s(bed);
  for (int i = 0; i < 10; ++i) {
    s.out = static_cast<std::uint64_t>(i);
    s.speak();
    s.hear();
  }
  until([&] { return fi_cntr_read(s.sends.get()) == 10; });
  assert_int_equal(fi_cntr_readerr(s.sends.get()), 0);
}

// Two endpoints cannot have one port.
void a_port_is_taken_once(void**) {
  const Bed bed;
  const Speaker s(bed);
  sockaddr_in name;
  std::size_t length = sizeof name;
  MUST(fi_getname(&s.ep.f(), &name, &length));
  const Hints hints(FI_MSG | FI_TAGGED);
  const Answer info(hints.get(), kNode, std::to_string(ntohs(name.sin_port)).c_str(), FI_SOURCE);
  MUST(info.error());
  // Some take the port when the endpoint is made, others when it is enabled.
  auto [addresses, queue] = Unbound(bed);
  Owned<fid_ep> ep;
  int result = fi_endpoint(bed.domain, info.get(), ep.out(), nullptr);
  if (result == 0) {
    MUST(fi_ep_bind(ep.get(), &addresses.f(), 0));
    MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT | FI_RECV));
    result = fi_enable(ep.get());
  }
  assert_int_equal(result, -FI_EADDRINUSE);
}

constexpr std::uint64_t kAccess[] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};

// Any rights, any length; by all three calls.
void memory_is_registered(void**) {
  const Bed bed(FI_MSG | FI_RMA);
  std::vector<std::uint8_t> octets(1 << 20);
  for (unsigned some = 1; some < 1 << std::size(kAccess); ++some) {
    std::uint64_t access = 0;
    for (std::size_t i = 0; i < std::size(kAccess); ++i) access |= (some >> i & 1) != 0 ? kAccess[i] : 0;
    Owned<fid_mr> region;
    MUST(fi_mr_reg(bed.domain, octets.data(), octets.size(), access, 0, some, 0, region.out(), &region));
    assert_ptr_equal(region.f().context, &region);
    assert_true(fi_mr_key(region.get()) != FI_KEY_NOTAVAIL);
  }
  for (std::size_t length = 1; length <= octets.size(); length *= 4) {
    const iovec v{octets.data(), length};
    Owned<fid_mr> by_vector, by_attributes;
    MUST(fi_mr_regv(bed.domain, &v, 1, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 100, 0, by_vector.out(), nullptr));
    fi_mr_attr attributes{};
    attributes.mr_iov = &v;
    attributes.iov_count = 1;
    attributes.access = FI_REMOTE_READ;
    attributes.requested_key = 101;
    attributes.context = &attributes;
    MUST(fi_mr_regattr(bed.domain, &attributes, 0, by_attributes.out()));
    assert_ptr_equal(by_attributes.f().context, &attributes);
    assert_true(fi_mr_key(by_vector.get()) != fi_mr_key(by_attributes.get()));
  }
}

void what_is_no_memory(void**) {
  ONLY_OURS();
  const Bed bed(FI_MSG | FI_RMA);
  std::uint64_t word = 0;
  fid_mr* region = nullptr;
  const iovec many[100] = {};
  assert_true(fi_mr_regv(bed.domain, many, 100, FI_REMOTE_READ, 0, 1, 0, &region, nullptr) < 0);
  assert_true(fi_mr_reg(bed.domain, &word, sizeof word, FI_REMOTE_READ, 0, 1, ~std::uint64_t{0}, &region, nullptr) < 0);
}

// Memory that was mapped anew at the same address.
void memory_comes_and_goes(void**) {
  const Bed bed(FI_MSG | FI_RMA);
  constexpr std::size_t kSize = 1 << 20;
  void* where = nullptr;
  for (int i = 0; i < 10; ++i) {
    // Not MAP_FIXED: a thread of the provider may have taken the place meanwhile.
    void* const octets = mmap(where, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(octets != MAP_FAILED);
    where = octets;
    Owned<fid_mr> region;
    MUST(fi_mr_reg(bed.domain, octets, kSize, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, region.out(), nullptr));
    region.close();
    munmap(octets, kSize);
  }
}

void keys_of_regions_that_stand_differ(void**) {
  const Bed bed(FI_MSG | FI_RMA);
  std::vector<std::uint8_t> octets(64);
  std::vector<std::unique_ptr<Owned<fid_mr>>> regions;
  std::set<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 100; ++i) {
    regions.push_back(std::make_unique<Owned<fid_mr>>());
    MUST(fi_mr_reg(bed.domain, octets.data(), octets.size(), FI_REMOTE_WRITE, 0, i, 0, regions.back()->out(), nullptr));
    keys.insert(fi_mr_key(regions.back()->get()));
  }
  assert_int_equal(keys.size(), 100);
}

}  // namespace

Tests domain_tests() {
  return {cmocka_unit_test(several_domains),
          cmocka_unit_test(what_is_used_stays_open),
          cmocka_unit_test(names_that_nobody_has),
          cmocka_unit_test(nothing_is_taken_before_fi_enable),
          cmocka_unit_test(an_endpoint_needs_queues_and_addresses),
          cmocka_unit_test(an_endpoint_for_memory_needs_a_queue_to_hear_of_it),
          cmocka_unit_test(what_cannot_be_bound),
          cmocka_unit_test(each_kind_of_counter_is_bound),
          cmocka_unit_test(an_endpoint_talks),
          cmocka_unit_test(a_port_is_taken_once)};
}

Tests memory_tests() {
  return {cmocka_unit_test(memory_is_registered), cmocka_unit_test(what_is_no_memory),
          cmocka_unit_test(memory_comes_and_goes), cmocka_unit_test(keys_of_regions_that_stand_differ)};
}

}  // namespace ewarp::ofi::suite
