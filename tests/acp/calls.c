/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every function of acp.h: what it does, and each of its errors. Three processes. */
#include <limits.h>
#include <stdint.h>

#include "check.h"

static int rank, procs;

static void before_init(void) {
  char c;
  FAILS(acp_rank(), -1, ENOTCONN);
  FAILS(acp_procs(), -1, ENOTCONN);
  FAILS(acp_sync(), -1, ENOTCONN);
  FAILS(acp_finalize(), -1, ENOTCONN);
  FAILS(acp_query_starter_ga(0), ACP_GA_NULL, ENOTCONN);
  FAILS(acp_register_memory(&c, 1, 0), ACP_ATKEY_NULL, ENOTCONN);
  FAILS(acp_unregister_memory(1), -1, ENOTCONN);
  FAILS(acp_query_ga(1, &c), ACP_GA_NULL, ENOTCONN);
  FAILS(acp_query_address(1), NULL, ENOTCONN);
  FAILS(acp_copy(1, 1, 1, ACP_HANDLE_NULL), ACP_HANDLE_NULL, ENOTCONN);
  FAILS(acp_complete(ACP_HANDLE_ALL), -1, ENOTCONN);
  FAILS(acp_create_ch(0, 1), ACP_CH_NULL, ENOTCONN);
  FAILS(acp_nbfree_ch(ACP_CH_NULL), ACP_REQUEST_NULL, ENOTCONN);
  FAILS(acp_wait_ch(ACP_REQUEST_NULL), -1, ENOTCONN);
}

/* A word in the starter memory of each process, at this index. */
static acp_ga_t word_of(int who, int index) {
  return acp_query_starter_ga(who) + (acp_ga_t)index * 8;
}
static uint64_t* own_word(int index) {
  return acp_query_address(word_of(rank, index));
}

static void addresses(void) {
  static char memory[100];
  CHECK(acp_colors() == 1);
  FAILS(acp_query_starter_ga(-1), ACP_GA_NULL, EINVAL);
  FAILS(acp_query_starter_ga(procs), ACP_GA_NULL, EINVAL);
  FAILS(acp_register_memory(NULL, 1, 0), ACP_ATKEY_NULL, EINVAL);
  FAILS(acp_register_memory(memory, 0, 0), ACP_ATKEY_NULL, EINVAL);
  FAILS(acp_register_memory(memory, sizeof memory, 1), ACP_ATKEY_NULL, EINVAL);
  FAILS(acp_register_memory(memory, (size_t)1 << 35, 0), ACP_ATKEY_NULL, EINVAL);
  acp_atkey_t key = acp_register_memory(memory, sizeof memory, 0);
  CHECK(key != ACP_ATKEY_NULL);
  acp_ga_t ga = acp_query_ga(key, memory + 10);
  CHECK(acp_query_address(ga) == memory + 10 && acp_query_address(ga + 89) == memory + 99);
  CHECK(acp_query_rank(ga) == rank && acp_query_color(ga) == 0);
  FAILS(acp_query_ga(key, memory + 100), ACP_GA_NULL, EINVAL);
  FAILS(acp_query_ga(key, memory - 1), ACP_GA_NULL, EINVAL);
  FAILS(acp_query_ga(key + 1, memory), ACP_GA_NULL, EBADF);
  FAILS(acp_query_address(acp_query_starter_ga((rank + 1) % procs)), NULL, EINVAL);
  FAILS(acp_query_address(ACP_GA_NULL), NULL, EINVAL);
  FAILS(acp_query_rank(ACP_GA_NULL), -1, EINVAL);
  FAILS(acp_query_color(ACP_GA_NULL), -1, EINVAL);
  CHECK(acp_unregister_memory(key) == 0);
  FAILS(acp_unregister_memory(key), -1, EBADF);
  FAILS(acp_query_ga(key, memory), ACP_GA_NULL, EBADF);
  FAILS(acp_query_address(ga), NULL, EINVAL);
}

static void all_tags(void) {
  static char memory[2000];
  acp_atkey_t keys[1023];
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 1023; ++i) CHECK((keys[i] = acp_register_memory(memory + i, 1, 0)) != ACP_ATKEY_NULL);
    FAILS(acp_register_memory(memory, 1, 0), ACP_ATKEY_NULL, EAGAIN);
    for (int i = 0; i < 1023; ++i) CHECK(acp_query_address(acp_query_ga(keys[i], memory + i)) == memory + i);
    for (int i = 0; i < 1023; ++i) CHECK(acp_unregister_memory(keys[i]) == 0);
  }
}

enum { kBig = (1 << 20) + 8 };

/* Every process tells where its memory is, and copies: its own to the next, the next's to its own, the next's to the
 * one after that. */
static void copies(void) {
  unsigned char* memory = malloc(4 * kBig);
  acp_atkey_t key = acp_register_memory(memory, 4 * kBig, 0);
  const int next = (rank + 1) % procs, third = (rank + 2) % procs;
  *own_word(0) = acp_query_ga(key, memory);
  CHECK(acp_sync() == 0);
  acp_handle_t h = acp_copy(word_of(rank, 1), word_of(next, 0), 8, ACP_HANDLE_NULL);
  h = acp_copy(word_of(rank, 2), word_of(third, 0), 8, h);
  CHECK(h != ACP_HANDLE_NULL && acp_complete(h) == 0 && acp_inquire(h) == 0);
  const acp_ga_t own = *own_word(0), its = *own_word(1), others = *own_word(2);
  CHECK(acp_query_rank(its) == next && acp_query_rank(others) == third);

  const size_t sizes[] = {0, 1, 7, 4096, kBig};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t n = sizes[i];
    memset(memory, 0xee, 4 * kBig);
    fill(memory, n, (unsigned)rank);
    CHECK(acp_sync() == 0);
    CHECK(acp_copy(its + kBig, own, n, ACP_HANDLE_NULL) != ACP_HANDLE_NULL);
    CHECK(acp_copy(own + 2 * kBig, its, n, ACP_HANDLE_NULL) != ACP_HANDLE_NULL);
    CHECK(acp_copy(others + 3 * kBig, its, n, ACP_HANDLE_NULL) != ACP_HANDLE_NULL);
    CHECK(acp_complete(ACP_HANDLE_ALL) == 0 && acp_inquire(ACP_HANDLE_ALL) == 0);
    CHECK(acp_sync() == 0);
    CHECK(filled(memory + kBig, n, (unsigned)third));     /* written by the one before */
    CHECK(filled(memory + 2 * kBig, n, (unsigned)next));  /* read */
    CHECK(filled(memory + 3 * kBig, n, (unsigned)third)); /* relayed */
    if (n < kBig) CHECK(memory[kBig + n] == 0xee && memory[2 * kBig + n] == 0xee && memory[3 * kBig + n] == 0xee);
  }
  CHECK(acp_complete(acp_copy(own, own + kBig, 4096, ACP_HANDLE_NULL)) == 0 && filled(memory, 4096, (unsigned)third));
  CHECK(acp_sync() == 0);

  /* Each in its place behind the one before. */
  for (int i = 0; i < 520; ++i) CHECK(acp_copy(its + 8 * (acp_ga_t)(i + 1), its + 8 * (acp_ga_t)i, 8, ACP_HANDLE_CONT));
  CHECK(acp_complete(ACP_HANDLE_ALL) == 0);
  CHECK(acp_sync() == 0);
  for (int i = 1; i <= 520; ++i) CHECK(memcmp(memory, memory + 8 * i, 8) == 0);

  FAILS(acp_copy(ACP_GA_NULL, own, 1, ACP_HANDLE_NULL), ACP_HANDLE_NULL, EINVAL);
  FAILS(acp_copy(own, own + 4 * kBig, 1, ACP_HANDLE_NULL), ACP_HANDLE_NULL, EACCES);
  FAILS(acp_copy(own, word_of(next, 1 << 20), 8, ACP_HANDLE_NULL), ACP_HANDLE_NULL, EINVAL);
  h = acp_copy(own, its + 4 * kBig - 8, 16, ACP_HANDLE_NULL); /* beyond the region */
  CHECK(h != ACP_HANDLE_NULL);
  acp_handle_t behind = acp_copy(own, its, 8, h);
  FAILS(acp_complete(h), -1, EACCES);
  FAILS(acp_complete(behind), -1, ECANCELED);
  CHECK(acp_complete(behind) == 0 && acp_complete(ACP_HANDLE_NULL) == 0 && acp_complete(behind + 1000) == 0);
  CHECK(acp_inquire(behind + 1000) == 0 && acp_inquire(ACP_HANDLE_NULL) == 0);
  CHECK(acp_sync() == 0);
  CHECK(acp_unregister_memory(key) == 0);
  CHECK(acp_sync() == 0);
  FAILS(acp_complete(acp_copy(word_of(rank, 3), its, 8, ACP_HANDLE_NULL)), -1, EACCES); /* no longer registered */
  CHECK(acp_sync() == 0);
  free(memory);
}

/* A tag that comes back has another key: the old entry in others' caches must not count. */
static void tags_that_come_back(void) {
  const int next = (rank + 1) % procs;
  uint64_t value = 1;
  for (int round = 0; round < 2; ++round) {
    acp_atkey_t key = acp_register_memory(&value, sizeof value, 0);
    value = (uint64_t)rank * 10 + (uint64_t)round;
    *own_word(0) = acp_query_ga(key, &value);
    CHECK(acp_sync() == 0);
    CHECK(acp_complete(acp_copy(word_of(rank, 1), word_of(next, 0), 8, ACP_HANDLE_NULL)) == 0);
    CHECK(acp_complete(acp_copy(word_of(rank, 2), *own_word(1), 8, ACP_HANDLE_NULL)) == 0);
    CHECK(*own_word(2) == (uint64_t)next * 10 + (uint64_t)round);
    CHECK(acp_sync() == 0);
    CHECK(acp_unregister_memory(key) == 0);
    for (int i = 0; round == 0 && i < 1022; ++i) CHECK(acp_unregister_memory(acp_register_memory(&value, 8, 0)) == 0);
    CHECK(acp_sync() == 0);
  }
}

enum { kAdds = 80 };

/* The word 8 of rank 0 and its halves 9 and 9.5, changed by all. */
static void atomics(void) {
  const acp_ga_t at = word_of(0, 8), half = word_of(0, 9), result = word_of(rank, 3);
  uint64_t* found = own_word(3);
  if (rank == 0) {
    *own_word(8) = 0;
    *own_word(9) = 0x1111111122222222u;
    *found = ~0ull;
    CHECK(acp_complete(acp_cas8(result, at, 1, 5, ACP_HANDLE_NULL)) == 0 && *found == 0 && *own_word(8) == 0);
    CHECK(acp_complete(acp_cas8(result, at, 0, 5, ACP_HANDLE_NULL)) == 0 && *found == 0 && *own_word(8) == 5);
    CHECK(acp_complete(acp_swap8(result, at, 6, ACP_HANDLE_NULL)) == 0 && *found == 5 && *own_word(8) == 6);
    CHECK(acp_complete(acp_add8(result, at, ~0ull, ACP_HANDLE_NULL)) == 0 && *found == 6 && *own_word(8) == 5);
    CHECK(acp_complete(acp_xor8(result, at, 6, ACP_HANDLE_NULL)) == 0 && *found == 5 && *own_word(8) == 3);
    CHECK(acp_complete(acp_or8(result, at, 12, ACP_HANDLE_NULL)) == 0 && *found == 3 && *own_word(8) == 15);
    CHECK(acp_complete(acp_and8(result, at, 10, ACP_HANDLE_NULL)) == 0 && *found == 15 && *own_word(8) == 10);
  }
  CHECK(acp_sync() == 0);
  if (rank == 1) {
    *found = ~0ull;
    CHECK(acp_complete(acp_cas4(result, half + 4, 7, 9, ACP_HANDLE_NULL)) == 0 && *found == 0xffffffff11111111u);
    CHECK(acp_complete(acp_cas4(result, half + 4, 0x11111111, 9, ACP_HANDLE_NULL)) == 0 &&
          (uint32_t)*found == 0x11111111);
    CHECK(acp_complete(acp_swap4(result, half + 4, 8, ACP_HANDLE_NULL)) == 0 && (uint32_t)*found == 9);
    CHECK(acp_complete(acp_add4(result, half + 4, ~0u, ACP_HANDLE_NULL)) == 0 && (uint32_t)*found == 8);
    CHECK(acp_complete(acp_xor4(result, half + 4, 1, ACP_HANDLE_NULL)) == 0 && (uint32_t)*found == 7);
    CHECK(acp_complete(acp_or4(result, half + 4, 8, ACP_HANDLE_NULL)) == 0 && (uint32_t)*found == 6);
    CHECK(acp_complete(acp_and4(result, half + 4, 12, ACP_HANDLE_NULL)) == 0 && (uint32_t)*found == 14);
    CHECK(acp_complete(acp_add4(result, half, 0xfffffff0u, ACP_HANDLE_NULL)) == 0 && (uint32_t)*found == 0x22222222);
    CHECK(acp_complete(acp_copy(result, half, 8, ACP_HANDLE_NULL)) == 0 && *found == 0x0000000c22222212u);
    FAILS(acp_cas8(word_of(0, 3), at, 0, 0, ACP_HANDLE_NULL), ACP_HANDLE_NULL, EINVAL); /* the result is not ours */
    FAILS(acp_add8(result, at + 4, 0, ACP_HANDLE_NULL), ACP_HANDLE_NULL, EINVAL);
    FAILS(acp_add4(result, at + 2, 0, ACP_HANDLE_NULL), ACP_HANDLE_NULL, EINVAL);
    FAILS(acp_add4(ACP_GA_NULL, at, 0, ACP_HANDLE_NULL), ACP_HANDLE_NULL, EINVAL);
  }
  CHECK(acp_sync() == 0);
  if (rank == 0) *own_word(8) = *own_word(9) = 0;
  CHECK(acp_sync() == 0);
  for (int i = 0; i < kAdds; ++i) {
    CHECK(acp_add8(result, at, 1, ACP_HANDLE_NULL) && acp_add4(result, half, 1, ACP_HANDLE_NULL) &&
          acp_add4(result, half + 4, 2, ACP_HANDLE_NULL));
  }
  CHECK(acp_complete(ACP_HANDLE_ALL) == 0);
  CHECK(acp_sync() == 0);
  if (rank == 0)
    CHECK(*own_word(8) == kAdds * (unsigned)procs &&
          *own_word(9) == (uint64_t)kAdds * (unsigned)procs * 0x200000001ull);
  CHECK(acp_sync() == 0);
}

static void channel_errors(void) {
  char c[8];
  const int next = (rank + 1) % procs, before = (rank + procs - 1) % procs;
  FAILS(acp_create_ch(rank, rank), ACP_CH_NULL, EINVAL);
  FAILS(acp_create_ch(next, before), ACP_CH_NULL, EINVAL);
  FAILS(acp_create_ch(rank, procs), ACP_CH_NULL, EINVAL);
  FAILS(acp_create_ch(-1, rank), ACP_CH_NULL, EINVAL);
  FAILS(acp_nbsend_ch(ACP_CH_NULL, c, 1), ACP_REQUEST_NULL, EBADF);
  FAILS(acp_nbfree_ch((acp_ch_t)c), ACP_REQUEST_NULL, EBADF);
  FAILS(acp_wait_ch(ACP_REQUEST_NULL), -1, EBADF);
  acp_ch_t out = acp_create_ch(rank, next), in = acp_create_ch(before, rank);
  CHECK(out != ACP_CH_NULL && in != ACP_CH_NULL);
  FAILS(acp_nbrecv_ch(out, c, 1), ACP_REQUEST_NULL, EINVAL);
  FAILS(acp_nbsend_ch(in, c, 1), ACP_REQUEST_NULL, EINVAL);
  FAILS(acp_nbsend_ch(out, c, (size_t)INT_MAX + 1), ACP_REQUEST_NULL, EINVAL);
  FAILS(acp_nbsend_ch(out, NULL, 1), ACP_REQUEST_NULL, EINVAL);
  acp_request_t free_out = acp_nbfree_ch(out), free_in = acp_nbfree_ch(in);
  FAILS(acp_nbsend_ch(out, c, 1), ACP_REQUEST_NULL, EBADF);
  FAILS(acp_nbfree_ch(in), ACP_REQUEST_NULL, EBADF);
  CHECK(acp_wait_ch(free_out) == 0 && acp_wait_ch(free_in) == 0);
  FAILS(acp_wait_ch(free_in), -1, EBADF);
  FAILS(acp_nbrecv_ch(in, c, 1), ACP_REQUEST_NULL, EBADF);
}

static void messages(void) {
  const int next = (rank + 1) % procs, before = (rank + procs - 1) % procs;
  acp_ch_t in = acp_create_ch(before, rank), out = acp_create_ch(rank, next);
  const size_t sizes[] = {0, 1, 248, 249, 65528, 65529, kBig};
  unsigned char *sent = malloc(kBig), *got = malloc(kBig);
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; ++i)
    for (unsigned j = 0; j < sizeof sizes / sizeof *sizes; ++j) {
      const size_t n = sizes[i] < sizes[j] ? sizes[i] : sizes[j];
      fill(sent, sizes[i], (unsigned)rank + i);
      memset(got, 0xee, kBig);
      acp_request_t both[2] = {acp_nbrecv_ch(in, got, sizes[j]), acp_nbsend_ch(out, sent, sizes[i])};
      size_t octets[2] = {9, 9};
      CHECK(acp_waitall_ch(both, 2, octets) == 0 && octets[0] == n && octets[1] == 0);
      CHECK(filled(got, n, (unsigned)before + i) && (n == kBig || got[n] == 0xee));
    }
  CHECK(acp_send_ch(out, sent, 100) == 0 && acp_recv_ch(in, got, 200) == 100);
  free(sent);
  free(got);
  acp_request_t f = acp_nbfree_ch(in);
  CHECK(acp_free_ch(out) == 0 && acp_wait_ch(f) == 0);
}

/* Between the same two: each is a queue of its own, and connected in the order of creation. */
static void several_channels(void) {
  enum { kChannels = 40 };
  acp_ch_t ch[kChannels];
  acp_request_t r[kChannels];
  int got[kChannels];
  if (rank > 1) return;
  for (int i = 0; i < kChannels; ++i) CHECK((ch[i] = acp_create_ch(0, 1)) != ACP_CH_NULL);
  for (int i = kChannels; i-- > 0;) {
    got[i] = i;
    r[i] = rank == 0 ? acp_nbsend_ch(ch[i], &got[i], sizeof got[i]) : acp_nbrecv_ch(ch[i], &got[i], sizeof got[i]);
  }
  for (int i = 0; i < kChannels; ++i) CHECK(acp_wait_ch(r[i]) == (rank == 0 ? 0 : (int)sizeof(int)) && got[i] == i);
  for (int i = 0; i < kChannels; ++i) r[i] = acp_nbfree_ch(ch[i]);
  CHECK(acp_waitall_ch(r, kChannels, NULL) == 0);
}

/* One that the sender has freed: what it sent is received, then there is an end. */
static void end_of_a_channel(void) {
  int value = 42;
  if (rank > 1) return;
  acp_ch_t ch = acp_create_ch(0, 1);
  if (rank == 0) {
    CHECK(acp_send_ch(ch, &value, sizeof value) == 0 && acp_free_ch(ch) == 0);
    return;
  }
  value = 0;
  CHECK(acp_recv_ch(ch, &value, sizeof value) == (int)sizeof value && value == 42);
  FAILS(acp_recv_ch(ch, &value, sizeof value), -1, EPIPE);
  acp_request_t two[2] = {acp_nbrecv_ch(ch, &value, 1), acp_nbfree_ch(ch)};
  FAILS(acp_waitall_ch(two, 2, NULL), -1, EPIPE);
}

static void too_many_requests(void) {
  static char c;
  static acp_request_t r[8193];
  if (rank > 1) return;
  acp_ch_t ch = acp_create_ch(1, 0);
  if (rank == 0) {
    for (int i = 0; i < 8192; ++i) CHECK((r[i] = acp_nbrecv_ch(ch, &c, 1)) != ACP_REQUEST_NULL);
    FAILS(acp_nbrecv_ch(ch, &c, 1), ACP_REQUEST_NULL, EAGAIN);
  }
  for (int i = 0; i < 8192; ++i) CHECK(rank == 0 ? acp_wait_ch(r[i]) == 1 : acp_send_ch(ch, &c, 1) == 0);
  CHECK(acp_free_ch(ch) == 0);
}

int main(int argc, char** argv) {
  before_init();
  CHECK(acp_init(&argc, &argv) == 0);
  FAILS(acp_init(&argc, &argv), -1, EINVAL);
  rank = acp_rank();
  procs = acp_procs();
  CHECK(procs == 3 && rank >= 0 && rank < 3);
  for (int i = 0; i < 3; ++i) CHECK(acp_sync() == 0);
  void (*const parts[])(void) = {addresses,      all_tags, copies,           tags_that_come_back, atomics,
                                 channel_errors, messages, several_channels, end_of_a_channel,    too_many_requests};
  for (unsigned i = 0; i < sizeof parts / sizeof *parts; ++i) {
    if (argc > 1) fprintf(stderr, "rank %d: part %u\n", rank, i);
    parts[i]();
    CHECK(acp_sync() == 0);
  }
  /* Channels that are left behind are no hindrance. */
  CHECK(acp_create_ch(rank, (rank + 1) % procs) != ACP_CH_NULL);
  CHECK(acp_finalize() == 0);
  before_init();
  FAILS(acp_init(&argc, &argv), -1, ENOTCONN);
  printf("rank %d: all calls\n", rank);
  return 0;
}
