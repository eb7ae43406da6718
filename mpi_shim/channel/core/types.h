// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The words of the channel: peers, tags, what became of a request, and what may be tuned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ewarp::channel {

using Octets = std::span<const std::byte>;
using MutableOctets = std::span<std::byte>;

// A number for an address, given by Endpoint::peer(); the endpoint itself is a peer like any other.
using PeerId = std::uint32_t;
inline constexpr PeerId kAnySource = ~PeerId{0};

// A receive of `tag` and `ignore` takes messages whose tag differs from `tag` in bits of `ignore` only.
using Tag = std::uint64_t;
inline constexpr Tag kAnyTag = ~Tag{0};  // for `ignore`

enum class Error : std::uint8_t {
  none,
  truncated,  // the message was longer than the receive: its first octets are there, the rest is lost
  cancelled,
  peer_down,  // the peer ended, or cannot be reached
  too_long,   // a question of more octets than a message has room for
  no_memory,  // the buffer could not be registered, or there are too many requests
};
const char* text(Error error);

// What became of a request. For a receive (and a probe): whose message with which tag it was, and how long the message
// is, which is more than was received where it was truncated.
struct Status {
  PeerId source = kAnySource;
  Tag tag = 0;
  std::size_t length = 0;
  Error error = Error::none;
  std::optional<std::uint64_t> data = {};  // what the sender attached to the message
};

// The name of a request until it was found complete; index 0 of generation 0 is never given.
struct Request {
  std::uint32_t index = 0, generation = 0;
  explicit operator bool() const { return generation != 0; }
  bool operator==(const Request&) const = default;
};

// What a listener is told when its request is done.
struct Completion {
  void* context;        // as given with the request
  std::uint64_t label;  // as given with the request
  Status status;
  MutableOctets buffer;  // of the request; where a multi-receive has put this message
  bool released;         // the buffer of a multi-receive is the application's again
};

// Told of the ends of requests, instead of test() and wait(). Called under the endpoint's lock by whatever thread found
// the request done, maybe before the call that began it returns: it must not call the channel. It throws nothing:
// nobody else is told of that end.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_done(const Completion& completion) = 0;
};

// Answers what peers ask (Endpoint::call). Called under the endpoint's lock: it must not call the channel.
class Answerer {
 public:
  virtual ~Answerer() = default;
  // Writes the answer and gives its length: answer.size() at most, which is eager_threshold.
  virtual std::size_t on_call(PeerId peer, Octets question, MutableOctets answer) = 0;
};

struct Report {
  Listener* listener = nullptr;
  void* context = nullptr;
  std::uint64_t label = 0;
};

struct SendOptions {
  bool synchronous = false;  // not done before the receive was matched
  bool inject = false;       // the buffer is the caller's again at once: at most eager_threshold octets,
                             // and not synchronous
  bool delivered = false;    // not done before the peer has the message: in the receive's buffer, if one was posted
  std::optional<std::uint64_t> data = {};  // for the receiver's Status
  Report report = {};
};

struct ReceiveOptions {
  // multi: the buffer takes one message behind the other until fewer than `least` octets are free. Needs a listener;
  // on_done() comes for each message, and says with the last one that the buffer is released.
  bool multi = false;
  std::size_t least = 0;
  Report report = {};
};

// Thresholds are in octets, times in nanoseconds. What is marked (job) must be the same at all ends: an end with
// another value is refused when it connects.
struct Tuning {
  // The most that Endpoint::open() takes.
  static constexpr std::size_t kMostEager = 1 << 20, kMostHybrid = 16 << 20, kLeastWindow = 16 << 10;
  static constexpr std::uint32_t kMostReceiveDepth = 16384;
  static constexpr std::size_t kPieceUnit = 1 << 10;  // eager_piece is a multiple of it

  std::size_t eager_threshold = 12 << 10;   // (job) up to here EAGER
  std::size_t eager_piece = 16 << 10;       // (job) in pieces of so much at most, each for a receive of its own
  std::size_t hybrid_threshold = 40 << 10;  // up to here HYBRID, if the receiver has not announced its buffer
  std::size_t write_window = 4 << 20;       // octets of rendezvous that the adapter has for a peer at a time ...
  std::size_t narrow_window = 128 << 10;    // ... while small messages pass them
  bool rendezvous_by_read = false;          // SEND_RNDV: the receiver Reads; otherwise it answers and the sender Writes
  bool announce = true;                     // receives that come first announce their buffers (RECV_RNDV) ...
  std::size_t announce_threshold = 12 << 10;  // ... above this, or eager_threshold where that is less
  bool adapt = true;                          // ... but not where announcements are wasted
  unsigned usage_percent = 80;                // wasted: fewer of them are used
  std::uint32_t receive_depth = 64;           // (job) messages (pieces) that a peer may have under way to us
  std::size_t receive_memory = 1 << 20;       // octets of receives that peers share beyond those that each has
  std::size_t hybrid_buffers = 64;            // that wait to be read, of all peers; 0: no HYBRID
  bool ordered_completions = false;           // receives end behind earlier ones of the same peer by HYBRID
  std::size_t copy_limit = 4 << 20;  // octets per peer that are copied to complete an eager send on a full path
  std::size_t counter_limit = 1024;  // tags per peer and direction that are counted
  // Octets of messages that nobody has asked for yet, all peers together, beyond which peers get no further credits
  // while nothing waits for them; 0: no limit. With what is under way already it is a window for each peer more.
  std::size_t unexpected_limit = std::size_t{256} << 20;
  // (job) Bits of tags that receives ignore as a rule: messages are numbered without them, so that such a receive is
  // not taken for one with a wildcard.
  Tag ignored_bits = 0;
  std::uint64_t death_ns = 30'000'000'000;  // silence after which a peer that is waited for is taken for dead; more
                                            // than the largest message takes on its way

  // More than the adapter alone may be needed for it: up to here a message is EAGER in any case.
  std::size_t always_eager() const { return std::min(announce_threshold, eager_threshold); }
  // The most payload of one message on the wire.
  std::size_t piece() const { return std::min(eager_threshold, eager_piece); }
  bool operator==(const Tuning&) const = default;
};

// What happens to memory that the adapter is to reach.
enum class Registration : std::uint8_t {
  measured,   // cheap, if registering 64 KiB takes less than 5 us here; otherwise monitored, or costly if it cannot be
  cheap,      // it is registered for each transfer, as small as it may be
  costly,     // ... but small buffers are copied
  monitored,  // registrations are kept until their memory is unmapped (MemoryMonitor), and of small buffers only
              // frequently used ones get one. Without a monitor: as measured
  kept,  // ... without a monitor: the application promises to call Endpoint::forget() before it unmaps what it gave
         // to the channel
};

}  // namespace ewarp::channel
