// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What fi_getinfo says, and that nobody is promised what we do not have.
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/ofi/sides.h"

namespace {

int identifiers_made = 0;
bool loopback_is_down = false;
int family_of_localhost = -1;  // that somebody looked for last

}  // namespace

// In place of librdmacm's and the C library's, also for the provider.
extern "C" [[gnu::visibility("default")]] int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id,
                                                             void* context, rdma_port_space space) {
  ++identifiers_made;
  static const auto real = reinterpret_cast<decltype(&rdma_create_id)>(
      dlsym(dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_NOLOAD), "rdma_create_id"));
  return real(channel, id, context, space);
}

extern "C" [[gnu::visibility("default")]] int getifaddrs(ifaddrs** list) noexcept {
  static const auto real = reinterpret_cast<decltype(&getifaddrs)>(dlsym(RTLD_NEXT, "getifaddrs"));
  const int result = real(list);
  if (result == 0 && loopback_is_down)
    for (ifaddrs* i = *list; i != nullptr; i = i->ifa_next)
      if ((i->ifa_flags & IFF_LOOPBACK) != 0) i->ifa_flags &= ~static_cast<unsigned>(IFF_UP);
  return result;
}

extern "C" [[gnu::visibility("default")]] int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                                                          addrinfo** list) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node != nullptr && std::strcmp(node, "localhost") == 0)
    family_of_localhost = hints != nullptr ? hints->ai_family : AF_UNSPEC;
  return real(node, service, hints, list);
}

namespace ewarp::ofi::test {
namespace {

void what_is_offered(void**) {
  const Hints hints;
  const Info info(hints.get());
  MUST(info.error());
  constexpr std::uint64_t kPromised = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV |
                                      FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM;
  bool loopback = false;
  for (const fi_info* i = info.get(); i != nullptr; i = i->next) {
    assert_string_equal(i->fabric_attr->prov_name, "etherwarp");
    assert_true((i->caps & kPromised) == kPromised);
    assert_int_equal(i->mode, 0);
    assert_int_equal(i->ep_attr->type, FI_EP_RDM);
    assert_int_equal(i->domain_attr->resource_mgmt, FI_RM_ENABLED);
    assert_int_equal(i->domain_attr->threading, FI_THREAD_SAFE);
    assert_int_equal(i->domain_attr->data_progress, FI_PROGRESS_AUTO);
    assert_true(i->domain_attr->cq_data_size >= 4);
    assert_true((i->tx_attr->msg_order & FI_ORDER_SAS) != 0);
    assert_true(i->ep_attr->max_msg_size > 1 << 20);
    // Those of a whole domain are not an endpoint's.
    assert_int_equal((i->tx_attr->caps | i->rx_attr->caps) & (FI_LOCAL_COMM | FI_REMOTE_COMM), 0);
    assert_int_equal(i->domain_attr->caps, FI_LOCAL_COMM | FI_REMOTE_COMM);
    assert_non_null(i->src_addr);
    loopback = loopback || std::strcmp(i->fabric_attr->name, "127.0.0.0/8") == 0;
  }
  assert_true(loopback);
}

// Open MPI's mtl/ofi, its btl/ofi, and a program of old.
void what_others_ask_for(void**) {
  Hints mtl(FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV);
  mtl->mode = FI_CONTEXT | FI_CONTEXT2;
  mtl->ep_attr->type = FI_EP_RDM;
  mtl->tx_attr->msg_order = mtl->rx_attr->msg_order = FI_ORDER_SAS;
  mtl->tx_attr->op_flags = mtl->rx_attr->op_flags = FI_COMPLETION;
  mtl->domain_attr->threading = FI_THREAD_DOMAIN;
  mtl->domain_attr->cq_data_size = sizeof(int);
  mtl->domain_attr->av_type = FI_AV_TABLE;
  mtl->domain_attr->resource_mgmt = FI_RM_ENABLED;
  mtl->domain_attr->mr_mode = kOldUnspecified;
  const Info for_mtl(mtl.get(), nullptr, nullptr, 0, FI_VERSION(1, 5));
  MUST(for_mtl.error());
  assert_int_equal(for_mtl->domain_attr->mr_mode, 0);
  assert_int_equal(for_mtl->caps & (FI_MSG | FI_RMA), 0);
  assert_int_equal(for_mtl->tx_attr->op_flags, FI_COMPLETION);

  Hints btl(FI_RMA | FI_ATOMIC);
  btl->tx_attr->iov_limit = btl->rx_attr->iov_limit = 1;
  btl->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  const Info for_btl(btl.get(), nullptr, nullptr, 0, FI_VERSION(1, 5));
  MUST(for_btl.error());
  assert_int_equal(for_btl->domain_attr->mr_mode & ~(FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY), 0);

  Hints old(FI_RMA);
  old->domain_attr->mr_mode = kOldBasic;
  const Info for_old(old.get(), nullptr, nullptr, 0, FI_VERSION(1, 4));
  MUST(for_old.error());
  assert_int_equal(for_old->domain_attr->mr_mode, kOldBasic);
  const Info by_name(old.get());
  MUST(by_name.error());
  assert_int_equal(by_name->domain_attr->mr_mode, kOldBasic);
}

void who_asks_for_more_gets_nothing(void**) {
  const std::function<void(fi_info&)> kToo[] = {
      [](fi_info& h) { h.caps = FI_MULTICAST; },
      [](fi_info& h) { h.caps = FI_RMA | FI_RMA_EVENT; },
      [](fi_info& h) { h.ep_attr->type = FI_EP_MSG; },
      [](fi_info& h) { h.ep_attr->type = FI_EP_DGRAM; },
      [](fi_info& h) { h.ep_attr->protocol = FI_PROTO_RXM; },
      [](fi_info& h) { h.ep_attr->mem_tag_format = ~std::uint64_t{0}; },
      [](fi_info& h) { h.ep_attr->tx_ctx_cnt = 2; },
      [](fi_info& h) { h.tx_attr->inject_size = 1 << 20; },
      [](fi_info& h) { h.tx_attr->iov_limit = 2; },
      [](fi_info& h) { h.tx_attr->size = ~std::size_t{0}; },
      [](fi_info& h) { h.tx_attr->op_flags = FI_COMMIT_COMPLETE; },
      [](fi_info& h) { h.tx_attr->msg_order = kOrderStrict; },
      [](fi_info& h) { h.rx_attr->msg_order = FI_ORDER_RAR; },
      [](fi_info& h) { h.rx_attr->comp_order = kOrderStrict; },
      [](fi_info& h) { h.domain_attr->cq_data_size = 16; },
      [](fi_info& h) { h.domain_attr->mr_iov_limit = 2; },
      [](fi_info& h) { h.caps = FI_RMA, h.domain_attr->mr_mode = 0; },
      [](fi_info& h) { h.domain_attr->name = strdup("no such domain"); },
      [](fi_info& h) { h.fabric_attr->name = strdup("no such fabric"); },
      [](fi_info& h) { h.addr_format = FI_SOCKADDR_IB; },
  };
  for (const auto& too : kToo) {
    const Hints hints;
    too(*hints.get());
    const Info info(hints.get());
    assert_int_equal(info.error(), -FI_ENODATA);
  }
}

// Who copies all that he wants to both directions is answered as who does not.
void what_the_other_direction_does_is_overlooked(void**) {
  constexpr std::uint64_t kSends = FI_SEND | FI_READ | FI_WRITE, kReceives = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
  const Hints hints(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV | kSends |
                    kReceives);
  hints->tx_attr->caps = hints->rx_attr->caps = hints->caps;
  const Info info(hints.get());
  MUST(info.error());
  assert_int_equal(info->tx_attr->caps & (kSends | kReceives), kSends);
  assert_int_equal(info->rx_attr->caps & (kSends | kReceives), kReceives);
  hints->tx_attr->caps |= FI_MULTICAST;  // nobody does
  assert_int_equal(Info(hints.get()).error(), -FI_ENODATA);
}

// Who allows no registration modes is offered what needs none.
void memory_is_left_out_where_its_mode_is_not_allowed(void**) {
  const Hints hints;
  hints->domain_attr->mr_mode = 0;
  const Info info(hints.get());
  MUST(info.error());
  assert_int_equal(info->caps & (FI_RMA | FI_ATOMIC), 0);
  assert_int_equal(info->domain_attr->mr_mode, 0);
}

void node_and_service(void**) {
  const Hints hints;
  const Info source(hints.get(), "127.0.0.1", "23456", FI_SOURCE);
  MUST(source.error());
  const auto* from = static_cast<const sockaddr_in*>(source->src_addr);
  assert_int_equal(from->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  assert_int_equal(from->sin_port, htons(23456));
  assert_null(source->dest_addr);
  assert_null(source->next);

  const Info towards(hints.get(), "127.0.0.1", "4000", FI_NUMERICHOST);
  MUST(towards.error());
  const auto* to = static_cast<const sockaddr_in*>(towards->dest_addr);
  assert_int_equal(to->sin_port, htons(4000));
  // The way to that address leads over the interface that has it.
  assert_int_equal(static_cast<const sockaddr_in*>(towards->src_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));

  assert_int_equal(Info(hints.get(), "not.an.address", "1", FI_NUMERICHOST).error(), -FI_ENODATA);
  assert_int_equal(Info(hints.get(), "192.0.2.77", nullptr, FI_SOURCE).error(), -FI_ENODATA);
}

// A name may have addresses of both families; one is looked for that goes with the hints and with the other end.
void a_name_is_looked_up_in_the_family_that_is_wanted(void**) {
  const auto looked_for = [](const Hints& hints, std::uint64_t flags) {
    family_of_localhost = -1;
    const Info info(hints.get(), "localhost", "4000", flags);
    return family_of_localhost;
  };
  const Hints any, four, six, from_four;
  four->addr_format = FI_SOCKADDR_IN;
  six->addr_format = FI_SOCKADDR_IN6;
  for (const std::uint64_t flags : {std::uint64_t{0}, std::uint64_t{FI_SOURCE}}) {
    assert_int_equal(looked_for(any, flags), AF_UNSPEC);
    assert_int_equal(looked_for(four, flags), AF_INET);
    assert_int_equal(looked_for(six, flags), AF_INET6);
  }
  sockaddr_in source{};
  source.sin_family = AF_INET;
  source.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  from_four->src_addr = std::malloc(sizeof source);
  assert_non_null(from_four->src_addr);
  std::memcpy(from_four->src_addr, &source, sizeof source);
  from_four->src_addrlen = sizeof source;
  assert_int_equal(looked_for(from_four, 0), AF_INET);
  assert_int_equal(looked_for(from_four, FI_SOURCE), AF_UNSPEC);  // the name is in its place
}

// To ask librdmacm for the device of an address costs a hundred times as much as everything else in fi_getinfo(): who
// asks again is answered without, as long as interfaces and devices stay the same.
void asking_again_is_cheap(void**) {
  const Hints hints;
  MUST(Info(hints.get()).error());
  const int before = identifiers_made;
  MUST(Info(hints.get()).error());
  MUST(Info(hints.get(), "127.0.0.1", "4000").error());
  assert_int_equal(identifiers_made, before);
}

void what_changes_is_noticed(void**) {
  const Hints hints;
  const auto has_loopback = [&] {
    const Info info(hints.get());
    for (const fi_info* i = info.get(); i != nullptr; i = i->next)
      if (std::strcmp(i->fabric_attr->name, "127.0.0.0/8") == 0) return true;
    return false;
  };
  assert_true(has_loopback());
  const int before = identifiers_made;
  loopback_is_down = true;
  assert_false(has_loopback());
  assert_true(identifiers_made > before);
  loopback_is_down = false;
  assert_true(has_loopback());
}

// A listening port that was asked for is the endpoint's.
void an_endpoint_has_the_port_that_was_asked_for(void**) {
  const Side other;
  const auto taken = reinterpret_cast<const sockaddr_in*>(other.name().data())->sin_port;
  const Hints hints;
  const Info info(hints.get(), "127.0.0.1", std::to_string(ntohs(taken)).c_str(), FI_SOURCE);
  MUST(info.error());
  fid_ep* ep = nullptr;
  assert_int_equal(fi_endpoint(other.domain, info.get(), &ep, nullptr), -FI_EADDRINUSE);
}

}  // namespace

std::vector<CMUnitTest> info_tests() {
  return {cmocka_unit_test(what_is_offered),
          cmocka_unit_test(what_others_ask_for),
          cmocka_unit_test(who_asks_for_more_gets_nothing),
          cmocka_unit_test(what_the_other_direction_does_is_overlooked),
          cmocka_unit_test(memory_is_left_out_where_its_mode_is_not_allowed),
          cmocka_unit_test(node_and_service),
          cmocka_unit_test(a_name_is_looked_up_in_the_family_that_is_wanted),
          cmocka_unit_test(asking_again_is_cheap),
          cmocka_unit_test(what_changes_is_noticed),
          cmocka_unit_test(an_endpoint_has_the_port_that_was_asked_for)};
}

}  // namespace ewarp::ofi::test
