/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Messages between all processes, by all protocols, as a seed has it: everybody makes the same list of them, so each
 * knows what must come in which order. Every octet is looked at.  gravel_storm FOLDER RANK PROCS SEED [WINDOWS]
 */
#include <stdbool.h>

#include "tests/system/gravel_ends.h"

enum { WINDOW = 60, TAGS = 3, MOST = 200000, WAYS = 3 };
enum way { CONSUMER_WRITE, PRODUCER_WRITE, PRODUCER_READ };

struct message {
  int producer, consumer, tag, pieces;
  enum way way;
  size_t size;
  bool noticed, taken; /* the notice; the buffer */
  char *in, *out;
  gravel_request requests[3];
};

static int rank, procs;
static uint64_t state;
static struct message* messages;
static size_t count;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

static char pattern(size_t message, size_t i) {
  return (char)(message * 31 + i * 7 + (i >> 8));
}

static void make_messages(int windows) {
  count = (size_t)windows * WINDOW;
  messages = calloc(count, sizeof *messages);
  for (size_t i = 0; i < count; ++i) {
    struct message* m = &messages[i];
    m->producer = (int)draw((uint32_t)procs);
    m->consumer = (int)draw((uint32_t)procs);
    m->tag = (int)draw(TAGS);
    m->pieces = 1 + (int)draw(5);
    m->way = (enum way)draw(WAYS);
    m->size = draw(4) == 0 ? 0 : draw(draw(2) ? 300 : MOST);
    if (m->way == PRODUCER_WRITE) m->tag += TAGS; /* consumers post these in another order */
  }
}

static char* buffer(size_t size) {
  char* out = malloc(size + 1);
  memset(out, 0x55, size + 1);
  GRAVEL_OK(gravel_register_buffer(out, size + 1));
  return out;
}

static void free_buffer(char** b, size_t size) {
  if (*b != NULL) GRAVEL_OK(gravel_unregister_buffer(*b, size + 1));
  free(*b);
  *b = NULL;
}

static void fill(size_t i) {
  struct message* m = &messages[i];
  m->out = buffer(m->size);
  for (size_t at = 0; at < m->size; ++at) m->out[at] = pattern(i, at);
}

static void post_receive(struct message* m) {
  m->in = buffer(m->size);
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(m->producer, m->in, m->size, m->tag, &m->requests[0]));
}

static void post(size_t i) {
  struct message* m = &messages[i];
  if (m->way == CONSUMER_WRITE && m->consumer == rank) post_receive(m);
  if (m->way == PRODUCER_WRITE && m->producer == rank)
    GRAVEL_OK(gravel_post_send_request_rdma(m->consumer, m->size, m->tag, &m->requests[1]));
  if (m->way == PRODUCER_READ && m->producer == rank) {
    fill(i);
    GRAVEL_OK(gravel_post_send_buffer_rdma(m->consumer, m->out, m->size, m->tag, &m->requests[1]));
  }
}

static bool is_write(const struct message* m) {
  return m->way != PRODUCER_READ;
}
static bool is_notice(const struct message* m) {
  return m->way == PRODUCER_WRITE;
}
static bool is_read(const struct message* m) {
  return m->way == PRODUCER_READ;
}

/* The first of this tag that was not taken; for the producer's side of a Write, or the consumer's of the rest. */
static size_t first(bool (*kind)(const struct message*), bool producing, int peer, int tag) {
  for (size_t i = 0; i < count; ++i) {
    const struct message* m = &messages[i];
    if (!kind(m) || m->tag != tag || (kind == is_notice ? m->noticed : m->taken)) continue;
    if ((producing ? m->producer : m->consumer) == rank && (producing ? m->consumer : m->producer) == peer) return i;
  }
  return count;
}

/* Whom and what to ask for: the one whose turn it is, or with a wildcard. */
static void choose(const struct message* m, int peer, int* proc, int* tag) {
  *proc = draw(3) == 0 ? GRAVEL_ANY_SOURCE : peer;
  *tag = draw(3) == 0 ? GRAVEL_ANY_TAG : m->tag;
}

static struct message* found(bool (*kind)(const struct message*), bool producing, int proc, int tag, size_t size) {
  const size_t i = first(kind, producing, proc, tag);
  GRAVEL_TRUE(i < count && messages[i].size == size);
  return &messages[i];
}

static void take_notice(const struct message* next) {
  int proc, tag;
  size_t size;
  choose(next, next->producer, &proc, &tag);
  GRAVEL_OK(gravel_wait_send_request_rdma(&proc, &tag, &size));
  struct message* m = found(is_notice, false, proc, tag, size);
  m->noticed = true;
  post_receive(m);
}

static void write_message(const struct message* next) {
  int proc, tag;
  size_t size;
  gravel_request r;
  choose(next, next->consumer, &proc, &tag);
  GRAVEL_OK(gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
  struct message* m = found(is_write, true, proc, tag, size);
  m->taken = true;
  m->requests[2] = r;
  fill((size_t)(m - messages));
  for (int p = m->pieces; p-- > 0;) { /* the last piece first */
    const size_t begin = size * (size_t)p / (size_t)m->pieces, end = size * (size_t)(p + 1) / (size_t)m->pieces;
    GRAVEL_OK(gravel_post_os_put(r, m->out + begin, end - begin, begin));
  }
  GRAVEL_OK(gravel_send_fin(r));
}

static void read_message(const struct message* next) {
  int proc, tag;
  size_t size;
  gravel_request r;
  choose(next, next->producer, &proc, &tag);
  GRAVEL_OK(gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r));
  struct message* m = found(is_read, false, proc, tag, size);
  m->taken = true;
  m->requests[2] = r;
  m->in = buffer(size);
  for (int p = 0; p < m->pieces; ++p) {
    const size_t begin = size * (size_t)p / (size_t)m->pieces, end = size * (size_t)(p + 1) / (size_t)m->pieces;
    GRAVEL_OK(gravel_post_os_get(r, m->in + begin, end - begin, begin));
  }
}

static void end(size_t i) {
  struct message* m = &messages[i];
  GRAVEL_OK(gravel_waitall(3, m->requests));
  if (m->in != NULL) {
    for (size_t at = 0; at < m->size; ++at)
      if (m->in[at] != pattern(i, at)) gravel_failed("other octets", __LINE__, (int)i, 0);
    GRAVEL_TRUE(m->in[m->size] == 0x55);
  }
  free_buffer(&m->in, m->size);
  free_buffer(&m->out, m->size);
}

/* With a wildcard a message may come before its turn, of a later window too: what has come is not asked for again. */
static void window(size_t begin) {
  for (size_t i = begin; i < begin + WINDOW; ++i) post(i);
  for (size_t i = begin; i < begin + WINDOW; ++i)
    if (is_notice(&messages[i]) && messages[i].consumer == rank && !messages[i].noticed) take_notice(&messages[i--]);
  for (size_t i = begin; i < begin + WINDOW; ++i)
    if (!is_read(&messages[i]) && messages[i].producer == rank && !messages[i].taken) write_message(&messages[i--]);
  for (size_t i = begin; i < begin + WINDOW; ++i)
    if (is_read(&messages[i]) && messages[i].consumer == rank && !messages[i].taken) read_message(&messages[i--]);
  for (size_t i = begin; i < begin + WINDOW; ++i) end(i);
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  struct gravel_folder folder = {argv[1], atoi(argv[2]), atoi(argv[3]), 0};
  rank = folder.rank;
  procs = folder.procs;
  state = strtoull(argv[4], NULL, 0);
  make_messages(argc > 5 ? atoi(argv[5]) : 10);
  GRAVEL_OK(gravel_start(rank, procs, gravel_folder_gather, &folder));
  for (size_t begin = 0; begin < count; begin += WINDOW) window(begin);
  uint64_t done = 1, all[1024];
  GRAVEL_TRUE(gravel_folder_gather(&done, all, sizeof done, &folder) == 0); /* nobody leaves before all are done */
  GRAVEL_OK(gravel_finalize());
  free(messages);
  printf("done: %zu messages\n", count);
  return 0;
}
