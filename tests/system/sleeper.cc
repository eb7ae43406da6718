// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that leave the work to EtherWARP: they sleep, keep many connections idle, connect and disconnect without
// end, fork. Plain librdmacm and libibverbs, one role a process, on the loopback interface; progress.py sets the roles
// against each other and judges what they print.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "possessions.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC: two processes can compare their times

constexpr std::size_t kBlock = 64 << 10;
constexpr auto kSleep = 2s;
constexpr std::uint64_t kWarmUp = 2000;  // messages before the target falls asleep

[[noreturn]] void give_up(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

void checked(int result, const char* what) {
  if (result != 0) give_up(what);
}

template <class T>
T* needed(T* p, const char* what) {
  if (p == nullptr) give_up(what);
  return p;
}

void must(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

// --- connections ---

using Id = std::unique_ptr<rdma_cm_id, decltype(&rdma_destroy_ep)>;

Id endpoint(const char* port, int flags) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  checked(rdma_getaddrinfo("127.0.0.1", port, &hints, &found), "rdma_getaddrinfo");
  ibv_qp_init_attr attributes{};
  attributes.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  const int result = rdma_create_ep(&id, found, nullptr, &attributes);
  rdma_freeaddrinfo(found);
  checked(result, "rdma_create_ep");
  return {id, rdma_destroy_ep};
}

Id listener(const char* port) {
  Id id = endpoint(port, RAI_PASSIVE);
  checked(rdma_listen(id.get(), 128), "rdma_listen");
  return id;
}

struct Message {
  std::uint64_t number = 0;
  std::uint64_t address = 0;  // of memory that the peer may touch
  std::uint32_t rkey = 0;
};

class Connection {
 public:
  static Connection to(const char* port) {
    Connection c(endpoint(port, 0));
    checked(rdma_connect(c.id(), nullptr), "rdma_connect");
    return c;
  }
  static Connection from(const Id& listening) {
    rdma_cm_id* id = nullptr;
    checked(rdma_get_request(listening.get(), &id), "rdma_get_request");
    Connection c(Id(id, rdma_destroy_ep));
    checked(rdma_accept(c.id(), nullptr), "rdma_accept");
    return c;
  }

  rdma_cm_id* id() const { return id_.get(); }

  // False if the connection has ended.
  bool try_send(const Message& m) {
    messages_->out = m;
    if (rdma_post_send(id(), nullptr, &messages_->out, sizeof m, region_.get(), 0) != 0) return false;
    return send_completed();
  }
  void send(const Message& m) { must(try_send(m), "a Send failed"); }
  bool send_completed() {
    ibv_wc wc{};
    return rdma_get_send_comp(id(), &wc) == 1 && wc.status == IBV_WC_SUCCESS;
  }

  // Nothing if the connection has ended.
  std::optional<Message> try_receive() {
    ibv_wc wc{};
    if (rdma_get_recv_comp(id(), &wc) != 1 || wc.status != IBV_WC_SUCCESS) return std::nullopt;
    return taken();
  }
  Message receive() {
    const auto m = try_receive();
    must(m.has_value(), "a receive failed");
    return *m;
  }
  Message receive_polling() {
    ibv_wc wc{};
    while (ibv_poll_cq(id()->recv_cq, 1, &wc) == 0) {
    }
    must(wc.status == IBV_WC_SUCCESS, "a receive failed");
    return taken();
  }

  // Returns when the peer has gone, too.
  void disconnect() { checked(rdma_disconnect(id()), "rdma_disconnect"); }

 private:
  struct Messages {
    Message in, out;
  };

  explicit Connection(Id id) : id_(std::move(id)) {
    region_.reset(needed(rdma_reg_msgs(this->id(), messages_.get(), sizeof(Messages)), "rdma_reg_msgs"));
    post_receive();
  }

  void post_receive() {
    checked(rdma_post_recv(id(), nullptr, &messages_->in, sizeof(Message), region_.get()), "rdma_post_recv");
  }
  Message taken() {
    const Message m = messages_->in;
    post_receive();
    return m;
  }

  Id id_;
  std::unique_ptr<Messages> messages_ = std::make_unique<Messages>();
  std::unique_ptr<ibv_mr, decltype(&rdma_dereg_mr)> region_{nullptr, rdma_dereg_mr};
};

// --- target, initiator: RDMA Read and Write while the target sleeps ---

// The target offers two blocks: the first is read, the second is written.
struct Blocks {
  explicit Blocks(const Connection& c)
      : region(needed(ibv_reg_mr(c.id()->pd, octets.data(), octets.size(),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
                      "ibv_reg_mr"),
               rdma_dereg_mr) {}
  std::span<std::byte> operator[](std::size_t i) { return std::span(octets).subspan(i * kBlock, kBlock); }

  std::vector<std::byte> octets = std::vector<std::byte>(2 * kBlock);
  std::unique_ptr<ibv_mr, decltype(&rdma_dereg_mr)> region;
};

std::byte octet(std::size_t i, unsigned seed) {
  return static_cast<std::byte>(i * 7 + (i >> 8) * 31 + seed);
}

void fill(std::span<std::byte> block, unsigned seed) {
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = octet(i, seed);
}

bool holds(std::span<const std::byte> block, unsigned seed) {
  for (std::size_t i = 0; i < block.size(); ++i)
    if (block[i] != octet(i, seed)) return false;
  return true;
}

void say_time(const char* what) {
  std::printf("%s %lld\n", what, static_cast<long long>(Clock::now().time_since_epoch() / 1us));
}

// It polls without pause while messages come, until it goes to sleep: by then EtherWARP's own thread has stepped aside,
// and must come back.
void target(const char* port) {
  const Id listening = listener(port);
  Connection c = Connection::from(listening);
  Blocks blocks(c);
  fill(blocks[0], 1);
  for (std::uint64_t i = 0; i < kWarmUp; ++i) c.send(c.receive_polling());
  c.send({.address = reinterpret_cast<std::uintptr_t>(blocks.octets.data()), .rkey = blocks.region->rkey});
  say_time("asleep");
  std::this_thread::sleep_for(kSleep);
  say_time("awake");
  must(holds(blocks[1], 2), "what was written is not there");
  must(holds(blocks[0], 1), "what was only read has changed");
  c.send({});
  c.disconnect();
}

void initiator(const char* port) {
  Connection c = Connection::to(port);
  Blocks blocks(c);
  fill(blocks[0], 2);
  for (std::uint64_t i = 0; i < kWarmUp; ++i) {
    c.send({.number = i});
    must(c.receive().number == i, "a wrong message");
  }
  const Message offered = c.receive();
  std::this_thread::sleep_for(300ms);  // the target sleeps
  const auto transfer = [&](auto post, std::size_t mine, std::size_t theirs) {
    checked(post(c.id(), nullptr, blocks[mine].data(), kBlock, blocks.region.get(), 0,
                 offered.address + theirs * kBlock, offered.rkey),
            "posting");
    must(c.send_completed(), "a Read or Write failed");
  };
  say_time("began");
  transfer(rdma_post_write, 0, 1);
  transfer(rdma_post_read, 1, 0);
  must(holds(blocks[1], 1), "what was read is not what the target has");
  transfer(rdma_post_read, 1, 1);  // a Write is complete before it is placed, but a Read after it sees it
  must(holds(blocks[1], 2), "what was written does not come back");
  say_time("done");
  c.receive();  // the target has seen it
  c.disconnect();
}

// --- idle-server, idle-client: connections that carry nothing ---

// Up to three periods, as on a busy machine something of the start may lie in the first.
void rest(std::vector<Connection>& connections, int seconds) {
  std::this_thread::sleep_for(1s);
  for (int period = 0; period < 3; ++period) {
    const auto began = Clock::now();
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    const double used = cpu_seconds() - before;
    const double percent = 100 * used / std::chrono::duration<double>(Clock::now() - began).count();
    std::printf("%zu connections idle: %.3f %% of a CPU\n", connections.size(), percent);
    if (percent < 1) break;
  }
  // Neither ends before the other has measured; and each connection still works.
  for (auto& c : connections) c.send({.number = 1});
  for (auto& c : connections) must(c.receive().number == 1, "a wrong message");
  for (auto& c : connections) c.disconnect();
}

void idle_server(const char* port, int count, int seconds) {
  const Id listening = listener(port);
  std::vector<Connection> connections;
  for (int i = 0; i < count; ++i) connections.push_back(Connection::from(listening));
  rest(connections, seconds);
}

void idle_client(const char* port, int count, int seconds) {
  std::vector<Connection> connections;
  for (int i = 0; i < count; ++i) connections.push_back(Connection::to(port));
  rest(connections, seconds);
}

// --- churn-server, churn-client: one connection after the other ---

// After a few for what is made once, after some for memory that is kept for reuse, and at the end.
bool worth_a_report(std::uint64_t number, std::uint64_t count) {
  return number == 10 || number == 200 || number == count;
}

// A side takes stock while the other waits for it, so with exactly one connection.
void churn_server(const char* port, std::uint64_t count) {
  const Id listening = listener(port);
  for (std::uint64_t i = 1; i <= count; ++i) {
    Connection c = Connection::from(listening);
    must(c.receive().number == i, "a wrong message");
    if (worth_a_report(i, count)) report_possessions(i);
    c.send({.number = i});
    c.receive();
    c.disconnect();
  }
}

// One each `period`, or as fast as they go.
void churn_client(const char* port, std::uint64_t count, std::chrono::milliseconds period) {
  const auto began = Clock::now();
  for (std::uint64_t i = 1; i <= count; ++i) {
    std::this_thread::sleep_until(began + i * period);
    Connection c = Connection::to(port);
    c.send({.number = i});
    must(c.receive().number == i, "a wrong message");
    if (worth_a_report(i, count)) report_possessions(i);
    c.send({});
    c.disconnect();
  }
}

// --- forker, companion: a process with children ---

void echo(Connection& c, int times) {
  for (int i = 0; i < times; ++i) c.send(c.receive());
}

// In the child only what is safe after a fork of a process with threads.
pid_t child(const std::function<void()>& what) {
  const pid_t pid = fork();
  if (pid < 0) give_up("fork");
  if (pid == 0) {
    alarm(60);
    what();
    _exit(1);
  }
  return pid;
}

void ends_well(pid_t pid) {
  int status = -1;
  if (waitpid(pid, &status, 0) != pid) give_up("waitpid");
  must(status == 0, "a child came to a bad end");
}

void forker(const char* port) {
  constexpr int kSome = 200;
  const Id listening = listener(port);
  Connection c = Connection::from(listening);
  echo(c, kSome);
  ends_well(child([] { _exit(0); }));
  echo(c, kSome);
  ends_well(child([] { execl("/bin/true", "true", nullptr); }));
  echo(c, kSome);
  const pid_t forked = child([] { pause(); });
  // posix_spawn() uses vfork(): no handler of EtherWARP's runs, so its sockets must be close-on-exec.
  char name[] = "sleep", seconds[] = "60";
  std::array<char*, 3> words{name, seconds, nullptr};
  pid_t spawned = 0;
  if (errno = posix_spawn(&spawned, "/bin/sleep", nullptr, nullptr, words.data(), environ); errno != 0)
    give_up("posix_spawn");
  echo(c, kSome);
  std::printf("children %d %d\n", forked, spawned);
  for (;;) echo(c, kSome);  // until it is killed
}

void companion(const char* port) {
  Connection c = Connection::to(port);
  std::uint64_t number = 0;
  while (c.try_send({.number = ++number})) {
    const auto answer = c.try_receive();
    if (!answer) break;
    must(answer->number == number, "a wrong message");
  }
  rdma_cm_event* event = nullptr;
  checked(rdma_get_cm_event(c.id()->channel, &event), "rdma_get_cm_event");
  std::printf("%ju messages, then %s\n", static_cast<std::uintmax_t>(number), rdma_event_str(event->event));
  rdma_ack_cm_event(event);
}

}  // namespace

int main(int count, char** words) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<std::string> arguments(words + 1, words + count);
  const auto number = [&](std::size_t i) { return std::stoi(arguments.at(i)); };
  const std::map<std::string, std::function<void(const char* port)>> roles = {
      {"target", target},
      {"initiator", initiator},
      {"idle-server", [&](const char* port) { idle_server(port, number(2), number(3)); }},
      {"idle-client", [&](const char* port) { idle_client(port, number(2), number(3)); }},
      {"churn-server", [&](const char* port) { churn_server(port, static_cast<std::uint64_t>(number(2))); }},
      {"churn-client",
       [&](const char* port) {
         churn_client(port, static_cast<std::uint64_t>(number(2)), std::chrono::milliseconds(number(3)));
       }},
      {"forker", forker},
      {"companion", companion},
  };
  roles.at(arguments.at(0))(arguments.at(1).c_str());
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "ewarp_sleeper: %s\n", e.what());
  return 1;
}
