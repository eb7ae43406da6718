/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What two processes do to each other is kept apart: accesses that one refuses from all others, a process that makes no
 * call or is stopped from those that write to it. Two processes.
 *
 *   etherwarp acprun -n 2 ewarp_acp_apart refused|computes|stopped */
#include <signal.h>
#include <unistd.h>

#include "check.h"

static int rank;

static acp_ga_t word(int who, int index) {
  return acp_query_starter_ga(who) + (acp_ga_t)index * 8;
}
static volatile uint64_t* own(int index) {
  return acp_query_address(word(rank, index));
}

/* --- rank 1 has unregistered memory that rank 0 still knows: its accesses there fail, and nothing else does --- */

enum { kRounds = 40, kMessages = 30 };

static void send_and_refuse(acp_ch_t ch, acp_ga_t closed) {
  static unsigned char sent[kMessages][500], memory[kRounds][8];
  acp_atkey_t key = acp_register_memory(memory, sizeof memory, 0);
  acp_request_t messages[kMessages];
  acp_handle_t good[kRounds][3], bad[kRounds][2];
  for (int i = 0; i < kMessages; ++i) {
    fill(sent[i], sizeof sent[i], (unsigned)i);
    messages[i] = acp_nbsend_ch(ch, sent[i], sizeof sent[i]);
  }
  for (int i = 0; i < kRounds; ++i) {
    fill(memory[i], sizeof memory[i], (unsigned)i);
    const acp_ga_t mine = acp_query_ga(key, memory[i]);
    good[i][0] = acp_copy(word(1, 10 + i), mine, 8, ACP_HANDLE_NULL);
    if (i % 4 == 0) bad[i][0] = acp_copy(closed, mine, 8, ACP_HANDLE_NULL);
    good[i][1] = acp_add8(word(0, 3), word(1, 1), 1, ACP_HANDLE_NULL);
    if (i % 4 == 0) bad[i][1] = acp_copy(word(0, 4), closed, 8, ACP_HANDLE_NULL);
    good[i][2] = acp_add8(word(0, 3), word(1, 2), 2, ACP_HANDLE_NULL);
  }
  /* In the order of their handles, for acp_complete() forgets all up to one. */
  for (int i = 0; i < kRounds; ++i) {
    CHECK(acp_complete(good[i][0]) == 0);
    if (i % 4 == 0) FAILS(acp_complete(bad[i][0]), -1, EACCES);
    CHECK(acp_complete(good[i][1]) == 0);
    if (i % 4 == 0) FAILS(acp_complete(bad[i][1]), -1, EACCES);
    CHECK(acp_complete(good[i][2]) == 0);
  }
  CHECK(acp_waitall_ch(messages, kMessages, NULL) == 0);
  CHECK(acp_unregister_memory(key) == 0);
}

static void receive_all(acp_ch_t ch) {
  unsigned char got[500];
  for (int i = 0; i < kMessages; ++i)
    CHECK(acp_recv_ch(ch, got, sizeof got) == (int)sizeof got && filled(got, sizeof got, (unsigned)i));
}

static void refused(void) {
  static uint64_t memory;
  acp_atkey_t key = acp_register_memory(&memory, sizeof memory, 0);
  acp_ch_t ch = acp_create_ch(0, 1);
  *own(0) = acp_query_ga(key, &memory);
  CHECK(acp_sync() == 0);
  acp_ga_t its = ACP_GA_NULL;
  if (rank == 0) {
    CHECK(acp_complete(acp_copy(word(0, 1), word(1, 0), 8, ACP_HANDLE_NULL)) == 0);
    its = *own(1);
    CHECK(acp_complete(acp_copy(word(0, 4), its, 8, ACP_HANDLE_NULL)) == 0); /* it is known now */
  }
  CHECK(acp_sync() == 0);
  CHECK(acp_unregister_memory(key) == 0);
  CHECK(acp_sync() == 0);
  if (rank == 0)
    send_and_refuse(ch, its);
  else
    receive_all(ch);
  CHECK(acp_free_ch(ch) == 0 && acp_sync() == 0);
  if (rank == 0) return;
  CHECK(*own(1) == kRounds && *own(2) == 2 * kRounds); /* each atomic once */
  for (int i = 0; i < kRounds; ++i) CHECK(filled((const unsigned char*)own(10 + i), 8, (unsigned)i));
}

/* --- rank 1 makes no call until it sees what rank 0 has written --- */

static void computes(void) {
  CHECK(acp_sync() == 0);
  if (rank == 1) {
    while (__atomic_load_n(own(0), __ATOMIC_ACQUIRE) != 5) continue;
  } else {
    *own(1) = 5;
    CHECK(acp_complete(acp_copy(word(1, 0), word(0, 1), 8, ACP_HANDLE_NULL)) == 0);
  }
  CHECK(acp_sync() == 0);
}

/* --- rank 1 is stopped for a while, before rank 0 has said anything to it, and in the midst of messages --- */

static void stopped(void) {
  static unsigned char octets[1 << 20];
  *own(0) = (uint64_t)getpid();
  acp_ch_t ch = acp_create_ch(1, 0), there = acp_create_ch(0, 1);
  if (rank == 1) CHECK(acp_send_ch(ch, (void*)own(0), 8) == 0);
  uint64_t pid = 0;
  if (rank == 0) CHECK(acp_recv_ch(ch, &pid, 8) == 8);
  for (int round = 0; round < 2; ++round) {
    if (rank == 1) {
      memset(octets, 0, sizeof octets);
      CHECK(acp_recv_ch(there, octets, sizeof octets) == (int)sizeof octets && filled(octets, sizeof octets, 9));
      continue;
    }
    fill(octets, sizeof octets, 9);
    CHECK(kill((pid_t)pid, SIGSTOP) == 0);
    acp_request_t r = acp_nbsend_ch(there, octets, sizeof octets);
    acp_handle_t h = acp_copy(word(1, 1), word(0, 0), 8, ACP_HANDLE_NULL);
    const double until = seconds() + 0.7;
    while (seconds() < until) acp_inquire(h);
    CHECK(kill((pid_t)pid, SIGCONT) == 0);
    CHECK(acp_wait_ch(r) == 0 && acp_complete(h) == 0);
  }
  CHECK(acp_sync() == 0);
}

int main(int argc, char** argv) {
  CHECK(argc == 2 && acp_init(&argc, &argv) == 0);
  rank = acp_rank();
  if (strcmp(argv[1], "refused") == 0) refused();
  if (strcmp(argv[1], "computes") == 0) computes();
  if (strcmp(argv[1], "stopped") == 0) stopped();
  CHECK(acp_finalize() == 0);
  printf("rank %d: %s\n", rank, "over");
  return 0;
}
