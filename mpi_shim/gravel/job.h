// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process of the job: the machine on an endpoint of the channel, and waiting.
//
// Threading: one call at a time. Only on_done() comes from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mpi_shim/channel/channel.h"
#include "mpi_shim/gravel/boards.h"
#include "mpi_shim/gravel/bootstrap.h"
#include "mpi_shim/gravel/core/buffers.h"
#include "mpi_shim/gravel/core/machine.h"
#include "mpi_shim/gravel/events.h"

namespace ewarp::gravel {

class Job final : private Carrier, private channel::Listener {
 public:
  // Collective. Null, *error and *reason if it failed, here or at another process.
  static std::unique_ptr<Job> start(const Bootstrap& bootstrap, Error* error, std::string* reason);
  // Says farewell to the peers, sends what is to be sent, and disconnects.
  ~Job() override;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Error register_buffer(void* data, std::size_t size);
  Error unregister_buffer(void* data, std::size_t size);

  // As in gravel.h.
  Error post_receive_buffer(Proc proc, void* data, std::size_t size, int tag, RequestId* request);
  Error post_send_request(Proc proc, std::size_t size, int tag, RequestId* request);
  Error post_send_buffer(Proc proc, const void* data, std::size_t size, int tag, RequestId* request);
  Error wait_receive_buffer(Proc* proc, int* tag, std::size_t* size, RequestId* request);
  Error wait_send_request(Proc* proc, int* tag, std::size_t* size);
  Error wait_send_buffer(Proc* proc, int* tag, std::size_t* size, RequestId* request);
  Error post_put(RequestId request, const void* data, std::size_t size, std::size_t offset);
  Error post_get(RequestId request, void* data, std::size_t size, std::size_t offset);
  Error send_fin(RequestId request);
  // Error::full: it is not done.
  Error test(RequestId request);
  Error wait(RequestId request);
  Error wait_all(std::span<RequestId> requests);

  std::size_t requests() const { return machine_.requests(); }
  // Of the last call that failed.
  const std::string& reason() const { return reason_; }

 private:
  struct Peer {
    channel::PeerId id = 0;
    Remote board;          // ours, at the peer
    bool watched = false;  // its end will be told
    bool told = false;     // it knows of that
  };

  Job(const Bootstrap& bootstrap, Boards&& boards, std::shared_ptr<channel::Device> device);
  static std::unique_ptr<Job> open(const Bootstrap& bootstrap, const std::string& secret, std::string* why);
  static std::unique_ptr<Job> open_or_say_why(const Bootstrap& bootstrap, const std::string& secret, std::string* why);
  Card card() const;
  // Error::none, or what keeps the job from starting.
  Error meet(const std::vector<Card>& cards, std::string* reason);

  bool enter(Proc to, std::size_t offset, Octets octets) override;
  bool put(Proc to, const Local& source, Remote target, RequestId request) override;
  bool get(Proc from, const Local& target, Remote source, RequestId request) override;
  void on_done(const channel::Completion& completion) override;
  channel::Report report(std::uint64_t label) { return {.listener = this, .context = nullptr, .label = label}; }

  Peer& peer(Proc proc) { return peers_[static_cast<std::size_t>(proc)]; }
  bool is_peer(Proc proc) const { return proc >= 0 && proc < machine_.procs() && proc != rank_; }
  // False: there are too many requests now.
  bool watch(Proc proc);
  bool watch_source(Proc proc);
  bool watches_us(Proc proc);
  // Handles what has come, and looks at this peer and at some others.
  void pump(Proc proc);
  void handle(const Event& event);
  void say_farewell();
  Error find(const void* data, std::size_t size, Local* out);
  // Asks again while the answer is Error::full.
  template <class Ask>
  Error until(Proc proc, Ask&& ask);
  template <class Take>
  Error take(Proc* proc, Take&& take);
  Error post(Proc proc, const Local& buffer, int tag, RequestId* request,
             Error (Machine::*how)(Proc, const Local&, int, RequestId*));
  Error move(RequestId request, const void* data, std::size_t size, std::size_t offset,
             Error (Machine::*how)(RequestId, const Local&, std::uint64_t));
  Error ask_end(RequestId request);
  // Notes the reason.
  Error say(Error error, Proc proc);

  const Proc rank_;
  Proc watched_ = 0;  // the end of each peer below will be told
  std::shared_ptr<channel::Device> device_;
  Boards boards_;
  Machine machine_;
  Buffers buffers_;
  std::vector<std::optional<channel::Device::Region>> regions_;  // of buffers, by slot
  std::vector<Peer> peers_;
  std::string reason_;
  Events events_;  // what on_done() tells the thread that calls

  std::unique_ptr<channel::Endpoint> endpoint_;  // ends first
};

}  // namespace ewarp::gravel
