// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/ofi/sides.h"

#include <netinet/in.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>

namespace ewarp::ofi::test {

Bytes pattern(unsigned seed, std::size_t size) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::uint8_t>(seed * 31 + i * 7 + (i >> 8));
  return out;
}

void must(long result, const char* what) {
  if (result < 0) print_error("%s: %ld (%s)\n", what, result, fi_strerror(static_cast<int>(-result)));
  assert_true(result >= 0);
}

Info::Info(const fi_info* hints, const char* node, const char* service, std::uint64_t flags, std::uint32_t version)
    : error_(fi_getinfo(version, node, service, flags, hints, &list_)) {
  if (error_ != 0) list_ = nullptr;
}

Hints::Hints(std::uint64_t caps) : hints_(fi_allocinfo()) {
  hints_->caps = caps;
  hints_->mode = ~std::uint64_t{0};
  hints_->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints_->fabric_attr->prov_name = strdup("etherwarp");
}

Side::Side(const SideOptions& options, Side* in_domain_of) : owns_domain_(in_domain_of == nullptr) {
  Hints hints(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV);
  hints->tx_attr->op_flags = options.send_flags;
  hints->rx_attr->op_flags = options.receive_flags;
  if (FI_VERSION_LT(options.version, FI_VERSION(1, 5))) {
    hints->caps &= ~(FI_RMA | FI_ATOMIC);
    hints->domain_attr->mr_mode = kOldUnspecified;
  }
  const Info found(hints.get(), "127.0.0.1", options.service, FI_SOURCE, options.version);
  MUST(found.error());
  info = fi_dupinfo(found.get());
  if (owns_domain_) {
    MUST(fi_fabric(info->fabric_attr, &fabric, nullptr));
    MUST(fi_domain(fabric, info, &domain, nullptr));
  } else {
    fabric = in_domain_of->fabric;
    domain = in_domain_of->domain;
  }
  fi_av_attr av{};
  av.type = options.addresses;
  MUST(fi_av_open(domain, &av, &addresses, nullptr));
  fi_cq_attr cq{};
  cq.format = options.format;
  cq.wait_obj = options.wait;
  MUST(fi_cq_open(domain, &cq, &send_queue, nullptr));
  MUST(fi_cq_open(domain, &cq, &receive_queue, nullptr));
  MUST(fi_endpoint(domain, info, &ep, nullptr));
  MUST(fi_ep_bind(ep, &addresses->fid, 0));
  MUST(fi_ep_bind(ep, &send_queue->fid, FI_TRANSMIT | options.bind_flags));
  MUST(fi_ep_bind(ep, &receive_queue->fid, FI_RECV | options.bind_flags));
  if (options.counters) {
    fi_cntr_attr attributes{};
    attributes.wait_obj = FI_WAIT_UNSPEC;
    for (const auto& [counter, flags] : std::map<fid_cntr**, std::uint64_t>{
             {&sends, FI_SEND}, {&receives, FI_RECV}, {&reads, FI_READ}, {&writes, FI_WRITE}}) {
      MUST(fi_cntr_open(domain, &attributes, counter, nullptr));
      MUST(fi_ep_bind(ep, &(*counter)->fid, flags));
    }
  }
  MUST(fi_enable(ep));
}

Side::~Side() {
  const auto end = [](auto* object) {
    if (object != nullptr) fi_close(&object->fid);
  };
  end(ep);
  for (fid_cntr* counter : {sends, receives, reads, writes}) end(counter);
  end(send_queue);
  end(receive_queue);
  end(addresses);
  if (owns_domain_) {
    assert_int_equal(fi_close(&domain->fid), 0);
    assert_int_equal(fi_close(&fabric->fid), 0);
  }
  fi_freeinfo(info);
}

std::vector<std::uint8_t> Side::name() const {
  std::vector<std::uint8_t> out(sizeof(sockaddr_in6));
  std::size_t length = out.size();
  MUST(fi_getname(&ep->fid, out.data(), &length));
  out.resize(length);
  return out;
}

fi_addr_t Side::insert(const Side& other) {
  fi_addr_t out = FI_ADDR_NOTAVAIL;
  assert_int_equal(fi_av_insert(addresses, other.name().data(), 1, &out, 0, nullptr), 1);
  return out;
}

fi_cq_tagged_entry Side::completion(fid_cq* queue) {
  fi_cq_tagged_entry entry{};
  const long n = fi_cq_sread(queue, &entry, 1, nullptr, kPatienceMs);
  if (n == -FI_EAVAIL) {
    const fi_cq_err_entry e = failure(queue);
    print_error("an error instead of a completion: %d (%s)\n", e.err, fi_strerror(e.err));
  }
  assert_int_equal(n, 1);
  return entry;
}

fi_cq_err_entry Side::failure(fid_cq* queue) {
  fi_cq_tagged_entry entry{};
  assert_int_equal(fi_cq_sread(queue, &entry, 1, nullptr, kPatienceMs), -FI_EAVAIL);
  fi_cq_err_entry error{};
  assert_int_equal(fi_cq_readerr(queue, &error, 0), 1);
  return error;
}

bool Side::quiet(fid_cq* queue) {
  fi_cq_tagged_entry entry{};
  return fi_cq_read(queue, &entry, 1) == -FI_EAGAIN;
}

Pair::Pair(const SideOptions& options) : a(options), b(options, &a), to_a(b.insert(a)), to_b(a.insert(b)) {}

Registered::Registered(const Side& side, std::size_t size, std::uint64_t access) : octets(size) {
  MUST(fi_mr_reg(side.domain, octets.data(), octets.size(), access, 0, 0, 0, &region, nullptr));
}

}  // namespace ewarp::ofi::test
