// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A completion queue, counter or event queue that a poll set or a wait set looks at.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

namespace ewarp::ofi {

class Watched {
 public:
  // Requires: is_possible(object). It stays for longer than this.
  explicit Watched(fid& object) : object_(&object) {}
  static bool is_possible(const fid& object);

  fid& what() const { return *object_; }
  // Handles what has come.
  void progress();
  // True: there are entries or events to read, or the counter has counted since it was true the last time.
  bool has_news();
  // After it the object's descriptor becomes readable when something comes. False: something has come already.
  bool prepare_to_sleep();

 private:
  fid* object_;
  std::uint64_t counted_ = 0;  // of a counter: when has_news() was true the last time
};

}  // namespace ewarp::ofi
