// The transport over reliable connections of public verbs, set up by rdma_cm when they are first needed.
//
// Threading: none; the endpoint's lock is held in every call.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi_shim/channel/address.h"
#include "mpi_shim/channel/buffer_pool.h"
#include "mpi_shim/channel/counters.h"
#include "mpi_shim/channel/device.h"
#include "mpi_shim/channel/frequent_buffers.h"
#include "mpi_shim/channel/hello.h"
#include "mpi_shim/channel/registration_cache.h"
#include "mpi_shim/channel/transport.h"

namespace ewarp::channel {

struct VerbsOptions {
  Address address;                                    // to listen at; port 0: any
  std::shared_ptr<Device> device;                     // null: the one that has the address
  std::uint64_t connect_timeout_ns = 10'000'000'000;  // for a peer that does not listen yet, too
  Registration registration = Registration::measured;
  std::size_t kept_registrations = 1024;
};

class VerbsTransport final : public Transport {
 public:
  VerbsTransport(const Tuning& tuning, const VerbsOptions& options);
  ~VerbsTransport() override;
  VerbsTransport(const VerbsTransport&) = delete;
  VerbsTransport& operator=(const VerbsTransport&) = delete;

  // Opens the device and listens. What was refused and why; empty if nothing was.
  std::string open();
  // Who is told, and who makes a PeerId for an address that is new. Our own address is peer 0. Requires: before
  // anything else after open().
  void attach(TransportEvents& events, Counters& counters, std::function<PeerId()> add_peer);

  const Address& address() const { return address_; }
  PeerId peer(const Address& address);
  const Address& address_of(PeerId peer) const { return peers_[peer].address; }
  // Why the connection with it ended; empty if it did not.
  const std::string& reason(PeerId peer) const { return peers_[peer].reason; }

  // Handles what has come, without waiting. True if that was anything.
  // connections: now and then also what rdma_cm has to say, and what is due.
  bool poll(bool connections = true);
  // The next poll() does that in any case.
  void look_at_connections() { looked_at_ = 0; }
  // From here on the completion fd becomes readable when that comes; poll() once more before sleeping.
  void arm(Wake wake);
  // Takes the events that made it readable. Needs no lock, but one caller at a time.
  void take_events();
  int completion_fd() const { return completions_->fd; }
  int connection_fd() const { return channel_->fd; }
  // Until when poll() has to be called though nothing comes; 0: never.
  std::uint64_t deadline() const;
  // Whether deadline() may be earlier than when this was asked last.
  bool take_timers_changed() { return std::exchange(timers_changed_, false); }
  // Disconnects from everybody, in order, within so many nanoseconds.
  void close(std::uint64_t patience_ns);
  RegistrationCache& registrations() { return *cache_; }
  bool kept() const { return options_.registration == Registration::kept; }

  std::uint64_t now() override;
  void connect(PeerId peer) override;
  void fail(PeerId peer, const char* why) override;
  Taken send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, Cookie cookie) override;
  Taken write(PeerId peer, Octets source, const Exposed* memory, wire::Remote target,
              std::optional<std::uint32_t> immediate, bool copy, bool solicited, Cookie cookie) override;
  bool read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote source, Cookie cookie) override;
  bool ping(PeerId peer, Cookie cookie) override;
  bool has_immediate(PeerId peer) override;
  bool add_receives(PeerId peer, std::uint32_t count) override;
  void take_receive(PeerId peer) override;
  std::size_t longest_transfer() const override { return longest_transfer_; }
  Exposed* expose(MutableOctets memory, Reach reach) override;
  void conceal(Exposed* memory) override;

 private:
  struct Connection {
    enum class State : std::uint8_t { resolving, connecting, accepting, up, draining };
    std::uint32_t serial = 0;  // in work request ids: what an earlier connection left in the CQ is not ours
    PeerId peer = 0;
    rdma_cm_id* id = nullptr;
    State state = State::resolving;
    bool active = false, refused = false, immediate = false;
    std::unique_ptr<std::byte[]> octets;  // of the receives
    ibv_mr* memory = nullptr;
    std::uint32_t sends = 0, receives = 0;  // at the adapter
    std::vector<std::uint32_t> spare;       // receives that are not posted
    std::uint32_t surplus = 0;              // so many more will be spare when they were used
    wire::Remote heartbeat;                 // at the peer
    std::uint64_t give_up_at = 0;           // draining
  };
  struct Peer {
    Address address;
    std::unique_ptr<Connection> connection;
    bool dead = false;
    bool wanted = false;           // connect() was called, and nobody was told how it went
    std::uint64_t retry_at = 0;    // 0: no attempt is due
    std::uint64_t give_up_at = 0;  // of all attempts
    std::string reason;
  };
  // A request at the adapter.
  struct Record {
    std::uint32_t serial = 0;
    bool told = true;  // somebody waits for the completion
    Cookie cookie = 0;
    BufferPool::Buffer header, bounce, sink;
    MutableOctets target;  // of a Read into sink
    RegistrationCache::Region* region = nullptr;
    bool in_place = false;
  };
  static Record record_of(Cookie cookie) {
    Record record;
    record.cookie = cookie;
    return record;
  }
  // The sink of a Read: iWARP wants the right to write remotely.
  static constexpr int kSink = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  struct Region : Exposed {
    RegistrationCache::Region* region = nullptr;  // none: everything_
  };

  // verbs_transport.cc: requests and completions
  Connection* ready(PeerId peer);
  bool post(Connection& c, ibv_send_wr& wr, Record record);
  bool post_read(Connection& c, ibv_sge& sge, wire::Remote source, const Record& record);
  void give_back(const Record& record);
  void greet(Connection& c);
  bool worth_registration(Octets memory);
  bool payload_in_place(Record& record, Octets payload);
  std::uint32_t lkey(const RegistrationCache::Region* region) const;
  bool attach_payload(Record& record, ibv_sge* sges, int* count, Octets header, Octets payload, bool copy);
  bool post_receive(Connection& c, std::uint32_t index);
  void completed(const ibv_wc& wc);
  void received(Connection& c, std::uint32_t index, const ibv_wc& wc);
  Connection* find(std::uint32_t serial) const;

  // verbs_device.cc
  std::string open_device();
  MemoryCosts measure();
  ibv_mr* register_everything();
  bool room_in_cq(std::size_t more);

  // verbs_connect.cc: connections
  std::string listen();
  Connection& new_connection(PeerId peer, rdma_cm_id* id, bool active);
  std::string prepare(Connection& c);
  void begin(PeerId peer);
  void on_event(const rdma_cm_event& event, const std::optional<Hello>& hello);
  void on_request(rdma_cm_id* id, const std::optional<Hello>& hello);
  void on_resolved(Connection& c);
  void on_route(Connection& c);
  void on_established(Connection& c, const std::optional<Hello>& hello);
  void on_refused(Connection& c, const std::optional<Hello>& hello, const std::string& why);
  void refuse(rdma_cm_id* id, Hello::Answer answer);
  Hello hello(Hello::Answer answer) const;
  rdma_conn_param parameters(const HelloOctets& hello) const;
  bool handle_connections();
  void drop(Connection& c, const std::string& why);
  void finish_drained(PeerId peer);
  void destroy(Connection& c);
  void give_up(PeerId peer, const std::string& why);

  const Tuning tuning_;
  const VerbsOptions options_;
  Address address_;
  TransportEvents* events_ = nullptr;
  Counters* counters_ = nullptr;
  std::function<PeerId()> add_peer_;

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  std::shared_ptr<Device> device_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::size_t cq_size_ = 0, cq_used_ = 0, longest_transfer_ = 0;
  std::uint32_t send_depth_ = 128, inline_octets_ = 0;
  std::uint8_t read_depth_ = 16;
  unsigned unacknowledged_ = 0;
  bool dear_ = true;
  MemoryCosts costs_;

  std::vector<Peer> peers_;
  std::map<Address, PeerId> by_address_;
  std::unordered_map<std::uint32_t, Connection*> connections_;
  std::uint32_t next_serial_ = 1;
  std::vector<Record> records_;
  std::vector<std::uint32_t> free_records_;
  std::vector<PeerId> writable_, draining_;
  bool timers_changed_ = false;
  std::uint64_t looked_at_ = 0;  // for events of connections
  std::uint64_t heartbeat_ = 0, heartbeat_sink_ = 0;
  ibv_mr* heartbeat_memory_ = nullptr;
  ibv_mr* sink_memory_ = nullptr;
  ibv_mr* everything_ = nullptr;  // all memory, for this end alone; where the adapter pins nothing
  Region own_;                    // what expose() gives for that
  std::unique_ptr<BufferPool> headers_, bounces_, sinks_;
  std::unique_ptr<RegistrationCache> cache_;
  std::unique_ptr<FrequentBuffers> frequent_;
};

}  // namespace ewarp::channel
