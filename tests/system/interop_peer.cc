// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One end of a connection that does what a scenario says and checks what the other end did: every operation, every way
// to end a connection. Plain librdmacm and libibverbs, so that either end may be anybody's device; siw_interop.py sets
// the ends against each other and judges what they print.
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kDeadline = 30s;  // for anything that must happen
constexpr auto kSilence = 2s;    // a peer that says nothing for so long has missed something
constexpr auto kGreeting = 8s;   // longer than EtherWARP repeats its RTR

// The buffer: receives, what is sent, what a Read brings, and what the other end may reach.
constexpr std::uint32_t kSlot = 64 << 10, kSlots = 8;
constexpr std::uint32_t kSending = kSlots * kSlot, kWord = kSending + kSlot, kSink = kSending + 2 * kSlot,
                        kOffered = kSink + 2 * kSlot;
constexpr std::uint32_t kOffer = 4 * kSlot, kBuffer = kOffered + kOffer;
constexpr std::byte kUntouched{0xee};
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Nothing, one octet, beside every PAD, beside the MULPDU of an Ethernet, many segments.
constexpr std::uint32_t kSizes[] = {0, 1, 2, 3, 4, 8, 97, 1424, 1425, 1428, 1429, 5000, 65536};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}
void checked(int result, const char* what) {
  if (result != 0) fail(std::string(what) + ": " + std::strerror(result > 0 ? result : errno));
}
template <class T>
T* needed(T* p, const char* what) {
  if (p == nullptr) fail(std::string(what) + ": " + std::strerror(errno));
  return p;
}
void must(bool condition, const std::string& what) {
  if (!condition) fail(what);
}

std::byte octet(std::uint32_t at, std::uint32_t seed) {
  return static_cast<std::byte>(at * 7 + (at >> 8) + seed * 31);
}

// Where in the offered memory the i-th Write or Read goes: never aligned.
std::uint32_t place(std::uint32_t i) {
  return 4096 + 3 * i + 1;
}

struct Offer {
  std::uint64_t address;
  std::uint32_t key, length;
};

class End {
 public:
  End() : channel_(needed(rdma_create_event_channel(), "rdma_create_event_channel")), buffer_(kBuffer) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    close();
    if (next_ != nullptr) rdma_destroy_id(next_);
    if (listener_ != nullptr) rdma_destroy_id(listener_);
    rdma_destroy_event_channel(channel_);
  }

  // --- connections ---

  void listen(sockaddr* address) {
    checked(rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP), "rdma_create_id");
    checked(rdma_bind_addr(listener_, address), "rdma_bind_addr");
    checked(rdma_listen(listener_, 16), "rdma_listen");
  }
  void await_request() {
    if (next_ == nullptr) rdma_ack_cm_event(await(RDMA_CM_EVENT_CONNECT_REQUEST));
    id_ = std::exchange(next_, nullptr);
  }
  void reject(std::string_view why) {
    checked(rdma_reject(id_, why.data(), static_cast<std::uint8_t>(why.size())), "rdma_reject");
  }
  void accept(std::uint32_t receives, std::uint32_t length) {
    make_queue_pair(receives, length);
    const Offer offer{address(kOffered), mr_->rkey, kOffer};
    rdma_conn_param p = parameters();
    p.private_data = &offer;
    p.private_data_len = sizeof offer;
    checked(rdma_accept(id_, &p), "rdma_accept");
  }
  void resolve(sockaddr* address) {
    checked(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), "rdma_create_id");
    checked(rdma_resolve_addr(id_, nullptr, address, 5000), "rdma_resolve_addr");
    rdma_ack_cm_event(await(RDMA_CM_EVENT_ADDR_RESOLVED));
    checked(rdma_resolve_route(id_, 5000), "rdma_resolve_route");
    rdma_ack_cm_event(await(RDMA_CM_EVENT_ROUTE_RESOLVED));
  }
  void connect() {
    make_queue_pair(kSlots, kSlot);
    rdma_conn_param p = parameters();
    checked(rdma_connect(id_, &p), "rdma_connect");
  }
  // What the passive end offers.
  Offer await_offer() {
    rdma_cm_event* e = await(RDMA_CM_EVENT_ESTABLISHED);
    Offer offer{};
    const bool whole = e->param.conn.private_data_len >= sizeof offer;
    if (whole) std::memcpy(&offer, e->param.conn.private_data, sizeof offer);
    rdma_ack_cm_event(e);
    must(whole, "the Reply has no private data");
    return offer;
  }
  void await_plain(rdma_cm_event_type type) { rdma_ack_cm_event(await(type)); }
  void await_rejection(std::string_view why) {
    rdma_cm_event* e = await(RDMA_CM_EVENT_REJECTED);
    const std::string said(static_cast<const char*>(e->param.conn.private_data),
                           std::min<std::size_t>(e->param.conn.private_data_len, why.size()));
    rdma_ack_cm_event(e);
    // siw does not read a Reply that comes together with the FIN behind it.
    const bool lost = is_siw() && said.empty();
    must(said == why || lost, "the rejection says '" + said + "'");
    if (lost) std::printf("a rejection says nothing\n");
  }
  void disconnect() { checked(rdma_disconnect(id_), "rdma_disconnect"); }
  void to_error() {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_ERR;
    checked(ibv_modify_qp(id_->qp, &a, IBV_QP_STATE), "ibv_modify_qp");
  }
  // The connection has ended, and all receives come back: flushed, or with the status that some may have. Of siw some
  // stay until the queue pair is destroyed: those of an end that refused a Read, and those that are posted behind the
  // end.
  void await_end(ibv_wc_status some = IBV_WC_WR_FLUSH_ERR) {
    await_plain(RDMA_CM_EVENT_DISCONNECTED);
    for (; receives_ > 0; --receives_) {
      ibv_wc wc{};
      if (!comes(receive_cq_, is_siw() ? kSilence : kDeadline, wc)) {
        must(is_siw(), "no completion of a receive");
        std::printf("%u receives stay\n", receives_);
        break;
      }
      must(wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == some,
           std::string("a receive came back with ") + ibv_wc_status_str(wc.status));
    }
    std::printf("ended\n");
  }
  // One that is posted behind the end comes back, too.
  void await_late_receive() {
    must(receives_ == 0, "receives are left");
    post_receive(0, 16);
    ibv_wc wc{};
    const bool comes_back = comes(receive_cq_, is_siw() ? kSilence : kDeadline, wc);
    must(comes_back || is_siw(), "no completion of a receive behind the end");
    must(!comes_back || wc.status == IBV_WC_WR_FLUSH_ERR, std::string("it is ") + ibv_wc_status_str(wc.status));
    std::printf(comes_back ? "a late receive comes back\n" : "a late receive stays\n");
  }
  void close() {
    if (id_ == nullptr) return;
    if (id_->qp != nullptr) {
      rdma_destroy_qp(id_);
      if (window_ != nullptr) ibv_dealloc_mw(window_);
      if (revocable_ != nullptr) ibv_dereg_mr(revocable_);
      ibv_dereg_mr(mr_);
      ibv_destroy_cq(send_cq_);
      ibv_destroy_cq(receive_cq_);
      ibv_dealloc_pd(pd_);
    }
    window_ = nullptr;
    revocable_ = nullptr;
    receives_ = 0;
    rdma_destroy_id(id_);
    id_ = nullptr;
  }

  // --- operations ---

  void fill(std::uint32_t at, std::uint32_t length, std::uint32_t seed) {
    for (std::uint32_t i = 0; i < length; ++i) buffer_[at + i] = octet(i, seed);
  }
  // from: where in the pattern.
  bool holds(std::uint32_t at, std::uint32_t length, std::uint32_t seed, std::uint32_t from = 0) const {
    for (std::uint32_t i = 0; i < length; ++i)
      if (buffer_[at + i] != octet(from + i, seed)) return false;
    return true;
  }
  void clear(std::uint32_t at, std::uint32_t length) { std::fill_n(buffer_.begin() + at, length, kUntouched); }
  bool untouched(std::uint32_t at, std::uint32_t length) const {
    return std::all_of(buffer_.begin() + at, buffer_.begin() + at + length,
                       [](std::byte b) { return b == kUntouched; });
  }

  void post(ibv_wr_opcode opcode, std::uint32_t at, std::uint32_t length, std::uint64_t remote = 0,
            std::uint32_t key = 0, unsigned flags = 0) {
    ibv_sge sge{address(at), length, mr_->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED | flags;
    if (opcode == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = key;
    wr.wr.rdma.remote_addr = remote;
    // libibverbs' library for siw (rdma-core 44) invalidates this key, and does not look at invalidate_rkey.
    wr.wr.rdma.rkey = plain_ && opcode == IBV_WR_SEND_WITH_INV ? 0 : key;
    checked(ibv_post_send(id_->qp, &wr, &bad), "ibv_post_send");
  }
  ibv_wc_status sent() { return completion(send_cq_, "a request").status; }
  void sent_well(const char* what) {
    const ibv_wc_status s = sent();
    must(s == IBV_WC_SUCCESS, std::string(what) + ": " + ibv_wc_status_str(s));
  }
  void operation(ibv_wr_opcode opcode, std::uint32_t at, std::uint32_t length, std::uint64_t remote = 0,
                 std::uint32_t key = 0, unsigned flags = 0) {
    post(opcode, at, length, remote, key, flags);
    sent_well("a request");
  }
  void send(std::uint32_t length, std::uint32_t seed, unsigned flags = 0) {
    fill(kSending, length, seed);
    operation(IBV_WR_SEND, kSending, length, 0, 0, flags);
  }
  // A message of this length and contents; its completion. A receive takes its place.
  ibv_wc receive(std::uint32_t length, std::uint32_t seed) {
    const ibv_wc wc = completion(receive_cq_, "a message");
    must(wc.status == IBV_WC_SUCCESS, std::string("a message: ") + ibv_wc_status_str(wc.status));
    --receives_;
    const auto at = static_cast<std::uint32_t>(wc.wr_id);
    must(wc.byte_len == length && holds(at, length, seed),
         "a message of " + std::to_string(wc.byte_len) + " octets is not the one of " + std::to_string(length));
    post_receive(at, kSlot);
    return wc;
  }
  // A word of both ends with each other. Not from where larger things are sent: some devices have not read those yet
  // when the request completes.
  void tell() {
    fill(kWord, 4, 1);
    operation(IBV_WR_SEND, kWord, 4);
  }
  void hear() { receive(4, 1); }
  // Whether the passive end says its first word within kGreeting.
  bool greeted() {
    ibv_wc wc{};
    if (!comes(receive_cq_, kGreeting, wc)) return false;
    must(wc.status == IBV_WC_SUCCESS && wc.byte_len == 4, "a greeting did not come");
    --receives_;
    post_receive(static_cast<std::uint32_t>(wc.wr_id), kSlot);
    return true;
  }

  // A key of the offered memory that the other end may invalidate: a window's, or that of a region of its own, as the
  // local key goes with it.
  std::uint32_t revocable(bool window) {
    if (!window) {
      revocable_ = needed(ibv_reg_mr(pd_, &buffer_[kOffered], kOffer, kAccess), "ibv_reg_mr");
      return revocable_->rkey;
    }
    window_ = needed(ibv_alloc_mw(pd_, IBV_MW_TYPE_2), "ibv_alloc_mw");
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = window_;
    wr.bind_mw.rkey = ibv_inc_rkey(window_->rkey);
    wr.bind_mw.bind_info = {mr_, address(kOffered), kOffer, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    checked(ibv_post_send(id_->qp, &wr, &bad), "IBV_WR_BIND_MW");
    sent_well("a bind");
    return wr.bind_mw.rkey;
  }
  bool has_windows() const {
    ibv_device_attr a{};
    checked(ibv_query_device(id_->verbs, &a), "ibv_query_device");
    return (a.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  }
  void send_word(std::uint32_t word) {
    std::memcpy(&buffer_[kWord], &word, sizeof word);
    operation(IBV_WR_SEND, kWord, sizeof word);
  }
  std::uint32_t receive_word() {
    const ibv_wc wc = completion(receive_cq_, "a word");
    std::uint32_t word = 0;
    must(wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof word, "a word did not come");
    --receives_;
    std::memcpy(&word, &buffer_[wc.wr_id], sizeof word);
    post_receive(static_cast<std::uint32_t>(wc.wr_id), kSlot);
    return word;
  }
  // From now on the key that is invalidated is where ibv_post_send() says, and nowhere else.
  void name_keys_plainly() { plain_ = true; }
  std::uint64_t address(std::uint32_t at) const { return reinterpret_cast<std::uintptr_t>(&buffer_[at]); }

 private:
  static rdma_conn_param parameters() {
    rdma_conn_param p{};
    p.responder_resources = p.initiator_depth = 8;
    p.retry_count = p.rnr_retry_count = 7;
    return p;
  }
  void make_queue_pair(std::uint32_t receives, std::uint32_t length) {
    pd_ = needed(ibv_alloc_pd(id_->verbs), "ibv_alloc_pd");
    send_cq_ = needed(ibv_create_cq(id_->verbs, 128, nullptr, nullptr, 0), "ibv_create_cq");
    receive_cq_ = needed(ibv_create_cq(id_->verbs, 64, nullptr, nullptr, 0), "ibv_create_cq");
    mr_ = needed(ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), kAccess | (has_windows() ? IBV_ACCESS_MW_BIND : 0)),
                 "ibv_reg_mr");
    ibv_qp_init_attr a{};
    a.send_cq = send_cq_;
    a.recv_cq = receive_cq_;
    a.qp_type = IBV_QPT_RC;
    a.cap = {.max_send_wr = 64, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    checked(rdma_create_qp(id_, pd_, &a), "rdma_create_qp");
    for (std::uint32_t i = 0; i < receives; ++i) post_receive(i * kSlot, length);
  }
  void post_receive(std::uint32_t at, std::uint32_t length) {
    ibv_sge sge{address(at), length, mr_->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = at;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    checked(ibv_post_recv(id_->qp, &wr, &bad), "ibv_post_recv");
    ++receives_;
  }
  rdma_cm_event* await(rdma_cm_event_type type) {
    const std::string wanted = rdma_event_str(type);
    pollfd p{channel_->fd, POLLIN, 0};
    must(poll(&p, 1, std::chrono::milliseconds(kDeadline).count()) == 1, "no " + wanted);
    rdma_cm_event* e = nullptr;
    checked(rdma_get_cm_event(channel_, &e), "rdma_get_cm_event");
    if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST && next_ == nullptr) next_ = e->id;
    if (e->event == type) return e;
    if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST && next_ == e->id) {  // before the end of the one that stands
      rdma_ack_cm_event(e);
      return await(type);
    }
    const std::string other = std::string(rdma_event_str(e->event)) + " status " + std::to_string(e->status);
    rdma_ack_cm_event(e);  // rdma_destroy_id() waits for it
    fail(other + " instead of " + wanted);
  }
  ibv_wc completion(ibv_cq* cq, const char* what) {
    ibv_wc wc{};
    must(comes(cq, kDeadline, wc), std::string("no completion of ") + what);
    return wc;
  }
  static bool comes(ibv_cq* cq, Clock::duration within, ibv_wc& wc) {
    for (const auto until = Clock::now() + within; ibv_poll_cq(cq, 1, &wc) == 0;) {
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(100us);
    }
    return true;
  }
  bool is_siw() const { return std::string_view(ibv_get_device_name(id_->verbs->device)).starts_with("siw"); }

  rdma_event_channel* channel_;
  std::vector<std::byte> buffer_;
  rdma_cm_id *listener_ = nullptr, *id_ = nullptr, *next_ = nullptr;  // next_: asks, and nobody has looked at it
  ibv_pd* pd_ = nullptr;
  ibv_cq *send_cq_ = nullptr, *receive_cq_ = nullptr;
  ibv_mr *mr_ = nullptr, *revocable_ = nullptr;
  ibv_mw* window_ = nullptr;
  unsigned receives_ = 0;  // that are posted
  bool plain_ = false;
};

// --- scenarios: the active end's half, the passive end's half ---

// Sends, Writes and Reads of every size, each octet looked at, then many at once.
void ask_operations(End& end, const Offer& offer) {
  std::uint32_t seed = 2;
  for (const std::uint32_t size : kSizes)
    for (const unsigned flags : {0U, static_cast<unsigned>(IBV_SEND_SOLICITED)}) {
      end.send(size, seed++, flags);
      end.receive(size, seed++);
    }
  for (std::uint32_t i = 0; i < std::size(kSizes); ++i) {
    end.fill(kSending, kSizes[i], seed++);
    end.operation(IBV_WR_RDMA_WRITE, kSending, kSizes[i], offer.address + place(i), offer.key);
    end.tell();
    end.hear();
  }
  // Not the empty one: ask_empty_reads().
  for (std::uint32_t i = 1; i < std::size(kSizes); ++i) {
    end.clear(kSink, 2 * kSlot);
    end.operation(IBV_WR_RDMA_READ, kSink + 1, kSizes[i], offer.address + place(i), offer.key);
    must(end.untouched(kSink, 1) && end.untouched(kSink + 1 + kSizes[i], 64), "a Read went beyond its sink");
    must(end.holds(kSink + 1, kSizes[i], seed, place(i)),
         "a Read of " + std::to_string(kSizes[i]) + " octets brought others");
  }
  constexpr std::uint32_t kMany = 16, kSize = 3000;
  end.fill(kSending, kSize, ++seed);
  for (std::uint32_t i = 0; i < kMany; ++i)
    end.post(IBV_WR_RDMA_WRITE, kSending, kSize, offer.address + i * kSize, offer.key);
  for (std::uint32_t i = 0; i < kMany; ++i)
    end.post(IBV_WR_RDMA_READ, kSink + i * kSize, kSize, offer.address + i * kSize, offer.key);
  end.post(IBV_WR_SEND, kSending, kSize);
  for (std::uint32_t i = 0; i < 2 * kMany + 1; ++i) end.sent_well("one of many");
  for (std::uint32_t i = 0; i < kMany; ++i)
    must(end.holds(kSink + i * kSize, kSize, seed), "a Read behind a Write brought other octets");
  end.hear();
  end.disconnect();
}
void serve_operations(End& end) {
  std::uint32_t seed = 2;
  for (const std::uint32_t size : kSizes)
    for (int flags = 0; flags < 2; ++flags) {
      end.receive(size, seed++);
      end.send(size, seed++);
    }
  for (std::uint32_t i = 0; i < std::size(kSizes); ++i) {
    if (i == 0) end.clear(kOffered, kOffer);
    end.hear();
    const std::uint32_t at = kOffered + place(i);
    must(end.holds(at, kSizes[i], seed++), "a Write of " + std::to_string(kSizes[i]) + " octets brought others");
    must(end.untouched(at - 1, 1) && end.untouched(at + kSizes[i], 64), "a Write went beyond its place");
    end.clear(kOffered, kOffer);
    if (i + 1 == std::size(kSizes)) end.fill(kOffered, kOffer, seed);
    end.tell();
  }
  constexpr std::uint32_t kMany = 16, kSize = 3000;
  end.receive(kSize, ++seed);
  for (std::uint32_t i = 0; i < kMany; ++i)
    must(end.holds(kOffered + i * kSize, kSize, seed), "one of many Writes brought other octets");
  end.tell();
}

// Empty Reads, each right behind a message of the other end. siw answers one that comes while it is still busy with
// that message with octets of the message.
constexpr int kEmptyReads = 3;
void ask_empty_reads(End& end, const Offer& offer) {
  for (int i = 0; i < kEmptyReads; ++i) {
    end.clear(kSink, 64);
    end.tell();
    end.hear();
    end.operation(IBV_WR_RDMA_READ, kSink, 0, offer.address, offer.key);
    must(end.untouched(kSink, 64), "an empty Read brought octets");
  }
  end.disconnect();
}
void serve_empty_reads(End& end) {
  for (int i = 0; i < kEmptyReads; ++i) {
    end.hear();
    end.tell();
  }
}

// A key works, is invalidated by a Send of the other end, and works no more.
void ask_invalidate(End& end, const Offer& offer) {
  end.tell();
  const std::uint32_t key = end.receive_word();
  for (std::uint32_t i = 0; i < 3; ++i) end.fill(kSending + 64 * i, 8, 2 + i);
  end.operation(IBV_WR_RDMA_WRITE, kSending, 8, offer.address, key);
  end.operation(IBV_WR_SEND_WITH_INV, kSending + 64, 8, 0, key);
  end.hear();
  end.post(IBV_WR_RDMA_WRITE, kSending + 128, 8, offer.address, key);
  std::printf("Write: %s\n", ibv_wc_status_str(end.sent()));
}
void serve_invalidate(End& end, bool window) {
  end.clear(kOffered, 64);
  end.hear();
  const std::uint32_t key = end.revocable(window && end.has_windows());
  end.send_word(key);
  const ibv_wc wc = end.receive(8, 3);
  const bool told = (wc.wc_flags & IBV_WC_WITH_INV) != 0;
  must(!told || wc.invalidated_rkey == key, "another key was invalidated");
  std::printf("%s\n", told ? "told of it" : "not told of it");
  must(end.holds(kOffered, 8, 2), "the Write by a valid key is not there");
  end.tell();
}

// One request that the other end must refuse; of one segment, so that nothing behind it is left unread, for which TCP
// would reset the connection and take the Terminate with it.
void ask_fault(End& end, const Offer& offer, std::string_view what) {
  end.fill(kSending, kSlot, 2);
  // No key of the two is another one's with these bits changed.
  const std::uint32_t wrong = offer.key ^ 0x5500;
  if (what == "bad_write" || what == "busy") end.post(IBV_WR_RDMA_WRITE, kSending, 8, offer.address, wrong);
  if (what == "bad_read") end.post(IBV_WR_RDMA_READ, kSink, 8, offer.address, wrong);
  if (what == "long_write") end.post(IBV_WR_RDMA_WRITE, kSending, 200, offer.address + offer.length - 100, offer.key);
  if (what == "long_read") end.post(IBV_WR_RDMA_READ, kSink, 200, offer.address + offer.length - 100, offer.key);
  if (what == "long_send") end.post(IBV_WR_SEND, kSending, 17);
  if (what == "no_receive") end.post(IBV_WR_SEND, kSending, 8);
  std::printf("request: %s\n", ibv_wc_status_str(end.sent()));
}

// The other end is in the middle of large messages when that request comes.
void ask_busy(End& end, const Offer& offer) {
  end.receive(kSlot, 2);
  ask_fault(end, offer, "busy");
}
void serve_busy(End& end) {
  end.fill(kSending, kSlot, 2);
  for (std::uint32_t i = 1; i < kSlots; ++i) end.post(IBV_WR_SEND, kSending, kSlot);
}

// Who ends the connection, and how.
void leave(End& end, std::string_view how) {
  if (how == "close") end.disconnect();
  if (how == "error") end.to_error();
  if (how == "kill") raise(SIGKILL);
}

// --- the ends ---

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
bool is_invalidation(std::string_view s) {
  return is_one_of(s, {"invalidate_window", "invalidate_region", "invalidate_plain"});
}
bool is_fault(std::string_view s) {
  return is_one_of(s, {"bad_write", "bad_read", "long_write", "long_read", "long_send", "no_receive", "busy"});
}
// "close_ask" and the like: how, if this end is to leave.
std::string_view leaves(std::string_view scenario, std::string_view who) {
  const auto at = scenario.find('_');
  return at != scenario.npos && scenario.substr(at + 1) == who ? scenario.substr(0, at) : std::string_view();
}
bool is_ending(std::string_view s) {
  return is_one_of(s.substr(0, s.find('_')), {"close", "error", "kill"});
}

constexpr std::string_view kNo = "not today";

void ask(End& end, sockaddr* address, const std::string& scenario, bool first, unsigned& lost) {
  end.resolve(address);
  end.connect();
  if (scenario == "reject") {
    end.await_rejection(kNo);
    return;
  }
  const Offer offer = end.await_offer();
  if (first) end.tell();
  if (!end.greeted()) {
    ++lost;
    end.operation(IBV_WR_RDMA_WRITE, kSending, 0, offer.address, offer.key);
    must(end.greeted(), "no greeting, though more octets came");
  }
  if (scenario == "operations") {
    ask_operations(end, offer);
  } else if (scenario == "empty_reads") {
    ask_empty_reads(end, offer);
  } else if (is_invalidation(scenario)) {
    if (scenario == "invalidate_plain") end.name_keys_plainly();
    ask_invalidate(end, offer);
  } else if (scenario == "busy") {
    ask_busy(end, offer);
  } else if (is_fault(scenario)) {
    ask_fault(end, offer, scenario);
  } else if (is_ending(scenario)) {
    end.tell();
    end.hear();
    leave(end, leaves(scenario, "ask"));
  } else if (is_one_of(scenario, {"established", "late_receive"})) {
    end.disconnect();
  } else {
    fail("no scenario " + scenario);
  }
  end.await_end(scenario == "busy" ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
  if (scenario == "late_receive") end.await_late_receive();
}

void serve(End& end, const std::string& scenario, bool first) {
  end.await_request();
  if (scenario == "reject") {
    end.reject(kNo);
    return;
  }
  end.accept(scenario == "no_receive" ? 0 : kSlots, scenario == "long_send" ? 16 : kSlot);
  if (is_fault(scenario)) end.clear(kOffered, kOffer);
  end.await_plain(RDMA_CM_EVENT_ESTABLISHED);
  if (first) end.hear();
  // Who asks waits for this word: the connection stands at both ends before anything else happens.
  end.tell();
  if (scenario == "operations") serve_operations(end);
  if (scenario == "empty_reads") serve_empty_reads(end);
  if (is_invalidation(scenario)) serve_invalidate(end, scenario == "invalidate_window");
  if (scenario == "busy") serve_busy(end);
  if (is_ending(scenario)) {
    end.hear();
    end.tell();
    leave(end, leaves(scenario, "serve"));
  }
  end.await_end(scenario == "long_send" ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
  if (scenario == "late_receive") end.await_late_receive();
  if (is_fault(scenario)) must(end.untouched(kOffered, kOffer), "something was written");
  if (is_invalidation(scenario)) must(end.holds(kOffered, 8, 2), "something was written by an invalid key");
}

int run(int argc, char** argv) {
  // first: who asks says the first word, not who serves.
  const bool first = argc == 7 && std::string_view(argv[6]) == "first";
  if (argc != 6 && !first) fail("usage: ewarp_interop_peer serve|ask ADDRESS PORT SCENARIO CONNECTIONS [first]");
  setvbuf(stdout, nullptr, _IOLBF, 0);
  rdma_addrinfo hints{}, *found = nullptr;
  const bool serves = std::string_view(argv[1]) == "serve";
  hints.ai_flags = RAI_NUMERICHOST | (serves ? RAI_PASSIVE : 0);
  hints.ai_port_space = RDMA_PS_TCP;
  checked(rdma_getaddrinfo(argv[2], argv[3], &hints, &found), "rdma_getaddrinfo");
  sockaddr_storage address{};
  std::memcpy(&address, serves ? found->ai_src_addr : found->ai_dst_addr,
              serves ? found->ai_src_len : found->ai_dst_len);
  rdma_freeaddrinfo(found);
  const unsigned connections = static_cast<unsigned>(std::stoul(argv[5]));
  unsigned lost = 0;
  End end;
  if (serves) end.listen(reinterpret_cast<sockaddr*>(&address));
  for (unsigned i = 0; i < connections; ++i) {
    if (serves)
      serve(end, argv[4], first);
    else
      ask(end, reinterpret_cast<sockaddr*>(&address), argv[4], first, lost);
    end.close();
  }
  std::printf("done: %u connections, %u lost\n", connections, lost);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::printf("%s: %s\n", argc > 1 ? argv[1] : "ewarp_interop_peer", e.what());
    return 1;
  }
}
