// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests of a program: sends, receives and frees, in a pool of fixed size, and the queue of a channel's end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ewarp::acp {

enum class Kind : std::uint8_t { none, send, receive, free };

struct Request {
  Request* next = nullptr;  // of its end's queue, or of the free ones
  std::byte* buffer = nullptr;
  std::uint32_t size = 0;        // octets of the buffer
  std::uint32_t moved = 0;       // octets that were sent or received so far
  std::uint32_t generation = 0;  // tells a handle from an older one of the same place
  Kind kind = Kind::none;
  bool done = false;
  std::int16_t error = 0;  // errno, if done

  void end(int why = 0) {
    error = static_cast<std::int16_t>(why);
    done = true;
  }
};
static_assert(sizeof(Request) <= 40);

class RequestQueue {
 public:
  Request* front() const { return first_; }
  void push(Request& r) {
    r.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &r;
    last_ = &r;
  }
  // The front leaves; it is told how it ended.
  void end_front(int error = 0) {
    Request& r = *first_;
    first_ = r.next;
    r.end(error);
  }

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;  // meaningful if first_ is
};

// Handles are numbers: place + 1 in the low half, generation in the high one. 0 is none.
class RequestPool {
 public:
  // Allocates; std::bad_alloc.
  explicit RequestPool(std::uint32_t count);
  ~RequestPool();
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // Null if all are in use.
  Request* take(Kind kind, void* buffer, std::size_t octets);
  void give_back(Request& r);
  std::uint64_t handle(const Request& r) const;
  // Null if the handle is none, or of a request that was waited for.
  Request* find(std::uint64_t handle) const;
  std::uint32_t in_use() const { return in_use_; }

 private:
  Request* all_;
  Request* free_ = nullptr;
  std::uint32_t count_;
  std::uint32_t touched_ = 0;  // the rest were never in use: their pages are not touched
  std::uint32_t in_use_ = 0;
};

}  // namespace ewarp::acp
