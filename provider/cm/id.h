// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The objects of the connection manager: event files, ids, connections that are starting up.
//
// Threading: commands come from any application thread, readiness and timers from the reactor's thread. One mutex
// (manager_mutex) guards everything below; it never covers a blocking call, nor attach() and disconnect() of a QP. An
// id's command_mutex, taken before it, keeps two commands on one id apart while the first is outside the manager's
// lock. The end of a channel takes no command_mutex: look at the state again after each stretch without the lock.
// Callbacks hold weak pointers and look at `done` or the state first: whatever was cancelled meanwhile ends
// there.
#pragma once

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpa/startup.h"
#include "provider/cm/address.h"
#include "provider/cm/kernel.h"
#include "provider/cm/socket.h"
#include "provider/engine/reactor.h"
#include "provider/startup/pending.h"

namespace ewarp::verbs {
class Device;
class QueuePair;
class StreamObserver;
}  // namespace ewarp::verbs

namespace ewarp::cm {

// Guards the manager, and of ids and files what is neither atomic nor fixed (as an id's number, port_space and qp_type
// are). Taken inside an id's command_mutex, never with the
// engine held.
inline constinit llp::Mutex manager_mutex;

// rdma_cm_event_type of <rdma/rdma_cma.h>, which cannot be included beside <rdma/rdma_user_cm.h>.
enum class EventType : std::uint32_t {
  addr_resolved = 0,
  addr_error = 1,
  route_resolved = 2,
  route_error = 3,
  connect_request = 4,
  connect_response = 5,
  connect_error = 6,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  multicast_join = 12,
};

enum class State : std::uint8_t {
  idle,              // created
  bound,             // has a local address
  address_resolved,  // has a device and a peer address
  route_resolved,    // may connect
  connecting,        // TCP or MPA start-up under way, or attached and not yet established
  listening,
  request,      // made by a listener; the consumer has not answered
  accepting,    // the Reply was sent; the first FPDU may be missing (the QP limits that time)
  established,  // ESTABLISHED was queued
  closing,      // DISCONNECT was called; DISCONNECTED is not queued yet
  disconnected,
  failed,     // rejected, refused, timed out, ...: only DESTROY_ID makes sense
  destroyed,  // gone for the consumer; callbacks that still hold it do nothing
};
const char* name(State state);

class File;
struct Group;
struct Id;
struct SidrArrival;
struct SidrAttempt;
using IdRef = std::shared_ptr<Id>;
using FileRef = std::shared_ptr<File>;

struct Event {
  IdRef owner;                   // on whose account GET_EVENT books it; the listener for CONNECT_REQUEST
  IdRef request;                 // the new id of a CONNECT_REQUEST
  std::shared_ptr<Group> group;  // of a MULTICAST_JOIN
  rdma_ucm_event_resp body{};
};

// The start-up on the active side (connect.cc).
struct Attempt {
  Socket socket;
  std::optional<mpa::Initiator> initiator;
  std::size_t sent = 0;                             // of the Request
  bool heard = false;                               // an octet of the Reply arrived
  bool enhanced = true;                             // Rev 2; false on the second try (RFC 6581 section 10)
  std::uint64_t timer = 0;                          // for what it waits for now: TCP's connection, or the Reply
  verbs::Reactor::Clock::time_point refused_limit;  // until then a refused connection is tried again
  std::uint32_t qp_number = 0;
  mpa::StartupConfig config;
  std::vector<std::byte> private_data;
  bool done = false;  // nothing of it runs any more; also marks it for callbacks already on their way
};

// A connection that arrived and whose Request is not complete, or is complete and waits for room in the backlog.
struct Incoming {
  Socket socket;
  std::unique_ptr<mpa::Responder> responder = std::make_unique<mpa::Responder>();
  std::uint64_t timer = 0;
  std::weak_ptr<Id> listener;
  Address local, remote;
  verbs::Device* device = nullptr;
  std::uint64_t number = 0;  // in the order of accept()
  bool complete = false;     // the Request is
  bool guarded = false;      // complete, and watched for its peer's end
  bool done = false;
};

struct Listener {
  static constexpr std::size_t kMaxPending = 256;
  unsigned backlog = 0;                                     // CONNECT_REQUESTs that may wait for GET_EVENT
  unsigned queued = 0;                                      // that do wait
  std::uint64_t accepted = 0;                               // ever
  std::map<std::uint64_t, std::shared_ptr<Incoming>> open;  // by number: all that have not become a CONNECT_REQUEST
  verbs::PendingConnections pending{kMaxPending};           // the same, by who may stay and who is next
  bool watching = false;
  bool starved = false;                           // out of file descriptors: said once, tried again by a timer
  std::uint64_t retry_timer = 0;                  // then
  std::uint64_t room_timer = 0;                   // when a connection that waits may lose its place
  std::map<std::string, std::weak_ptr<Id>> sidr;  // by who asked: a repeated request gets the same answer
};

struct Id {
  std::uint32_t number = 0;
  std::atomic<Claim> claim{Claim::ours};
  std::uint64_t uid = 0;  // the consumer's name for it; 0 until ACCEPT on the passive side
  std::uint16_t port_space = 0;
  std::uint8_t qp_type = 0;
  FileRef file;
  bool unheard_of = false;  // its CONNECT_REQUEST waits for GET_EVENT: no command can name it yet
  State state EWARP_GUARDED_BY(manager_mutex) = State::idle;
  std::uint32_t events_reported = 0;  // by GET_EVENT; the consumer must acknowledge as many

  Address local, remote;
  bool own_port = false;  // the consumer named the local port
  verbs::Device* device = nullptr;
  Socket socket;  // bound, listening, or with a complete Request
  SocketOptions options;

  std::shared_ptr<Attempt> attempt;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<mpa::Responder> responder;  // State::request
  std::weak_ptr<verbs::QueuePair> qp;         // once connecting or accepting
  mpa::StreamParams params;                   // of the attached stream, as the next ones
  bool lets_sends_wait = false;
  std::shared_ptr<verbs::StreamObserver> observer EWARP_GUARDED_BY(manager_mutex);
  std::vector<std::byte> reply_data;  // private data for ESTABLISHED on the active side
  std::shared_ptr<SidrAttempt> sidr_attempt;
  std::shared_ptr<SidrArrival> sidr_arrival;

  std::mutex command_mutex;
  bool is_datagram() const;                              // UD
  void enter(State next) EWARP_REQUIRES(manager_mutex);  // the only writer of state; logs
};

// An open event channel (file.cc).
class File {
 public:
  // fd: the consumer's. counter: an eventfd, the same one unless a kernel's channel is beside it.
  File(int fd, int counter, std::unique_ptr<KernelChannel> kernel);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  int counter() const { return counter_; }
  // False if a program closed it behind our back (close_range): the number may be another eventfd by now.
  bool has_counter() const;
  const KernelChannel* kernel() const { return kernel_.get(); }

  void post(Event event) EWARP_REQUIRES(manager_mutex);
  // Removes the events that belong to `owner`, with their tokens; returns them.
  std::list<Event> take_events_of(const Id& owner) EWARP_REQUIRES(manager_mutex);
  // The same for the events that `gone` says so of.
  std::list<Event> take_events_if(const std::function<bool(const Event&)>& gone) EWARP_REQUIRES(manager_mutex);
  std::list<Event>& events() EWARP_REQUIRES(manager_mutex) { return events_; }
  std::set<std::uint32_t>& ids() EWARP_REQUIRES(manager_mutex) { return ids_; }
  bool open EWARP_GUARDED_BY(manager_mutex) = true;

 private:
  const int fd_, counter_, counter_mark_;
  const std::unique_ptr<KernelChannel> kernel_;
  std::list<Event> events_ EWARP_GUARDED_BY(manager_mutex);
  std::set<std::uint32_t> ids_ EWARP_GUARDED_BY(manager_mutex);
};

struct Manager {
  std::unordered_map<int, FileRef> files EWARP_GUARDED_BY(manager_mutex);
  std::map<std::uint32_t, IdRef> ids EWARP_GUARDED_BY(manager_mutex);
  std::set<std::uint32_t> free_numbers EWARP_GUARDED_BY(manager_mutex);
  std::uint32_t next_number EWARP_GUARDED_BY(manager_mutex) = 1;
  std::map<std::uint32_t, std::shared_ptr<Group>> groups EWARP_GUARDED_BY(manager_mutex);
  // A kernel beside us counts its own from 0.
  std::uint32_t next_group EWARP_GUARDED_BY(manager_mutex) = 1u << 30;
};
Manager& manager();

// Holds manager_mutex until the end of its scope, but between unlock() and lock(). As a parameter: the caller holds it.
class EWARP_SCOPED_CAPABILITY Lock {
 public:
  Lock() EWARP_ACQUIRE(manager_mutex) { manager_mutex.lock(); }
  ~Lock() EWARP_RELEASE() {
    if (held_) manager_mutex.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void lock() EWARP_ACQUIRE() {
    assert(!held_);
    manager_mutex.lock();
    held_ = true;
  }
  void unlock() EWARP_RELEASE() {
    assert(held_);
    held_ = false;
    manager_mutex.unlock();
  }

 private:
  bool held_ = true;
};

FileRef find_file(int fd);

// --- id.cc. Those with a Lock parameter require it to be held. ---

// 0, or ENOMEM when librdmacm's index (16 bits) is full; beside a kernel its errno.
int new_id(const Lock&, const FileRef& file, std::uint64_t uid, std::uint16_t port_space, std::uint8_t qp_type,
           IdRef* out) EWARP_REQUIRES(manager_mutex);
// 0, ENOENT (no such id) or EINVAL (another file's, or one that the consumer has not been told of).
int find_id(const Lock&, const FileRef& file, std::uint32_t number, IdRef* out) EWARP_REQUIRES(manager_mutex);
// Takes the id and all that hangs on it out of the world. Returns the QP whose stream must be aborted, without the
// lock, if any.
std::shared_ptr<verbs::QueuePair> destroy(const Lock&, const IdRef& id) EWARP_REQUIRES(manager_mutex);
// After destroy(): the kernel's half, where there is one. Returns how many events the kernel reported of it. Waits for
// callbacks of an id that the kernel has claimed: without the lock then.
std::uint32_t forget_in_kernel(const Id& id);
// Queues an event, unless the consumer does not know the id yet.
void report(const Lock&, const IdRef& id, EventType type, int status = 0, const rdma_ucm_conn_param* param = nullptr)
    EWARP_REQUIRES(manager_mutex);
void report_datagram(const Lock&, const IdRef& id, EventType type, int status, const rdma_ucm_ud_param& param)
    EWARP_REQUIRES(manager_mutex);

// True if a device of ours leads from this id's address, if it has one, to the destination.
bool reachable(const IdRef& id, const Address& destination);
int bind(const IdRef& id, const Address& address);
// The same for callers that hold the id's command_mutex. The id must be idle.
int bind_serialized(const IdRef& id, Address address);
// source.family() 0: none given.
int resolve_address(const IdRef& id, Address source, Address destination);
int resolve_route(const IdRef& id);
int disconnect(const IdRef& id);
int set_option(const IdRef& id, std::uint32_t level, std::uint32_t name, std::uint64_t value, std::uint32_t length);

// --- connect.cc ---
int connect(const IdRef& id, const rdma_ucm_conn_param& param);
void cancel_attempt(const Lock&, Id& id) EWARP_REQUIRES(manager_mutex);

// --- listen.cc ---
int listen(const IdRef& id, std::uint32_t backlog);
// GET_EVENT took a CONNECT_REQUEST of this listener out of the queue: another one may take its place.
void request_fetched(const Lock&, const IdRef& listener) EWARP_REQUIRES(manager_mutex);
// CONNECT_REQUESTs that may wait, of what listen() was given.
unsigned backlog_of(std::uint32_t wanted);
void cancel_listener(const Lock&, Id& id) EWARP_REQUIRES(manager_mutex);

// --- accept.cc ---
int accept(const IdRef& id, std::uint64_t uid, const rdma_ucm_conn_param& param);
int reject(const IdRef& id, Octets private_data);

// --- stream.cc: what both sides share ---

// Limits and choices of a start-up with this peer; looks at interfaces, so without the lock.
mpa::StartupConfig startup_config(verbs::QueuePair& qp, const rdma_ucm_conn_param& param, const Address& peer);
// What the program says of Sends that find no receive.
bool lets_sends_wait(const rdma_ucm_conn_param& param);
// Hands the stream to the QP, without the lock; it takes the engine. 0 or errno; the stream is gone in any case.
int attach(const IdRef& id, verbs::QueuePair& qp, std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params);
// Ends the id's stream on the QP; without the lock. The QP may have another one by now: that is left alone. qp: may be
// null.
void end_stream(const IdRef& id, const std::shared_ptr<verbs::QueuePair>& qp, bool graceful);
// A connection that never came to be: counts it, enters State::failed, reports.
void fail(const Lock&, const IdRef& id, EventType type, int status, const rdma_ucm_conn_param* param = nullptr)
    EWARP_REQUIRES(manager_mutex);
rdma_ucm_conn_param event_param(unsigned responder_resources, unsigned initiator_depth, Octets private_data);

// --- query.cc: writes at most `size` octets to the consumer's memory; 0, ENOSPC or EFAULT. ---
int query_route(const IdRef& id, std::uint64_t response, std::size_t size);
int query(const IdRef& id, std::uint32_t option, std::uint64_t response, std::size_t size);
int init_qp_attr(const IdRef& id, std::uint32_t qp_state, std::uint64_t response, std::size_t size);

// --- file.cc ---
// The channel is closed or being closed while its owner's thread asks for an event. The kernel's file outlives its
// descriptor until the command returns, and has no more events. Returns, with EINTR, only for a signal.
int wait_in_closed_file();
// 0 or errno. Waits without any lock. command: the whole of it, for a kernel's channel.
int get_event(FileRef file, std::uint64_t response, std::size_t size, Octets command);
int migrate(const FileRef& to, int from_fd, std::uint32_t number, std::uint32_t* events_reported);

// --- claims.cc ---
struct WrittenCommand {
  std::uint32_t number;
  Octets body;   // a copy
  Octets whole;  // with its header, in the consumer's memory
};
// Runs a command on a channel that has a kernel's beside it: here, by here(), in the kernel, or in both. 0 or errno.
int run_beside_kernel(const FileRef& file, const WrittenCommand& command, const std::function<int()>& here);

// No thread is cancelled in the middle of a command: the state it changes outlives the thread.
class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old_); }
  ~NoCancel() { pthread_setcancelstate(old_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int old_ = 0;
};

// Copies min(size, room) octets to the consumer; 0 or EFAULT.
int copy_out(std::uint64_t to, const void* from, std::size_t size, std::size_t room);
bool copy_in(void* to, const void* from, std::size_t size);

}  // namespace ewarp::cm
