// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the examples of reliable datagrams share: a device, memory, queue pairs, and how two processes tell each other
 * their addresses. Errors end the program with a message. */
#ifndef RD_END_H
#define RD_END_H

#include <infiniband/etherwarpdv.h>
#include <stddef.h>
#include <stdint.h>

#define RD_QKEY 0x52440001u

struct rd_end {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  char* memory;
  union ibv_gid gid;
};

/* What a peer has to know of a queue pair and its memory; as it goes over the wire, in network order. */
struct rd_name {
  union ibv_gid gid;
  uint32_t qpn, rkey;
  uint64_t address, length;
};

/* device: NULL, the first one that EtherWARP offers. octets of registered memory; room for so many completions. */
void rd_open(struct rd_end* end, const char* device, size_t octets, int completions);
/* A queue pair of RD in RTS. */
struct ibv_qp* rd_create_qp(struct rd_end* end, uint32_t sends, uint32_t receives);
void rd_close(struct rd_end* end);

struct rd_name rd_name_of(const struct rd_end* end, const struct ibv_qp* qp, size_t offset, size_t length);
struct ibv_ah* rd_address_of(struct rd_end* end, const struct rd_name* peer);
/* The next completion; polls, and ends the program if it tells of an error. */
struct ibv_wc rd_wait(struct rd_end* end);

/* A TCP connection to tell names by: to a server, or from a client of ours (server: NULL). */
int rd_meet(const char* server, const char* port);
void rd_tell(int fd, const void* octets, size_t n);
void rd_hear(int fd, void* octets, size_t n);

#endif
