/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the library has allocated (counted.c is preloaded): by acp_init(), and by a channel at each of its ends, which
 * has carried messages. Lines of JSON; nothing may be left behind a free and behind acp_finalize().
 *
 *   etherwarp acprun -n N ewarp_acp_memory [table]        table: acp_init() alone */
#include <dlfcn.h>
#include <unistd.h>

#include "check.h"

static size_t counted(const char* what) {
  size_t (*f)(void);
  *(void**)&f = dlsym(RTLD_DEFAULT, what);
  CHECK(f != NULL);
  return f();
}
static size_t live(void) {
  return counted("ewarp_counted_live");
}

static long resident_kib(void) {
  long pages = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  CHECK(f != NULL && fscanf(f, "%*d %ld", &pages) == 1);
  fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Until the library has given back what it had. */
static void wait_until_live_is(size_t octets) {
  const double until = seconds() + 20;
  while (live() != octets) {
    CHECK(seconds() < until);
    acp_inquire(ACP_HANDLE_ALL);
  }
}

static void channel(int rank) {
  static char buffer[100000];
  const size_t before = live();
  acp_ch_t ch = acp_create_ch(0, 1);
  CHECK(ch != ACP_CH_NULL);
  const size_t created = live() - before;
  for (int i = 0; i < 20; ++i)
    CHECK(rank == 0 ? acp_send_ch(ch, buffer, sizeof buffer) == 0
                    : acp_recv_ch(ch, buffer, sizeof buffer) == sizeof buffer);
  CHECK(live() - before == created);
  printf("{\"what\": \"%s\", \"octets\": %zu}\n", rank == 0 ? "sender" : "receiver", created);
  CHECK(acp_free_ch(ch) == 0);
  wait_until_live_is(before);
}

int main(int argc, char** argv) {
  const size_t before = live();
  const double began = seconds();
  CHECK(acp_init(&argc, &argv) == 0);
  const int rank = acp_rank();
  printf(
      "{\"what\": \"init\", \"procs\": %d, \"octets\": %zu, \"most\": %zu, \"resident_kib\": %ld, \"seconds\": %.3f}\n",
      acp_procs(), live() - before, counted("ewarp_counted_most"), resident_kib(), seconds() - began);
  if (argc == 1 && rank < 2) channel(rank);
  CHECK(acp_finalize() == 0);
  CHECK(live() == before);
  return 0;
}
