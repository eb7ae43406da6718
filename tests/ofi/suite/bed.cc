// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/ofi/suite/bed.h"

#include <arpa/inet.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace ewarp::ofi::suite {

std::string provider;

bool ours() {
  return provider == "etherwarp";
}

void must(long result, const char* what) {
  if (result < 0) print_error("%s: %ld (%s)\n", what, result, fi_strerror(static_cast<int>(-result)));
  assert_true(result >= 0);
}

Hints::Hints(std::uint64_t caps) : hints_(fi_allocinfo()) {
  hints_->caps = caps;
  hints_->mode = ~std::uint64_t{0};
  hints_->ep_attr->type = FI_EP_RDM;
  hints_->domain_attr->mode = ~std::uint64_t{0};
  hints_->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints_->fabric_attr->prov_name = strdup(provider.c_str());
}

Answer::Answer(const fi_info* hints, const char* node, const char* service, std::uint64_t flags, std::uint32_t version)
    : error_(fi_getinfo(version, node, service, flags, hints, &list_)) {
  if (error_ != 0) list_ = nullptr;
}

void Answer::all(const std::function<void(const fi_info&)>& check) const {
  MUST(error_);
  assert_non_null(list_);
  for (const fi_info* i = list_; i != nullptr; i = i->next) check(*i);
}

Bed::Bed(std::uint64_t caps) {
  const Hints hints(caps);
  // What the tests do. Other modes change how receives end.
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  const Answer found(hints.get(), kNode, nullptr, FI_SOURCE);
  MUST(found.error());
  info = fi_dupinfo(found.get());
  MUST(fi_fabric(info->fabric_attr, &fabric, nullptr));
  MUST(fi_domain(fabric, info, &domain, nullptr));
}

Bed::~Bed() {
  MUST(fi_close(&domain->fid));
  MUST(fi_close(&fabric->fid));
  fi_freeinfo(info);
}

Speaker::Speaker(const Bed& bed, fid_wait* set) {
  fi_av_attr av{};
  av.type = FI_AV_MAP;
  MUST(fi_av_open(bed.domain, &av, addresses.out(), nullptr));
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_TAGGED;
  cq.wait_obj = set != nullptr ? FI_WAIT_SET : FI_WAIT_UNSPEC;
  cq.wait_set = set;
  MUST(fi_cq_open(bed.domain, &cq, queue.out(), this));
  fi_cntr_attr counter{};
  MUST(fi_cntr_open(bed.domain, &counter, sends.out(), &sends));
  MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
  MUST(fi_ep_bind(ep.get(), &addresses.f(), 0));
  MUST(fi_ep_bind(ep.get(), &queue.f(), FI_TRANSMIT | FI_RECV));
  MUST(fi_ep_bind(ep.get(), &sends.f(), FI_SEND));
  MUST(fi_enable(ep.get()));
  sockaddr_storage name;
  std::size_t length = sizeof name;
  MUST(fi_getname(&ep.f(), &name, &length));
  assert_int_equal(fi_av_insert(addresses.get(), &name, 1, &self, 0, nullptr), 1);
}

void Speaker::speak() {
  static fi_context2 contexts[2];
  until([&] { return fi_trecv(ep.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 7, 0, &contexts[0]) == 0; });
  until([&] { return fi_tsend(ep.get(), &out, sizeof out, nullptr, self, 7, &contexts[1]) == 0; });
}

void Speaker::hear() {
  for (int ends = 0; ends < 2; ++ends) {
    fi_cq_tagged_entry e{};
    until([&] {
      const long n = fi_cq_read(queue.get(), &e, 1);
      if (n != -FI_EAGAIN) MUST(n);
      return n == 1;
    });
  }
  assert_int_equal(in, out);
}

sockaddr_in at(const char* ip, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  inet_pton(AF_INET, ip, &out.sin_addr);
  return out;
}

void until(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!what()) {
    assert_true(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
}

}  // namespace ewarp::ofi::suite
