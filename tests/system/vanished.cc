// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Work that is pending while the peer's host vanishes, over plain librdmacm and libibverbs; vanished.py makes it vanish
// and judges what is printed.
//
//   ewarp_vanished serve ADDRESS PORT          offers memory and waits for the end
//   ewarp_vanished sends|reads|nothing ADDRESS PORT
//                                              connects, says "connected", waits for SIGUSR1, posts, says "posted",
//                                              then tells each completion, the event and the state of its queue pair
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kRequests = 3;
constexpr std::size_t kOctets = 16 << 20;  // of each request: more than two sockets take

void checked(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

template <class T>
T* needed(T* p, const char* what) {
  if (p == nullptr) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  return p;
}

struct Offer {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

rdma_cm_id* endpoint(const char* address, const char* port, int flags) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  checked(rdma_getaddrinfo(address, port, &hints, &found), "rdma_getaddrinfo");
  ibv_qp_init_attr attributes{};
  attributes.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  checked(rdma_create_ep(&id, found, nullptr, &attributes), "rdma_create_ep");
  rdma_freeaddrinfo(found);
  return id;
}

struct Memory {
  explicit Memory(rdma_cm_id* id)
      : region(needed(ibv_reg_mr(id->pd, octets.data(), octets.size(),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
                      "ibv_reg_mr")) {}
  std::vector<char> octets = std::vector<char>(kOctets);
  ibv_mr* region;
};

void await_end(rdma_cm_id* id) {
  rdma_cm_event* event = nullptr;
  checked(rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event");
  std::printf("event %s\n", rdma_event_str(event->event));
  rdma_ack_cm_event(event);
}

void serve(const char* address, const char* port) {
  rdma_cm_id* listening = endpoint(address, port, RAI_PASSIVE);
  checked(rdma_listen(listening, 4), "rdma_listen");
  rdma_cm_id* id = nullptr;
  checked(rdma_get_request(listening, &id), "rdma_get_request");
  Memory memory(id);
  const Offer offer{reinterpret_cast<std::uintptr_t>(memory.octets.data()), memory.region->rkey};
  rdma_conn_param parameters{};
  parameters.private_data = &offer;
  parameters.private_data_len = sizeof offer;
  parameters.responder_resources = parameters.initiator_depth = 8;
  for (int i = 0; i < kRequests; ++i)
    checked(rdma_post_recv(id, nullptr, memory.octets.data(), kOctets, memory.region), "rdma_post_recv");
  checked(rdma_accept(id, &parameters), "rdma_accept");
  std::puts("accepted");
  await_end(id);
}

void ask(const std::string& what, const char* address, const char* port) {
  sigset_t begin;
  sigemptyset(&begin);
  sigaddset(&begin, SIGUSR1);
  checked(sigprocmask(SIG_BLOCK, &begin, nullptr), "sigprocmask");
  rdma_cm_id* id = endpoint(address, port, 0);
  Memory memory(id);
  checked(rdma_post_recv(id, nullptr, memory.octets.data(), kOctets, memory.region), "rdma_post_recv");
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 8;
  checked(rdma_connect(id, &parameters), "rdma_connect");
  Offer offer;
  std::memcpy(&offer, id->event->param.conn.private_data, sizeof offer);
  std::puts("connected");
  int number = 0;
  checked(sigwait(&begin, &number), "sigwait");
  for (std::uintptr_t i = 1; i <= kRequests && what != "nothing"; ++i) {
    auto* const context = reinterpret_cast<void*>(i);
    checked(what == "reads" ? rdma_post_read(id, context, memory.octets.data(), kOctets, memory.region, 0,
                                             offer.address, offer.rkey)
                            : rdma_post_send(id, context, memory.octets.data(), kOctets, memory.region, 0),
            "posting");
  }
  std::puts("posted");
  for (int i = 0; i < (what == "nothing" ? 0 : kRequests); ++i) {
    ibv_wc wc{};
    if (rdma_get_send_comp(id, &wc) != 1) throw std::runtime_error("rdma_get_send_comp");
    std::printf("request %d: %s\n", static_cast<int>(wc.wr_id), ibv_wc_status_str(wc.status));
  }
  ibv_wc wc{};
  if (rdma_get_recv_comp(id, &wc) != 1) throw std::runtime_error("rdma_get_recv_comp");
  std::printf("receive: %s\n", ibv_wc_status_str(wc.status));
  await_end(id);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made{};
  checked(ibv_query_qp(id->qp, &attributes, IBV_QP_STATE, &made), "ibv_query_qp");
  std::printf("state %d\n", attributes.qp_state);
}

}  // namespace

int main(int count, char** words) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (count != 4) throw std::runtime_error("ROLE ADDRESS PORT");
  const std::string role = words[1];
  if (role == "serve")
    serve(words[2], words[3]);
  else
    ask(role, words[2], words[3]);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "ewarp_vanished: %s\n", e.what());
  return 1;
}
