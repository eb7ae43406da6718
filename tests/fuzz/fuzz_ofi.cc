// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls of libfabric's interface, in any order, to two endpoints of the provider that can reach each other: results are
// 0, a count or an error of libfabric; what completes was begun, once; memory of the program is touched only while it
// is the provider's. The channel below is the stand-in of ofi_standins.cc.
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

#include "mpi_shim/ofi/provider.h"
#include "tests/fuzz/records.h"

namespace ewarp::fuzz {
namespace {

// Head: 0 formats of the queues, 1 address vector and flags, 2 capabilities.
using Talk = Records<3, 24>;
using Record = std::array<std::uint8_t, Talk::kRecord>;
using Octets8 = std::vector<std::uint8_t>;

constexpr std::size_t kLongest = 60000;  // further than EAGER and HYBRID

void check_result(long result) {
  FUZZ_CHECK(result >= 0 || result > -1000);
}

// One call's memory; its address is the context.
struct Asked {
  fi_context2 context{};
  Octets8 memory, compare, result;
  bool pending = false, multi = false;
};

struct Region {
  Octets8 memory;
  fid_mr* mr = nullptr;
};

struct Side {
  fid_ep* ep = nullptr;
  fid_av* av = nullptr;
  fid_cq* send = nullptr;
  fid_cq* receive = nullptr;
  fid_cntr* counter = nullptr;
  fi_addr_t other = FI_ADDR_NOTAVAIL;
};

class Program {
 public:
  explicit Program(const std::array<std::uint8_t, 3>& head) : head_(head) {
    info_ = get_info(head[2]);
    if (info_ == nullptr) return;
    FUZZ_CHECK(ofi::provider.fabric(info_->fabric_attr, &fabric_, nullptr) == 0);
    FUZZ_CHECK(fi_domain(fabric_, info_, &domain_, nullptr) == 0);
    for (Side& s : sides_) open(s);
    for (Region& r : regions_) {
      r.memory.resize(400);
      if (fi_mr_reg(domain_, r.memory.data(), r.memory.size(), &r == &regions_[1] ? FI_REMOTE_READ : kAll, 0, 0, 0,
                    &r.mr, nullptr) != 0)
        r.mr = nullptr;
    }
    meet();
  }
  ~Program() {
    const auto end = [](auto*& object) {
      if (object != nullptr) FUZZ_CHECK(fi_close(&object->fid) == 0);
      object = nullptr;
    };
    for (Side& s : sides_) end(s.ep);
    for (Side& s : sides_) {
      end(s.counter);
      end(s.send);
      end(s.receive);
      end(s.av);
    }
    for (Region& r : regions_) end(r.mr);
    end(domain_);
    end(fabric_);
    fi_freeinfo(info_);
  }
  bool ready() const { return info_ != nullptr; }

  void act(const Record& r) {
    Side& s = sides_[r[1] & 1];
    const std::size_t length = (r[2] + 256u * r[3]) % ((r[1] & 2) ? kLongest : 300);
    switch (r[0] % 28) {
      case 0:
      case 1:
      case 2:
      case 3:
        return send(s, r, length);
      case 4:
      case 5:
      case 6:
        return receive(s, r, length);
      case 7:
      case 8:
        return rma(s, r, length % 500);
      case 9:
      case 10:
        return atomic(s, r);
      case 11:
        if (s.ep != nullptr && !asked_.empty())
          check_result(fi_cancel(&s.ep->fid, &asked_[r[2] % asked_.size()]->context));
        return;
      case 12:
      case 13:
      case 14:
        return reap(r[2] & 1 ? s.send : s.receive, r);
      case 15:
        return addresses(s, r);
      case 16:
        return counters(s, r);
      case 17: {
        Region& region = regions_[r[2] % regions_.size()];
        if (region.mr != nullptr && (r[3] & 1)) {
          check_result(fi_close(&region.mr->fid));
          region.mr = nullptr;
        } else if (region.mr == nullptr) {
          check_result(fi_mr_reg(domain_, region.memory.data(), r[4] % 401u, kAll, r[5] & 1, r[6], r[7] & 1, &region.mr,
                                 nullptr));
        }
        return;
      }
      case 18:
        if ((r[2] & 15) == 0) {
          if (s.ep != nullptr) FUZZ_CHECK(fi_close(&s.ep->fid) == 0);
          s.ep = nullptr;
          forget_all(s);
        } else if (s.ep == nullptr) {
          open_endpoint(s);
          meet();
        }
        return;
      case 19:
        if (s.ep != nullptr) {
          std::uint64_t flags = (r[2] & 1 ? FI_TRANSMIT : 0) | (r[2] & 2 ? FI_RECV : 0) | wanted(r[3]);
          by_default_multi_ = by_default_multi_ || (flags & FI_MULTI_RECV) != 0;
          check_result(fi_control(&s.ep->fid, r[2] & 4 ? FI_GETOPSFLAG : FI_SETOPSFLAG, &flags));
        }
        return;
      case 20:
        if (s.ep != nullptr) {
          std::size_t value = r[3] * 8u, size = r[2] & 1 ? sizeof value : 4;
          check_result(r[2] & 2 ? fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, r[4] % 4, &value, size)
                                : fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, r[4] % 4, &value, &size));
        }
        return;
      case 21: {
        fi_info* found = get_info(r[2]);
        fi_freeinfo(found);
        return ask_info(r);
      }
      case 22:
        if (s.ep != nullptr) {
          fid* const things[] = {&s.av->fid, &s.send->fid, &s.counter->fid};
          check_result(fi_ep_bind(s.ep, things[r[2] % 3], r[3] & 1 ? FI_TRANSMIT : FI_RECV));
          if (r[3] & 2) check_result(fi_enable(s.ep));
        }
        return;
      case 23: {
        if (s.ep == nullptr) return;
        Octets8 room(r[2] % 40);
        std::size_t size = room.size();
        check_result(fi_getname(&s.ep->fid, room.data(), &size));
        return;
      }
      case 24: {
        fi_atomic_attr attr{};
        check_result(fi_query_atomic(domain_, static_cast<fi_datatype>(r[2] % 24), static_cast<fi_op>(r[3] % 24), &attr,
                                     r[4] & 1   ? FI_FETCH_ATOMIC
                                     : r[4] & 2 ? FI_COMPARE_ATOMIC
                                                : 0));
        return;
      }
      case 25: {
        fid* things[] = {&s.send->fid, &s.receive->fid};
        check_result(fi_trywait(fabric_, things, 1 + (r[2] & 1)));
        check_result(fi_cq_signal(s.send));
        return poll(s, r);
      }
      default:
        return peek(s, r, length);
    }
  }
  void finish() {
    for (int i = 0; i < 4; ++i)
      for (Side& s : sides_)
        for (fid_cq* q : {s.send, s.receive}) reap(q, Record{0, 0, 0, 0xff});
  }

 private:
  static constexpr std::uint64_t kAll = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE | FI_SEND | FI_RECV;
  static std::uint64_t wanted(unsigned bits) {
    static constexpr std::uint64_t kFlags[] = {
        FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
        FI_MULTI_RECV, FI_MORE,   FI_REMOTE_CQ_DATA};
    std::uint64_t out = 0;
    for (unsigned i = 0; i < 8; ++i)
      if (bits & (1u << i)) out |= kFlags[i];
    return out;
  }
  static fi_info* get_info(unsigned caps) {
    static constexpr std::uint64_t kCaps[] = {FI_MSG,           FI_TAGGED, FI_RMA,        FI_ATOMIC,
                                              FI_DIRECTED_RECV, FI_SOURCE, FI_MULTI_RECV, FI_SEND};
    fi_info* hints = fi_allocinfo();
    for (unsigned i = 0; i < 8; ++i)
      if ((caps & (1u << i)) == 0) hints->caps |= kCaps[i];
    if (hints->caps & FI_SEND) hints->caps |= FI_RECV;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->mode = ~std::uint64_t{0};
    fi_info* out = nullptr;
    const int error =
        ofi::provider.getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE | FI_NUMERICHOST, hints, &out);
    fi_freeinfo(hints);
    check_result(error);
    return error == 0 ? out : nullptr;
  }
  void ask_info(const Record& r) {
    fi_info* hints = fi_allocinfo();
    hints->caps = r[3] & 1 ? std::uint64_t{1} << (r[4] & 63) : 0;
    hints->addr_format = r[5] % 8;
    hints->ep_attr->type = static_cast<fi_ep_type>(r[6] % 6);
    hints->ep_attr->max_msg_size = r[3] & 2 ? ~std::size_t{0} : 0;
    hints->ep_attr->tx_ctx_cnt = r[7];
    hints->tx_attr->op_flags = wanted(r[8]);
    hints->tx_attr->inject_size = r[9] * 64u;
    hints->tx_attr->iov_limit = r[10];
    hints->rx_attr->op_flags = wanted(r[11]);
    hints->domain_attr->mr_mode = r[12];
    hints->domain_attr->threading = static_cast<fi_threading>(r[13] % 8);
    hints->domain_attr->data_progress = static_cast<fi_progress>(r[14] % 4);
    hints->domain_attr->av_type = static_cast<fi_av_type>(r[15] % 4);
    if (r[16] & 1) hints->fabric_attr->prov_name = strdup(r[16] & 2 ? "etherwarp" : "other");
    if (r[16] & 4) hints->domain_attr->name = strdup(r[16] & 8 ? "ewarp_lo" : "x");
    if (r[17] & 1) {
      hints->src_addrlen = r[18] % 33u;
      hints->src_addr = std::calloc(1, hints->src_addrlen + 1);
      if (hints->src_addrlen > 1) static_cast<std::uint8_t*>(hints->src_addr)[0] = r[19] & 1 ? AF_INET6 : AF_INET;
    }
    fi_info* out = nullptr;
    static constexpr std::uint32_t kVersions[] = {FI_VERSION(1, 4), FI_VERSION(1, 5), FI_VERSION(1, 17),
                                                  FI_VERSION(1, 0)};
    const int error =
        ofi::provider.getinfo(kVersions[r[20] & 3], r[21] & 1 ? "127.0.0.1" : nullptr, r[21] & 2 ? "7" : nullptr,
                              (r[21] & 4 ? FI_SOURCE : 0) | FI_NUMERICHOST, hints, &out);
    check_result(error);
    if (error == 0) {
      (void)fi_tostr(out, FI_TYPE_INFO);
      fi_freeinfo(out);
    }
    fi_freeinfo(hints);
  }

  // What the set tells has something to read, or is the counter.
  void poll(Side& s, const Record& r) {
    fi_poll_attr attributes{};
    fid_poll* set = nullptr;
    FUZZ_CHECK(fi_poll_open(domain_, &attributes, &set) == 0);
    for (fid* f : {&s.send->fid, &s.receive->fid, &s.counter->fid}) FUZZ_CHECK(fi_poll_add(set, f, 0) == 0);
    void* told[3];
    const int room = r[3] % 4, n = fi_poll(set, told, room);
    FUZZ_CHECK(n >= 0 && n <= room);
    FUZZ_CHECK(fi_close(&s.send->fid) == -FI_EBUSY);
    FUZZ_CHECK(fi_close(&set->fid) == 0);
  }

  void open(Side& s) {
    fi_av_attr av{};
    av.type = head_[1] & 1 ? FI_AV_TABLE : FI_AV_MAP;
    FUZZ_CHECK(fi_av_open(domain_, &av, &s.av, nullptr) == 0);
    fi_cq_attr cq{};
    static constexpr fi_cq_format kFormats[] = {FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG,
                                                FI_CQ_FORMAT_DATA};
    cq.format = format_ = kFormats[head_[0] & 3];
    cq.wait_obj = head_[0] & 4 ? FI_WAIT_FD : FI_WAIT_NONE;
    FUZZ_CHECK(fi_cq_open(domain_, &cq, &s.send, nullptr) == 0);
    FUZZ_CHECK(fi_cq_open(domain_, &cq, &s.receive, nullptr) == 0);
    fi_cntr_attr counter{};
    FUZZ_CHECK(fi_cntr_open(domain_, &counter, &s.counter, nullptr) == 0);
    open_endpoint(s);
  }
  void open_endpoint(Side& s) {
    const int error = fi_endpoint(domain_, info_, &s.ep, nullptr);
    if (error != 0) {
      s.ep = nullptr;
      return;
    }
    const std::uint64_t selective = head_[1] & 2 ? FI_SELECTIVE_COMPLETION : 0;
    FUZZ_CHECK(fi_ep_bind(s.ep, &s.av->fid, 0) == 0);
    FUZZ_CHECK(fi_ep_bind(s.ep, &s.send->fid, FI_TRANSMIT | selective) == 0);
    FUZZ_CHECK(fi_ep_bind(s.ep, &s.receive->fid, FI_RECV | selective) == 0);
    if (head_[1] & 4) FUZZ_CHECK(fi_ep_bind(s.ep, &s.counter->fid, FI_SEND | FI_RECV | FI_READ | FI_WRITE) == 0);
    FUZZ_CHECK(fi_enable(s.ep) == 0);
  }
  // Each side learns the other's address.
  void meet() {
    for (int i = 0; i < 2; ++i) {
      if (sides_[1 - i].ep == nullptr) continue;
      std::array<std::uint8_t, 64> name{};
      std::size_t size = name.size();
      FUZZ_CHECK(fi_getname(&sides_[1 - i].ep->fid, name.data(), &size) == 0);
      FUZZ_CHECK(fi_av_insert(sides_[i].av, name.data(), 1, &sides_[i].other, 0, nullptr) == 1);
    }
  }

  Asked& ask(std::size_t length) {
    asked_.push_back(std::make_unique<Asked>());
    asked_.back()->memory.resize(length, 0x5a);
    return *asked_.back();
  }
  // What the provider took is in its hands until it is told of, or the endpoint is closed; the rest is freed at once.
  void begun(Asked& a, long result, bool told = true) {
    check_result(result);
    a.pending = result == 0 && told;
    if (result != 0) a.memory = {};
  }
  void forget_all(const Side&) {}
  fi_addr_t to(const Side& s, unsigned how) const { return how & 1 ? how : s.other; }

  void send(Side& s, const Record& r, std::size_t length) {
    if (s.ep == nullptr || asked_.size() > 300) return;
    Asked& a = ask(length);
    const void* m = a.memory.data();
    const fi_addr_t dest = to(s, r[5]);
    const std::uint64_t tag = r[6] & 7, data = r[7];
    switch (r[4] % 8) {
      case 0:
        return begun(a, fi_tsend(s.ep, m, length, nullptr, dest, tag, &a.context));
      case 1:
        return begun(a, fi_send(s.ep, m, length, nullptr, dest, &a.context));
      case 2:
        return begun(a, fi_tsenddata(s.ep, m, length, nullptr, data, dest, tag, &a.context));
      case 3:
        return begun(a, fi_senddata(s.ep, m, length, nullptr, data, dest, &a.context));
      case 4:
        begun(a, fi_tinject(s.ep, m, length, dest, tag), false);
        a.memory = {};
        return;
      case 5:
        begun(a, fi_injectdata(s.ep, m, length, data, dest), false);
        a.memory = {};
        return;
      default: {
        iovec v{const_cast<void*>(m), length};
        const std::uint64_t flags = wanted(r[8]);
        if (r[4] & 1) {
          const fi_msg_tagged msg{&v, nullptr, r[9] & 1u, dest, tag, 0, &a.context, data};
          begun(a, fi_tsendmsg(s.ep, &msg, flags));
        } else {
          const fi_msg msg{&v, nullptr, r[9] % 3u == 2 ? 0u : 1u, dest, &a.context, data};
          begun(a, fi_sendmsg(s.ep, &msg, flags));
        }
        if (flags & FI_INJECT) a.memory = {};
      }
    }
  }
  void receive(Side& s, const Record& r, std::size_t length) {
    if (s.ep == nullptr || asked_.size() > 300) return;
    Asked& a = ask(length);
    void* m = a.memory.data();
    const fi_addr_t from = r[5] & 2 ? FI_ADDR_UNSPEC : to(s, r[5]);
    const std::uint64_t tag = r[6] & 7, ignore = r[7] & 1 ? ~std::uint64_t{0} : r[7];
    a.multi = by_default_multi_ || (r[4] % 4 >= 2 && (wanted(r[8]) & FI_MULTI_RECV) != 0);
    switch (r[4] % 4) {
      case 0:
        return begun(a, fi_trecv(s.ep, m, length, nullptr, from, tag, ignore, &a.context));
      case 1:
        return begun(a, fi_recv(s.ep, m, length, nullptr, from, &a.context));
      case 2: {
        iovec v{m, length};
        const fi_msg_tagged msg{&v, nullptr, 1, from, tag, ignore, &a.context, 0};
        return begun(a, fi_trecvmsg(s.ep, &msg, wanted(r[8])));
      }
      default: {
        iovec v{m, length};
        const fi_msg msg{&v, nullptr, 1, from, &a.context, 0};
        return begun(a, fi_recvmsg(s.ep, &msg, wanted(r[8])));
      }
    }
  }
  void peek(Side& s, const Record& r, std::size_t length) {
    if (s.ep == nullptr || asked_.size() > 300) return;
    // A claim needs the context of its peek, whose completion has come; one such peek at a time.
    const bool again = (r[4] & 1) && claims_ != nullptr;
    if (!again && peeks_ != nullptr) return;
    Asked& a = again ? *claims_ : ask(length);
    claims_ = nullptr;
    iovec v{a.memory.data(), a.memory.size()};
    const fi_msg_tagged msg{&v, nullptr, 1, r[5] & 2 ? FI_ADDR_UNSPEC : s.other, r[6] & 7u, r[7], &a.context, 0};
    const std::uint64_t flags = again ? FI_CLAIM | (r[4] & 2 ? FI_DISCARD : 0)
                                      : FI_PEEK | (r[4] & 4 ? FI_CLAIM : 0) | (r[4] & 8 ? FI_DISCARD : 0);
    const long result = fi_trecvmsg(s.ep, &msg, flags | (r[4] & 16 ? FI_COMPLETION : 0));
    check_result(result);
    if (result == 0 && (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) == (FI_PEEK | FI_CLAIM)) peeks_ = &a;
    a.pending = result == 0;
  }
  void rma(Side& s, const Record& r, std::size_t length) {
    if (s.ep == nullptr || asked_.size() > 300) return;
    const Region& region = regions_[r[4] % regions_.size()];
    const std::uint64_t key = region.mr == nullptr || (r[5] & 8) ? r[6] : fi_mr_key(region.mr);
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(region.memory.data()) + (r[5] & 4 ? 0 : r[7]);
    Asked& a = ask(length);
    void* m = a.memory.data();
    const fi_addr_t dest = to(s, r[5]);
    switch (r[8] % 6) {
      case 0:
        return begun(a, fi_read(s.ep, m, length, nullptr, dest, at, key, &a.context));
      case 1:
        return begun(a, fi_write(s.ep, m, length, nullptr, dest, at, key, &a.context));
      case 2:
        return begun(a, fi_writedata(s.ep, m, length, nullptr, r[9], dest, at, key, &a.context));
      case 3:
        begun(a, fi_inject_write(s.ep, m, length, dest, at, key), false);
        a.memory = {};
        return;
      default: {
        iovec v{m, length};
        const fi_rma_iov there{at, length + (r[10] & 1), key};
        const fi_msg_rma msg{&v, nullptr, 1, dest, &there, 1, &a.context, r[9]};
        begun(a, r[8] & 1 ? fi_readmsg(s.ep, &msg, wanted(r[11])) : fi_writemsg(s.ep, &msg, wanted(r[11])));
        if (wanted(r[11]) & FI_INJECT) a.memory = {};
      }
    }
  }
  void atomic(Side& s, const Record& r) {
    if (s.ep == nullptr || asked_.size() > 300) return;
    const Region& region = regions_[r[4] % regions_.size()];
    const std::uint64_t key = region.mr == nullptr || (r[5] & 8) ? r[6] : fi_mr_key(region.mr);
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(region.memory.data()) + (r[5] & 4 ? 0 : r[7]);
    const auto type = static_cast<fi_datatype>(r[10] % (FI_DATATYPE_LAST + 1));
    const auto op = static_cast<fi_op>(r[11] % (FI_ATOMIC_OP_LAST + 1));
    const std::size_t count = r[12] % 20;
    Asked& a = ask(count * 32);  // no type is larger
    for (std::size_t i = 0; i < a.memory.size(); ++i) a.memory[i] = r[13 + i % 8];
    a.compare = a.result = a.memory;
    const fi_addr_t dest = to(s, r[5]);
    switch (r[8] % 4) {
      case 0:
        return begun(a, fi_atomic(s.ep, a.memory.data(), count, nullptr, dest, at, key, type, op, &a.context));
      case 1:
        return begun(a, fi_fetch_atomic(s.ep, a.memory.data(), count, nullptr, a.result.data(), nullptr, dest, at, key,
                                        type, op, &a.context));
      case 2:
        return begun(a, fi_compare_atomic(s.ep, a.memory.data(), count, nullptr, a.compare.data(), nullptr,
                                          a.result.data(), nullptr, dest, at, key, type, op, &a.context));
      default: {
        size_t most = 0;
        check_result(r[9] & 1   ? fi_atomicvalid(s.ep, type, op, &most)
                     : r[9] & 2 ? fi_fetch_atomicvalid(s.ep, type, op, &most)
                                : fi_compare_atomicvalid(s.ep, type, op, &most));
        begun(a, fi_inject_atomic(s.ep, a.memory.data(), count, dest, at, key, type, op), false);
      }
    }
  }

  std::size_t entry() const {
    switch (format_) {
      case FI_CQ_FORMAT_CONTEXT:
        return sizeof(fi_cq_entry);
      case FI_CQ_FORMAT_MSG:
        return sizeof(fi_cq_msg_entry);
      case FI_CQ_FORMAT_DATA:
        return sizeof(fi_cq_data_entry);
      default:
        return sizeof(fi_cq_tagged_entry);
    }
  }
  void over(void* context, std::uint64_t flags, bool well = true) {
    if (context == nullptr) return;  // a peer's Write
    for (auto& a : asked_) {
      if (&a->context != context) continue;
      FUZZ_CHECK(a->pending);
      if (a->multi && format_ != FI_CQ_FORMAT_CONTEXT && (flags & FI_MULTI_RECV) == 0) return;
      if (a->multi && format_ == FI_CQ_FORMAT_CONTEXT) return;
      if (a.get() == peeks_) {  // what it found may be claimed with the same context
        peeks_ = nullptr;
        a->pending = false;
        if (well) claims_ = a.get();
        return;
      }
      a->pending = false;
      a->memory = {};  // whoever touches it now is caught
      a->compare = a->result = {};
      return;
    }
    FUZZ_CHECK(!"a completion of nothing");
  }
  void reap(fid_cq* q, const Record& r) {
    const std::size_t most = r[3] % 5 + (r[3] == 0xff ? 20 : 0);
    Octets8 room(most * entry());
    std::array<fi_addr_t, 32> from{};
    const ssize_t n = r[3] & 16   ? fi_cq_readfrom(q, room.data(), most, from.data())
                      : r[3] & 32 ? fi_cq_sread(q, room.data(), most, nullptr, 0)
                                  : fi_cq_read(q, room.data(), most);
    check_result(n);
    if (n > 0) FUZZ_CHECK(static_cast<std::size_t>(n) <= most);
    for (ssize_t i = 0; i < n; ++i) {
      fi_cq_msg_entry e{};
      std::memcpy(&e, room.data() + static_cast<std::size_t>(i) * entry(), std::min(entry(), sizeof e));
      over(e.op_context, e.flags);
    }
    if (n != -FI_EAVAIL) return;
    fi_cq_err_entry e{};
    Octets8 details(r[4] % 8);
    e.err_data = details.data();
    e.err_data_size = details.size();
    FUZZ_CHECK(fi_cq_readerr(q, &e, 0) == 1);
    FUZZ_CHECK(e.err != 0);
    (void)fi_cq_strerror(q, e.prov_errno, e.err_data, nullptr, 0);
    over(e.op_context, e.flags, false);
  }
  void addresses(Side& s, const Record& r) {
    sockaddr_storage a{};
    a.ss_family = r[3] & 1 ? AF_INET6 : r[3] & 2 ? r[4] : AF_INET;
    std::memcpy(reinterpret_cast<char*>(&a) + 2, &r[5], 14);
    fi_addr_t out[2] = {FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL};
    Octets8 room(r[4] % 40);
    std::size_t size = room.size();
    switch (r[2] % 5) {
      case 0:
        check_result(fi_av_insert(s.av, &a, 1, out, 0, nullptr));
        return;
      case 1: {
        fi_addr_t gone = r[3] & 4 ? s.other : r[4];
        check_result(fi_av_remove(s.av, &gone, 1, 0));
        return;
      }
      case 2:
        check_result(fi_av_lookup(s.av, r[3] & 4 ? s.other : r[4], room.data(), &size));
        return;
      case 3: {
        std::vector<char> text(r[4] % 40);
        std::size_t length = text.size();
        (void)fi_av_straddr(s.av, &a, text.data(), &length);
        return;
      }
      default:
        check_result(fi_av_insertsvc(s.av, "127.0.0.1", r[3] & 4 ? "70000" : "7", out, 0, nullptr));
    }
  }
  void counters(Side& s, const Record& r) {
    switch (r[2] % 5) {
      case 0:
        (void)fi_cntr_read(s.counter);
        return;
      case 1:
        (void)fi_cntr_readerr(s.counter);
        return;
      case 2:
        check_result(r[3] & 1 ? fi_cntr_add(s.counter, r[4]) : fi_cntr_set(s.counter, r[4]));
        return;
      case 3:
        check_result(r[3] & 1 ? fi_cntr_adderr(s.counter, r[4]) : fi_cntr_seterr(s.counter, r[4]));
        return;
      default:
        check_result(fi_cntr_wait(s.counter, r[4], 0));
    }
  }

  std::array<std::uint8_t, 3> head_;
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fi_cq_format format_ = FI_CQ_FORMAT_TAGGED;
  std::array<Side, 2> sides_;
  std::array<Region, 3> regions_;
  std::deque<std::unique_ptr<Asked>> asked_;
  bool by_default_multi_ = false;  // perhaps: such a flag was set
  Asked* peeks_ = nullptr;         // asked for, with a claim
  Asked* claims_ = nullptr;        // found and claimed; to be received
};

}  // namespace
}  // namespace ewarp::fuzz

FUZZ_MUTATES(ewarp::fuzz::Talk)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  const Talk talk(data, size);
  Program program(talk.head());
  if (!program.ready()) return 0;
  for (std::size_t i = 0; i < talk.count() && i < 120; ++i) program.act(talk[i]);
  program.finish();
  return 0;
}
