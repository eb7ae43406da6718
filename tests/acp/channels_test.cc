// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The ends of a process on a transport that does nothing until it is told: what becomes of them, and of those of
// others, when one is lost while the other process lives.
#include "mpi_shim/acp/channels.h"
#include "tests/llp/no_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <vector>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::acp::test {
namespace {

class Recorder final : public Transport {
 public:
  bool register_memory(void* memory, std::size_t, Registration* out) override {
    *out = {memory, 1, 2};
    return true;
  }
  void deregister(void*) override {}
  Registration registration(void* handle) const override { return {handle, 1, 2}; }
  void introduce(Contact*) const override {}
  bool fits(const Contact&) const override { return true; }
  std::uint32_t room() const override { return kSends - static_cast<std::uint32_t>(posts.size()); }
  void post(Peer&, const Post& p) override { posts.push_back(p); }
  std::uint32_t most_copied() const override { return 0; }
  int poll(Completion*, int) override { return 0; }
  int descriptor() const override { return -1; }
  void arm() override {}
  void drain() override {}

  std::vector<Post> posts;
};

// Rank 0 of three.
struct Ranks final : Channels::Listener {
  Ranks() : area(static_cast<Area*>(std::calloc(1, sizeof(Area))), &std::free) {
    channels = std::make_unique<Channels>(path, *area, Options{}, *this);
  }
  void lost(std::uint32_t rank) override { told.push_back(rank); }
  std::uint64_t create(int sender, int receiver) {
    const std::uint64_t channel = channels->create(sender, receiver);
    channels->advance(0);
    return channel;
  }
  Request& begin(std::uint64_t channel, Kind kind) {
    Request* r = channels->begin(channel, kind, kind == Kind::free ? nullptr : octets, kind == Kind::free ? 0 : 8);
    assert_non_null(r);
    channels->advance(0);
    return *r;
  }
  // All that was posted to this rank.
  void end_posts(std::uint32_t rank, int error) {
    for (;;) {
      const auto found =
          std::find_if(transport.posts.begin(), transport.posts.end(), [&](const Post& p) { return p.peer == rank; });
      if (found == transport.posts.end()) return;
      const Completion c{.id = found->id, .error = error, .notice = false, .immediate = 0};
      transport.posts.erase(found);
      channels->completed(c, 0);
      channels->advance(0);
    }
  }
  void part(std::uint32_t rank) {
    channels->part(rank);
    channels->advance(0);
  }
  void gone(std::uint32_t rank) {
    peers[rank].gone = true;
    channels->gone(rank);
    channels->advance(0);
  }

  std::byte octets[8] = {};
  Recorder transport;
  PeerTable peers{3};
  Path path{transport, peers, 0};
  std::unique_ptr<Area, void (*)(void*)> area;
  std::unique_ptr<Channels> channels;
  std::vector<std::uint32_t> told;
};

void failed(const Request& r, int error) {
  assert_true(r.done);
  assert_int_equal(r.error, error);
}

// The number of an end.
std::uint32_t number(std::uint64_t channel) {
  return static_cast<std::uint32_t>(channel);
}

// The job hears of it, once; when both have been told, all channels of the two end, and no others.
void a_lost_end_is_told(void**) {
  Ranks ranks;
  const std::uint64_t out = ranks.create(0, 1), in = ranks.create(1, 0), other = ranks.create(2, 0);
  const Request &send = ranks.begin(out, Kind::send), &receive = ranks.begin(in, Kind::receive),
                &elsewhere = ranks.begin(other, Kind::receive);
  assert_true(ranks.told.empty());
  ranks.end_posts(1, EIO);
  failed(send, EIO);
  assert_true(ranks.told == std::vector<std::uint32_t>{1});
  assert_false(receive.done);  // what it has sent may be on its way
  errno = 0;
  assert_int_equal(ranks.create(0, 1), 0);
  assert_int_equal(errno, ECONNRESET);
  ranks.part(1);
  failed(receive, ECONNRESET);
  assert_false(elsewhere.done);
  ranks.part(1);  // once more changes nothing
  failed(ranks.begin(in, Kind::receive), ECONNRESET);
  assert_int_equal(ranks.create(1, 0), 0);
  assert_true(ranks.create(0, 2) != 0);
  assert_int_equal(ranks.told.size(), 1);
}

// Here nothing was lost: the other one has told of it.
void the_other_one_has_lost_its_end(void**) {
  Ranks ranks;
  const std::uint64_t in = ranks.create(1, 0);
  const Request& receive = ranks.begin(in, Kind::receive);
  ranks.part(1);
  failed(receive, ECONNRESET);
  assert_true(ranks.told.empty());
}

// The peer's posts may name it until it is gone, so no other end gets its number.
void the_number_of_a_lost_end_is_kept(void**) {
  Ranks ranks;
  const std::uint64_t out = ranks.create(0, 1);
  ranks.end_posts(1, ECONNRESET);
  ranks.part(1);
  failed(ranks.begin(out, Kind::free), ECONNRESET);
  const std::uint64_t next = ranks.create(0, 2);
  assert_true(next != 0 && number(next) != number(out));
  ranks.gone(1);
  assert_int_equal(number(ranks.create(0, 2)), number(out));
}

void of_a_process_that_is_gone_nobody_is_told(void**) {
  Ranks ranks;
  const Request& send = ranks.begin(ranks.create(0, 1), Kind::send);
  ranks.gone(1);
  failed(send, ECONNRESET);
  ranks.end_posts(1, ECONNRESET);
  assert_true(ranks.told.empty());
}

// It is told of a slot that this end has no room for.
void who_breaks_the_protocol_is_told_of(void**) {
  Ranks ranks;
  const std::uint64_t in = ranks.create(1, 0);
  const Request& receive = ranks.begin(in, Kind::receive);
  for (std::uint32_t i = 0; i <= Options{}.rb_slots; ++i)
    ranks.channels->noticed({.notice = Notice::slot, .end = number(in) - 1, .count = 0});
  ranks.channels->advance(0);
  assert_true(receive.done);
  assert_true(ranks.told == std::vector<std::uint32_t>{1});
}

// It is told of once: what finds no memory then is looked at again.
void a_request_without_memory_is_answered_later(void**) {
  constexpr std::uint32_t kEntry = 3;
  Ranks ranks;
  ranks.create(1, 0);
  ConnectRequest& request = ranks.area->requests[kEntry];
  request.owner = 1 + 1;
  request.rank = 1;
  request.slot_size = Options{}.slot_size;
  request.mode = static_cast<std::uint32_t>(Mode::immediate);
  assert_false(ewarp::test::lacks_memory(0, [&] {
    ranks.channels->noticed({.notice = Notice::request, .end = kEntry, .count = 0});
    ranks.channels->advance(0);
  }));
  assert_true(ranks.channels->restless() && ranks.transport.posts.empty());
  assert_int_equal(request.owner, 2);
  for (int i = 0; i < 2; ++i) ranks.channels->advance(0);
  assert_int_equal(request.owner, 0);
  assert_int_equal(ranks.transport.posts.size(), 1);
  assert_int_equal(ranks.channels->strange_notices(), 0);
}

}  // namespace
}  // namespace ewarp::acp::test

int main() {
  using namespace ewarp::acp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_lost_end_is_told),
      cmocka_unit_test(the_other_one_has_lost_its_end),
      cmocka_unit_test(the_number_of_a_lost_end_is_kept),
      cmocka_unit_test(of_a_process_that_is_gone_nobody_is_told),
      cmocka_unit_test(who_breaks_the_protocol_is_told_of),
      cmocka_unit_test(a_request_without_memory_is_answered_later),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
