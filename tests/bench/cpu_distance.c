// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How far two CPUs are from each other: prints the microseconds in which 64 KiB go from one's cache to the other's by
// plain stores and loads. On virtual machines that changes within minutes, by a factor of 3 to 10.
//     ewarp_cpu_distance CPU CPU
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kOctets = 65536, kTimes = 200 };

static _Alignas(4096) char there[kOctets], back[kOctets];
static atomic_int turn;  // 0: of the first CPU; 1: of the second

static bool move_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

static void wait_for(int whose) {
  while (atomic_load(&turn) != whose) continue;
}

static void* second(void* cpu) {
  static char own[kOctets];
  if (!move_to(*(const int*)cpu)) exit(1);
  for (int i = 0; i < kTimes; ++i) {
    wait_for(1);
    memcpy(own, there, kOctets);
    memcpy(back, own, kOctets);
    atomic_store(&turn, 0);
  }
  return NULL;
}

int main(int argc, char** argv) {
  static char own[kOctets];
  if (argc != 3) return fprintf(stderr, "usage: ewarp_cpu_distance CPU CPU\n"), 2;
  int other = atoi(argv[2]);
  pthread_t thread;
  if (!move_to(atoi(argv[1])) || pthread_create(&thread, NULL, second, &other) != 0) return 1;
  struct timespec begin, end;
  for (int i = 0; i < kTimes; ++i) {
    if (i == 1) clock_gettime(CLOCK_MONOTONIC, &begin);  // the first one waits for the thread
    memcpy(there, own, kOctets);
    atomic_store(&turn, 1);
    wait_for(0);
    memcpy(own, back, kOctets);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  pthread_join(thread, NULL);
  const double us = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3;
  printf("%.2f\n", us / (kTimes - 1) / 2);
  return 0;
}
