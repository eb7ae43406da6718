// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory regions: registration, every verdict, and memory that its owner takes away.
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

std::size_t page() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Pages of its own, which can be taken away.
struct Pages {
  explicit Pages(std::size_t octets, int protection = PROT_READ | PROT_WRITE)
      : size(octets),
        at(static_cast<std::byte*>(mmap(nullptr, octets, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    assert_true(at != MAP_FAILED);
  }
  ~Pages() { unmap(); }
  // Nothing can come to lie there: the addresses stay taken, and cannot be touched.
  void take_away() {
    assert_true(mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at);
  }
  void unmap() {
    if (at != nullptr) munmap(at, size);
    at = nullptr;
  }
  std::uint64_t address(std::size_t offset = 0) const { return reinterpret_cast<std::uint64_t>(at) + offset; }
  std::size_t size;
  std::byte* at;
};

struct World {
  Context context{test::any_device(), nullptr};
  Pd pd{context}, other{context};
};

MemoryRegion* add(Pd& pd, Pages& p, unsigned access, std::uint64_t iova) {
  MemoryRegion* mr = nullptr;
  assert_int_equal(memory().add(pd, p.at, p.size, iova, access, &mr), 0);
  return mr;
}

// Holds: VRB-21, VRB-23
// What may not be registered.
void registration_refuses(void**) {
  World w;
  Pages p(4 * page()), fixed(page(), PROT_READ), gone(page()), hole(3 * page());
  gone.take_away();
  munmap(hole.at + page(), page());
  const struct {
    const char* what;
    void* at;
    std::size_t octets;
    std::uint64_t iova;
    unsigned access;
    int error;
  } kCases[] = {
      {"good", p.at, p.size, 0, kAll, 0},
      {"in the middle of pages", p.at + 5, 11, 0, kAll, 0},
      {"no right at all", p.at, p.size, 0, 0, 0},
      {"read-only memory, to be read", fixed.at, page(), 0, IBV_ACCESS_REMOTE_READ, 0},
      {"nothing", p.at, 0, 0, kAll, 0},
      {"remote write without local", p.at, p.size, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL},
      {"remote atomic without local", p.at, p.size, 0, IBV_ACCESS_REMOTE_ATOMIC, EINVAL},
      {"flag that does not exist", p.at, p.size, 0, kAll | 1u << 15, EINVAL},
      {"optional flag that does not exist", p.at, p.size, 0, kAll | 1u << 25, 0},
      {"address wraps", p.at, SIZE_MAX, 0, kAll, EINVAL},
      {"iova wraps", p.at, p.size, UINT64_MAX - 10, kAll, EINVAL},
      {"not accessible", gone.at, page(), 0, kAll, EFAULT},
      {"null", nullptr, page(), 0, kAll, EFAULT},
      {"hole", hole.at, 3 * page(), 0, kAll, EFAULT},
      {"read-only memory, to be written", fixed.at, page(), 0, IBV_ACCESS_LOCAL_WRITE, EFAULT},
      {"behind the end", p.at, 1u << 30, 0, kAll, EFAULT},
  };
  // A thread that blocks all signals could not recover from touching the pages.
  sigset_t all, before;
  sigfillset(&all);
  for (const bool blocked : {false, true}) {
    if (blocked) pthread_sigmask(SIG_SETMASK, &all, &before);
    for (const auto& c : kCases) {
      MemoryRegion* mr = nullptr;
      const int rc = memory().add(w.pd, c.at, c.octets, c.iova, c.access, &mr);
      if (rc != c.error && !(c.error == EINVAL && rc == EFAULT)) fail_msg("%s: %d", c.what, rc);
      assert_int_equal(mr != nullptr, rc == 0);
      assert_int_equal(w.pd.users, rc == 0);
      if (mr != nullptr) memory().remove(mr);
      assert_int_equal(w.pd.users, 0);
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Memory on demand: nothing is looked at before it is used.
void memory_on_demand(void**) {
  World w;
  Pages p(4 * page());
  MemoryRegion* mr = nullptr;
  p.take_away();
  assert_int_equal(memory().add(w.pd, p.at, p.size, p.address(), kAll | IBV_ACCESS_ON_DEMAND, &mr), 0);
  llp::Extent extent;
  const auto reach = [&](std::uint64_t address, std::uint64_t octets, unsigned need) {
    return memory().resolve(mr->stag(), w.pd, address, octets, need, &extent);
  };
  assert_true(reach(p.address(), p.size + 1, 0) == Verdict::bounds);
  assert_true(reach(p.address(), p.size, IBV_ACCESS_REMOTE_WRITE) == Verdict::ok);
  extent.length = 1;
  std::byte octet{7};
  assert_false(copy_in(extent, &octet));
  assert_int_equal(mprotect(p.at, p.size, PROT_READ | PROT_WRITE), 0);
  assert_true(copy_in(extent, &octet));
  assert_true(p.at[0] == octet);
  memory().remove(mr);
  // All there is.
  assert_int_equal(memory().add(w.pd, nullptr, SIZE_MAX, 0, kAll, &mr), EFAULT);
  assert_int_equal(memory().add(w.pd, nullptr, SIZE_MAX, 0, IBV_ACCESS_ON_DEMAND, &mr), 0);
  assert_true(reach(p.address(1), 100, 0) == Verdict::ok && extent.address == p.at + 1);
  assert_true(reach(0, 1, 0) == Verdict::ok && !copy_out(&octet, extent));
  assert_true(reach(UINT64_MAX - 1, 1, 0) == Verdict::ok);
  assert_true(reach(p.address(), 1, IBV_ACCESS_LOCAL_WRITE) == Verdict::access);
  assert_true(reach(p.address(), 1, IBV_ACCESS_REMOTE_READ) == Verdict::access);
  memory().remove(mr);
}

std::size_t present(const Pages& p) {
  std::vector<unsigned char> pages(p.size / page());
  assert_int_equal(mincore(p.at, p.size, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char c) { return (c & 1) != 0; }));
}

void prefetch_brings_memory_in(void**) {
  World w;
  Pages p(8 * page()), fixed(page(), PROT_READ), gone(page());
  MemoryRegion* mr = nullptr;
  assert_int_equal(memory().add(w.pd, p.at, p.size, p.address(), kAll | IBV_ACCESS_ON_DEMAND, &mr), 0);
  const auto prefetch = [&](std::uint64_t address, std::size_t octets, bool writable, bool now) {
    return memory().prefetch(w.pd, mr->stag(), address, octets, writable, now);
  };
  assert_int_equal(present(p), 0);
  assert_int_equal(prefetch(p.address(page() + 5), page(), true, true), 0);
  assert_int_equal(present(p), 2);
  assert_int_equal(prefetch(p.address(), p.size, false, false), 0);
  assert_int_equal(prefetch(p.address(), p.size, true, true), 0);
  assert_int_equal(present(p), 8);
  assert_int_equal(prefetch(p.address(1), p.size, false, true), EFAULT);
  assert_int_equal(memory().prefetch(w.other, mr->stag(), p.address(), 1, false, true), EFAULT);
  assert_int_equal(memory().prefetch(w.pd, mr->stag() ^ 1, p.address(), 1, false, true), EFAULT);
  p.take_away();
  assert_int_equal(prefetch(p.address(), p.size, false, true), EFAULT);
  memory().remove(mr);
  mr = add(w.pd, fixed, 0, fixed.address());
  assert_int_equal(prefetch(fixed.address(), 1, false, true), EINVAL);  // it is not on demand
  assert_int_equal(prefetch(fixed.address(), 1, true, true), EFAULT);
  memory().remove(mr);
}

// Holds: DDP-17, VRB-22, VRB-23
// Each check, at the octet where it changes, in the order of docs/design/ddp.md.
void every_verdict(void**) {
  World w;
  Pages p(4 * page());
  for (const int naming : {0, 1, 2}) {
    const std::uint64_t base = naming == 0 ? p.address() : naming == 1 ? 0x1234'5678'0000 : 0;
    const std::uint64_t n = p.size;
    const unsigned zero = naming == 2 ? unsigned{IBV_ACCESS_ZERO_BASED} : 0u;
    MemoryRegion* all = add(w.pd, p, kAll | zero, base);
    MemoryRegion* dumb = add(w.pd, p, IBV_ACCESS_LOCAL_WRITE | zero, base);
    MemoryRegion* foreign = add(w.other, p, kAll | zero, base);
    const struct {
      const char* what;
      std::uint32_t stag;
      std::uint64_t address, octets;
      unsigned need;
      Verdict want;
    } kCases[] = {
        {"all of it", all->stag(), base, n, IBV_ACCESS_REMOTE_WRITE, Verdict::ok},
        {"first octet", all->stag(), base, 1, 0, Verdict::ok},
        {"last octet", all->stag(), base + n - 1, 1, IBV_ACCESS_LOCAL_WRITE, Verdict::ok},
        {"behind", all->stag(), base + n, 1, 0, Verdict::bounds},
        {"over the end", all->stag(), base + n - 1, 2, 0, Verdict::bounds},
        {"one more", all->stag(), base, n + 1, 0, Verdict::bounds},
        {"before", all->stag(), base - 1, 1, 0, naming == 2 ? Verdict::wrap : Verdict::bounds},
        {"wraps", all->stag(), UINT64_MAX, 2, 0, Verdict::wrap},
        {"wraps far", all->stag(), base + 1, UINT64_MAX - base, 0, Verdict::wrap},
        {"longest", all->stag(), base, UINT64_MAX - base, 0, Verdict::bounds},
        {"another key", all->stag() ^ 1, base, 1, 0, Verdict::invalid_stag},
        {"another index", all->stag() ^ 0x80000000, base, 1, 0, Verdict::invalid_stag},
        {"zero", 0, base, 1, 0, Verdict::invalid_stag},
        {"no right to read", dumb->stag(), base, 1, IBV_ACCESS_REMOTE_READ, Verdict::access},
        {"no right to write", dumb->stag(), base, 1, IBV_ACCESS_REMOTE_WRITE, Verdict::access},
        {"local read is always granted", dumb->stag(), base, 1, 0, Verdict::ok},
        {"other PD", foreign->stag(), base, 1, 0, Verdict::not_associated},
        {"other PD comes before bounds", foreign->stag(), base + n, 1, 0, Verdict::not_associated},
        {"right comes before bounds", dumb->stag(), base + n, 1, IBV_ACCESS_REMOTE_READ, Verdict::access},
    };
    for (const auto& c : kCases) {
      llp::Extent e;
      const Verdict v = memory().resolve(c.stag, w.pd, c.address, c.octets, c.need, &e);
      if (v != c.want) fail_msg("%s, naming %d: %d", c.what, naming, static_cast<int>(v));
      if (v != Verdict::ok) continue;
      assert_ptr_equal(e.address, p.at + (c.address - base));
      assert_int_equal(e.length, c.octets);
    }
    for (MemoryRegion* mr : {all, dumb, foreign}) memory().remove(mr);
  }
}

// Holds: DDP-15
// A key that went out of use does not come back soon, and keys do not count upwards.
void keys_are_random_and_rest(void**) {
  World w;
  Pages p(page());
  std::set<std::uint32_t> seen;
  std::uint32_t last = 0;
  int near = 0;
  for (int i = 0; i < 3000; ++i) {
    MemoryRegion* mr = add(w.pd, p, kAll, p.address());
    const std::uint32_t stag = mr->stag();
    assert_int_not_equal(stag, 0);
    if (!seen.insert(stag).second) fail_msg("key %x came again after %d", stag, i);
    near += stag - last < 0x1000;
    last = stag;
    memory().remove(mr);
    llp::Extent e;
    assert_int_equal(memory().resolve(stag, w.pd, p.address(), 1, 0, &e), Verdict::invalid_stag);
  }
  assert_true(near < 30);
}

void rereg(void**) {
  World w;
  Pages p(4 * page()), q(2 * page()), gone(page());
  gone.take_away();
  llp::Extent e;
  MemoryRegion* mr = add(w.pd, p, kAll, p.address());
  std::uint32_t stag = mr->stag();
  // What fails changes nothing.
  const struct {
    int flags;
    Pd* pd;
    Pages* pages;
    unsigned access;
    int error;
  } kBad[] = {
      {0, nullptr, nullptr, 0, EINVAL},
      {1 << 5, nullptr, nullptr, 0, EINVAL},
      {IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, IBV_ACCESS_REMOTE_WRITE, EINVAL},
      {IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, EINVAL},
      {IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, &gone, 0, EFAULT},
  };
  for (const auto& b : kBad) {
    assert_int_equal(memory().change(mr, b.flags, b.pd, b.pages != nullptr ? b.pages->at : nullptr,
                                     b.pages != nullptr ? b.pages->size : 0, b.access),
                     b.error);
    assert_int_equal(mr->stag(), stag);
    assert_int_equal(memory().resolve(stag, w.pd, p.address(), p.size, kAll, &e), Verdict::ok);
  }
  assert_int_equal(memory().change(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_READ), 0);
  assert_int_equal(memory().resolve(stag, w.pd, p.address(), 1, 0, &e), Verdict::invalid_stag);
  stag = mr->stag();
  assert_int_equal(memory().resolve(stag, w.pd, p.address(), 1, IBV_ACCESS_REMOTE_READ, &e), Verdict::ok);
  assert_int_equal(memory().resolve(stag, w.pd, p.address(), 1, IBV_ACCESS_REMOTE_WRITE, &e), Verdict::access);
  assert_int_equal(memory().change(mr, IBV_REREG_MR_CHANGE_PD, &w.other, nullptr, 0, 0), 0);
  assert_int_equal(w.pd.users, 0);
  assert_int_equal(w.other.users, 1);
  stag = mr->stag();
  assert_int_equal(memory().resolve(stag, w.pd, p.address(), 1, 0, &e), Verdict::not_associated);
  assert_int_equal(memory().resolve(stag, w.other, p.address(), 1, 0, &e), Verdict::ok);
  assert_int_equal(memory().change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, q.at, q.size, 0), 0);
  stag = mr->stag();
  assert_int_equal(memory().resolve(stag, w.other, p.address(), 1, 0, &e), Verdict::bounds);
  assert_int_equal(memory().resolve(stag, w.other, q.address(), q.size, 0, &e), Verdict::ok);
  assert_ptr_equal(e.address, q.at);
  memory().remove(mr);
  assert_int_equal(w.other.users, 0);
}

// Holds: DDP-25
// Two threads use keys while a third deregisters, takes the memory away, and registers anew.
void deregistration_waits_for_its_users(void**) {
  World w;
  std::atomic<std::uint32_t> stag{0};
  std::atomic<std::uint64_t> address{0};
  std::atomic<bool> stop{false};
  std::atomic<unsigned> copies{0};
  const auto use = [&](bool in) {
    std::byte mine[3000] = {};
    for (unsigned n = 0; !stop; ++n) {
      // Where CPUs are few, the thread that removes regions waits for whole slices of these otherwise.
      if (n % 8 == 0) std::this_thread::yield();
      llp::Extent e;
      if (memory().resolve(stag, w.pd, address, sizeof mine, kAll, &e) != Verdict::ok) continue;
      const bool ok = in ? verbs::copy_in(e, mine) : verbs::copy_out(mine, e);
      copies += ok;
    }
  };
  std::thread a(use, true), b(use, false);
  // Each region is to be used before it goes. On a busy machine that takes a slice of the CPU for each.
  const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int i = 0; i < 3000 && (copies <= 100 || std::chrono::steady_clock::now() < enough); ++i) {
    Pages p(2 * page());
    MemoryRegion* mr = add(w.pd, p, kAll, p.address());
    address = p.address();
    stag = mr->stag();
    const unsigned before = copies;
    for (int spins = 0; copies == before && spins < 10000; ++spins) std::this_thread::yield();
    memory().remove(mr);
    // Nobody writes any more: any change would be seen here, and by the sanitizers.
    std::memset(p.at, 0x77, p.size);
    std::this_thread::yield();
    for (std::size_t at = 0; at < p.size; at += 64) assert_int_equal(p.at[at], 0x77);
  }
  stop = true;
  a.join();
  b.join();
  assert_true(copies > 100);
}

// A peer's Send with Invalidate and the owner's own calls meet: the owner's new key survives, no other region is hit.
void invalidation_races_with_the_owner(void**) {
  World w;
  Pages p(page());
  std::atomic<std::uint32_t> stag{0};
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    for (unsigned n = 0; !stop; ++n) {
      memory().invalidate(stag.exchange(0), w.pd, 0, Invalidates::regions_too);
      if (n % 8 == 0) std::this_thread::yield();
    }
  });
  for (int i = 0; i < 20000; ++i) {
    MemoryRegion* mr = add(w.pd, p, kAll, p.address());
    stag = mr->stag();  // the peer may invalidate this one from here on
    assert_int_equal(memory().change(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll), 0);
    const std::uint32_t mine = mr->stag();  // and has never seen this one
    std::this_thread::yield();
    llp::Extent e;
    const Verdict v = memory().resolve(mine, w.pd, p.address(), 1, 0, &e);
    memory().remove(mr);
    if (v != Verdict::ok) {
      stop = true;
      peer.join();
      fail_msg("round %d: the new key was invalidated", i);
    }
  }
  stop = true;
  peer.join();
}

// --- memory that is unmapped while it is registered (design: a protection error, never a crash) ---

struct Gone {
  explicit Gone(const Setup& setup) : s(setup, 65536), pages(256 * 1024) {
    s.open_responder();
    assert_int_equal(memory().add(s.side.pd, pages.at, pages.size, pages.address(), kAll, &mr), 0);
    s.regions.emplace_back(mr, [](MemoryRegion* m) { memory().remove(m); });
    pages.take_away();
  }
  ibv_sge sge(std::uint32_t octets) const { return {pages.address(64), octets, mr->stag()}; }
  Scene s;
  Pages pages;
  MemoryRegion* mr = nullptr;
};

constexpr std::uint32_t kOctets[] = {8, 600, 5000, 60000, 200000};

// The key is right, the memory is not there.
void a_peer_writes_into_memory_that_is_gone(void**) {
  for (const Setup& setup : kSetups)
    for (const std::uint32_t octets : kOctets) {
      if (octets > 65000) continue;
      Gone g(setup);
      const Bytes ulpdu = write_segment(g.mr->stag(), g.pages.address(64), pattern(octets));
      g.s.peer->send(ulpdu);
      g.s.peer->expect(terminate(1, 1, 0, 0xc0, concat({u16(14 + octets), slice(ulpdu, 0, 14)})));
      g.s.peer->expect_fin();
      g.s.expect_event("Write", IBV_EVENT_QP_ACCESS_ERR);
    }
}

void a_peer_reads_memory_that_is_gone(void**) {
  for (const Setup& setup : kSetups)
    for (const std::uint32_t octets : kOctets) {
      Gone g(setup);
      const Bytes ulpdu = read_request(1, 5, 6, octets, g.mr->stag(), g.pages.address(64));
      g.s.peer->send(ulpdu);
      g.s.peer->expect(terminate(0, 1, 1, 0xe0, concat({u16(18 + 28), ulpdu})));
      g.s.peer->expect_fin();
    }
}

void a_receive_buffer_that_is_gone(void**) {
  for (const Setup& setup : kSetups)
    for (const std::uint32_t octets : kOctets) {
      if (octets > 65000) continue;
      Gone g(setup);
      assert_int_equal(g.s.side.receive({g.sge(100000)}), 0);
      const Bytes ulpdu = send_segment(1, pattern(octets));
      g.s.peer->send(ulpdu);
      g.s.peer->expect(terminate(1, 0, 0, 0xc0, concat({u16(18 + octets), slice(ulpdu, 0, 18)})));
      g.s.expect_completions("receive", {{100, IBV_WC_LOC_PROT_ERR}});
    }
}

void a_sink_that_is_gone(void**) {
  for (const Setup& setup : kSetups)
    for (const std::uint32_t octets : kOctets) {
      if (octets > 65000) continue;
      Gone g(setup);
      assert_int_equal(g.s.side.send(IBV_WR_RDMA_READ, {g.sge(octets)}, 0, 1), 0);
      const ReadFields r = dissect_read(g.s.peer->next_segment());
      g.s.peer->send(read_response(r.sink_stag, r.sink_to, pattern(octets)));
      assert_int_equal(g.s.peer->next_segment().opcode, kTerminate);
      g.s.expect_completions("sink", {{1, IBV_WC_LOC_PROT_ERR}});
    }
}

void a_source_that_is_gone(void**) {
  for (const Setup& setup : kSetups)
    for (const auto op : {IBV_WR_SEND, IBV_WR_RDMA_WRITE})
      for (const std::uint32_t octets : kOctets) {
        Gone g(setup);
        assert_int_equal(g.s.side.send(op, {g.sge(octets)}, 0, 1, 0, 1), 0);
        assert_int_equal(g.s.side.send(op, {g.s.side.sge(0, 8)}, 0, 1, 0, 2), 0);
        g.s.peer->discard();
        g.s.expect_completions("source", {{1, IBV_WC_LOC_PROT_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
        g.s.expect_ended("source");
      }
}

// Holds: DDP-25
// A source that is deregistered and unmapped while a long message is under way.
void a_source_that_goes_away(void**) {
  for (const bool crc : {false, true}) {
    for (int round = 0; round < 10; ++round) {
      Scene s(Setup{.initiator = true, .crc = crc, .tcp = true, .extensions = true}, 4096);
      Pages p(24u << 20);
      MemoryRegion* mr = add(s.side.pd, p, kAll, p.address());
      std::memset(p.at, 1, p.size);
      assert_int_equal(
          s.side.send(IBV_WR_RDMA_WRITE, {{p.address(), static_cast<std::uint32_t>(p.size), mr->stag()}}, 0, 1), 0);
      for (int i = 0; i <= round; ++i) s.peer->next();
      // In the first round nobody reads until the source is gone: the sockets hold less than it.
      std::thread reader;
      const auto read_on = [&] { reader = std::thread([&] { s.peer->discard(); }); };
      if (round > 0) read_on();
      memory().remove(mr);
      p.unmap();
      if (round == 0) read_on();
      const ibv_wc wc = s.side.wait();
      if (wc.status == IBV_WC_SUCCESS) s.side.qp->disconnect(true);  // the kernel had it all already
      reader.join();
      if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_LOC_PROT_ERR) fail_msg("status %d", wc.status);
      if (round == 0) assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
    }
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(registration_refuses),
      cmocka_unit_test(memory_on_demand),
      cmocka_unit_test(prefetch_brings_memory_in),
      cmocka_unit_test(every_verdict),
      cmocka_unit_test(keys_are_random_and_rest),
      cmocka_unit_test(rereg),
      cmocka_unit_test(deregistration_waits_for_its_users),
      cmocka_unit_test(invalidation_races_with_the_owner),
      cmocka_unit_test(a_peer_writes_into_memory_that_is_gone),
      cmocka_unit_test(a_peer_reads_memory_that_is_gone),
      cmocka_unit_test(a_receive_buffer_that_is_gone),
      cmocka_unit_test(a_sink_that_is_gone),
      cmocka_unit_test(a_source_that_is_gone),
      cmocka_unit_test(a_source_that_goes_away),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
