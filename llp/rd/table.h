// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// All associations of one socket: found by tag and by key, opened, challenged, refused, driven by one deadline.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "llp/rd/association.h"
#include "llp/rd/cookie.h"
#include "llp/source_limit.h"

namespace ewarp::llp::rd {

// Where associations live: by number, in blocks that never move. Numbers are half the size of pointers.
class Slab {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  ~Slab();
  Association& operator[](std::uint32_t i) const {
    assert(i < used_);
    return *std::launder(reinterpret_cast<Association*>(blocks_[i / kBlock]->raw[i % kBlock].data()));
  }
  std::uint32_t create(Shared& shared, const Key& key, std::uint16_t port);
  void destroy(std::uint32_t i);
  std::size_t size() const { return used_ - free_.size(); }

 private:
  static constexpr std::size_t kBlock = 64;
  struct Block {
    alignas(Association) std::array<std::array<std::byte, sizeof(Association)>, kBlock> raw;
  };
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t used_ = 0;
};

// The associations of a slab, ordered by their deadlines; each knows its place.
class Deadlines {
 public:
  explicit Deadlines(const Slab& slab) : slab_(slab) {}
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  Association& top() const { return at(0); }
  Association& at(std::size_t i) const { return slab_[heap_[i]]; }
  // For one more; insert() needs no memory behind it.
  void make_room();
  void insert(Association& a);
  void remove(Association& a);
  void update(Association& a, Time deadline);

 private:
  void place(std::uint32_t a, std::size_t i);
  void up(std::size_t i);
  void down(std::size_t i);
  const Slab& slab_;
  std::vector<std::uint32_t> heap_;
};

// Threading: belongs to whoever holds the engine.
class Table {
 public:
  Table(const Config& config, Upper& upper, Wire& wire, Entropy& entropy);
  Table(const Table&) = delete;

  // One UDP payload from `from`; ce: it carried a CE mark. more: others follow at once, so that what it gives rise to
  // is sent by finish(), and one acknowledgement answers them all. finish() comes soon again if `again`: what is only
  // an acknowledgement waits for that, since an answer of the application's may go out first and carry it. False:
  // nothing was to do.
  void receive(Time now, const Address& from, Octets datagram, bool ce = false, bool more = false);
  bool finish(Time now, bool again = false);
  // peek() has something for this peer. Opens an association where there is none; `user` becomes its Association::user.
  void wake(Time now, const Key& key, std::uint16_t port, void* user = nullptr);
  Association* find(const Key& key) const;
  // Receives were posted that this association may have been waiting for; also grants what message_limit() allows now.
  void receives_posted(Time now, Association& a);
  // All associations of a queue pair end; the peers are told.
  void reset_qp(Time now, std::uint32_t local_qpn, ResetReason reason = ResetReason::qp_gone);
  // The queue pair is destroyed: where nothing is outstanding the association lingers until the peer has agreed to its
  // end, so that a lost last acknowledgement costs no message its status; the others end as with reset_qp().
  void leave_qp(Time now, std::uint32_t local_qpn);
  // Path MTU news for all associations with this address: Association::limit_segment().
  void limit_segments(const std::array<std::byte, 16>& ip, std::uint16_t max_udp_payload);
  // Ends one; the peer is told. It may open again at once if peek() still has something for it.
  void abort(Time now, Association& a, ResetReason reason);

  // When expire() has something to do; kNever if nothing is under way.
  Time deadline() const { return deadlines_.empty() ? kNever : deadlines_.top().place_.deadline; }
  void expire(Time now);

  std::size_t size() const { return deadlines_.size(); }
  std::size_t held() const { return shared_.held; }
  std::size_t embryonic() const { return shared_.embryonic; }
  const Counters& counters() const { return shared_.counters; }

 private:
  void on_open(Time now, const Address& from, const Prefix& prefix, const Open& open);
  void on_new_open(Time now, const Address& from, const Key& key, const Open& open, bool proven);
  void on_reset(Time now, const Address& from, const Prefix& prefix, const Reset& reset);
  void challenge(Time now, const Address& from, const Key& key, const Open& open);
  void reset_stranger(Time now, const Address& to, const Prefix& about, std::uint32_t tag, ResetReason reason,
                      std::uint8_t flags, std::uint8_t aux = 0);
  void count(Drop why);
  bool reclaim(Time now);
  std::vector<Association*> all_of(std::uint32_t local_qpn);
  void say_goodbye(Time now, Association& a);
  Association* by_tag(std::uint32_t tag) const;
  bool belongs(const Association& a, const Address& from, const Prefix& prefix) const;
  Association& create(const Key& key, std::uint16_t port, void* user);
  Association::Identity identity();
  void open(Time now, Association& a);
  void accept(Time now, Association& a, const Open& open);
  void settle(Time now, Association& a);
  void link(Association& a, std::uint32_t Association::Place::*next, std::uint32_t& head);
  void unlink(Association& a, std::uint32_t Association::Place::*next, std::uint32_t& head);
  void link_tag(Association& a);
  void unlink_tag(Association& a);
  std::uint32_t& key_head(const Association& a);
  void remove(Association& a);
  void grow();
  std::size_t key_bucket(const Key& key) const;
  std::size_t tag_bucket(std::uint32_t tag) const { return tag & (by_tag_.size() - 1); }

  Shared shared_;
  Entropy& entropy_;
  SipKey hash_key_;
  CookieJar cookies_;
  Slab slab_;
  Deadlines deadlines_{slab_};
  std::vector<std::uint32_t> late_, being_finished_;  // associations that finish() is for
  std::vector<std::uint32_t> by_tag_, by_key_;        // heads of chains through the associations
  SourceLimit resets_;
};

}  // namespace ewarp::llp::rd
