/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ACP, Advanced Communication Primitives, over EtherWARP: processes, global memory, and channels. Names and meanings
 * are those of the ACP library of the ACE project; the channel interface is that of T. Nanri and T. Soga, "Evaluation
 * of On-Demand Message-Passing Module over RDMA Network". docs/user/acp.md has the options, and what things cost.
 *
 *   cc program.c $(pkg-config --cflags --libs etherwarp-acp)        etherwarp acprun -n 4 ./a.out
 *
 * Every function may be called by any thread. A function that fails says so by its result, and why by errno: EINVAL
 * (an argument makes no sense), EBADF (a handle that is none, or no longer), ENOTCONN (before acp_init() or behind
 * acp_finalize()), ECONNRESET (the other process is gone), EAGAIN (too many requests are under way), ENOMEM, EACCES
 * (memory that nobody has registered, or no longer), EPIPE (the sender has freed the channel), EPROTO (the other
 * process broke the protocol). In a child of fork() every function fails with ENOTCONN.
 */
#ifndef EWARP_ACP_H
#define EWARP_ACP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- processes --- */

/* Waits until all processes of the job are there. argc and argv are not looked at. Once in a process. 0, or -1. */
int acp_init(int* argc, char*** argv);
/* Waits until all processes have called it, then gives everything back, channels that were not freed included.
 * 0; -1 if a process was gone, and everything is given back all the same. */
int acp_finalize(void);
/* Says the text and what errno means on stderr, and ends all processes of the job. Does not return. */
void acp_abort(const char* text);
/* Waits until all processes have called it. 0, or -1 (a process is gone). */
int acp_sync(void);
int acp_rank(void);  /* from 0; -1: not initialized */
int acp_procs(void); /* -1: not initialized */

/* --- global memory --- */

typedef uint64_t acp_atkey_t; /* of a registered region */
typedef uint64_t acp_ga_t;    /* of an octet of any process; ga + n is n octets behind it, in the same region */
#define ACP_ATKEY_NULL 0LLU
#define ACP_GA_NULL 0LLU

/* Of the memory that every process has from the beginning, zeroed, ACP_STARTER_SIZE octets. */
acp_ga_t acp_query_starter_ga(int rank);
/* Other processes may then read and write it. color: 0. At most 1023 regions at a time, of 16 GiB at most. */
acp_atkey_t acp_register_memory(void* memory, size_t octets, int color);
int acp_unregister_memory(acp_atkey_t key); /* 0, or -1 */
acp_ga_t acp_query_ga(acp_atkey_t key, void* address);
void* acp_query_address(acp_ga_t ga); /* NULL: not of this process */
int acp_query_rank(acp_ga_t ga);      /* -1: ACP_GA_NULL */
int acp_query_color(acp_ga_t ga);     /* 0; -1: ACP_GA_NULL */
int acp_colors(void);                 /* 1 */

/* --- global memory access ---
 *
 * Each begins an access and returns its handle, or ACP_HANDLE_NULL. It begins when the access `order` and all before it
 * have ended well (ACP_HANDLE_NULL: at once; ACP_HANDLE_ALL and ACP_HANDLE_CONT: behind all so far); if one of them
 * failed, this one fails with ECANCELED. At most 512 are under way; one more waits for the first.
 */
typedef int64_t acp_handle_t;
#define ACP_HANDLE_NULL 0x0000000000000000LL
#define ACP_HANDLE_ALL ((acp_handle_t)0xffffffffffffffffLLU)
#define ACP_HANDLE_CONT ((acp_handle_t)0xfffffffffffffffeLLU)

/* Between any two processes. The regions must not overlap. */
acp_handle_t acp_copy(acp_ga_t to, acp_ga_t from, size_t octets, acp_handle_t order);

/* Atomic on `at`, of any process, which is aligned to the width (4 or 8 octets); what was there goes to `to`, of this
 * process. Atomic towards each other; towards stores of the CPU those of 8 octets are. */
acp_handle_t acp_cas4(acp_ga_t to, acp_ga_t at, uint32_t expected, uint32_t value, acp_handle_t order);
acp_handle_t acp_cas8(acp_ga_t to, acp_ga_t at, uint64_t expected, uint64_t value, acp_handle_t order);
acp_handle_t acp_swap4(acp_ga_t to, acp_ga_t at, uint32_t value, acp_handle_t order);
acp_handle_t acp_swap8(acp_ga_t to, acp_ga_t at, uint64_t value, acp_handle_t order);
acp_handle_t acp_add4(acp_ga_t to, acp_ga_t at, uint32_t value, acp_handle_t order);
acp_handle_t acp_add8(acp_ga_t to, acp_ga_t at, uint64_t value, acp_handle_t order);
acp_handle_t acp_xor4(acp_ga_t to, acp_ga_t at, uint32_t value, acp_handle_t order);
acp_handle_t acp_xor8(acp_ga_t to, acp_ga_t at, uint64_t value, acp_handle_t order);
acp_handle_t acp_or4(acp_ga_t to, acp_ga_t at, uint32_t value, acp_handle_t order);
acp_handle_t acp_or8(acp_ga_t to, acp_ga_t at, uint64_t value, acp_handle_t order);
acp_handle_t acp_and4(acp_ga_t to, acp_ga_t at, uint32_t value, acp_handle_t order);
acp_handle_t acp_and8(acp_ga_t to, acp_ga_t at, uint64_t value, acp_handle_t order);

/* Waits for this access and all before it; ACP_HANDLE_ALL: all. A handle that is none, or was completed, is no error.
 * 0; -1 if one of them failed, with the errno of the first. */
int acp_complete(acp_handle_t handle);
/* 1: one of these is under way. 0: none. */
int acp_inquire(acp_handle_t handle);

/* --- channels: one way, in order, from one process to another --- */

typedef struct acp_channel* acp_ch_t;
typedef struct acp_channel_request* acp_request_t;
#define ACP_CH_NULL ((acp_ch_t)0)
#define ACP_REQUEST_NULL ((acp_request_t)0)

/* This process's end of a channel; it is one of the two, which are different. Does not wait for the other. The n-th
 * channel that the sender creates for this pair is the n-th that the receiver creates. ACP_CH_NULL: failed. */
acp_ch_t acp_create_ch(int sender, int receiver);
/* No other request may follow. The sender's is done when the last message is on its way; the receiver's when the
 * sender's last message has come, and messages that were not received are gone. */
acp_request_t acp_nbfree_ch(acp_ch_t channel);
/* Done when the buffer may be used again. octets: at most INT_MAX. */
acp_request_t acp_nbsend_ch(acp_ch_t channel, void* buffer, size_t octets);
/* Done when the message is here. If it is longer than the buffer, the rest of it is lost. */
acp_request_t acp_nbrecv_ch(acp_ch_t channel, void* buffer, size_t octets);
/* Waits, and ends the handle. Octets received (a receive), 0 (others), or -1. */
int acp_wait_ch(acp_request_t request);
/* Waits for all of them; octets (or NULL): what was received by each. 0; -1 if one failed, with the errno of the
 * first. */
int acp_waitall_ch(acp_request_t* requests, int count, size_t* octets);
/* The same as beginning and waiting. */
int acp_free_ch(acp_ch_t channel);
int acp_send_ch(acp_ch_t channel, void* buffer, size_t octets);
int acp_recv_ch(acp_ch_t channel, void* buffer, size_t octets);

#ifdef __cplusplus
}
#endif

#endif
