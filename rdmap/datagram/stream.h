// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the datagram endpoint keeps for an association. Only for its own parts.
#pragma once

#include <cassert>
#include <variant>

#include "rdmap/datagram/endpoint.h"
#include "rdmap/sending.h"

namespace ewarp::rdmap {

// In place of the octets of a Write: it failed, so that its Immediate Data, if that is under way, counts for nothing.
inline constexpr std::uint32_t kWriteFailed = ~std::uint32_t{0};

// Idle or not. With the index and the association itself 256 octets (docs/design/rd.md).
struct DatagramEndpoint::Stream {
  std::array<std::uint32_t, ddp::kMaxQueues> tx_msn;
  // Of queues 0, 1 and 3; while there is an activity, its queues have them. Reports are in order by their PSN.
  std::array<std::uint32_t, 3> rx_msn;
  std::uint32_t write_octets;  // of the peer's Write that is, or has just been, received; 0 after any other request
  union {
    Activity* activity;
    Stream* next_free;
  };
};

struct PeersRead {
  ReadRequest request;
  std::uint32_t sent = 0;
  std::uint64_t probed = 0;  // octets known to be readable
};

// An error report: what Terminate::emit() gave.
struct PeersFault {
  std::array<std::byte, llp::rd::Outgoing::kMaxHead - ddp::UntaggedHeader::kSize> octets;
  std::uint8_t size = 0;
};

// The RSP lane carries these in order.
struct DatagramEndpoint::PeersRequest {
  std::variant<PeersRead, AtomicRequest, PeersFault> what;
  std::uint32_t psn = 0, msn = 0;
};

// A Read or atomic whose answer is to come.
struct DatagramEndpoint::Awaited {
  enum class State : std::uint8_t {
    live,
    abandoned,  // its request has failed here, the answer is only counted
    gone,       // the peer reported it, nothing more comes
  };
  std::uint64_t name = 0;
  std::uint32_t length = 0, received = 0, msn = 0;
  State state = State::live;
  bool atomic = false;
  std::uint32_t sink() const { return static_cast<std::uint32_t>(name); }
  void enter(State next) {
    assert(state == State::live ? next != State::live : state == State::abandoned && next == State::gone);
    state = next;
  }
};
struct DatagramEndpoint::Activity {
  // A request of ours that was started; complete when it is accepted and, where there is one, answered, and all
  // before it are.
  struct Begun {
    SendRequest* request = nullptr;
    Status status = Status::success;
    bool accepted = false, answered = false, failed = false;
    bool done() const { return failed || (accepted && answered); }
  };
  // The end of a message that was reported before all of it was numbered: one empty last segment.
  struct Closing {
    std::array<std::byte, ddp::UntaggedHeader::kSize> head;
    std::uint8_t head_size = 0;
    bool untagged = false;
    std::optional<std::uint32_t> immediate;
  };

  Activity() : begun(4), awaited(4), answers(4) {}

  Begun* find(std::uint64_t name) {
    return name - first_begun < begun.size() ? &begun.at(name - first_begun) : nullptr;
  }
  void fail(std::uint64_t name, Status status) {
    Begun* b = find(name);
    if (b == nullptr || b->done()) return;
    b->failed = true;
    b->status = status;
  }
  void drop_gone() {
    while (!awaited.empty() && awaited.front().state == Awaited::State::gone) awaited.pop_front();
  }
  bool idle() const {
    return begun.empty() && awaited.empty() && answers.empty() && sending.idle() && !closing && !receive && !write_open;
  }

  std::size_t place = 0;  // in the endpoint's list
  // Ours.
  llp::Ring<Begun> begun;
  std::uint64_t first_begun = 0;  // name of the front; the next ones count on
  llp::Ring<Awaited> awaited;
  SendRequest* checked = nullptr;  // not started, but found to be good
  Sending sending;                 // begun and not yet numbered to its end; the peer's requests are in `answers`
  std::uint64_t current_name = 0;  // of that one
  std::optional<Closing> closing;
  // The peer's.
  llp::Ring<PeersRequest> answers;
  std::uint64_t first_answer = 0;
  std::size_t answers_taken = 0;  // numbered to their ends, and not yet acknowledged
  ddp::UntaggedQueues queues{ddp::kMaxQueues};
  std::optional<DatagramConsumer::Receive> receive;  // taken for the message that is open on queue 0
  std::optional<std::uint32_t> receive_immediate;
  bool holds = false;       // `receive` counts in the endpoint's OpenReceives
  bool write_open = false;  // inside a Write
  bool refused = false;     // stands in the endpoint's list
  bool abandoned = false;   // waits for the end of the association
};

}  // namespace ewarp::rdmap
