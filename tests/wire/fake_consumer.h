// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A consumer of RDMAP without verbs, sockets or threads: its memory is a table of vectors with the STags that a test
// likes, its queues are lists.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "rdmap/endpoint.h"
#include "tests/vectors/vectors.h"

namespace ewarp::wire {

using test::Bytes;

struct FakeRegion {
  Bytes octets;
  bool ours = true;  // false: another protection domain's
  bool readable = true, writable = true;
  bool mapped = true;      // false: registered, but its pages are gone
  std::uint64_t base = 0;  // TO of the first octet
};

struct FakeRequest : rdmap::SendRequest {
  std::uint64_t id = 0;
  std::vector<Bytes> pieces;  // source of a Send or Write, sink of a Read
  bool done = false;
  rdmap::Status status = rdmap::Status::success;
};

struct FakeReceive {
  std::uint64_t id = 0;
  std::vector<Bytes> pieces;
};

// The memory that peers name.
template <class Base>
class FakeMemory : public Base {
 public:
  std::map<std::uint32_t, FakeRegion> regions;

  ddp::Verdict resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight right,
                       llp::Extent& out) override {
    const auto it = regions.find(stag);
    if (it == regions.end()) return ddp::Verdict::invalid_stag;
    FakeRegion& r = it->second;
    if (!r.ours) return ddp::Verdict::not_associated;
    if (!(right == rdmap::RemoteRight::read ? r.readable : r.writable)) return ddp::Verdict::access;
    if (to + n < to) return ddp::Verdict::wrap;
    if (to < r.base || to + n - r.base > r.octets.size()) return ddp::Verdict::bounds;
    out = llp::Extent{r.octets.data() + (to - r.base), static_cast<std::size_t>(n), nullptr, 0};
    return ddp::Verdict::ok;
  }
  ddp::Verdict invalidate(std::uint32_t stag) override {
    return regions.erase(stag) == 1 ? ddp::Verdict::ok : ddp::Verdict::invalid_stag;
  }
  bool copy_in(const llp::Extent& to, const std::byte* from) override {
    std::memcpy(to.address, from, to.length);
    return true;
  }
  bool atomic(const llp::Extent& target, const rdmap::AtomicRequest& a, std::uint64_t* original) override {
    if (!readable(target)) return false;
    std::memcpy(original, target.address, sizeof *original);
    const std::uint64_t now = a.is(rdmap::AtomicRequest::Op::fetch_add)
                                  ? rdmap::fetch_add(*original, a.data, a.data_mask)
                                  : rdmap::compare_swap(*original, a.data, a.data_mask, a.compare, a.compare_mask);
    std::memcpy(target.address, &now, sizeof now);
    return true;
  }
  bool readable(const llp::Extent& extent) override {
    for (const auto& [stag, r] : regions) {
      const std::byte* const end = r.octets.data() + r.octets.size();
      if (extent.address < r.octets.data() || extent.address >= end) continue;
      if (extent.length > static_cast<std::size_t>(end - static_cast<const std::byte*>(extent.address)))
        fail_msg("pages behind region %#x are asked for", stag);
      if (!r.mapped) return false;
    }
    return true;
  }
  bool hold(const llp::Extent&) override { return true; }
  void let_go(const llp::Extent&) override {}

 protected:
  static rdmap::Status cut(std::vector<Bytes>& pieces, std::uint64_t offset, std::uint64_t n, rdmap::ExtentList& out) {
    out.clear();
    for (Bytes& p : pieces) {
      if (n == 0) break;
      if (offset >= p.size()) {
        offset -= p.size();
        continue;
      }
      const std::uint64_t size = std::min<std::uint64_t>(n, p.size() - offset);
      out.add(llp::Extent{p.data() + offset, static_cast<std::size_t>(size), nullptr, 0});
      n -= size;
      offset = 0;
    }
    return rdmap::Status::success;
  }
};

class FakeConsumer : public FakeMemory<rdmap::Consumer> {
 public:
  std::deque<std::unique_ptr<FakeRequest>> sends;  // all that were ever posted
  std::size_t started = 0;
  std::deque<FakeReceive> receives;  // the current one is in front
  // Called with each end; receives are popped afterwards.
  std::function<void(FakeRequest&)> on_started, on_send_done;
  std::function<void(const FakeReceive&, const rdmap::Received&)> on_receive_done;

  FakeRequest& post(rdmap::Operation op, std::vector<Bytes> pieces) {
    auto r = std::make_unique<FakeRequest>();
    r->id = sends.size();
    r->operation = op;
    for (const Bytes& p : pieces) r->length += static_cast<std::uint32_t>(p.size());
    r->pieces = std::move(pieces);
    sends.push_back(std::move(r));
    return *sends.back();
  }

  rdmap::SendRequest* next_send() override { return started < sends.size() ? sends[started].get() : nullptr; }
  void send_started() override {
    FakeRequest& r = *sends[started++];
    if (on_started) on_started(r);
  }
  void send_done(rdmap::SendRequest& request, rdmap::Status status) override {
    auto& r = static_cast<FakeRequest&>(request);
    if (r.done) fail_msg("request %lu is done twice", r.id);
    r.done = true;
    r.status = status;
    if (on_send_done) on_send_done(r);
  }
  rdmap::Status request_memory(const rdmap::SendRequest& request, std::uint64_t offset, std::uint64_t n,
                               rdmap::ExtentList& out) override {
    auto& r = const_cast<FakeRequest&>(static_cast<const FakeRequest&>(request));
    if (offset + n > r.length) fail_msg("memory of request %lu: %lu+%lu of %u", r.id, offset, n, r.length);
    return cut(r.pieces, offset, n, out);
  }
  bool take_receive() override { return !receives.empty(); }
  bool has_receive() const override { return !receives.empty(); }
  std::uint64_t receive_capacity() const override {
    std::uint64_t n = 0;
    for (const Bytes& p : receives.front().pieces) n += p.size();
    return n;
  }
  rdmap::Status receive_memory(std::uint64_t offset, std::uint64_t n, rdmap::ExtentList& out) override {
    return cut(receives.front().pieces, offset, n, out);
  }
  void receive_done(const rdmap::Received& received) override {
    if (on_receive_done) on_receive_done(receives.front(), received);
    receives.pop_front();
  }
};

// Everything that transmit() has to say, as octets; up to `limit` of it.
inline Bytes drain(rdmap::Endpoint& endpoint, std::size_t budget = 1) {
  Bytes out;
  while (endpoint.wants_transmit()) {
    llp::Gather gather;
    endpoint.transmit(gather, budget);
    if (gather.empty()) break;
    for (const iovec& v : gather.vectors()) {
      const auto* at = static_cast<const std::byte*>(v.iov_base);
      out.insert(out.end(), at, at + v.iov_len);
    }
    const std::size_t n = gather.octets();
    gather.consume(n);
    endpoint.transmitted(n);
  }
  return out;
}

}  // namespace ewarp::wire
