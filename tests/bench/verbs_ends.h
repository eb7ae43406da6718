// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the measuring programs on libibverbs share: complaints, time, devices, and queue pairs on their way to RTS.
// Queue pairs of RD are the only ones that need more than libibverbs: libetherwarpdv.
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "timing.h"

enum { kGrh = 40, kQkey = 0x11111111 };

// Where a queue pair is.
struct address {
  union ibv_gid gid;
  uint32_t qpn;
};

// All of them end the process with a line on stderr.
void die(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));
void must(bool good, const char* what);  // errno says why
void checked(int rc, const char* what);  // for calls that return 0 or an errno
double now(void);                        // seconds

// An argument --name VALUE of a program (a flag has no value), and where it goes.
struct argument {
  const char* name;
  enum { kText, kInt, kCount, kLong, kReal, kFlag } kind;
  void* to;  // const char*, int, uint32_t, long, double, bool
};
// At most 31, of which none is required. The word behind them: NULL if there is none. Ends the process with status 2
// where an argument is unknown.
const char* read_arguments(int argc, char** argv, const struct argument* known, size_t n);

// A connection on which the two ends find each other; server: NULL at the one that waits for the other.
int tcp_between(const char* server, int port);
// Both send and both receive: nobody goes on before the other is here.
void exchange(int tcp, const void* mine, void* theirs, size_t n);
void meet_at(int tcp);  // the same without anything to say

struct ibv_context* open_device(const char* name);  // NULL: the first
struct address address_of(struct ibv_qp* qp, int gid_index);

// A queue pair of RD that can Send and Write; RTS as for UD. init->qp_type is ignored.
struct ibv_qp* create_rd_qp(struct ibv_pd* pd, const struct ibv_qp_init_attr* init);
// access: what the peer may do (IBV_ACCESS_REMOTE_WRITE).
void rc_to_rts(struct ibv_qp* qp, const struct address* peer, int gid_index, unsigned access);
void ud_to_rts(struct ibv_qp* qp);  // RD too; its Q_Key is kQkey
// ibv_poll_cq() that ends the process at an error, that of a completion too.
int poll_well(struct ibv_cq* cq, int most, struct ibv_wc* wc);
struct ibv_ah* handle_for(struct ibv_pd* pd, const struct address* peer, int gid_index);
