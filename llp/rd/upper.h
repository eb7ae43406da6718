// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The two seams of the reliable-datagram sublayer: what it asks of DDP/RDMAP above (Upper) and of a socket below
// (Wire).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "llp/gather.h"
#include "llp/octets.h"
#include "llp/rd/header.h"
#include "llp/rd/types.h"

namespace ewarp::llp::rd {

class Association;

// A segment to be sent: its headers by value, its payload by name. The payload is looked up at each transmission and
// never copied here.
struct Outgoing {
  static constexpr std::size_t kMaxHead = 18 + 52;  // untagged DDP header with the largest RDMAP header
  std::uint64_t message = 0;                        // the upper layer's name for the message; 0: nobody waits for it
  std::uint64_t offset = 0;                         // of the payload in the message
  std::uint32_t payload = 0;                        // octets
  bool last = false;                                // of its message
  std::uint8_t head_size = 0;
  std::array<std::byte, kMaxHead> head;
  std::optional<std::uint32_t> immediate;
  std::optional<std::uint32_t> error_psn;  // this is the error report about that PSN (RSP lane)
};

// A segment that arrived; the octets live as long as the call.
struct Incoming {
  Lane lane = Lane::req;
  std::uint32_t psn = 0;
  Octets segment;            // DDP header and payload; the header alone if `placed`
  std::uint32_t octets = 0;  // of the whole segment
  bool placed = false;       // place() took the payload when the segment came, ahead of its turn
  std::optional<std::uint32_t> immediate, error_psn;
};

enum class Take : std::uint8_t {
  accepted,
  no_receive,  // REQ only, first segment of a queue-0 message: ask again later
  bad,         // REQ only: an error report about this PSN is queued for the RSP lane
  violation,   // of the protocol: the association ends
};

// Why an association is no more.
enum class Ending : std::uint8_t {
  idle,                // nothing was outstanding
  unreachable,         // no answer to OPEN, or none for too long: whatever waits for this peer fails
  refused,             // RESET in answer to OPEN: the same
  reset,               // by the peer: what was begun has failed, what was not may open a new association
  restarted,           // the peer opened a new one: the same
  violation,           // by the peer: the same
  receiver_not_ready,  // the message at the front of the REQ lane failed for lack of a receive; others as with reset
  source_gone,         // the memory of a message could not be read any more: it failed; others as with reset
  local,               // abort() was called
};

struct Ended {
  Ending why = Ending::idle;
  ResetReason reason = ResetReason::unspecified;  // reset, refused
  std::uint64_t message = 0;                      // receiver_not_ready, source_gone: which
  Lane lane = Lane::req;
};

// Whether an OPEN may come in.
enum class Admission : std::uint8_t { welcome, unknown, no_resources, qp_gone };

// Calls come from inside the Table's and Association's functions and must not call back into them, const ones excepted.
// Extents are entered by whoever reads them (llp::MemoryGate).
class Upper {
 public:
  virtual Admission admit(const Key& key) = 0;
  // A new association begins: MSNs start at 1. Association::user is the upper layer's to use.
  virtual void opening(Association& a) = 0;
  virtual void established(Association& a) = 0;
  // After this the association is closed; if peek() has something then, it is opened again.
  virtual void ended(Association& a, const Ended& how) = 0;

  // The segment that take() would give now. Ready: sets *first_msn if it begins a message on queue 0.
  virtual bool peek(Association& a, Lane lane, std::optional<std::uint32_t>* first_msn) = 0;
  // Cuts the next segment: headers, payload and, if there is one, the 4 octets of the immediate are at most `mulpdu`.
  // It will be sent as this PSN, and the same again if need be.
  virtual void take(Association& a, Lane lane, std::uint32_t psn, std::size_t mulpdu, Outgoing& out) = 0;
  // Where the payload lies; how many extents, or -1 when it may not be read any more.
  virtual int memory(Association& a, Lane lane, const Outgoing& segment, std::span<Extent> out) = 0;
  // The peer has accepted all of a message. Not called for one that was reported.
  virtual void acknowledged(Association& a, Lane lane, std::uint64_t message) = 0;
  // An error report. message: the owner of the PSN it names, 0 when that was acknowledged before (the report is about a
  // Read or an atomic that was accepted). The message will not be asked for memory again.
  virtual void reported(Association& a, std::uint64_t message, const Incoming& report) = 0;
  // No request, response or message is in progress, waiting or expected.
  virtual bool quiet(const Association& a) const = 0;
  // The peer has begun a message that holds a receive, and not ended it.
  virtual bool awaits_rest(const Association&) const { return false; }

  // In the order of each lane. Everything is checked and placed when this returns.
  virtual Take deliver(Association& a, const Incoming& in) = 0;
  // A tagged segment ahead of its turn: true when it passed all checks and its payload is in place. It is still
  // delivered in its turn; a false leads to the full checks then.
  virtual bool place(Association& a, const Incoming& in) = 0;
  // Highest queue-0 MSN that the peer may send; free receives and whatever more is thought safe.
  virtual std::uint32_t message_limit(const Association& a) const = 0;

 protected:
  ~Upper() = default;
};

// A message of an association, as Upper::acknowledged() is told of it.
struct MessageId {
  const Association* association = nullptr;
  Lane lane = Lane::req;
  std::uint64_t name = 0;
  bool operator==(const MessageId&) const = default;
};

// A UDP payload but for its CRC32C, which goes over head and payload and is left to who sends: all 0 without `crc`.
struct Frame {
  Octets head;
  std::span<const Extent> payload;
  bool crc = true;
  bool again = false;   // a retransmission: never fragment-protected, so that a smaller path cannot stop it
  MessageId message{};  // whose payload it is
};

class Wire {
 public:
  // What cannot be sent now is lost, and made good like any loss. The spans live as long as the call. A payload that is
  // sent later is not read any more once Upper::acknowledged() has told of its message: its memory may be in other use.
  virtual void send(const Address& to, const Frame& frame) = 0;

 protected:
  ~Wire() = default;
};

// A source of unpredictable numbers: tags and first PSNs come from it.
class Entropy {
 public:
  virtual std::uint32_t draw() = 0;

 protected:
  ~Entropy() = default;
};

}  // namespace ewarp::llp::rd
