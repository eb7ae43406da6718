/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Gravel: fast paths beside MPI (docs/user/gravel.md). An exchange is taken apart into calls of its own: a handshake
 * that makes a buffer known, transfers straight into or out of that buffer, and a FIN that ends it. The program decides
 * who begins, and what is computed in between.
 *
 *   consumer                                          producer
 *   gravel_post_rcv_buffer_rdma(1, in, n, 7, &r);     gravel_wait_rcv_buffer(&from, &tag, &size, &r);
 *   ... computes ...                                  gravel_post_os_put(r, out, n, 0);
 *                                                     gravel_send_fin(r);
 *   gravel_wait(r);                                   gravel_wait(r);
 *
 * After A. Danalis, A. Brown, L. Pollock, M. Swany, J. Cavazos: Gravel: A Communication Library to Fast Path MPI
 * (EuroPVM/MPI 2008).
 *
 * Sizes and offsets are in octets. Processes are named by their ranks in the communicator of gravel_init(), from 0;
 * tags are 0 to 2^31 - 1. Every function returns GRAVEL_SUCCESS or a GRAVEL_ERR_; gravel_reason() says more.
 *
 * Threads: one call at a time, by any thread, as with MPI_THREAD_SERIALIZED. After fork() the child must not call; it
 * may end.
 */
#ifndef GRAVEL_H
#define GRAVEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t gravel_request;

#define GRAVEL_REQUEST_NULL ((gravel_request)0)

enum { GRAVEL_ANY_SOURCE = -1, GRAVEL_ANY_TAG = -1 };

enum {
  GRAVEL_SUCCESS = 0,
  GRAVEL_ERR_ARGUMENT = 1,     /* a null pointer, a number that cannot be */
  GRAVEL_ERR_RANK = 2,         /* no such process, or ANY_SOURCE where one must be named */
  GRAVEL_ERR_TAG = 3,          /* below 0, and not ANY_TAG where that may be */
  GRAVEL_ERR_REQUEST = 4,      /* none of this name, or of another kind */
  GRAVEL_ERR_STATE = 5,        /* not now: behind a FIN; a wait for a put without one; before gravel_init() */
  GRAVEL_ERR_UNREGISTERED = 6, /* memory that is in no registered buffer as a whole */
  GRAVEL_ERR_RANGE = 7,        /* beyond the end of the other side's buffer; nothing was moved */
  GRAVEL_ERR_PEER = 8,         /* the other process has ended, or cannot be reached */
  GRAVEL_ERR_BUSY = 9,         /* requests that are not done use it */
  GRAVEL_ERR_MEMORY = 10,      /* out of memory; more than 65536 requests at a time; memory cannot be registered */
  GRAVEL_ERR_DEVICE = 11,      /* no RDMA device with an address of this host */
  GRAVEL_ERR_JOB = 12          /* the bootstrap failed, here or at another process */
};

/* What a code means. */
const char* gravel_strerror(int code);
/* Why the last call that failed did; until the next one that fails. */
const char* gravel_reason(void);

/* --- the job --- */

/*
 * Gathers `octets` octets of each process, in the order of their ranks, at all of them; 0, or another number if that
 * failed.
 */
typedef int gravel_allgather(const void* mine, void* all, size_t octets, void* context);

/*
 * Collective. `gather` is called a few times before it returns. GRAVEL_ERR_DEVICE, GRAVEL_ERR_JOB: at all processes.
 * gravel_mpi.h has gravel_init(), which does this by MPI.
 */
int gravel_start(int rank, int procs, gravel_allgather* gather, void* context);

/*
 * Peers that wait for this process get GRAVEL_ERR_PEER from now on. GRAVEL_ERR_BUSY: requests were not done; they are
 * gone. Buffers that are registered still are so no longer. Without this call a process that ends is lost to its peers.
 */
int gravel_finalize(void);

/* --- memory --- */

/* Peers of the job may read and write it from now on, where they are told. It stays where it is. May overlap others. */
int gravel_register_buffer(void* buf, size_t size);
/* As it was registered. GRAVEL_ERR_BUSY: a request or a transfer uses it. */
int gravel_unregister_buffer(void* buf, size_t size);

/* --- consumer --- */

/*
 * Tells the producer where to write. Done when its FIN has come; until then the buffer may change at any time. Waits
 * while 64 entries are unread at the producer, here as in every call that enters something into a ledger.
 */
int gravel_post_rcv_buffer_rdma(int proc, void* buf, size_t size, int tag, gravel_request* request);

/*
 * These wait for what a producer has posted. *proc: which one, or GRAVEL_ANY_SOURCE; then which it was. *tag: which
 * one, or GRAVEL_ANY_TAG; then which it was. What was posted first comes first. GRAVEL_ERR_PEER: *proc has ended. A
 * wait for anybody says so once of each process that was lost, and always when nobody else is left.
 */
int gravel_wait_send_request_rdma(int* proc, int* tag, size_t* size);
/* ... and gives a request for gravel_post_os_get(). Its test or wait says that no further get follows; then comes the
 * FIN. */
int gravel_wait_send_buffer_rdma(int* proc, int* tag, size_t* size, gravel_request* request);
/* Reads from the producer's buffer at this offset. buf must stay until the request is done. */
int gravel_post_os_get(gravel_request request, void* buf, size_t size, size_t offset);

/* --- producer --- */

/* Tells the consumer of a message to come. Done at once. */
int gravel_post_send_request_rdma(int proc, size_t size, int tag, gravel_request* request);
/* Tells the consumer where to read. Done when its FIN has come; until then the buffer must not change. */
int gravel_post_send_buffer_rdma(int proc, const void* buf, size_t size, int tag, gravel_request* request);
/* As the waits of the consumer; the request is for gravel_post_os_put(). */
int gravel_wait_rcv_buffer(int* proc, int* tag, size_t* size, gravel_request* request);
/* Writes into the consumer's buffer at this offset. buf must stay until the request is done. */
int gravel_post_os_put(gravel_request request, const void* buf, size_t size, size_t offset);
/* The consumer's request is done when this and all that was put before has come there. No put follows. */
int gravel_send_fin(gravel_request request);

/* --- both --- */

/* *flag: whether it is done; if so, or with an error but GRAVEL_ERR_STATE, its name is free. */
int gravel_test(gravel_request request, int* flag);
int gravel_wait(gravel_request request);
/* All of them, and GRAVEL_REQUEST_NULL where there is none; each that has ended becomes that. The first error. */
int gravel_waitall(int count, gravel_request requests[]);

#ifdef __cplusplus
}
#endif

#endif
