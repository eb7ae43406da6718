// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/job/host.h"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "mpi_shim/acp/core/text.h"

namespace ewarp::acp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{2};        // for the others to leave
constexpr std::chrono::milliseconds kAskAgain{10};  // rank 0 is not there yet
constexpr int kAwakeMs = 100;

// The abstract name: a zero, then the octets. False: too long.
bool address_of(const std::string& meeting, sockaddr_un* out, socklen_t* length) {
  *out = {};
  out->sun_family = AF_UNIX;
  if (meeting.size() + 1 > sizeof out->sun_path) return false;
  std::memcpy(out->sun_path + 1, meeting.data(), meeting.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + meeting.size());
  return true;
}

bool of_this_user(int fd) {
  ucred other{};
  socklen_t length = sizeof other;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

// Until the other end has said all. Empty: nothing, or it failed.
std::string read_to_end(int fd) {
  std::string out;
  char octets[256];
  for (ssize_t n; (n = recv(fd, octets, sizeof octets, 0)) != 0;) {
    if (n < 0 && errno != EINTR) return {};
    if (n > 0) out.append(octets, static_cast<std::size_t>(n));
  }
  return out;
}

int connect_to(const std::string& meeting) {
  sockaddr_un to;
  socklen_t length;
  if (!address_of(meeting, &to, &length)) return errno = ENAMETOOLONG, -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&to), length) == 0) return fd;
  const int error = errno;
  close(fd);
  return errno = error, -1;
}

}  // namespace

std::string new_secret() {
  std::array<unsigned long long, 2> bits;
  if (getrandom(bits.data(), sizeof bits, 0) != sizeof bits) return {};
  char out[kSecretOctets + 1];
  std::snprintf(out, sizeof out, "%016llx%016llx", bits[0], bits[1]);
  return out;
}

std::string JobHost::start(JobPlace* place) {
  place->secret = new_secret();
  if (place->secret.empty()) return failed("getrandom");
  coordinator_ = std::make_unique<Coordinator>(place->procs, place->secret);
  if (const int error = coordinator_->listen()) return std::string("the job's coordinator: ") + std::strerror(error);
  place->root = "127.0.0.1:" + std::to_string(coordinator_->port());
  answer_ = place->root + " " + place->secret;
  if (auto why = listen(place->meeting); !why.empty()) return why;
  thread_ = std::thread(&JobHost::run, this);
  return {};
}

std::string JobHost::listen(const std::string& meeting) {
  sockaddr_un at;
  socklen_t length;
  if (!address_of(meeting, &at, &length)) return "the name of the job is too long: " + meeting;
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return failed("socket");
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&at), length) != 0 || ::listen(listener_, SOMAXCONN) != 0)
    return failed("the place at which the ranks of the job meet");
  return {};
}

// Signals are the program's threads'.
void JobHost::run() {
  pthread_setname_np(pthread_self(), "acp-job");
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  Clock::time_point until = Clock::time_point::max();
  while (!coordinator_->finished() && Clock::now() < until) {
    std::vector<pollfd> own = {{listener_, POLLIN, 0}};
    coordinator_->step(&own, kAwakeMs);
    answer_all();
    if (until == Clock::time_point::max() && ending_.load(std::memory_order_relaxed)) until = Clock::now() + kPatience;
  }
}

// An answer always finds room: it is the first that the socket is given.
void JobHost::answer_all() {
  for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    if (of_this_user(fd)) (void)!send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
  }
}

void JobHost::finish() {
  ending_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

JobHost::~JobHost() {
  finish();
  if (listener_ >= 0) close(listener_);
}

std::string ask_host(JobPlace* place) {
  int fd;
  while ((fd = connect_to(place->meeting)) < 0) {
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) return failed("rank 0 of the job");
    std::this_thread::sleep_for(kAskAgain);
  }
  const bool believed = of_this_user(fd);
  const std::string answer = believed ? read_to_end(fd) : "";
  close(fd);
  const auto blank = answer.find(' ');
  if (blank == answer.npos || answer.size() != blank + 1 + kSecretOctets)
    return believed ? "rank 0 of the job has ended" : "another user's process stands where rank 0 of the job should";
  place->root = answer.substr(0, blank);
  place->secret = answer.substr(blank + 1);
  return {};
}

}  // namespace ewarp::acp
