// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/reasons.h"

#include <unistd.h>

#include <array>
#include <cstring>

#include "mpi_shim/channel/core/job_errors.h"
#include "mpi_shim/channel/verbs/failed.h"

namespace ewarp::channel::reason {
namespace {

std::string host_name() {
  std::array<char, 256> text{};
  return gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "this host";
}

std::string duration(std::uint64_t ns) {
  const std::uint64_t ms = ns / 1'000'000;
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

}  // namespace

std::string of_version(std::uint8_t theirs) noexcept {
  return text_of([&] {
    return "it speaks version " + std::to_string(theirs) + " of the channel, this end version " +
           std::to_string(Hello::kVersion) + "; install the same EtherWARP on all hosts";
  });
}

std::string of_mismatch(const Hello& mine, const Hello& theirs) noexcept {
  return text_of([&]() -> std::string {
    std::string out;
    const auto compare = [&out](const char* name, std::uint64_t here, std::uint64_t there) {
      if (here == there) return;
      out += out.empty() ? "" : ", ";
      out += std::string(name) + " is " + std::to_string(here) + " here and " + std::to_string(there) + " there";
    };
    compare("EWARP_CHANNEL_EAGER_THRESHOLD", mine.eager_threshold, theirs.eager_threshold);
    compare("EWARP_CHANNEL_EAGER_PIECE", mine.eager_piece, theirs.eager_piece);
    compare("EWARP_CHANNEL_RECEIVE_DEPTH", mine.receive_depth, theirs.receive_depth);
    compare("EWARP_CHANNEL_IGNORED_BITS", mine.ignored_bits, theirs.ignored_bits);
    if (out.empty()) return "it cannot make the connection; it may be out of memory or of file descriptors";
    return out + "; set one value for all processes of the job";
  });
}

std::string of_stranger(const Address& own) noexcept {
  return text_of([&] {
    return "it is of another job, or sees this end at another address than " + own.text() +
           "; set one EWARP_CHANNEL_JOB for all processes of the job";
  });
}

// The status is a negative errno, as a rule.
std::string of_event(const rdma_cm_event& event) noexcept {
  return text_of([&] {
    const std::string name = rdma_event_str(event.event);
    return name + ", " + (event.status < 0 ? std::strerror(-event.status) : "status " + std::to_string(event.status));
  });
}

std::string of_silence(std::uint64_t ns, const std::string& last) noexcept {
  return text_of([&] {
    return "no answer within " + duration(ns) + (last.empty() ? "" : " (" + last + ")") +
           "; it has ended, or a firewall is between the hosts: let TCP through in both directions";
  });
}

std::string of(const char* text) noexcept {
  return text_of([&] { return std::string(text); });
}

// Not by exit(): other threads go on, and what the program has for its end may wait for peers.
void end_process(const Address& own, const Address& peer, const std::string& why) {
  std::string line(job_errors::kUnreachable);
  line += host_name() + " (" + own.text() + ") to " + peer.text() + ": " + why + "\n";
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

}  // namespace ewarp::channel::reason
