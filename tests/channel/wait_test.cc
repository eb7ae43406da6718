// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that wait without a progress thread, and calls that poll or do not, over an adapter in the place of
// libibverbs's and librdmacm's functions on which nothing ever completes: requests end by messages to oneself, which
// raise no event.
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mpi_shim/channel/channel.h"

#undef ibv_query_port
#undef ibv_reg_mr

// cmocka last: its fail() is a macro, which C++ headers do not survive.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace {

std::atomic<int> armed{0}, polled{0};  // so often
std::atomic<int> completion_fd{-1};    // of the one completion channel

ibv_context* adapter() {
  static ibv_device device{};
  static ibv_context context = [] {
    ibv_context c{};
    c.device = &device;
    c.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) {
      ++polled;
      return 0;
    };
    c.ops.req_notify_cq = [](ibv_cq*, int) {
      ++armed;
      return 0;
    };
    return c;
  }();
  return &context;
}

}  // namespace

extern "C" {

const char* ibv_get_device_name(ibv_device*) {
  return "nowhere";
}

int ibv_query_device(ibv_context*, ibv_device_attr* out) {
  out->max_cqe = 4096;
  return 0;
}

int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* out) {
  reinterpret_cast<ibv_port_attr*>(out)->max_msg_sz = 1 << 30;
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* pd = new ibv_pd{};
  pd->context = context;
  return pd;
}

int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd*, void*, size_t, int) {
  return new ibv_mr{};
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void*, size_t, uint64_t, unsigned int) {
  return new ibv_mr{};
}

int ibv_dereg_mr(ibv_mr* mr) {
  delete mr;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  auto* channel = new ibv_comp_channel{};
  channel->context = context;
  channel->fd = eventfd(0, 0);
  completion_fd = channel->fd;
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  close(channel->fd);
  delete channel;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int, void*, ibv_comp_channel* channel, int) {
  auto* cq = new ibv_cq{};
  cq->context = context;
  cq->channel = channel;
  return cq;
}

int ibv_destroy_cq(ibv_cq* cq) {
  delete cq;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  *cq = nullptr;
  *context = nullptr;
  eventfd_t events = 0;
  return eventfd_read(channel->fd, &events);
}

void ibv_ack_cq_events(ibv_cq*, unsigned int) {}

rdma_event_channel* rdma_create_event_channel() {
  auto* channel = new rdma_event_channel{};
  channel->fd = eventfd(0, 0);
  return channel;
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  close(channel->fd);
  delete channel;
}

int rdma_get_cm_event(rdma_event_channel*, rdma_cm_event**) {
  errno = EAGAIN;
  return -1;
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space) {
  *id = new rdma_cm_id{};
  (*id)->channel = channel;
  (*id)->context = context;
  return 0;
}

int rdma_destroy_id(rdma_cm_id* id) {
  delete id;
  return 0;
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr*) {
  id->verbs = adapter();
  return 0;
}

int rdma_listen(rdma_cm_id*, int) {
  return 0;
}

uint16_t rdma_get_src_port(rdma_cm_id*) {
  return 1;
}
}

namespace {

using namespace ewarp::channel;
using namespace std::chrono_literals;

// Until it is so; a minute is for machines that are busy.
template <class F>
bool becomes(F&& condition) {
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(100us);
  }
  return true;
}

constexpr std::uint64_t kForEver = ~std::uint64_t{0};

// Threads of which each waits for a message of its own, all of them asleep. Left alone they sleep for minutes. The
// first one has this patience.
class Waiting {
 public:
  explicit Waiting(std::size_t threads, std::uint64_t patience_ns = kForEver) : in_(threads) {
    EndpointOptions options;
    options.progress_thread = false;
    options.spin_us = 0;
    options.tuning.death_ns = 3'600'000'000'000;
    std::string error;
    endpoint_ = Endpoint::open(options, &error);
    if (!endpoint_) fail_msg("%s", error.c_str());
    const int before = armed;
    for (Tag tag = 0; tag < threads; ++tag) {
      const Request r = endpoint_->irecv(Endpoint::self(), tag, {&in_[tag], 1});
      threads_.emplace_back([this, r, patience_ns = tag == 0 ? patience_ns : kForEver] {
        Status status;
        ++(endpoint_->wait_for(r, &status, patience_ns) ? ended : left);
      });
      assert_true(becomes([&] { return armed > before; }));  // by the first one
      std::this_thread::sleep_for(20ms);
    }
  }
  ~Waiting() {
    for (std::thread& t : threads_) t.join();
    endpoint_->close();
  }
  void end(Tag tag) {
    const std::byte out{7};
    Status status;
    assert_true(endpoint_->test(endpoint_->isend(Endpoint::self(), tag, {&out, 1}), &status));
  }
  std::atomic<int> ended{0}, left{0};  // left: without their messages

 private:
  std::vector<std::byte> in_;
  std::unique_ptr<Endpoint> endpoint_;
  std::vector<std::thread> threads_;
};

void whoever_ends_a_request_wakes_its_thread(void**) {
  for (const bool first_last : {false, true}) {
    Waiting w(3);
    for (int i = 0; i < 3; ++i) {
      w.end(static_cast<Tag>(first_last ? 2 - i : i));
      assert_true(becomes([&] { return w.ended == i + 1; }));
    }
  }
}

// Else nobody would hear of what completes later.
void who_leaves_leaves_the_adapter_to_another(void**) {
  Waiting w(2);
  int before = armed;
  eventfd_write(completion_fd, 1);
  assert_true(becomes([&] { return armed > before; }));
  before = armed;
  w.end(0);
  assert_true(becomes([&] { return w.ended == 1; }));
  assert_true(becomes([&] { return armed > before; }));
  before = armed;
  eventfd_write(completion_fd, 1);
  assert_true(becomes([&] { return armed > before; }));
  w.end(1);
  assert_true(becomes([&] { return w.ended == 2; }));
}

void who_has_no_patience_leaves_it_as_well(void**) {
  const int before = armed;
  Waiting w(2, 200'000'000);
  assert_true(becomes([&] { return w.left == 1 && armed >= before + 2; }));
  w.end(1);
  assert_true(becomes([&] { return w.ended == 1; }));
}

// How often the adapter is polled by so many large receives, with so long between them.
int polls_of_receives(int receives, std::chrono::nanoseconds computes) {
  EndpointOptions options;
  options.progress_thread = false;
  std::string error;
  const auto endpoint = Endpoint::open(options, &error);
  if (!endpoint) fail_msg("%s", error.c_str());
  std::vector<std::byte> buffer(options.tuning.always_eager() + 1);
  const int before = polled;
  for (int i = 0; i < receives; ++i) {
    endpoint->irecv(Endpoint::self(), 1, buffer);
    const auto until = std::chrono::steady_clock::now() + computes;
    while (computes > 0ns && std::chrono::steady_clock::now() < until) {
    }
  }
  const int polls = polled - before;
  endpoint->close();
  return polls;
}

// In a row of receives it would find the messages of those that follow, and store them. One in 64 polls in any case.
void a_receive_looks_for_its_message_where_the_program_computes(void**) {
  assert_true(polls_of_receives(1000, 0ns) < 500);
  assert_true(polls_of_receives(100, 100us) > 90);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(whoever_ends_a_request_wakes_its_thread),
      cmocka_unit_test(who_leaves_leaves_the_adapter_to_another),
      cmocka_unit_test(who_has_no_patience_leaves_it_as_well),
      cmocka_unit_test(a_receive_looks_for_its_message_where_the_program_computes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
