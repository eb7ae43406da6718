// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A message channel over RDMA: tagged sends and receives between many peers, in MPI's order (docs/design/channel.md).
//
//   auto endpoint = Endpoint::open({.address = "192.0.2.1:0"}, &error);
//   PeerId other = endpoint->peer("192.0.2.2:7000");
//   Request r = endpoint->irecv(other, 1, buffer);
//   endpoint->wait(endpoint->isend(other, 1, data));
//   Status got = endpoint->wait(r);
//
// Threading: every function may be called by any thread at any time, but for close() and the destructor, which come
// last. A request is tested or waited for by one thread. After fork() the child must not use the endpoint.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/types.h"
#include "mpi_shim/channel/core/wire.h"
#include "mpi_shim/channel/verbs/address.h"
#include "mpi_shim/channel/verbs/device.h"

namespace ewarp::channel {

struct Stored;

// A message that improbe() found; for mrecv() or discard(), one of which it needs.
class Message {
 public:
  Message();
  ~Message();
  Message(Message&&) noexcept;
  Message& operator=(Message&&) noexcept;
  explicit operator bool() const { return stored_ != nullptr; }

 private:
  friend class Endpoint;
  std::unique_ptr<Stored> stored_;
};

struct EndpointOptions {
  std::string address =
      "127.0.0.1:0";  // of this end: an IP address of an RDMA device, and a port (0: any that is free)
  // Shares its protection domain with what was registered there; null: the endpoint opens it by itself.
  std::shared_ptr<Device> device = {};
  Tuning tuning = {};
  std::string job = {};         // a secret of the job: who does not know it does not get in; empty: anybody does
  bool progress_thread = true;  // without one, transfers that need control messages proceed only inside the calls
  int spin_us = -1;             // how long wait() polls before it sleeps; -1: 1000 if several CPUs may be used, else 0
  // There are more processes than CPUs: progress() called again and again with nothing to do lets others run.
  bool shares_cpu = false;
  Registration registration = Registration::measured;
  std::uint64_t connect_timeout_ns = 10'000'000'000;  // for peers that do not listen yet, too
  std::uint64_t close_timeout_ns = 2'000'000'000;
  bool counters_at_close = false;   // printed on stderr
  bool end_if_unreachable = false;  // with a line on stderr: a job without this connection cannot go on

  // The defaults, and what the environment says: EWARP_CHANNEL_ and the name of a field in capitals, tuning included
  // (EWARP_CHANNEL_EAGER_THRESHOLD=8192). A bad value or an unknown EWARP_CHANNEL_ name is said once on stderr and
  // ignored. problems, if not null: gets one line for each instead.
  static EndpointOptions from_environment();
  static EndpointOptions from_environment(const EndpointOptions& defaults,
                                          std::vector<std::string>* problems = nullptr);

  bool operator==(const EndpointOptions&) const = default;
};

// Memory of this end that peers may put to and get from.
class Window {
 public:
  wire::Remote remote;  // for the peers

 private:
  friend class Endpoint;
  void* exposed_ = nullptr;
};

class Endpoint {
 public:
  // Null, *error (what was refused and why) and *code (as an errno, if code is not null) if the device cannot be used.
  static std::unique_ptr<Endpoint> open(const EndpointOptions& options, std::string* error, int* code = nullptr);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Where peers find this end: "ip:port".
  std::string address() const;
  // The number of the peer at this address, connected or not; nothing if that is no address. A peer that was lost and
  // is asked for again gets a new number.
  std::optional<PeerId> peer(const std::string& address);
  PeerId peer(const Address& address);
  // The same without a new number: nothing if nobody has one, or if the last who had it was lost.
  std::optional<PeerId> living_peer(const Address& address) const;
  static constexpr PeerId self() { return 0; }
  std::string address_of(PeerId peer) const;
  // Why it was lost; empty if it was not.
  std::string why_lost(PeerId peer) const;

  // The buffer is the channel's until the request is done. synchronous: not done before the receive was posted.
  // An empty request: there are too many.
  Request isend(PeerId peer, Tag tag, Octets data, bool synchronous = false);
  Request irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore = 0);
  // With a listener the request is not tested or waited for. An empty request: there are too many, or the path is full
  // of messages with options.inject.
  Request isend(PeerId peer, Tag tag, Octets data, const SendOptions& options);
  Request irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore, const ReceiveOptions& options);
  // Octets of a message or a put with options.inject: eager_threshold.
  std::size_t most_injected() const { return most_injected_; }
  // True, and the status, once; the request is gone then.
  bool test(Request request, Status* status);
  // Requires: not tested or waited for before. An unknown request is Error::cancelled.
  Status wait(Request request);
  // False if it is not done within so many nanoseconds.
  bool wait_for(Request request, Status* status, std::uint64_t patience_ns);
  // A receive without a message ends as Error::cancelled, soon; any other goes on. It is waited for all the same.
  void cancel(Request request);
  // The oldest receive with this listener and context for which no message has come. False: there is none.
  bool cancel(const Listener& listener, const void* context);

  std::optional<Status> iprobe(PeerId source, Tag tag, Tag ignore = 0);
  Message improbe(PeerId source, Tag tag, Tag ignore, Status* status);
  // The sender learns nothing of it.
  void discard(Message message);
  // An empty request: there are too many, and the message is the caller's as before.
  Request mrecv(Message&& message, MutableOctets buffer, const Report& report = {});

  // One-sided. A put is done when the buffer may be used again; what is sent to the peer later finds the data there.
  std::optional<Window> expose(MutableOctets memory);
  void conceal(Window& window);
  // options.data is told to the peer's listener (tell_puts()) behind the data.
  Request put(PeerId peer, Octets source, wire::Remote target, const SendOptions& options = {});
  Request get(PeerId peer, MutableOctets target, wire::Remote source, const Report& report = {});

  // Puts of peers that have data attached end here: the status says whose, how long and what. Before any peer may do
  // so.
  void tell_puts(const Report& report);
  // A question of eager_threshold octets at most to the peer's answerer, whose answer goes to `answer`. The status
  // tells its length: 0 where there is no answerer. An empty request: there are too many, or the path is full.
  Request call(PeerId peer, Octets question, MutableOctets answer, const Report& report = {});
  void answer_with(Answerer* answerer);

  // This memory is about to be unmapped. Needed where registrations are kept (docs/design/channel.md).
  void forget(const void* memory, std::size_t octets);
  // Handles what has come; for applications without a progress thread, or with listeners.
  void progress();
  // The caller is about to sleep until a listener wakes it: from now on the progress thread handles at once what comes.
  // Otherwise it need not look at what only ends requests before the application does.
  // False: something has come, or there is no such thread.
  bool rest();
  Counters counters() const;

  // Sends what is to be sent, waits for the peers to have fetched what they were promised (close_timeout_ns at most),
  // and disconnects. Requests that are not done end with Error::peer_down.
  void close();

 private:
  class Impl;
  explicit Endpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  const std::size_t most_injected_ = Tuning{}.eager_threshold;
};

}  // namespace ewarp::channel
