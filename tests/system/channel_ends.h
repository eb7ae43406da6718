// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the processes at the ends of a channel share: claims, words by file, and requests that must end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mpi_shim/channel/channel.h"

namespace ewarp::channel::test {

using Bytes = std::vector<std::byte>;

// For whatever one end waits for from the other.
inline constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(60);

inline void must(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

inline std::unique_ptr<Endpoint> open_endpoint() {
  std::string error;
  auto endpoint = Endpoint::open(EndpointOptions::from_environment(), &error);
  must(endpoint != nullptr, error);
  return endpoint;
}

// Words that processes tell each other, each in a file of this directory that appears as a whole.
class Files {
 public:
  explicit Files(std::string directory) : directory_(std::move(directory)) {}
  void write(const std::string& name, const std::string& text) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
  }
  // Sleeps meanwhile. Throws when it does not come.
  std::string wait_for(const std::string& name) const {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    std::string text;
    while (!(std::ifstream(directory_ + "/" + name) >> text)) {
      must(std::chrono::steady_clock::now() < until, "the file " + name + " does not come");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return text;
  }

 private:
  std::string directory_;
};

// How it ended.
inline Status end_of(Endpoint& endpoint, Request request, const std::string& what = "a request") {
  Status status;
  must(endpoint.wait_for(request, &status, static_cast<std::uint64_t>(kPatience.count())), what + " does not end");
  return status;
}

inline void end_well(Endpoint& endpoint, Request request, const std::string& what = "a request") {
  const Status status = end_of(endpoint, request, what);
  must(status.error == Error::none, what + ": " + text(status.error));
}

}  // namespace ewarp::channel::test
