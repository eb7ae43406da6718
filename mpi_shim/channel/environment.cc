// Options out of the environment.
#include <charconv>
#include <concepts>
#include <cstdlib>
#include <cstring>
#include <string>

#include "mpi_shim/channel/channel.h"

namespace ewarp::channel {
namespace {

const char* value_of(const char* name) {
  const char* value = std::getenv(("EWARP_CHANNEL_" + std::string(name)).c_str());
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// What makes no sense changes nothing.
template <std::integral T>
void read(const char* name, T& out) {
  const char* value = value_of(name);
  if (value == nullptr) return;
  if constexpr (std::same_as<T, bool>) {
    out = std::strcmp(value, "0") != 0 && std::strcmp(value, "no") != 0;
  } else {
    T parsed{};
    const bool hexadecimal = value[0] == '0' && value[1] == 'x';
    const char* digits = value + (hexadecimal ? 2 : 0);
    const auto [stop, error] = std::from_chars(digits, value + std::strlen(value), parsed, hexadecimal ? 16 : 10);
    if (error == std::errc() && *stop == '\0') out = parsed;
  }
}

}  // namespace

EndpointOptions EndpointOptions::from_environment() {
  EndpointOptions o;
  if (const char* address = value_of("ADDRESS")) o.address = address;
  read("EAGER_THRESHOLD", o.tuning.eager_threshold);
  read("HYBRID_THRESHOLD", o.tuning.hybrid_threshold);
  read("RENDEZVOUS_BY_READ", o.tuning.rendezvous_by_read);
  read("ANNOUNCE", o.tuning.announce);
  read("ANNOUNCE_THRESHOLD", o.tuning.announce_threshold);
  read("ADAPT", o.tuning.adapt);
  read("USAGE_PERCENT", o.tuning.usage_percent);
  read("RECEIVE_DEPTH", o.tuning.receive_depth);
  read("HYBRID_BUFFERS", o.tuning.hybrid_buffers);
  read("COPY_LIMIT", o.tuning.copy_limit);
  read("COUNTER_LIMIT", o.tuning.counter_limit);
  read("IGNORED_BITS", o.tuning.ignored_bits);
  read("DEATH_NS", o.tuning.death_ns);
  read("PROGRESS_THREAD", o.progress_thread);
  read("SPIN_US", o.spin_us);
  if (const char* r = value_of("REGISTRATION"))
    o.registration = std::strcmp(r, "cheap") == 0  ? Registration::cheap
                     : std::strcmp(r, "dear") == 0 ? Registration::dear
                     : std::strcmp(r, "kept") == 0 ? Registration::kept
                                                   : Registration::measured;
  read("CONNECT_TIMEOUT_NS", o.connect_timeout_ns);
  read("CLOSE_TIMEOUT_NS", o.close_timeout_ns);
  read("COUNTERS_AT_CLOSE", o.counters_at_close);
  return o;
}

}  // namespace ewarp::channel
