/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What careful programs seldom do, between two or three processes, a case at a time. Where a case needs an order
 * between them that Gravel itself must not make, a process waits for a file of the folder.  gravel_odd FOLDER RANK CASE
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/system/gravel_ends.h"

enum { TAG = 1, PIECE = 4 << 20, PIECES = 20 };

static struct gravel_folder folder;
static int rank, other;

static char* registered(size_t size) {
  char* out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  GRAVEL_TRUE(out != MAP_FAILED);
  GRAVEL_OK(gravel_register_buffer(out, size));
  return out;
}

static void say(const char* what) {
  printf("%s\n", what);
  fflush(stdout);
}

static void wait_for_file(const char* word) {
  char name[PATH_MAX];
  snprintf(name, sizeof name, "%s/%s", folder.path, word);
  while (access(name, F_OK) != 0) usleep(1000);
}

static void meet_all(void) {
  char mine = 0, all[3];
  GRAVEL_TRUE(gravel_folder_gather(&mine, all, 1, &folder) == 0);
}

static gravel_request take_buffer(int proc, int tag) {
  gravel_request r;
  size_t size;
  GRAVEL_OK(gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
  return r;
}

/* --- ends --- */

/*
 * Process 2 leaves in order without having had to do with anybody: no reason for a wait for anybody to fail. 64 notices
 * fill its ledger, so process 0 is known to be connected to it by its counters.
 */
static void leaves(void) {
  gravel_request r;
  int proc = 2, tag = TAG;
  size_t size;
  folder.procs = 2; /* of those that meet */
  if (rank == 2) {
    wait_for_file("leave");
    GRAVEL_OK(gravel_finalize());
  } else if (rank == 1) {
    wait_for_file("post");
    GRAVEL_OK(gravel_post_send_request_rdma(0, 1, TAG, &r));
    GRAVEL_OK(gravel_wait(r));
    meet_all();
    GRAVEL_OK(gravel_finalize());
  } else {
    for (int i = 0; i < 64; ++i) {
      GRAVEL_OK(gravel_post_send_request_rdma(2, 1, TAG, &r));
      GRAVEL_OK(gravel_wait(r));
    }
    say("told");
    proc = GRAVEL_ANY_SOURCE;
    GRAVEL_OK(gravel_wait_send_request_rdma(&proc, &tag, &size));
    GRAVEL_TRUE(proc == 1);
    proc = 2;
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
    GRAVEL_TRUE(strcmp(gravel_reason(), "process 2 has left") == 0);
    meet_all();
    GRAVEL_OK(gravel_finalize());
  }
}

/* exit() with transfers under way, without gravel_finalize(). */
static void exits(void) {
  gravel_request r;
  char* memory = registered(PIECE);
  if (rank == 1) {
    r = take_buffer(other, TAG);
    for (int i = 0; i < PIECES; ++i) GRAVEL_OK(gravel_post_os_put(r, memory, PIECE, 0));
    say("done");
    exit(0);
  }
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, memory, PIECE, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait(r));
  GRAVEL_TRUE(strncmp(gravel_reason(), "process 1 was lost", 18) == 0);
  GRAVEL_OK(gravel_finalize());
}

/* Both finalize with transfers under way; then they begin anew. */
static void finalizes(void) {
  for (int round = 0; round < 3; ++round) {
    char* memory = registered(2 * (size_t)PIECE);
    gravel_request in, out, offer, fetch;
    int proc = other, tag = TAG;
    size_t size;
    GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, memory, PIECE, TAG, &in));
    GRAVEL_OK(gravel_post_send_buffer_rdma(other, memory, PIECE, TAG, &offer));
    out = take_buffer(other, TAG);
    GRAVEL_OK(gravel_wait_send_buffer_rdma(&proc, &tag, &size, &fetch));
    for (int i = 0; i < PIECES; ++i) {
      GRAVEL_OK(gravel_post_os_put(out, memory + PIECE, PIECE, 0));
      GRAVEL_OK(gravel_post_os_get(fetch, memory + PIECE, PIECE, 0));
    }
    meet_all();
    GRAVEL_GIVES(GRAVEL_ERR_BUSY, gravel_finalize());
    munmap(memory, 2 * (size_t)PIECE);
    GRAVEL_OK(gravel_start(rank, 2, gravel_folder_gather, &folder));
    gravel_meet(other);
  }
  meet_all();
  GRAVEL_OK(gravel_finalize());
}

/* All that was put before gravel_finalize() gets there, though its receiver stands still for a while. */
static void delivers(void) {
  gravel_request r;
  const size_t size = (size_t)PIECES * PIECE;
  char* memory = registered(size);
  if (rank == 1) {
    memset(memory, 7, size);
    r = take_buffer(other, TAG);
    say("there");
    wait_for_file("go");
    GRAVEL_OK(gravel_post_os_put(r, memory, size, 0));
    GRAVEL_OK(gravel_send_fin(r));
    GRAVEL_OK(gravel_wait(r));
    GRAVEL_OK(gravel_finalize());
    return;
  }
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, memory, size, TAG, &r));
  say("there");
  GRAVEL_OK(gravel_wait(r));
  for (size_t i = 0; i < size; ++i) GRAVEL_TRUE(memory[i] == 7);
  GRAVEL_OK(gravel_finalize());
}

/* Children that end, call what they must not, or stay, leave the connections to their parent. */
static void forks(void) {
  char* memory = registered(PIECE);
  pid_t stays = fork();
  if (stays == 0) {
    pause();
    _exit(0);
  }
  for (int i = 0; i < 5; ++i) {
    const pid_t pid = fork();
    if (pid == 0) exit(3);
    int status = 0;
    GRAVEL_TRUE(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    gravel_meet(other);
    memory[0] = (char)i;
  }
  if (rank == 1) {
    printf("child %d\n", stays);
    say("there");
    pause();
  }
  gravel_request r;
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, memory, PIECE, TAG, &r));
  say("there");
  GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait(r));
  kill(stays, SIGKILL);
  waitpid(stays, NULL, 0);
  GRAVEL_OK(gravel_finalize());
}

/* --- sizes and numbers --- */

enum { OUTSTANDING = 65536 };

static void post_many(char* memory, gravel_request* r) {
  for (int i = 0; i < OUTSTANDING; ++i) GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, memory + i % PIECE, 1, i, &r[i]));
  gravel_request more;
  GRAVEL_GIVES(GRAVEL_ERR_MEMORY, gravel_post_rcv_buffer_rdma(other, memory, 1, TAG, &more));
  GRAVEL_GIVES(GRAVEL_ERR_BUSY, gravel_unregister_buffer(memory, PIECE));
}

/* As many requests as there may be, at both ends; all of their FINs at the end, in another order. */
static void outstanding(void) {
  static gravel_request r[OUTSTANDING];
  char* memory = registered(PIECE);
  if (rank == 0) {
    post_many(memory, r);
  } else {
    for (int i = 0; i < OUTSTANDING; ++i) r[i] = take_buffer(other, i ^ 1);
    for (int i = OUTSTANDING; i-- > 0;) {
      memory[i] = (char)(i * 5);
      GRAVEL_OK(gravel_post_os_put(r[i], memory + i, 1, 0));
      GRAVEL_OK(gravel_send_fin(r[i]));
    }
  }
  GRAVEL_OK(gravel_waitall(OUTSTANDING, r));
  for (int i = 0; i < OUTSTANDING && rank == 0; ++i) GRAVEL_TRUE(memory[i] == (char)((i ^ 1) * 5));
  GRAVEL_OK(gravel_unregister_buffer(memory, PIECE));
  meet_all();
  GRAVEL_OK(gravel_finalize());
}

/* Offsets and sizes that do not fit 32 bits, the last tag, the last octet. */
static void far(void) {
  const size_t size = (size_t)6 << 30, at = ((size_t)5 << 30) + 3;
  char* memory = registered(size);
  gravel_request r;
  int proc = other, tag = INT_MAX;
  size_t found;
  GRAVEL_GIVES(GRAVEL_ERR_MEMORY, gravel_register_buffer(memory, SIZE_MAX));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_post_rcv_buffer_rdma(other, memory, SIZE_MAX, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_post_rcv_buffer_rdma(other, memory + 1, size, TAG, &r));
  if (rank == 0) {
    GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, memory, size, INT_MAX, &r));
    GRAVEL_OK(gravel_wait(r));
    GRAVEL_TRUE(memory[at] == 1 && memory[at + 1] == 2 && memory[at + 2] == 0 && memory[size - 1] == 3);
    GRAVEL_OK(gravel_post_send_buffer_rdma(other, memory, size, INT_MAX, &r));
  } else {
    GRAVEL_OK(gravel_wait_rcv_buffer(&proc, &tag, &found, &r));
    GRAVEL_TRUE(tag == INT_MAX && found == size);
    memcpy(memory, "\1\2\3", 3);
    GRAVEL_OK(gravel_post_os_put(r, memory, 2, at));
    GRAVEL_OK(gravel_post_os_put(r, memory + 2, 1, size - 1));
    GRAVEL_GIVES(GRAVEL_ERR_RANGE, gravel_post_os_put(r, memory, 2, size - 1));
    GRAVEL_OK(gravel_send_fin(r));
    GRAVEL_OK(gravel_wait(r));
    GRAVEL_OK(gravel_wait_send_buffer_rdma(&proc, &tag, &found, &r));
    GRAVEL_OK(gravel_post_os_get(r, memory + at, 3, at));
    GRAVEL_OK(gravel_post_os_get(r, memory + size - 1, 1, size - 1));
  }
  GRAVEL_OK(gravel_wait(r));
  GRAVEL_TRUE(memory[at] == 1 && memory[at + 1] == 2 && memory[size - 1] == 3);
  GRAVEL_OK(gravel_finalize());
}

/* --- threads --- */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char *turns_in, *turns_out;

static void exchange(int i) {
  gravel_request r[2];
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, turns_in, 2000, TAG, &r[0]));
  r[1] = take_buffer(other, TAG);
  memset(turns_out, i, 2000);
  GRAVEL_OK(gravel_post_os_put(r[1], turns_out, 2000, 0));
  GRAVEL_OK(gravel_send_fin(r[1]));
  GRAVEL_OK(gravel_waitall(2, r));
  for (int at = 0; at < 2000; ++at) GRAVEL_TRUE(turns_in[at] == (char)i);
  gravel_meet(other);
}

static void* take_turns(void* count) {
  for (bool more = true; more;) {
    pthread_mutex_lock(&turn);
    more = *(int*)count > 0;
    if (more) exchange(--*(int*)count);
    pthread_mutex_unlock(&turn);
  }
  return NULL;
}

/* One call at a time, each by another thread. */
static void threads(void) {
  pthread_t all[4];
  int count = 200;
  turns_in = registered(4096);
  turns_out = registered(4096);
  for (int i = 0; i < 4; ++i) GRAVEL_TRUE(pthread_create(&all[i], NULL, take_turns, &count) == 0);
  for (int i = 0; i < 4; ++i) GRAVEL_TRUE(pthread_join(all[i], NULL) == 0);
  GRAVEL_OK(gravel_finalize());
}

static const struct {
  const char* name;
  int procs;
  void (*run)(void);
} kCases[] = {{"leaves", 3, leaves}, {"exits", 2, exits}, {"finalizes", 2, finalizes}, {"delivers", 2, delivers},
              {"forks", 2, forks},   {"far", 2, far},     {"threads", 2, threads},     {"outstanding", 2, outstanding}};

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  for (size_t i = 0; i < sizeof kCases / sizeof *kCases; ++i) {
    if (strcmp(kCases[i].name, argv[3]) != 0) continue;
    folder = (struct gravel_folder){argv[1], atoi(argv[2]), kCases[i].procs, 0};
    rank = folder.rank;
    other = 1 - rank;
    GRAVEL_OK(gravel_start(rank, kCases[i].procs, gravel_folder_gather, &folder));
    kCases[i].run();
    say("done");
    return 0;
  }
  return 2;
}
