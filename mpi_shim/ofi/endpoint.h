// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An endpoint: a channel endpoint whose requests end in completion queues and counters.
//
// The label of a request is made of libfabric's flags for its completion, and of what follows.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <atomic>
#include <cassert>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/channel/channel.h"
#include "mpi_shim/ofi/address_vector.h"
#include "mpi_shim/ofi/atomics.h"
#include "mpi_shim/ofi/completion_queue.h"
#include "mpi_shim/ofi/counter.h"
#include "mpi_shim/ofi/table.h"

namespace ewarp::ofi {

// No entry where it succeeds. A bit that completion flags do not use.
inline constexpr std::uint64_t kQuiet = std::uint64_t{1} << 63;

class Endpoint : public fid_ep, public channel::Listener, public channel::Answerer {
 public:
  // ignored_bits: the channel's.
  Endpoint(Domain& domain, const fi_info& info, std::unique_ptr<channel::Endpoint> channel, channel::Tag ignored_bits,
           void* context);
  ~Endpoint() override;
  static Endpoint& from(fid_ep* e) { return *static_cast<Endpoint*>(e); }

  int bind(struct fid* other, std::uint64_t flags);
  int enable();

  // What is to be sent or received. flags: of this operation (FI_INJECT, FI_DELIVERY_COMPLETE, ...).
  struct Send {
    fi_addr_t to;
    std::uint64_t tag;    // with the bit of its matching space
    std::uint64_t label;  // FI_MSG or FI_TAGGED
    std::uint64_t flags;
    const void* buffer;
    std::size_t length;
    std::optional<std::uint64_t> data = {};
    void* context = nullptr;
  };
  struct Receive {
    fi_addr_t from;
    std::uint64_t tag, ignore;
    std::uint64_t label, flags;
    void* buffer;
    std::size_t length;
    void* context = nullptr;
  };
  struct Rma {
    fi_addr_t peer;
    const void* buffer;
    std::size_t length;
    std::uint64_t address, key;
    std::uint64_t flags;
    std::optional<std::uint64_t> data = {};
    void* context = nullptr;
  };
  struct Atomic {
    AtomicKind kind;
    fi_addr_t peer;
    fi_op op;
    fi_datatype datatype;
    std::size_t count;
    const void *operands, *compares;
    void* results;
    std::uint64_t address, key;
    std::uint64_t flags;
    void* context = nullptr;
  };
  // 0, or a negative code; -FI_EAGAIN: later; -FI_EOPBADSTATE: before enable().
  ssize_t send(const Send& s);
  ssize_t receive(const Receive& r);
  ssize_t put(const Rma& r);
  ssize_t get(const Rma& r);
  ssize_t atomic(const Atomic& a);
  ssize_t cancel(void* context);

  // Of calls that name no flags.
  std::uint64_t send_flags() const { return send_flags_; }
  std::uint64_t receive_flags() const { return receive_flags_; }
  channel::Tag ignored_bits() const { return ignored_bits_; }
  // Of calls that do: an endpoint without selective completion completes everything.
  std::uint64_t send_flags(std::uint64_t given) const { return given | (selective_send_ ? 0 : FI_COMPLETION); }
  std::uint64_t receive_flags(std::uint64_t given) const { return given | (selective_receive_ ? 0 : FI_COMPLETION); }
  int control_flags(int command, std::uint64_t* flags);

  // FI_ADDR_NOTAVAIL if it is in no address vector of ours.
  fi_addr_t address_of(channel::PeerId peer);
  channel::Endpoint& channel() { return *channel_; }

  // FI_OPT_MIN_MULTI_RECV.
  std::size_t least_multi_receive() const { return least_multi_receive_.load(); }
  void set_least_multi_receive(std::size_t octets) { least_multi_receive_.store(octets); }

  // noexcept: the request is gone already, and a program that is never told of it would wait for ever.
  void on_done(const channel::Completion& c) noexcept override;
  std::size_t on_call(channel::PeerId peer, channel::Octets question, channel::MutableOctets answer) override;

 private:
  // Those of what peers do to our memory stay 0 (no FI_RMA_EVENT).
  enum CounterOf { kSent, kReceived, kRead, kWritten, kReadByPeers, kWrittenByPeers, kCounters };
  static constexpr channel::PeerId kUnknown = channel::kAnySource;

  enum class State : std::uint8_t {
    binding,  // queues, counters and an address vector are bound to it
    enabled,  // requests are taken
    closing,  // requests end unheard
  };
  static constexpr bool allowed(State from, State to) {
    return (to == State::enabled && from == State::binding) || (to == State::closing && from != State::closing);
  }
  // Else fi_enable() is missing: there may be no addresses, and nowhere to report.
  bool takes_requests() const { return state_.load(std::memory_order_relaxed) != State::binding; }
  // The only writer of the state. Not by two threads at once.
  void enter(State to) {
    assert(allowed(state_.load(), to));
    state_.store(to);
  }

  int bind_queue(CompletionQueue& q, std::uint64_t flags);
  int bind_counter(Counter& c, std::uint64_t flags);
  // kUnknown: there is no such address.
  channel::PeerId peer_of(fi_addr_t address);
  // What is injected has no completion to tell that its peer is gone: the call fails.
  bool is_refused_here(channel::PeerId peer, const Rma& r, std::uint64_t rights, std::uint64_t label);
  bool is_lost(channel::PeerId peer) const {
    return lost_one_.load(std::memory_order_relaxed) && !channel_->why_lost(peer).empty();
  }
  struct Known;
  // Another one may have its address. Looked at once more when addresses are inserted again: who does so may have heard
  // of another one, while no request failed of the one that was there.
  bool is_outdated(Known& known, channel::PeerId peer, unsigned looked_at) const;
  ssize_t peek(const Receive& r, channel::PeerId source);
  ssize_t claim(const Receive& r);
  static CounterOf counter_of(std::uint64_t label);
  CompletionQueue* queue_of(std::uint64_t label) const;
  // The entry and the count.
  void report(const channel::Completion& c);
  // The entry alone.
  void tell(const channel::Completion& c);
  void report_failure(const channel::Completion& c, int error);
  std::uint64_t label_of(std::uint64_t label, std::uint64_t flags) const {
    return (flags & FI_COMPLETION) != 0 ? label : label | kQuiet;
  }

  Domain& domain_;
  const std::uint64_t caps_;
  std::uint64_t send_flags_, receive_flags_;
  bool selective_send_ = false, selective_receive_ = false;
  std::atomic<bool> lost_one_{false};  // a request failed because its peer was gone
  AddressVector* addresses_ = nullptr;
  CompletionQueue* send_queue_ = nullptr;
  CompletionQueue* receive_queue_ = nullptr;
  Counter* counters_[kCounters] = {};
  std::atomic<State> state_{State::binding};
  std::unique_ptr<channel::Endpoint> channel_;
  const channel::Tag ignored_bits_;

  // What addresses are which peers, and back, as far as that was needed.
  struct Known {
    std::atomic<channel::PeerId> peer{kUnknown};
    std::atomic<unsigned> repeated{0};  // AddressVector::repeated() when the peer was looked at last
  };
  struct Address {
    std::atomic<fi_addr_t> at{FI_ADDR_NOTAVAIL};
  };
  Table<Known> peers_;
  Table<Address> origins_;
  std::atomic<std::size_t> least_multi_receive_;
  // An atomic operation whose answer has not come.
  struct Asked {
    void* context;
    std::byte* results;
    std::size_t octets;
    std::vector<std::byte> answer;
  };
  Asked& take_asked();
  void give_asked(Asked& asked);
  void answered(const channel::Completion& c);
  llp::Mutex asking_;  // taken under the channel's lock
  std::vector<std::unique_ptr<Asked>> all_asked_ EWARP_GUARDED_BY(asking_);
  std::vector<Asked*> free_asked_ EWARP_GUARDED_BY(asking_);
  llp::Mutex claiming_;
  struct Claimed {
    channel::Message message;
    channel::Status status;  // what was told when it was claimed
  };
  std::unordered_map<const void*, Claimed> claimed_ EWARP_GUARDED_BY(claiming_);  // by context
};

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** out, void* context) noexcept;

// endpoint_messages.cc
extern fi_ops_msg message_ops;
extern fi_ops_tagged tagged_ops;
// endpoint_rma.cc, endpoint_atomics.cc
extern fi_ops_rma rma_ops;
extern fi_ops_atomic atomic_ops;
int query_atomic(fid_domain* domain, fi_datatype datatype, fi_op op, fi_atomic_attr* out, std::uint64_t flags) noexcept;

}  // namespace ewarp::ofi
