// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The ends of channels of a process: their memory, their handles, what they post and what they are told.
#pragma once

#include "mpi_shim/acp/core/crb.h"
#include "mpi_shim/acp/core/receiver.h"
#include "mpi_shim/acp/core/sender.h"
#include "mpi_shim/acp/options.h"
#include "mpi_shim/acp/path.h"

namespace ewarp::acp {

// Ends by number. A handle is a number + 1 in the low half and its generation in the high one; 0 is none.
class EndTable {
 public:
  EndTable();
  ~EndTable();
  EndTable(const EndTable&) = delete;
  EndTable& operator=(const EndTable&) = delete;

  // A number that is free, or Immediate::kEnds: none is.
  std::uint32_t reserve();
  void put(std::uint32_t number, End* end) { all_[number].end = end; }
  void release(std::uint32_t number);
  End* at(std::uint32_t number) const { return number < touched_ ? all_[number].end : nullptr; }
  std::uint64_t handle(const End& end) const;
  End* find(std::uint64_t handle) const;
  template <class F>
  void each(F f) {
    for (std::uint32_t i = 0; i < touched_; ++i)
      if (all_[i].end != nullptr) f(*all_[i].end);
  }

 private:
  struct Slot {
    End* end;
    std::uint32_t generation;
    std::uint32_t next_free;
  };
  Slot* all_;
  std::uint32_t free_ = Immediate::kEnds;
  std::uint32_t touched_ = 0;  // the rest were never in use
};

class Channels final : private Wire {
 public:
  static constexpr std::uint32_t kRequests = 8192;  // of the program, at a time

  class Listener {
   public:
    // An end of a channel with this rank was lost, which is not gone as far as is known. Once for each rank.
    virtual void lost(std::uint32_t rank) = 0;

   protected:
    ~Listener() = default;
  };
  Channels(Path& path, Area& area, const Options& options, Listener& listener);
  ~Channels();

  // 0 with errno: see acp_create_ch().
  std::uint64_t create(int sender, int receiver);
  // Null with errno. Requires: buffer of so many octets, at most INT_MAX.
  Request* begin(std::uint64_t channel, Kind kind, void* buffer, std::size_t octets);
  RequestPool& requests() { return requests_; }

  // Of this process's posts and its peers' notices.
  void completed(const Completion& c, std::uint64_t now);
  void noticed(Immediate i);
  void gone(std::uint32_t rank);
  // It lives, and one of the two has lost an end: no channel between them goes on, or can be created.
  void part(std::uint32_t rank);
  void advance(std::uint64_t now);
  // Something is to be done that no completion will tell of.
  bool restless() const { return first_ != nullptr || late_ != 0; }
  // Nothing is under way to peers that live.
  bool drained();
  std::uint64_t strange_notices() const { return strange_; }

 private:
  bool claim(Sender& end, std::uint32_t entry) override;
  bool ask(Sender& end, std::uint32_t entry) override;
  Put put(Sender& end, std::uint32_t from, std::uint32_t to, std::uint32_t octets, std::uint32_t filled) override;
  bool answer(Receiver& end) override;
  bool credit(Receiver& end, std::uint32_t n, std::uint32_t emptied) override;
  bool tell_closed(Receiver& end) override;

  void post(End& end, Subject subject, Post p);
  bool notify(Receiver& end, Notice notice, std::uint32_t count);
  std::uint64_t entry_at(std::uint32_t peer, std::uint32_t entry) const;
  std::uint32_t lkey(const End& end) const { return path_.transport.registration(end.region).lkey; }

  End* make(bool sends, const Place& place);
  void destroy(End& end);
  void requested(std::uint32_t entry, bool again = false);
  void match(Receiver& end);
  void match_all(std::uint32_t rank);
  void chain(End& end);
  void look_at_index(End& end);
  bool advance_end(End& end, std::uint64_t now);
  void lose(End& end, int error);
  void lose_all(std::uint32_t rank);
  void report_loss(End& end);
  void break_bond(std::uint32_t rank);
  bool may_be_named(const End& end) const;

  Path& path_;
  Area& area_;
  Listener& listener_;
  Shape send_shape_, receive_shape_;
  ConnectRequests connect_requests_;
  RequestPool requests_{kRequests};
  EndTable ends_;
  End* first_ = nullptr;  // the chain of those that have something to do
  End* last_ = nullptr;
  // Entries of the CRB whose requests found no memory: a bit each.
  std::uint64_t late_ = 0;
  static_assert(ConnectRequests::kEntries == 64);
  std::uint64_t strange_ = 0;  // notices that no process of this kind sends
};

}  // namespace ewarp::acp
