// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Raw TCP between two processes, the yardstick for EtherWARP on the same machine in the same minute: ping-pong with
// polling (non-blocking recv in a loop) and with blocking sockets, and a one-way stream, on request with one CRC32C
// pass over each piece at both ends, or with the octets that frame an FPDU around each piece. The ping-pong also over
// UDP, whose server echoes until somebody ends it. Prints one JSON object.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "llp/crc32c.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string mode = "poll", role = "both", address = "127.0.0.1", congestion = "reno", server_cpus, client_cpus;
  std::size_t size = 8;
  std::uint64_t iterations = 10000, warm_up = 0;
  std::uint16_t port = 0;
  unsigned timeout_s = 60;
  bool crc = false, framed = false, udp = false;

  bool polls() const { return mode == "poll"; }
  int socket_type() const { return udp ? SOCK_DGRAM : SOCK_STREAM; }
};

// What one CRC covers: about an FPDU of the largest size.
constexpr std::size_t kPiece = 64 * 1024;
// What is around the payload of a Send's FPDU, and its payload at most: as EtherWARP sends (RFC 5041, RFC 5044).
constexpr std::size_t kHead = 20, kTrailer = 4, kPayload = 64750;
constexpr std::size_t kVectors = 1023;  // three a piece; the kernel takes 1024
// A datagram without an answer for so long is lost, and the next one goes; who loses more than kMostLost gives up.
constexpr std::chrono::milliseconds kSilence{200};
constexpr std::uint64_t kMostLost = 100;

[[noreturn]] void give_up(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}
int checked(int result, const char* what) {
  if (result < 0) give_up(what);
  return result;
}

// "0,2-3": the CPUs this process stays on; empty: all.
void pin(const std::string& list) {
  if (list.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const char* at = list.c_str(); *at != '\0';) {
    char* end = nullptr;
    const auto first = std::strtoul(at, &end, 10);
    const auto last = *end == '-' ? std::strtoul(end + 1, &end, 10) : first;
    for (auto cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &set);
    at = *end == ',' ? end + 1 : end;
    if (*end != '\0' && *end != ',') throw std::runtime_error("a list of CPUs looks like 0,2-3");
  }
  checked(sched_setaffinity(0, sizeof set, &set), "pinning");
}

// As the provider sets its own sockets up.
void tune(int fd, const Arguments& a) {
  const int on = 1;
  checked(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
  if (a.congestion != "system")
    checked(
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, a.congestion.c_str(), static_cast<socklen_t>(a.congestion.size())),
        "congestion control");
}

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
};

Endpoint resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;  // one answer; the addresses are the same for datagrams
  if (const int error = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found); error != 0)
    throw std::runtime_error(fmt::format("{}: {}", host, gai_strerror(error)));
  Endpoint out;
  out.length = found->ai_addrlen;
  std::memcpy(&out.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return out;
}

sockaddr* generic(sockaddr_storage& s) {
  return reinterpret_cast<sockaddr*>(&s);
}

class Connection {
 public:
  Connection(int fd, bool polling) : fd_(fd), flags_(polling ? MSG_DONTWAIT : 0) {}
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(const char* from, std::size_t n) {
    while (n > 0) {
      const auto sent = ::send(fd_, from, n, MSG_NOSIGNAL);
      if (sent < 0) give_up("send");
      from += sent, n -= static_cast<std::size_t>(sent);
    }
  }
  // All of them, in order.
  void send(std::span<const iovec> pieces) {
    while (!pieces.empty()) {
      std::vector<iovec> left(pieces.begin(), pieces.begin() + std::min(pieces.size(), kVectors));
      pieces = pieces.subspan(left.size());
      for (std::span<iovec> rest = left; !rest.empty();) {
        msghdr m{};
        m.msg_iov = rest.data(), m.msg_iovlen = rest.size();
        const auto sent = sendmsg(fd_, &m, MSG_NOSIGNAL);
        if (sent < 0) give_up("sendmsg");
        auto n = static_cast<std::size_t>(sent);
        for (; !rest.empty() && n >= rest[0].iov_len; rest = rest.subspan(1)) n -= rest[0].iov_len;
        if (!rest.empty()) rest[0] = {static_cast<char*>(rest[0].iov_base) + n, rest[0].iov_len - n};
      }
    }
  }
  void receive(char* to, std::size_t n) {
    while (n > 0) {
      const auto got = recv(fd_, to, n, flags_);
      if (got < 0 && errno == EAGAIN) continue;
      if (got == 0) throw std::runtime_error("the peer closed the connection");
      if (got < 0) give_up("recv");
      to += got, n -= static_cast<std::size_t>(got);
    }
  }

 private:
  int fd_, flags_;
};

// The CRCs do not travel: what they cost is all that is asked. The result keeps the compiler from leaving them out.
std::uint32_t crc_of(const char* from, std::size_t n) {
  ewarp::llp::Crc32c crc;
  crc.update(std::as_bytes(std::span(from, n)));
  return crc.value();
}

template <class Transfer>
std::uint32_t by_pieces(std::size_t size, const Transfer& transfer) {
  std::uint32_t all = 0;
  for (std::size_t at = 0; at < size; at += kPiece) all ^= transfer(at, std::min(kPiece, size - at));
  return all;
}

std::uint32_t send_with_crc(Connection& c, std::span<const char> buffer) {
  return by_pieces(buffer.size(), [&](std::size_t at, std::size_t n) {
    const std::uint32_t crc = crc_of(buffer.data() + at, n);
    c.send(buffer.data() + at, n);
    return crc;
  });
}

std::uint32_t receive_with_crc(Connection& c, std::span<char> buffer) {
  return by_pieces(buffer.size(), [&](std::size_t at, std::size_t n) {
    c.receive(buffer.data() + at, n);
    return crc_of(buffer.data() + at, n);
  });
}

// A buffer at the begin of a page, as perftest's are: how fast the kernel copies depends on that.
class Buffer {
 public:
  explicit Buffer(std::size_t size)
      : octets_(static_cast<char*>(std::aligned_alloc(kPage, (size / kPage + 1) * kPage)), &std::free), size_(size) {
    if (octets_ == nullptr) throw std::bad_alloc();
    std::memset(octets_.get(), 'x', size);
  }
  char* data() const { return octets_.get(); }
  std::size_t size() const { return size_; }
  std::span<char> all() const { return {data(), size_}; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::unique_ptr<char, decltype(&std::free)> octets_;
  std::size_t size_;
};

// The message of one end, sent and received again and again. Framed, each piece is sent from between a head and a
// trailer of its own, and all of it is received in one.
class Message {
 public:
  explicit Message(const Arguments& a)
      : payload_(a.size), received_(a.framed ? framed_size(a.size) : 0), framed_(a.framed) {
    if (!framed_) return;
    for (std::size_t at = 0; at < a.size; at += kPayload) {
      pieces_.push_back({around_, kHead});
      pieces_.push_back({payload_.data() + at, std::min(kPayload, a.size - at)});
      pieces_.push_back({around_ + kHead, kTrailer});
    }
  }
  void send(Connection& c) {
    if (framed_)
      c.send(pieces_);
    else
      c.send(payload_.data(), payload_.size());
  }
  void receive(Connection& c) {
    const Buffer& to = framed_ ? received_ : payload_;
    c.receive(to.data(), to.size());
  }
  std::span<char> payload() const { return payload_.all(); }

 private:
  static std::size_t framed_size(std::size_t size) {
    return size + (size + kPayload - 1) / kPayload * (kHead + kTrailer);
  }

  Buffer payload_, received_;
  std::vector<iovec> pieces_;
  char around_[kHead + kTrailer] = {};
  bool framed_;
};

// Both sides agree on the arguments; only the octets travel.
void serve_stream(int listener, const Arguments& a) {
  const int fd = checked(accept(listener, nullptr, nullptr), "accept");
  tune(fd, a);
  Connection c(fd, a.polls());
  Message message(a);
  volatile std::uint32_t crcs = 0;
  for (std::uint64_t i = 0; i < a.warm_up + a.iterations; ++i) {
    if (a.crc)
      crcs = crcs ^ receive_with_crc(c, message.payload());
    else
      message.receive(c);
    if (a.mode != "stream")
      message.send(c);
    else if (i + 1 == a.warm_up || i + 1 == a.warm_up + a.iterations)
      c.send(message.payload().data(), 1);
  }
}

// Sends back what comes, to whom it came from.
void echo(int fd, const Arguments& a) {
  std::vector<char> buffer(a.size);
  for (;;) {
    Endpoint from;
    from.length = sizeof from.address;
    const auto got =
        recvfrom(fd, buffer.data(), buffer.size(), a.polls() ? MSG_DONTWAIT : 0, generic(from.address), &from.length);
    if (got < 0 && errno == EAGAIN) continue;
    if (got < 0) give_up("recvfrom");
    if (sendto(fd, buffer.data(), static_cast<std::size_t>(got), 0, generic(from.address), from.length) < 0)
      give_up("sendto");
  }
}

// Sends one datagram with this number and takes the answer; false: none came. Answers to earlier ones are dropped.
bool ask(int fd, std::vector<char>& buffer, std::uint64_t number, bool polls) {
  std::memcpy(buffer.data(), &number, sizeof number);
  if (send(fd, buffer.data(), buffer.size(), 0) < 0) give_up("send");
  const auto until = Clock::now() + kSilence;
  do {
    const auto got = recv(fd, buffer.data(), buffer.size(), polls ? MSG_DONTWAIT : 0);
    if (got < 0 && errno != EAGAIN) give_up("recv");
    std::uint64_t answer = 0;
    if (got >= 0) std::memcpy(&answer, buffer.data(), sizeof answer);
    if (got >= 0 && answer == number) return true;
  } while (Clock::now() < until);
  return false;
}

void serve(int listener, const Arguments& a) {
  if (a.udp)
    echo(listener, a);
  else
    serve_stream(listener, a);
}

template <class Round>
std::string ping_pong(const Arguments& a, const Round& round_trip) {
  std::vector<double> half_us;
  half_us.reserve(a.iterations);
  for (std::uint64_t i = 0; i < a.warm_up + a.iterations; ++i) {
    const auto begin = Clock::now();
    round_trip();
    const std::chrono::duration<double, std::micro> round = Clock::now() - begin;
    if (i >= a.warm_up) half_us.push_back(round.count() / 2);
  }
  std::sort(half_us.begin(), half_us.end());
  double sum = 0;
  for (const double h : half_us) sum += h;
  const auto at = [&](double q) {
    return half_us[static_cast<std::size_t>(q * static_cast<double>(half_us.size() - 1))];
  };
  return fmt::format(
      R"("half_round_trip_us": {{"min": {:.3f}, "median": {:.3f}, "mean": {:.3f}, "p99": {:.3f}, "p999": {:.3f}}})",
      at(0), at(0.5), sum / static_cast<double>(half_us.size()), at(0.99), at(0.999));
}

std::string ping_pong(Connection& c, const Arguments& a) {
  Message message(a);
  return ping_pong(a, [&] {
    message.send(c);
    message.receive(c);
  });
}

std::string datagram_ping_pong(int fd, const Arguments& a) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(kSilence).count();
  const timeval silence{0, static_cast<suseconds_t>(us)};
  checked(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence), "SO_RCVTIMEO");
  std::vector<char> buffer(a.size, 'x');
  std::uint64_t number = 0, lost = 0;
  return ping_pong(a, [&] {
    while (!ask(fd, buffer, ++number, a.polls()))
      if (++lost > kMostLost) throw std::runtime_error("the peer is silent");
  });
}

// Ends with an octet from the receiver, so that what is timed has arrived.
std::string stream(Connection& c, const Arguments& a) {
  Message message(a);
  char done;
  volatile std::uint32_t crcs = 0;
  const auto push = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      if (a.crc)
        crcs = crcs ^ send_with_crc(c, message.payload());
      else
        message.send(c);
    }
    if (n > 0) c.receive(&done, 1);
  };
  push(a.warm_up);
  const auto begin = Clock::now();
  push(a.iterations);
  const std::chrono::duration<double> elapsed = Clock::now() - begin;
  const double octets = static_cast<double>(a.size) * static_cast<double>(a.iterations);
  return fmt::format(R"("seconds": {:.6f}, "gbit_per_s": {:.3f})", elapsed.count(), octets * 8e-9 / elapsed.count());
}

void run_client(const Arguments& a, std::uint16_t port) {
  Endpoint to = resolve(a.address, port);
  const int fd = checked(socket(to.address.ss_family, a.socket_type() | SOCK_CLOEXEC, 0), "socket");
  Connection c(fd, a.polls());
  if (!a.udp) tune(fd, a);
  checked(connect(fd, generic(to.address), to.length), "connect");
  fmt::print("{{\"mode\": \"{}\", \"size\": {}, \"iterations\": {}, {}}}\n", a.mode, a.size, a.iterations,
             a.udp                ? datagram_ping_pong(fd, a)
             : a.mode == "stream" ? stream(c, a)
                                  : ping_pong(c, a));
}

int listen_on(const Arguments& a, std::uint16_t* port) {
  Endpoint at = resolve(a.address, a.port);
  const int fd = checked(socket(at.address.ss_family, a.socket_type() | SOCK_CLOEXEC, 0), "socket");
  const int on = 1;
  if (!a.udp) checked(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
  checked(bind(fd, generic(at.address), at.length), "bind");
  if (!a.udp) checked(listen(fd, 1), "listen");
  checked(getsockname(fd, generic(at.address), &at.length), "getsockname");
  *port = ntohs(at.address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at.address).sin6_port
                                                 : reinterpret_cast<sockaddr_in&>(at.address).sin_port);
  return fd;
}

int guarded(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "ewarp_bench_tcp: {}\n", e.what());
    return 1;
  }
}

int both(const Arguments& a) {
  std::uint16_t port = 0;
  const int listener = listen_on(a, &port);
  const pid_t server = checked(fork(), "fork");
  if (server == 0)
    _exit(guarded([&] {
      alarm(a.timeout_s);  // not inherited
      pin(a.server_cpus);
      serve(listener, a);
    }));
  close(listener);
  const int failed = guarded([&] {
    pin(a.client_cpus);
    run_client(a, port);
  });
  const bool ended_by_us = failed != 0 || a.udp;
  if (ended_by_us) kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
  return failed != 0 || (status != 0 && !ended_by_us) ? 1 : 0;
}

int run(const Arguments& a) {
  alarm(a.timeout_s);  // whatever happens, it ends
  if (a.role == "both") return both(a);
  pin(a.role == "server" ? a.server_cpus : a.client_cpus);
  if (a.role == "client") return run_client(a, a.port), 0;
  std::uint16_t port = 0;
  const int listener = listen_on(a, &port);
  serve(listener, a);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app("Raw TCP ping-pong and stream, raw UDP ping-pong; prints one JSON object");
  app.add_option("--mode", a.mode, "poll, block (ping-pong) or stream")
      ->check(CLI::IsMember({"poll", "block", "stream"}));
  app.add_option("--role", a.role, "both (a child serves), server or client")
      ->check(CLI::IsMember({"both", "server", "client"}));
  app.add_option("--address", a.address, "Address to listen on and to connect to");
  app.add_option("--port", a.port, "TCP port; 0: any (role both)");
  app.add_option("--size", a.size, "Octets of a message")->check(CLI::PositiveNumber);
  app.add_option("--iterations", a.iterations, "Messages that are measured")->check(CLI::PositiveNumber);
  app.add_option("--warm-up", a.warm_up, "Messages before them");
  app.add_option("--server-cpus", a.server_cpus, "CPUs of the server, such as 0,2-3");
  app.add_option("--client-cpus", a.client_cpus, "CPUs of the client");
  app.add_flag("--crc", a.crc, "Mode stream: each end computes the CRC32C of each 64 KiB");
  app.add_flag("--framed", a.framed, "A head of 20 octets and a trailer of 4 around each 64750, as around FPDUs");
  app.add_flag("--udp", a.udp, "Ping-pong of datagrams, at least 8 octets; the server echoes until it is ended");
  app.add_option("--congestion", a.congestion, "TCP congestion control; system: the system's");
  app.add_option("--timeout", a.timeout_s, "Seconds after which it ends with SIGALRM")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (a.crc && a.mode != "stream") {
    fmt::print(stderr, "ewarp_bench_tcp: --crc needs --mode stream\n");
    return 1;
  }
  if (a.framed && (a.crc || a.udp)) {
    fmt::print(stderr, "ewarp_bench_tcp: --framed takes neither --crc nor --udp\n");
    return 1;
  }
  if (a.udp && (a.mode == "stream" || a.size < sizeof(std::uint64_t))) {
    fmt::print(stderr, "ewarp_bench_tcp: --udp takes no --mode stream, and at least 8 octets\n");
    return 1;
  }
  int status = 1;
  if (guarded([&] { status = run(a); }) != 0) return 1;
  return status;
}
