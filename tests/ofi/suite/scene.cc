// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/ofi/suite/scene.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace ewarp::ofi::suite {

Octets pattern(std::size_t seed, std::size_t size) {
  Octets out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::uint8_t>(seed * 131 + i * 7 + (i >> 8));
  return out;
}

End::End(const Bed& bed, const EndOptions& options) {
  fi_av_attr av{};
  av.type = options.addresses;
  MUST(fi_av_open(bed.domain, &av, addresses.out(), nullptr));
  fi_cq_attr cq{};
  cq.format = options.format;
  cq.wait_obj = options.wait;
  cq.size = options.queue_size;
  MUST(fi_cq_open(bed.domain, &cq, send_queue.out(), nullptr));
  MUST(fi_cq_open(bed.domain, &cq, receive_queue.out(), nullptr));
  MUST(fi_endpoint(bed.domain, bed.info, ep.out(), nullptr));
  MUST(fi_ep_bind(ep.get(), &addresses.f(), 0));
  MUST(fi_ep_bind(ep.get(), &send_queue.f(), FI_TRANSMIT | options.send_flags));
  MUST(fi_ep_bind(ep.get(), &receive_queue.f(), FI_RECV | options.receive_flags));
  if (options.counters) {
    struct Counted {
      Owned<fid_cntr>& counter;
      std::uint64_t what;
    };
    for (const Counted& c : {Counted{sends, FI_SEND}, {receives, FI_RECV}, {reads, FI_READ}, {writes, FI_WRITE}}) {
      fi_cntr_attr attributes{};
      attributes.wait_obj = FI_WAIT_UNSPEC;
      MUST(fi_cntr_open(bed.domain, &attributes, c.counter.out(), nullptr));
      MUST(fi_ep_bind(ep.get(), &c.counter.f(), c.what));
    }
  }
  MUST(fi_enable(ep.get()));
}

Octets End::name() const {
  Octets out(sizeof(sockaddr_storage));
  std::size_t length = out.size();
  MUST(fi_getname(&ep.f(), out.data(), &length));
  out.resize(length);
  return out;
}

fi_addr_t End::insert(const Octets& name) {
  fi_addr_t out = FI_ADDR_NOTAVAIL;
  assert_int_equal(fi_av_insert(addresses.get(), name.data(), 1, &out, 0, nullptr), 1);
  return out;
}

void End::read(fid_cq* queue, std::deque<Ended>& out) {
  for (;;) {
    Ended e;
    const long n = fi_cq_readfrom(queue, &e.entry, 1, &e.source);
    if (n == -FI_EAGAIN) return;
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      assert_int_equal(fi_cq_readerr(queue, &error, 0), 1);
      e.entry = {error.op_context, error.flags, error.len, error.buf, error.data, error.tag};
      e.error = error.err;
      e.lost = error.olen;
      assert_true(e.error > 0);
    } else {
      assert_int_equal(n, 1);
    }
    out.push_back(e);
  }
}

void End::progress() {
  read(send_queue.get(), sent);
  read(receive_queue.get(), received);
}

Scene::Scene(std::uint64_t caps, const EndOptions& options, std::size_t ends) : bed(caps) {
  assert_int_equal(bed.info->domain_attr->mr_mode & FI_MR_LOCAL, 0);
  for (std::size_t i = 0; i < ends; ++i) ends_.push_back(std::make_unique<End>(bed, options));
  to_.resize(ends);
  for (std::size_t i = 0; i < ends; ++i)
    for (std::size_t j = 0; j < ends; ++j) to_[i].push_back(ends_[i]->insert(*ends_[j]));
}

void Scene::progress() {
  for (const auto& e : ends_)
    if (e) e->progress();
}

void Scene::post(const std::function<long()>& request) {
  until([&] {
    const long result = request();
    if (result == -FI_EAGAIN)
      progress();
    else
      must(result, "a request");
    return result != -FI_EAGAIN;
  });
}

Ended Scene::next(std::deque<Ended>& queue) {
  until([&] {
    if (queue.empty()) progress();
    return !queue.empty();
  });
  const Ended out = queue.front();
  queue.pop_front();
  return out;
}

fi_cq_tagged_entry Scene::good(const Ended& e) {
  if (e.error != 0) print_error("an error instead of a completion: %d (%s)\n", e.error, fi_strerror(e.error));
  assert_int_equal(e.error, 0);
  return e.entry;
}

void Scene::stays_quiet(std::deque<Ended>& queue) {
  for (int i = 0; i < 20; ++i) {
    progress();
    assert_true(queue.empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void need(std::uint64_t caps) {
  const Hints hints(caps);
  if (Answer(hints).error() == -FI_ENODATA) skip();
}

Exposed::Exposed(const Scene& scene, std::size_t size, std::uint64_t access)
    : octets_(size + 2 * kGuard, 0xEE), by_address_((scene.bed.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0) {
  static std::uint64_t last_key = 0;
  MUST(fi_mr_reg(scene.bed.domain, data(), size, access, 0, ++last_key, 0, region_.out(), nullptr));
}

std::uint64_t Exposed::address(std::size_t offset) {
  return (by_address_ ? reinterpret_cast<std::uint64_t>(data()) : 0) + offset;
}

void Exposed::check_guards() const {
  const auto untouched = [](std::uint8_t octet) { return octet == 0xEE; };
  assert_true(std::all_of(octets_.begin(), octets_.begin() + kGuard, untouched));
  assert_true(std::all_of(octets_.end() - kGuard, octets_.end(), untouched));
}

}  // namespace ewarp::ofi::suite
