/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two channels between every two processes in each direction, random sizes, random order of calls and of waits, several
 * rounds with new channels. What each message is, and how much of it is received, follows from the seed: every octet is
 * compared with that.
 *
 *   etherwarp acprun -n N ewarp_acp_storm [SEED [ROUNDS]] */
#include <stdint.h>

#include "check.h"

enum { kChannels = 2, kMessages = 40, kLongest = 3000, kUnderWay = 5 };

static uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static unsigned seed, round_number;
static uint64_t state; /* of this process's own choices */

static unsigned chosen(unsigned below) {
  return (unsigned)((state = mixed(state)) % below);
}

struct one_way {
  acp_ch_t ch;
  int from, to, which;
  unsigned begun, ended; /* messages */
  acp_request_t under_way[kUnderWay];
  unsigned char buffers[kUnderWay][kLongest + 8];
};

/* The length of the n-th message (what = 0), or of the buffer that receives it (1). */
static size_t length(const struct one_way* c, unsigned n, unsigned what) {
  const uint64_t m = mixed(seed + mixed(round_number * 7u + (unsigned)c->from * 1009u + (unsigned)c->to * 31u +
                                        (unsigned)c->which + mixed(n * 2u + what)));
  return m % 3 == 0 ? m / 3 % kLongest : m / 3 % 60;
}
static unsigned pattern(const struct one_way* c, unsigned n) {
  return (unsigned)mixed(seed ^ ((uint64_t)c->from << 40 | (uint64_t)c->to << 20 | (unsigned)c->which << 10 | n));
}

static void begin(struct one_way* c) {
  const unsigned n = c->begun++;
  unsigned char* buffer = c->buffers[n % kUnderWay];
  if (c->from == acp_rank()) {
    fill(buffer, length(c, n, 0), pattern(c, n));
    c->under_way[n % kUnderWay] = acp_nbsend_ch(c->ch, buffer, length(c, n, 0));
  } else {
    memset(buffer, 0xee, sizeof c->buffers[0]);
    c->under_way[n % kUnderWay] = acp_nbrecv_ch(c->ch, buffer, length(c, n, 1));
  }
  CHECK(c->under_way[n % kUnderWay] != ACP_REQUEST_NULL);
}

static void end(struct one_way* c) {
  const unsigned n = c->ended++;
  unsigned char* buffer = c->buffers[n % kUnderWay];
  const int result = acp_wait_ch(c->under_way[n % kUnderWay]);
  if (c->from == acp_rank()) {
    CHECK(result == 0);
    memset(buffer, 0xdd, sizeof c->buffers[0]); /* it is ours again */
    return;
  }
  const size_t sent = length(c, n, 0), room = length(c, n, 1), got = sent < room ? sent : room;
  CHECK(result == (int)got && filled(buffer, got, pattern(c, n)));
  for (size_t i = got; i < sizeof c->buffers[0]; ++i) CHECK(buffer[i] == 0xee);
}

/* Begins what can be begun, then waits for one of the oldest messages: so no two processes wait for each other. */
static void step(struct one_way* all, unsigned count) {
  const unsigned first = chosen(count);
  unsigned oldest = first;
  for (unsigned i = 0; i < count; ++i) {
    struct one_way* c = &all[(first + i) % count];
    if (c->begun < kMessages && c->begun - c->ended < kUnderWay) return begin(c);
    if (c->ended < all[oldest].ended) oldest = (first + i) % count;
  }
  end(&all[oldest]);
}

static void run_round(struct one_way* all, unsigned count) {
  acp_request_t frees[1024];
  for (unsigned i = 0; i < count; ++i) {
    struct one_way* c = &all[i];
    c->begun = c->ended = 0;
    CHECK((c->ch = acp_create_ch(c->from, c->to)) != ACP_CH_NULL);
  }
  for (int open = 1; open;) {
    step(all, count);
    open = 0;
    for (unsigned i = 0; i < count; ++i) open |= all[i].ended < kMessages;
  }
  for (unsigned i = 0; i < count; ++i)
    CHECK((frees[i] = acp_nbfree_ch(all[(i + state) % count].ch)) != ACP_REQUEST_NULL);
  CHECK(acp_waitall_ch(frees, (int)count, NULL) == 0);
}

int main(int argc, char** argv) {
  CHECK(acp_init(&argc, &argv) == 0);
  const int procs = acp_procs(), rank = acp_rank();
  seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
  const unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 3;
  const unsigned count = (unsigned)(procs - 1) * 2 * kChannels;
  struct one_way* all = calloc(count, sizeof *all);
  unsigned n = 0;
  for (int other = 0; other < procs; ++other)
    for (int which = 0; other != rank && which < 2 * kChannels; ++which) {
      all[n].from = which % 2 ? rank : other;
      all[n].to = which % 2 ? other : rank;
      all[n++].which = which / 2;
    }
  state = mixed(seed * 1000u + (unsigned)rank);
  for (round_number = 0; round_number < rounds; ++round_number) run_round(all, count);
  free(all);
  CHECK(acp_finalize() == 0);
  if (rank == 0) printf("seed %u: %d processes, %u rounds: as it must be\n", seed, procs, rounds);
  return 0;
}
