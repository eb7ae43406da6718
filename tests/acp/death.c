/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rank 1 is killed (SIGKILL) in a state that its argument names; rank 0 has something under way with it, and must hear
 * of the end in bounded time. Rank 2 must go on: it and rank 0 then talk to each other.
 *
 *   etherwarp acprun -n 3 ewarp_acp_death STATE */
#include <signal.h>
#include <unistd.h>

#include "check.h"

static void die(void) {
  kill(getpid(), SIGKILL);
  pause();
}

/* The victim shows that it has come to its state: rank 0 then gives the word. */
static acp_ga_t word(int who, int index) {
  return acp_query_starter_ga(who) + (acp_ga_t)index * 8;
}
static volatile uint64_t* own(int index) {
  return acp_query_address(word(acp_rank(), index));
}

static void tell(int who, int index) {
  *own(7) = 1;
  /* It may have died of it before it could acknowledge it. */
  CHECK(acp_complete(acp_copy(word(who, index), word(acp_rank(), 7), 8, ACP_HANDLE_NULL)) == 0 || errno == ECONNRESET);
}
static void hear(int index) {
  while (*own(index) == 0) acp_inquire(ACP_HANDLE_ALL);
}

/* --- what rank 0 does, and its partner until it dies --- */

static unsigned char buffer[1 << 20];

/* Rank 1 dies, and with it what was begun. */
static void both_fail(acp_request_t a, acp_request_t b) {
  tell(1, 0);
  FAILS(acp_wait_ch(a), -1, ECONNRESET);
  FAILS(acp_wait_ch(b), -1, ECONNRESET);
}

static void victim_before_create(void) {
  hear(0);
}
static void survivor_asking(void) {
  /* Nobody answers the request. */
  acp_ch_t ch = acp_create_ch(0, 1);
  acp_request_t r = acp_nbsend_ch(ch, buffer, 8);
  both_fail(r, acp_nbfree_ch(ch));
}

static void survivor_waiting(void) {
  /* Nobody asks. */
  acp_ch_t ch = acp_create_ch(1, 0);
  acp_request_t r = acp_nbrecv_ch(ch, buffer, 8);
  both_fail(r, acp_nbfree_ch(ch));
}

static void victim_connected(void) {
  int c = 0;
  acp_ch_t out = acp_create_ch(1, 0), in = acp_create_ch(0, 1);
  CHECK(acp_send_ch(out, &c, 1) == 0 && acp_recv_ch(in, &c, 1) == 1);
  hear(0);
}
static void survivor_receiving(void) {
  acp_ch_t in = acp_create_ch(1, 0), out = acp_create_ch(0, 1);
  CHECK(acp_recv_ch(in, buffer, 1) == 1 && acp_send_ch(out, buffer, 1) == 0);
  acp_request_t r = acp_nbrecv_ch(in, buffer, 8);
  tell(1, 0);
  FAILS(acp_wait_ch(r), -1, ECONNRESET);
  FAILS(acp_recv_ch(in, buffer, 8), -1, ECONNRESET);
  FAILS(acp_send_ch(out, buffer, 8), -1, ECONNRESET);
  FAILS(acp_free_ch(in), -1, ECONNRESET);
  FAILS(acp_free_ch(out), -1, ECONNRESET);
  FAILS(acp_free_ch(out), -1, EBADF);
  FAILS(acp_sync(), -1, ECONNRESET); /* now the job has told of it, too */
  FAILS(acp_create_ch(0, 1), ACP_CH_NULL, ECONNRESET);
}

static void survivor_sending(void) {
  /* More than both buffers take, and nobody receives. */
  acp_ch_t in = acp_create_ch(1, 0), out = acp_create_ch(0, 1);
  CHECK(acp_recv_ch(in, buffer, 1) == 1 && acp_send_ch(out, buffer, 1) == 0);
  acp_request_t r = acp_nbsend_ch(out, buffer, sizeof buffer);
  tell(1, 0);
  FAILS(acp_wait_ch(r), -1, ECONNRESET);
}

static void survivor_freeing(void) {
  /* The sender's end of a channel whose receiver does not free its own; then the receiver's. */
  acp_ch_t in = acp_create_ch(1, 0), out = acp_create_ch(0, 1);
  CHECK(acp_recv_ch(in, buffer, 1) == 1 && acp_send_ch(out, buffer, 1) == 0);
  CHECK(acp_free_ch(out) == 0);
  acp_request_t f = acp_nbfree_ch(in);
  tell(1, 0);
  FAILS(acp_wait_ch(f), -1, ECONNRESET);
}

static void victim_half(void) {
  /* Dies in the midst of a message: only the first slots are there. A call would send more as soon as rank 0 takes
   * some, perhaps all of it: so this one makes no further call, and rank 0 takes none before it has returned. */
  acp_ch_t out = acp_create_ch(1, 0);
  CHECK(acp_send_ch(out, buffer, 1) == 0);
  acp_nbsend_ch(out, buffer, sizeof buffer);
  *own(1) = 1;
  while (*own(0) == 0) usleep(1000);
}
static void survivor_half(void) {
  acp_ch_t in = acp_create_ch(1, 0);
  CHECK(acp_recv_ch(in, buffer, 1) == 1);
  while (*own(6) == 0) CHECK(acp_complete(acp_copy(word(0, 6), word(1, 1), 8, ACP_HANDLE_NULL)) == 0);
  tell(1, 0);
  acp_request_t r = acp_nbrecv_ch(in, buffer, sizeof buffer);
  FAILS(acp_wait_ch(r), -1, ECONNRESET);
}

static void victim_sync(void) {
  hear(0);
}
static void survivor_sync(void) {
  tell(1, 0);
  FAILS(acp_sync(), -1, ECONNRESET);
  FAILS(acp_sync(), -1, ECONNRESET);
}

static void survivor_copy(void) {
  int failed = 0;
  tell(1, 0);
  for (int i = 0; !failed; ++i) {
    acp_handle_t h = i % 2 ? acp_copy(word(1, 2), word(0, 2), 8, ACP_HANDLE_NULL)
                           : acp_add4(word(0, 2), word(1, 2), 1, ACP_HANDLE_NULL);
    failed = h == ACP_HANDLE_NULL || acp_complete(h) != 0;
  }
  CHECK(errno == ECONNRESET);
  /* The network may tell of it before the job does. Until then an access begins, and fails. */
  acp_handle_t late;
  while ((late = acp_copy(word(1, 2), word(0, 2), 8, ACP_HANDLE_NULL)) != ACP_HANDLE_NULL)
    FAILS(acp_complete(late), -1, ECONNRESET);
  CHECK(errno == ECONNRESET);
}

static const struct {
  const char* name;
  void (*victim)(void);
  void (*survivor)(void);
} states[] = {
    {"asking", victim_before_create, survivor_asking},
    {"waiting", victim_before_create, survivor_waiting},
    {"receiving", victim_connected, survivor_receiving},
    {"sending", victim_connected, survivor_sending},
    {"freeing", victim_connected, survivor_freeing},
    {"half", victim_half, survivor_half},
    {"sync", victim_sync, survivor_sync},
    {"copy", victim_sync, survivor_copy},
};

/* Rank 0 and the one that has nothing to do with the dead. */
static void others_go_on(int other) {
  int value = 7;
  acp_ch_t out = acp_create_ch(acp_rank(), other), in = acp_create_ch(other, acp_rank());
  CHECK(acp_send_ch(out, &value, sizeof value) == 0 && acp_recv_ch(in, &value, sizeof value) == (int)sizeof value);
  acp_request_t f = acp_nbfree_ch(in);
  CHECK(acp_free_ch(out) == 0);
  CHECK(acp_wait_ch(f) == 0);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "init") == 0 && strcmp(getenv("ACP_RANK"), "1") == 0) die();
  const double began = seconds();
  if (acp_init(&argc, &argv) != 0) {
    printf("init failed after %.3f s\n", seconds() - began);
    return 3;
  }
  const int rank = acp_rank();
  for (unsigned i = 0; argc > 1 && i < sizeof states / sizeof *states; ++i) {
    if (strcmp(argv[1], states[i].name) != 0) continue;
    if (acp_rank() == 1) {
      states[i].victim();
      die();
    }
    if (acp_rank() == 0) {
      states[i].survivor();
      printf("%s: heard after %.3f s\n", argv[1], seconds() - began);
    }
    others_go_on(2 - acp_rank());
    FAILS(acp_finalize(), -1, ECONNRESET);
    printf("rank %d ends well\n", rank);
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "finalize") == 0) {
    if (acp_rank() == 1) die();
    FAILS(acp_finalize(), -1, ECONNRESET);
    printf("rank %d ends well\n", rank);
    return 0;
  }
  fprintf(stderr, "no such state\n");
  return 2;
}
