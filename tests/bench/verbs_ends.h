// What the measuring programs on plain libibverbs share: complaints, time, devices, and queue pairs on their way to
// RTS.
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

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

struct ibv_context* open_device(const char* name);  // NULL: the first
struct address address_of(struct ibv_qp* qp, int gid_index);

void rc_to_rts(struct ibv_qp* qp, const struct address* peer, int gid_index);
void ud_to_rts(struct ibv_qp* qp);  // its Q_Key is kQkey
struct ibv_ah* handle_for(struct ibv_pd* pd, const struct address* peer, int gid_index);
