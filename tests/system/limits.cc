// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Limits that hold: thousands of queue pairs, completion queues of millions of entries, messages of gibibytes,
// connections without end. Plain libibverbs and librdmacm, on the loopback device; limits.py runs the roles and judges
// what they print.
#include "limits.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <thread>

#include "possessions.h"

namespace limits {

Loopback::Loopback() {
  int n = 0;
  ibv_device** list = needed(ibv_get_device_list(&n), "ibv_get_device_list");
  for (int i = 0; i < n && !verbs; ++i)
    if (std::string(ibv_get_device_name(list[i])) == "ewarp_lo") verbs.reset(ibv_open_device(list[i]));
  ibv_free_device_list(list);
  must(verbs != nullptr, "there is no device ewarp_lo");
  pd.reset(needed(ibv_alloc_pd(verbs.get()), "ibv_alloc_pd"));
  checked(ibv_query_gid(verbs.get(), 1, 0, &gid), "ibv_query_gid");
}

Qp Loopback::qp(ibv_cq* cq, std::uint32_t depth) const {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 0};
  return Qp(needed(ibv_create_qp(pd.get(), &init), "ibv_create_qp"));
}

void to_init(ibv_qp* qp) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  checked(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
}

void join(const Loopback& device, ibv_qp* qp, std::uint32_t peer) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = a.max_rd_atomic = 4;
  a.min_rnr_timer = 12;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = device.gid;
  a.ah_attr.port_num = 1;
  checked(ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "to RTR");
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 14;
  a.retry_cnt = a.rnr_retry = 7;
  checked(ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC),
          "to RTS");
}

ibv_wc next(ibv_cq* cq) {
  ibv_wc wc{};
  int n = 0;
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  must(n == 1, "ibv_poll_cq failed");
  must(wc.status == IBV_WC_SUCCESS, std::string("a completion says ") + ibv_wc_status_str(wc.status));
  return wc;
}

namespace {

// --- a stretch of memory ---

struct Buffer {
  explicit Buffer(const Loopback& device, std::size_t octets)
      : words(octets / sizeof(std::uint64_t)), region(device.region(std::as_writable_bytes(std::span(words)))) {}

  static std::uint64_t word(std::size_t i, std::uint64_t seed) { return (i + seed) * 0x9e3779b97f4a7c15; }
  void fill(std::uint64_t seed) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = word(i, seed);
  }
  bool holds(std::uint64_t seed) const {
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i] != word(i, seed)) return false;
    return true;
  }
  ibv_sge sge(std::uint32_t octets) const {
    return {reinterpret_cast<std::uintptr_t>(words.data()), octets, region->lkey};
  }

  std::vector<std::uint64_t> words;
  Mr region;
};

void post(ibv_qp* qp, ibv_wr_opcode opcode, ibv_sge sge, const Buffer* remote = nullptr) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = sge.length > 0 ? 1 : 0;
  if (remote != nullptr) {
    wr.wr.rdma.remote_addr = remote->sge(0).addr;
    wr.wr.rdma.rkey = remote->region->rkey;
  }
  checked(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

void post_receive(ibv_qp* qp, ibv_sge sge) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = sge.length > 0 ? 1 : 0;
  checked(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

struct Pair {
  Cq cq;
  Qp one, other;

  explicit Pair(const Loopback& device)
      : cq(device.cq(16)), one(device.qp(cq.get(), 4)), other(device.qp(cq.get(), 4)) {
    to_init(one.get());
    to_init(other.get());
  }
  void join(const Loopback& device) {
    limits::join(device, one.get(), other->qp_num);
    limits::join(device, other.get(), one->qp_num);
  }
  void exchange() {
    post_receive(other.get(), {});
    post_receive(one.get(), {});
    post(one.get(), IBV_WR_SEND, {});
    post(other.get(), IBV_WR_SEND, {});
    for (int i = 0; i < 4; ++i) next(cq.get());
  }
};

// --- large: one message of so many octets, by Send, Write and Read ---

void large(std::uint32_t octets) {
  const Loopback device;
  ibv_port_attr port{};
  checked(ibv_query_port(device.verbs.get(), 1, &port), "ibv_query_port");
  must(octets <= port.max_msg_sz, "max_msg_sz is less than that");
  Buffer source(device, octets), target(device, octets);
  Pair pair(device);
  pair.join(device);
  const auto transfer = [&](const char* name, std::uint64_t seed, ibv_wr_opcode opcode, int completions) {
    // A Read fetches what the other end has: then source and target change places.
    const bool reads = opcode == IBV_WR_RDMA_READ;
    Buffer& from = reads ? target : source;
    Buffer& to = reads ? source : target;
    from.fill(seed);
    if (opcode == IBV_WR_SEND) post_receive(pair.other.get(), to.sge(octets));
    const auto began = Clock::now();
    post(pair.one.get(), opcode, source.sge(octets), opcode == IBV_WR_SEND ? nullptr : &target);
    for (int i = 0; i < completions; ++i) {
      const ibv_wc wc = next(pair.cq.get());
      must((wc.opcode != IBV_WC_RECV && wc.opcode != IBV_WC_RDMA_READ) || wc.byte_len == octets, "a wrong byte_len");
    }
    const double ms = ms_since(began);
    if (opcode == IBV_WR_RDMA_WRITE) pair.exchange();  // complete before it is placed; what comes after it is not
    must(to.holds(seed), std::string(name) + ": what arrived is not what was sent");
    std::printf("%s of %u octets: %.0f ms\n", name, octets, ms);
  };
  transfer("Send", 1, IBV_WR_SEND, 2);
  transfer("Write", 2, IBV_WR_RDMA_WRITE, 1);
  transfer("Read", 3, IBV_WR_RDMA_READ, 1);
}

// --- completions: the largest completion queue ---

// Receives of a queue pair in ERR come back at once: completions without end, without a peer.
struct Source {
  Source(const Loopback& device, ibv_cq* cq) : qp(device.qp(cq, 1024)), list(1024) {
    to_init(qp.get());
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_ERR;
    checked(ibv_modify_qp(qp.get(), &a, IBV_QP_STATE), "to ERR");
  }
  void make(std::uint64_t count) {
    while (count > 0) {
      const std::size_t n = std::min<std::uint64_t>(count, list.size());
      for (std::size_t i = 0; i < n; ++i) {
        list[i].wr_id = made + i;
        list[i].next = i + 1 < n ? &list[i + 1] : nullptr;
      }
      const std::size_t posted = post(n);
      made += posted;
      count -= posted;
    }
  }
  // How many of the first n of the list. A full queue has room again when somebody has flushed it, which on a busy
  // machine may take a moment.
  std::size_t post(std::size_t n) {
    const auto until = Clock::now() + kPatience;
    for (;;) {
      ibv_recv_wr* bad = nullptr;
      const int error = ibv_post_recv(qp.get(), list.data(), &bad);
      if (error == 0) return n;
      if (error != ENOMEM || Clock::now() > until) checked(error, "ibv_post_recv");
      if (bad != list.data()) return static_cast<std::size_t>(bad - list.data());
      std::this_thread::yield();
    }
  }
  Qp qp;
  std::vector<ibv_recv_wr> list;
  std::uint64_t made = 0;
};

// The last ones may be flushed a moment after they were posted, as in Source::post().
std::uint64_t take(ibv_cq* cq, std::uint64_t first, std::uint64_t count) {
  std::vector<ibv_wc> wc(256);
  auto until = Clock::now() + kPatience;
  for (const std::uint64_t end = first + count; first < end;) {
    const int n = ibv_poll_cq(cq, static_cast<int>(std::min<std::uint64_t>(wc.size(), end - first)), wc.data());
    must(n > 0 || (n == 0 && Clock::now() < until), "completions are missing");
    if (n == 0) {
      std::this_thread::yield();
      continue;
    }
    until = Clock::now() + kPatience;
    for (int i = 0; i < n; ++i)
      must(wc[static_cast<std::size_t>(i)].wr_id == first++, "a completion is missing or out of order");
  }
  return first;
}

void completions() {
  const Loopback device;
  ibv_device_attr about{};
  checked(ibv_query_device(device.verbs.get(), &about), "ibv_query_device");
  const auto largest = static_cast<std::uint64_t>(about.max_cqe);
  std::printf("max_cqe %ju\n", static_cast<std::uintmax_t>(largest));
  must(ibv_create_cq(device.verbs.get(), about.max_cqe + 1, nullptr, nullptr, 0) == nullptr, "one more than max_cqe");
  const long before = resident_kib();
  const Cq cq = device.cq(about.max_cqe);
  std::printf("created: rss_kib %ld\n", resident_kib() - before);
  Source source(device, cq.get());
  std::uint64_t taken = 0;
  auto began = Clock::now();
  source.make(1'000'000);
  std::printf("filled with 1000000 in %.0f ms: rss_kib %ld\n", ms_since(began), resident_kib() - before);
  taken = take(cq.get(), taken, 100'000);
  must(ibv_resize_cq(cq.get(), 899'999) == EINVAL, "a resize to less than what is there");
  must(ibv_resize_cq(cq.get(), about.max_cqe + 1) == EINVAL, "a resize to more than max_cqe");
  checked(ibv_resize_cq(cq.get(), 900'000), "ibv_resize_cq to what is there");
  std::printf("resized to 900000: rss_kib %ld\n", resident_kib() - before);
  checked(ibv_resize_cq(cq.get(), about.max_cqe), "ibv_resize_cq to max_cqe");
  taken = take(cq.get(), taken, 900'000);
  began = Clock::now();
  source.make(largest);
  std::printf("filled with %ju in %.0f ms: rss_kib %ld\n", static_cast<std::uintmax_t>(largest), ms_since(began),
              resident_kib() - before);
  source.make(1);  // one too many
  ibv_async_event event{};
  checked(ibv_get_async_event(device.verbs.get(), &event), "ibv_get_async_event");
  must(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq.get(), "an overflow without CQ_ERR");
  ibv_ack_async_event(&event);
  began = Clock::now();
  taken = take(cq.get(), taken, largest);
  std::printf("taken in %.0f ms\n", ms_since(began));
  ibv_wc wc{};
  must(ibv_poll_cq(cq.get(), 1, &wc) < 0, "polling an overflowed queue does not fail");
}

// --- pairs: so many queue pairs, twice, joined by address ---

void pairs(std::uint32_t count) {
  const Loopback device;
  const long before = resident_kib();
  std::vector<Pair> all;
  all.reserve(count);
  const auto step = [&](const char* name, auto&& what) {
    const Stopwatch watch;
    for (std::uint32_t i = 0; i < count; ++i) what(i);
    watch.say(name, 2.0 * count, "QP");
    std::printf("%s: rss_kib_per_qp %.1f\n", name, static_cast<double>(resident_kib() - before) / (2.0 * count));
  };
  step("created", [&](std::uint32_t) { all.emplace_back(device); });
  step("told their peers", [&](std::uint32_t i) { all[i].join(device); });
  step("exchanged a message", [&](std::uint32_t i) { all[i].exchange(); });
  step("again", [&](std::uint32_t i) { all[i].exchange(); });
  step("destroyed", [&](std::uint32_t) { all.pop_back(); });
}

// --- turnover: one pair after the other, each `period` ---

void turnover(std::uint64_t count, std::chrono::milliseconds period) {
  const Loopback device;
  const auto began = Clock::now();
  for (std::uint64_t i = 1; i <= count; ++i) {
    std::this_thread::sleep_until(began + i * period);
    Pair pair(device);
    pair.join(device);
    pair.exchange();
    if (i == 10 || i == 200 || i == count) report_possessions(i);
  }
}

}  // namespace
}  // namespace limits

int main(int count, char** words) try {
  using namespace limits;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<std::string> arguments(words + 1, words + count);
  const auto number = [&](std::size_t i) { return static_cast<std::uint32_t>(std::stoul(arguments.at(i))); };
  const std::map<std::string, std::function<void()>> roles = {
      {"large", [&] { large(number(1)); }},
      {"completions", completions},
      {"pairs", [&] { pairs(number(1)); }},
      {"turnover", [&] { turnover(number(1), std::chrono::milliseconds(number(2))); }},
      {"many-server", [&] { many_server(arguments.at(1).c_str(), number(2), number(3)); }},
      {"many-client", [&] { many_client(arguments.at(1).c_str(), number(2), number(3)); }},
  };
  roles.at(arguments.at(0))();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "ewarp_limits: %s\n", e.what());
  return 1;
}
