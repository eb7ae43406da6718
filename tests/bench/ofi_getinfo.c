// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What fi_getinfo() costs a program: its first call, in which libfabric loads its providers, and the median of 1000
// more (µs). For a provider of libfabric, by name; without hints otherwise.
//
//   ewarp_ofi_getinfo [PROVIDER, default etherwarp]
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { kCalls = 1000 };

// How long it took, in µs. Ends the program if the provider is not there.
static double ask(const struct fi_info* hints, int* offers) {
  struct fi_info* list = NULL;
  const double began = now_us();
  const int rc = fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &list);
  const double took = now_us() - began;
  if (rc != 0) {
    fprintf(stderr, "fi_getinfo: %s\n", fi_strerror(-rc));
    exit(1);
  }
  *offers = 0;
  for (const struct fi_info* i = list; i != NULL; i = i->next) ++*offers;
  fi_freeinfo(list);
  return took;
}

int main(int argc, char** argv) {
  static double took[kCalls];
  int offers = 0;
  struct fi_info* hints = fi_allocinfo();
  if (hints == NULL) return 1;
  hints->fabric_attr->prov_name = strdup(argc > 1 ? argv[1] : "etherwarp");
  const double first = ask(hints, &offers);
  const double second = ask(hints, &offers);
  for (int n = 0; n < kCalls; ++n) took[n] = ask(hints, &offers);
  qsort(took, kCalls, sizeof took[0], ascending);
  printf(
      "{\"provider\": \"%s\", \"offers\": %d, \"first_us\": %.0f, \"second_us\": %.0f, \"median_us\": %.1f, "
      "\"p99_us\": %.1f}\n",
      hints->fabric_attr->prov_name, offers, first, second, took[kCalls / 2], took[kCalls * 99 / 100]);
  fi_freeinfo(hints);
  return 0;
}
