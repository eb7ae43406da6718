// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>

#include "tests/wire/scene.h"

#include <netinet/tcp.h>

#include "tests/llp/tcp_pair.h"

namespace ewarp::wire {
namespace {

mpa::StreamParams stream_params(const Setup& s) {
  mpa::StreamParams p;
  p.initiator = s.initiator;
  p.crc = s.crc;
  p.tx_markers = s.tx_markers;
  p.rx_markers = s.rx_markers;
  p.extensions = s.extensions;
  p.enhanced = p.peer_to_peer = s.peer_to_peer;
  p.rtr = s.rtr;
  p.ird = s.ird;
  p.ord = s.ord;
  return p;
}

}  // namespace

bool over_rings() {
  const char* stream = std::getenv("EWARP_TEST_STREAM");
  return stream != nullptr && std::string(stream) == "local";
}

std::string name_of(const Setup& s) {
  return std::string(s.initiator ? "initiator" : "responder") + (s.crc ? ", CRC" : ", no CRC");
}

void tcp_pair(int (&fds)[2], int mss) {
  test::tcp_pair(fds, [mss](int fd) {
    if (mss != 0) assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss), 0);
  });
  const int on = 1;
  for (const int fd : fds) assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
}

// Through rings in shared memory, where the environment says so and the scene is not about TCP.
Scene::Scene(const Setup& s, std::size_t buffer) : side(buffer), other_pd(side.context), setup(s) {
  int fds[2];
  std::unique_ptr<llp::Stream> ours;
  std::unique_ptr<PeerEnd> theirs;
  if (s.tcp) {
    tcp_pair(fds, s.mss);
  } else if (over_rings()) {
    llp::LocalMemory made, taken;
    int memory = -1;
    assert_int_equal(llp::LocalMemory::create(&made, &memory), 0);
    assert_int_equal(llp::LocalMemory::adopt(memory, &taken), 0);
    close(memory);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    ours = llp::local_stream(fds[0], std::move(taken), false, "peer");
    theirs = ring_end(fds[1], std::move(made));
  } else {
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  }
  if (ours == nullptr) {
    ours = llp::tcp_stream(fds[0]);
    theirs = socket_end(fds[1]);
  }
  peer = std::make_unique<Peer>(std::move(theirs), s.crc, s.rx_markers, s.tx_markers);
  peer->consenting = s.extensions;
  assert_int_equal(side.qp->attach(std::move(ours), stream_params(s), side.observer), 0);
}

void Scene::open_responder() {
  if (!setup.initiator) peer->send(write_segment(0, 0, {}));
}

MemoryRegion* Scene::region(Pd& pd, std::size_t offset, std::size_t octets, unsigned access, std::uint64_t iova) {
  MemoryRegion* r = nullptr;
  assert_int_equal(memory().add(pd, side.at(offset), octets, iova, access, &r), 0);
  regions.emplace_back(r, [](MemoryRegion* m) { memory().remove(m); });
  return r;
}

void Scene::expect_completions(const std::string& what, const Ended& want) {
  Ended got[2], expected[2];
  for (const auto& e : want) expected[e.first >= 100].push_back(e);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const ibv_wc wc = side.wait();
    if (wc.status == test::kNothing) fail_msg("%s: %zu completions of %zu", what.c_str(), i, want.size());
    if (wc.qp_num != side.qp->number()) fail_msg("%s: completion of QP %u", what.c_str(), wc.qp_num);
    got[wc.wr_id >= 100].emplace_back(wc.wr_id, wc.status);
  }
  for (const int queue : {0, 1})
    for (std::size_t i = 0; i < std::max(got[queue].size(), expected[queue].size()); ++i) {
      if (i >= got[queue].size() || i >= expected[queue].size())
        fail_msg("%s: %zu completions on queue %d, not %zu", what.c_str(), got[queue].size(), queue,
                 expected[queue].size());
      if (got[queue][i] != expected[queue][i])
        fail_msg("%s: completion of %lu with status %d, want %lu with %d", what.c_str(), got[queue][i].first,
                 got[queue][i].second, expected[queue][i].first, expected[queue][i].second);
    }
  ibv_wc more;
  if (side.cq.poll(1, &more) != 0)
    fail_msg("%s: one completion too many, %lu with status %d", what.c_str(), more.wr_id, more.status);
}

void Scene::expect_event(const std::string& what, ibv_event_type type) {
  const int got = side.event();
  if (got != type) fail_msg("%s: event %d, want %d", what.c_str(), got, type);
}

void Scene::expect_no_event(const std::string& what) {
  const int got = side.event(0);
  if (got != -1) fail_msg("%s: event %d, want none", what.c_str(), got);
}

void Scene::expect_ended(const std::string& what) {
  EXPECT(what, side.reaches(IBV_QPS_ERR));
  EXPECT(what, side.disconnects());
}

}  // namespace ewarp::wire
