// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that share everything, a peer in another process, and one that is killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/llp/failing_threads.h"
#include "tests/llp/signal_mask.h"
#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

// Each thread sends to, and receives from, its partner in the other endpoint; completions are everybody's.
void many_threads_one_endpoint(void**) {
  Pair p;
  constexpr unsigned kThreads = 4, kRounds = 200;
  std::atomic<unsigned> completed{0};
  std::atomic<bool> failed{false};
  const auto drain = [&](fid_cq* queue) {
    fi_cq_tagged_entry entries[8];
    const long n = fi_cq_read(queue, entries, 8);
    for (long i = 0; i < n; ++i) {
      static_cast<std::atomic<bool>*>(entries[i].op_context)->store(true);
      completed.fetch_add(1);
    }
    if (n < 0 && n != -FI_EAGAIN) failed.store(true);
  };
  const auto run = [&](Side& side, fi_addr_t other, unsigned id) {
    for (unsigned round = 0; round < kRounds && !failed.load(); ++round) {
      const std::size_t size = kSizes[(round + id) % 6];
      const Bytes out = pattern(id * 1000 + round, size);
      Bytes in(size);
      std::atomic<bool> sent{false}, received{false};
      if (fi_trecv(side.ep, in.data(), size, nullptr, other, id, 0, &received) != 0) failed.store(true);
      if (fi_tsend(side.ep, out.data(), size, nullptr, other, id, &sent) != 0) failed.store(true);
      while (!(sent.load() && received.load()) && !failed.load()) {
        drain(side.send_queue);
        drain(side.receive_queue);
      }
      if (in != out) failed.store(true);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] { run(p.a, p.to_b, id); });
    threads.emplace_back([&, id] { run(p.b, p.to_a, id); });
  }
  for (std::thread& t : threads) t.join();
  assert_false(failed.load());
  assert_int_equal(completed.load(), 4 * kThreads * kRounds);
}

// Entries outlive their endpoint. It cannot be asked any more whom they came from: a thread that polls for its counters
// finds messages until the end.
void an_endpoint_closes_while_messages_come(void**) {
  constexpr int kReceives = 5000;
  for (int round = 0; round < 10; ++round) {
    Pair p({.counters = true});
    std::uint64_t in = 0;
    for (int i = 0; i < kReceives; ++i) MUST(fi_trecv(p.b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
    std::atomic<bool> ended{false};
    std::thread sender([&] {
      const std::uint64_t word = 7;
      for (int sent = 0; sent < kReceives && !ended.load();) {
        if (fi_tinject(p.a.ep, &word, 8, p.to_b, 5) == 0)
          ++sent;
        else
          fi_cq_read(p.a.send_queue, nullptr, 0);
      }
    });
    std::thread poller([&] {
      while (!ended.load())
        for (fid_cntr* c : {p.b.sends, p.b.receives, p.b.reads, p.b.writes}) fi_cntr_read(c);
    });
    fi_cq_tagged_entry entry{};
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    assert_int_equal(fi_cq_sreadfrom(p.b.receive_queue, &entry, 1, &source, nullptr, kPatienceMs), 1);
    assert_int_equal(source, p.to_a);
    assert_int_equal(fi_close(&p.b.ep->fid), 0);
    p.b.ep = nullptr;
    ended.store(true);
    sender.join();
    poller.join();
    while (fi_cq_readfrom(p.b.receive_queue, &entry, 1, &source) == 1) assert_true(source == FI_ADDR_NOTAVAIL);
  }
}

// It is closed while another thread asks it who the senders of many entries are, which are in no address vector.
void an_endpoint_closes_under_a_reader(void**) {
  constexpr std::size_t kCount = 30'000;
  Side a, b({.counters = true}, &a);
  const fi_addr_t to_b = a.insert(b);
  std::uint64_t word = 7, in = 0;
  for (std::size_t i = 0; i < kCount; ++i) MUST(fi_trecv(b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
  for (std::size_t i = 0; i < kCount; ++i)
    while (fi_tinject(a.ep, &word, 8, to_b, 5) == -FI_EAGAIN) fi_cq_read(a.send_queue, nullptr, 0);
  MUST(fi_cntr_wait(b.receives, kCount, kPatienceMs));
  std::vector<fi_cq_tagged_entry> entries(kCount);
  std::vector<fi_addr_t> sources(kCount);
  long n = 0;
  std::thread reader([&] { n = fi_cq_readfrom(b.receive_queue, entries.data(), kCount, sources.data()); });
  fid* queue = &b.receive_queue->fid;
  while (fi_trywait(b.fabric, &queue, 1) == -FI_EAGAIN) {
  }
  assert_int_equal(fi_close(&b.ep->fid), 0);
  b.ep = nullptr;
  reader.join();
  assert_int_equal(n, kCount);
  for (const fi_addr_t source : sources) assert_true(source == FI_ADDR_NOTAVAIL);
}

// The child is a new program by exec, as the provider's threads do not survive a fork.
struct Child {
  explicit Child(const Side& side) {
    int to_child[2], to_parent[2];
    MUST(pipe(to_child));
    MUST(pipe(to_parent));
    const std::string reads = std::to_string(to_child[0]), writes = std::to_string(to_parent[1]);
    pid = fork();
    if (pid == 0) {
      execl("/proc/self/exe", "ewarp_ofi_test", "--echo", reads.c_str(), writes.c_str(), nullptr);
      _exit(127);
    }
    const auto mine = side.name();
    assert_int_equal(write(to_child[1], mine.data(), mine.size()), mine.size());
    name.resize(mine.size());
    assert_int_equal(read(to_parent[0], name.data(), name.size()), name.size());
    for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
  }
  pid_t pid;
  Bytes name;
};

void a_peer_in_another_process(void**) {
  Side side;
  const Child child(side);
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  assert_int_equal(fi_av_insert(side.addresses, child.name.data(), 1, &peer, 0, nullptr), 1);
  for (const std::size_t size : kSizes) {
    const Bytes out = pattern(8, size);
    Bytes in(size);
    MUST(fi_trecv(side.ep, in.data(), size, nullptr, peer, 2, 0, nullptr));
    MUST(fi_tsenddata(side.ep, out.data(), size, nullptr, size, peer, 1, nullptr));
    side.sent();
    assert_int_equal(side.received().data, size);
    assert_true(in == out);
  }
  // Killed, it ends what names it, and nothing else.
  std::uint64_t word = 0, other = 0;
  MUST(fi_trecv(side.ep, &other, 8, nullptr, FI_ADDR_UNSPEC, 3, 0, &other));
  MUST(fi_trecv(side.ep, &word, 8, nullptr, peer, 3, 0, &word));
  MUST(kill(child.pid, SIGKILL));
  const fi_cq_err_entry e = side.failure(side.receive_queue);
  assert_ptr_equal(e.op_context, &word);
  assert_int_equal(e.err, FI_ECONNRESET);
  MUST(fi_tsend(side.ep, &word, 8, nullptr, peer, 3, &word));
  assert_ptr_equal(side.failure(side.send_queue).op_context, &word);
  assert_true(side.quiet(side.receive_queue));
  const fi_addr_t self = side.insert(side);
  MUST(fi_tinject(side.ep, &word, 8, self, 3));
  assert_ptr_equal(side.received().op_context, &other);
  assert_int_equal(waitpid(child.pid, nullptr, 0), child.pid);
}

// An error, and nothing of it is left: no signals blocked, nobody who waits for ever.
void without_threads_there_is_no_endpoint(void**) {
  const Side side;  // the adapter's own threads run
  const sigset_t before = ewarp::test::mask_now();
  fid_ep* ep = nullptr;
  {
    const ewarp::test::NoThreads none;
    assert_true(fi_endpoint(side.domain, side.info, &ep, nullptr) < 0);
  }
  assert_true(ewarp::test::same(ewarp::test::mask_now(), before));
  MUST(fi_endpoint(side.domain, side.info, &ep, nullptr));
  assert_int_equal(fi_close(&ep->fid), 0);
}

}  // namespace

// Sends back what comes, with its data; until it is killed.
int echo(int reads, int writes) {
  Side side;
  const auto mine = side.name();
  Bytes name(mine.size());
  if (read(reads, name.data(), name.size()) != static_cast<long>(name.size())) return 1;
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(side.addresses, name.data(), 1, &peer, 0, nullptr) != 1) return 1;
  if (write(writes, mine.data(), mine.size()) != static_cast<long>(mine.size())) return 1;
  Bytes buffer(1 << 20);
  for (;;) {
    MUST(fi_trecv(side.ep, buffer.data(), buffer.size(), nullptr, peer, 1, 0, nullptr));
    const fi_cq_tagged_entry got = side.received();
    MUST(fi_tsenddata(side.ep, buffer.data(), got.len, nullptr, got.data, peer, 2, nullptr));
    side.sent();
  }
}

std::vector<CMUnitTest> thread_tests() {
  return {cmocka_unit_test(many_threads_one_endpoint), cmocka_unit_test(an_endpoint_closes_while_messages_come),
          cmocka_unit_test(an_endpoint_closes_under_a_reader), cmocka_unit_test(a_peer_in_another_process),
          cmocka_unit_test(without_threads_there_is_no_endpoint)};
}

}  // namespace ewarp::ofi::test
