// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// fi_getinfo (fi_getinfo(3)).
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "tests/ofi/suite/bed.h"

namespace ewarp::ofi::suite {
namespace {

constexpr std::uint64_t kPrimary = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_MULTICAST | FI_NAMED_RX_CTX |
                                   FI_DIRECTED_RECV | FI_VARIABLE_MSG | FI_HMEM | FI_COLLECTIVE | FI_READ | FI_WRITE |
                                   FI_RECV | FI_SEND | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t kDirections = FI_READ | FI_WRITE | FI_RECV | FI_SEND | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t kOfDomain = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV;

void without_hints_it_is_among_the_providers(void**) {
  const Answer everything(nullptr, nullptr, nullptr, 0);
  MUST(everything.error());
  bool there = false;
  for (const fi_info* i = everything.get(); i != nullptr; i = i->next)
    there = there || i->fabric_attr->prov_name == provider;
  assert_true(there);
}

void what_everybody_is_told(void**) {
  const Hints hints;
  Answer(hints).all([](const fi_info& i) {
    assert_string_equal(i.fabric_attr->prov_name, provider.c_str());
    assert_true(i.fabric_attr->prov_version != 0);
    assert_non_null(i.fabric_attr->name);
    assert_non_null(i.domain_attr->name);
    assert_int_equal(i.ep_attr->type, FI_EP_RDM);
    assert_true(i.ep_attr->protocol != FI_PROTO_UNSPEC);
    assert_true(i.ep_attr->protocol_version > 0);
    assert_true(i.ep_attr->max_msg_size > 0);
    assert_true(i.domain_attr->threading != FI_THREAD_UNSPEC);
    assert_true(i.domain_attr->control_progress != FI_PROGRESS_UNSPEC);
    assert_true(i.domain_attr->data_progress != FI_PROGRESS_UNSPEC);
    assert_true(i.domain_attr->resource_mgmt != FI_RM_UNSPEC);
    assert_true(i.domain_attr->cq_cnt > 0 && i.domain_attr->ep_cnt > 0);
    assert_true(i.tx_attr->size > 0 && i.rx_attr->size > 0);
    assert_true(i.tx_attr->iov_limit > 0 && i.rx_attr->iov_limit > 0);
    assert_non_null(i.src_addr);
    assert_true(i.src_addrlen >= sizeof(sockaddr_in));
    assert_null(i.dest_addr);
  });
}

// Where nothing is asked for, everything is told; a domain's bits are no endpoint's, and what an endpoint does it says
// for one side or both.
void capabilities_stand_where_they_belong(void**) {
  const Hints hints;
  Answer(hints).all([](const fi_info& i) {
    assert_true((i.caps & (FI_MSG | FI_TAGGED)) == (FI_MSG | FI_TAGGED));
    assert_int_equal((i.tx_attr->caps | i.rx_attr->caps) & kOfDomain, 0);
    assert_int_equal(i.domain_attr->caps & ~kOfDomain, 0);
    assert_int_equal(i.domain_attr->caps & ~i.caps, 0);
    assert_int_equal((i.tx_attr->caps | i.rx_attr->caps) & ~i.caps, 0);
    assert_int_equal(i.tx_attr->caps & (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
    assert_int_equal(i.rx_attr->caps & (FI_SEND | FI_READ | FI_WRITE), 0);
    assert_true((i.tx_attr->caps & FI_SEND) != 0 && (i.rx_attr->caps & FI_RECV) != 0);
  });
}

// Primary capabilities are there if they are asked for, and only then; asking for what is offered is answered.
void primary_capabilities_are_those_asked_for(void**) {
  const Hints open_hints;
  const Answer offered(open_hints);
  MUST(offered.error());
  for (const std::uint64_t cap : {FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC}) {
    if ((offered->caps & cap) == 0) continue;
    const Hints hints(cap);
    Answer(hints).all([&](const fi_info& i) {
      assert_int_equal(i.caps & kPrimary & ~kDirections, cap);
      assert_true((i.caps & kDirections) != 0);
    });
  }
  const Hints one_way(FI_TAGGED | FI_SEND);
  Answer(one_way).all([](const fi_info& i) { assert_true((i.caps & FI_SEND) != 0); });
  const Hints all(offered->caps);
  MUST(Answer(all).error());
}

// Each capability is granted or refused, never left out.
void each_capability_is_granted_or_refused(void**) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t cap = std::uint64_t{1} << bit;
    const Hints hints(FI_MSG | cap);
    const Answer answer(hints);
    if (answer.error() == -FI_ENODATA) continue;
    answer.all([&](const fi_info& i) { assert_true((i.caps & cap) != 0); });
  }
}

void capabilities_of_contexts_are_heeded(void**) {
  const Hints hints(FI_MSG | FI_TAGGED);
  hints->tx_attr->caps = FI_TAGGED | FI_SEND;
  hints->rx_attr->caps = FI_TAGGED | FI_RECV;
  Answer(hints).all([](const fi_info& i) {
    assert_true((i.tx_attr->caps & FI_TAGGED) != 0);
    assert_true((i.rx_attr->caps & FI_TAGGED) != 0);
  });
}

void source_addresses(void**) {
  const Hints hints;
  Answer(hints.get(), kNode, nullptr, FI_SOURCE).all([](const fi_info& i) {
    const auto* from = static_cast<const sockaddr_in*>(i.src_addr);
    assert_int_equal(from->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_null(i.dest_addr);
  });
  Answer(hints.get(), kNode, "5432", FI_SOURCE | FI_NUMERICHOST).all([](const fi_info& i) {
    assert_int_equal(static_cast<const sockaddr_in*>(i.src_addr)->sin_port, htons(5432));
  });
  Answer(hints.get(), nullptr, "5432", FI_SOURCE).all([](const fi_info& i) {
    assert_int_equal(static_cast<const sockaddr_in*>(i.src_addr)->sin_port, htons(5432));
  });
  const Hints by_hints;
  by_hints->addr_format = FI_SOCKADDR_IN;
  by_hints->src_addrlen = sizeof(sockaddr_in);
  by_hints->src_addr = std::malloc(sizeof(sockaddr_in));
  const sockaddr_in source = at(kNode, 0);
  std::memcpy(by_hints->src_addr, &source, sizeof source);
  Answer(by_hints).all([](const fi_info& i) {
    assert_int_equal(static_cast<const sockaddr_in*>(i.src_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  });
}

void destination_addresses(void**) {
  const Hints hints;
  Answer(hints.get(), kNode, "5432", 0).all([](const fi_info& i) {
    const auto* to = static_cast<const sockaddr_in*>(i.dest_addr);
    assert_non_null(to);
    assert_int_equal(to->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(to->sin_port, htons(5432));
  });
  // Both ends: one by the node, the other one by the hints.
  const Hints from;
  from->addr_format = FI_SOCKADDR_IN;
  from->src_addrlen = sizeof(sockaddr_in);
  from->src_addr = std::malloc(sizeof(sockaddr_in));
  const sockaddr_in source = at(kNode, 0);
  std::memcpy(from->src_addr, &source, sizeof source);
  Answer(from.get(), kNode, "5432", 0).all([](const fi_info& i) {
    assert_non_null(i.dest_addr);
    assert_int_equal(static_cast<const sockaddr_in*>(i.src_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  });
}

void address_formats(void**) {
  for (const std::uint32_t format : {FI_SOCKADDR_IN, FI_SOCKADDR_IN6}) {
    const Hints hints;
    hints->addr_format = format;
    const Answer answer(hints);
    if (answer.error() == -FI_ENODATA) continue;  // a machine without IPv6
    bool there = false;
    answer.all([&](const fi_info& i) {
      there = there || i.addr_format == format;
      assert_int_equal(static_cast<const sockaddr*>(i.src_addr)->sa_family,
                       i.addr_format == FI_SOCKADDR_IN ? AF_INET : AF_INET6);
      if (ours()) assert_int_equal(i.addr_format, format);
    });
    assert_true(there);
  }
  const Hints strange;
  strange->addr_format = FI_ADDR_PSMX2;
  assert_int_equal(Answer(strange).error(), -FI_ENODATA);
}

// What is granted keeps its order, up to a size that is told.
void orders_of_messages(void**) {
  for (const std::uint64_t order : {FI_ORDER_SAS, FI_ORDER_SAW, FI_ORDER_SAR, FI_ORDER_WAS, FI_ORDER_RAS, FI_ORDER_RAW,
                                    FI_ORDER_WAW, FI_ORDER_WAR, FI_ORDER_RAR}) {
    const Hints hints;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = order;
    const Answer answer(hints);
    if (answer.error() == -FI_ENODATA) continue;
    answer.all([&](const fi_info& i) {
      assert_true((i.tx_attr->msg_order & order) != 0);
      assert_true((i.rx_attr->msg_order & order) != 0);
    });
  }
  for (std::size_t fi_ep_attr::*size :
       {&fi_ep_attr::max_order_raw_size, &fi_ep_attr::max_order_war_size, &fi_ep_attr::max_order_waw_size}) {
    const Hints hints;
    (*hints->ep_attr).*size = ~std::size_t{0} - 1;
    if (ours()) assert_int_equal(Answer(hints).error(), -FI_ENODATA);
  }
}

// Nobody is asked for a mode that he does not allow.
void registration_modes(void**) {
  constexpr int kModes[] = {FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT};
  for (unsigned some = 0; some < 1 << std::size(kModes); ++some) {
    int allowed = 0;
    for (std::size_t i = 0; i < std::size(kModes); ++i) allowed |= (some >> i & 1) != 0 ? kModes[i] : 0;
    const Hints hints(FI_MSG | FI_RMA);
    hints->domain_attr->mr_mode = allowed;
    const Answer answer(hints);
    if (answer.error() == -FI_ENODATA) continue;
    answer.all([&](const fi_info& i) { assert_int_equal(i.domain_attr->mr_mode & ~allowed, 0); });
  }
  const Hints old(FI_MSG | FI_RMA);
  for (const std::uint32_t version : {FI_VERSION(1, 0), FI_VERSION(1, 4), FI_VERSION(1, 5), FI_VERSION(1, 17)})
    for (const int mode : {kOldUnspecified, kOldBasic, kOldScalable}) {
      old->domain_attr->mr_mode = mode;
      const Answer answer(old.get(), nullptr, nullptr, 0, version);
      if (answer.error() == -FI_ENODATA) continue;
      if (mode != kOldUnspecified)
        answer.all([&](const fi_info& i) { assert_int_equal(i.domain_attr->mr_mode, mode); });
      else if (FI_VERSION_LT(version, FI_VERSION(1, 5)))
        answer.all([&](const fi_info& i) { assert_int_equal(i.domain_attr->mr_mode & ~3, 0); });
    }
}

void each_version_is_answered(void**) {
  for (std::uint32_t minor = 0; minor <= 17; ++minor) {
    const Hints hints(FI_TAGGED);
    hints->domain_attr->mr_mode = minor < 5 ? kOldUnspecified : hints->domain_attr->mr_mode;
    hints->domain_attr->mode = minor < 5 ? 0 : hints->domain_attr->mode;
    Answer(hints.get(), nullptr, nullptr, 0, FI_VERSION(1, minor)).all([&](const fi_info& i) {
      assert_int_equal(i.fabric_attr->api_version, FI_VERSION(1, minor));
    });
  }
  const Hints hints;
  assert_int_equal(Answer(hints.get(), nullptr, nullptr, 0, FI_VERSION(99, 0)).error(), -FI_ENOSYS);
}

// Automatic progress is granted as such; who makes his own is served by either.
void progress_and_threads(void**) {
  for (const fi_progress progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
    const Hints hints;
    hints->domain_attr->data_progress = hints->domain_attr->control_progress = progress;
    const Answer answer(hints);
    if (answer.error() == -FI_ENODATA) continue;
    answer.all([&](const fi_info& i) {
      for (const fi_progress told : {i.domain_attr->data_progress, i.domain_attr->control_progress})
        assert_true(told == FI_PROGRESS_AUTO || told == progress);
    });
  }
  for (const fi_threading threading :
       {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_ENDPOINT}) {
    const Hints hints;
    hints->domain_attr->threading = threading;
    MUST(Answer(hints).error());
  }
  for (const fi_av_type type : {FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE}) {
    const Hints hints;
    hints->domain_attr->av_type = type;
    MUST(Answer(hints).error());
  }
  for (const fi_resource_mgmt management : {FI_RM_DISABLED, FI_RM_ENABLED}) {
    const Hints hints;
    hints->domain_attr->resource_mgmt = management;
    MUST(Answer(hints).error());
  }
}

void what_is_told_can_be_asked_for(void**) {
  const Hints hints;
  const Answer first(hints);
  MUST(first.error());
  fi_info* again = fi_dupinfo(first.get());
  const Answer second(again, nullptr, nullptr, 0);
  fi_freeinfo(again);
  MUST(second.error());
  assert_string_equal(second->domain_attr->name, first->domain_attr->name);
  assert_string_equal(second->fabric_attr->name, first->fabric_attr->name);
  assert_int_equal(second->caps, first->caps);
}

void refuses(std::initializer_list<std::function<void(fi_info&)>> hints_that) {
  for (const auto& ask : hints_that) {
    const Hints hints;
    ask(*hints.get());
    assert_int_equal(Answer(hints).error(), -FI_ENODATA);
  }
}

void what_nobody_has(void**) {
  refuses({
      [](fi_info& h) { h.fabric_attr->prov_name[0] = '?'; },
      [](fi_info& h) { h.tx_attr->inject_size = ~std::size_t{0}; },
      [](fi_info& h) { h.tx_attr->iov_limit = 4096; },
      [](fi_info& h) { h.rx_attr->iov_limit = 4096; },
      [](fi_info& h) { h.domain_attr->cq_data_size = 4096; },
      [](fi_info& h) { h.domain_attr->mr_iov_limit = ~std::size_t{0}; },
      [](fi_info& h) { h.ep_attr->protocol = FI_PROTO_PSMX2; },
      [](fi_info& h) { h.ep_attr->protocol_version = 4096; },
      [](fi_info& h) { h.ep_attr->auth_key_size = 7; },
  });
  const Hints hints;
  assert_int_equal(Answer(hints.get(), "256.0.0.1", "1", FI_NUMERICHOST).error(), -FI_ENODATA);
}

void names_and_addresses_that_nobody_has(void**) {
  ONLY_OURS();
  refuses({
      [](fi_info& h) { h.fabric_attr->name = strdup("no such fabric"); },
      [](fi_info& h) { h.domain_attr->name = strdup("no such domain"); },
  });
  const Hints hints;
  assert_int_equal(Answer(hints.get(), "no-such-host.invalid", "1", 0).error(), -FI_ENODATA);
  assert_int_equal(Answer(hints.get(), "192.0.2.77", nullptr, FI_SOURCE).error(), -FI_ENODATA);
}

// One entry for each provider, by name alone.
void providers_alone(void**) {
  const Answer names(nullptr, nullptr, nullptr, FI_PROV_ATTR_ONLY);
  MUST(names.error());
  const std::string core = provider.substr(0, provider.find(';'));
  int times = 0;
  for (const fi_info* i = names.get(); i != nullptr; i = i->next) times += i->fabric_attr->prov_name == core ? 1 : 0;
  assert_int_equal(times, 1);
}

}  // namespace

Tests info_tests() {
  return {cmocka_unit_test(without_hints_it_is_among_the_providers),
          cmocka_unit_test(what_everybody_is_told),
          cmocka_unit_test(capabilities_stand_where_they_belong),
          cmocka_unit_test(primary_capabilities_are_those_asked_for),
          cmocka_unit_test(each_capability_is_granted_or_refused),
          cmocka_unit_test(capabilities_of_contexts_are_heeded),
          cmocka_unit_test(source_addresses),
          cmocka_unit_test(destination_addresses),
          cmocka_unit_test(address_formats),
          cmocka_unit_test(orders_of_messages),
          cmocka_unit_test(registration_modes),
          cmocka_unit_test(each_version_is_answered),
          cmocka_unit_test(progress_and_threads),
          cmocka_unit_test(what_is_told_can_be_asked_for),
          cmocka_unit_test(what_nobody_has),
          cmocka_unit_test(names_and_addresses_that_nobody_has),
          cmocka_unit_test(providers_alone)};
}

}  // namespace ewarp::ofi::suite
