// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A sound that survives loss: unreliable datagrams as they are meant to be used.
//
//   ud_media_stream receive [FILE]                     says where it is, plays into FILE (16-bit PCM, 48 kHz, one
//   channel) ud_media_stream send GID QPN [SECONDS] [SKIP]      plays a tone to it; leaves out each SKIP-th frame, to
//   show what loss does
//
// One frame is 10 ms of sound and one datagram. Nothing is acknowledged and nothing is repeated: a frame that comes
// late is worth nothing. The sender keeps the pace of the sound; the receiver goes by the numbers on the frames: where
// some are missing it repeats the last one, quieter each time, so that the sound goes on and keeps its length.
//
// With EtherWARP: etherwarp run -- ud_media_stream receive out.pcm
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  kGrh = 40,       // in front of each datagram that is received: where it came from
  kRate = 48000,   // samples a second
  kSamples = 480,  // of a frame
  kPeriodNs = 10000000,
  kDepth = 256,  // receives posted: 2.5 s of sound
  kQkey = 0x534f4e47,
};

struct frame {
  uint32_t number;   // big-endian, from 0
  uint32_t last;     // 1: the sound ends with it
  uint64_t sent_ns;  // the sender's clock
  int16_t samples[kSamples];
};

struct endpoint {
  struct ibv_context* device;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  union ibv_gid gid;
};

static void must(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// --- verbs ---

// The first device; a queue pair of type UD that can send and receive at once: nothing is agreed with any peer.
static struct endpoint open_endpoint(void* memory, size_t octets) {
  struct endpoint e = {0};
  struct ibv_device** list = ibv_get_device_list(NULL);
  must(list != NULL && list[0] != NULL, "no RDMA device");
  e.device = ibv_open_device(list[0]);
  must(e.device != NULL, "ibv_open_device");
  ibv_free_device_list(list);
  must(ibv_query_gid(e.device, 1, 0, &e.gid) == 0, "ibv_query_gid");
  e.pd = ibv_alloc_pd(e.device);
  e.cq = ibv_create_cq(e.device, 2 * kDepth, NULL, NULL, 0);
  must(e.pd != NULL && e.cq != NULL, "ibv_create_cq");
  e.mr = ibv_reg_mr(e.pd, memory, octets, IBV_ACCESS_LOCAL_WRITE);
  must(e.mr != NULL, "ibv_reg_mr");
  struct ibv_qp_init_attr init = {
      .send_cq = e.cq,
      .recv_cq = e.cq,
      .qp_type = IBV_QPT_UD,
      .sq_sig_all = 1,
      .cap = {.max_send_wr = 16, .max_recv_wr = kDepth, .max_send_sge = 1, .max_recv_sge = 1}};
  e.qp = ibv_create_qp(e.pd, &init);
  must(e.qp != NULL, "ibv_create_qp");

  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = kQkey};
  must(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0, "to INIT");
  attr.qp_state = IBV_QPS_RTR;
  must(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE) == 0, "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  must(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "to RTS");
  return e;
}

static void close_endpoint(struct endpoint* e) {
  ibv_destroy_qp(e->qp);
  ibv_dereg_mr(e->mr);
  ibv_destroy_cq(e->cq);
  ibv_dealloc_pd(e->pd);
  ibv_close_device(e->device);
}

// 1: a completion; 0: none until then.
static int next_completion(struct endpoint* e, struct ibv_wc* wc, uint64_t until_ns) {
  const struct timespec nap = {0, 200000};
  for (;;) {
    const int n = ibv_poll_cq(e->cq, 1, wc);
    must(n >= 0, "ibv_poll_cq");
    if (n == 0 && now_ns() > until_ns) return 0;
    if (n == 1) {
      if (wc->status == IBV_WC_SUCCESS) return 1;
      fprintf(stderr, "a work request failed: %s\n", ibv_wc_status_str(wc->status));
      exit(1);
    }
    nanosleep(&nap, NULL);  // sound has time
  }
}

// --- the sender ---

static void make_tone(struct frame* f, uint32_t number) {
  for (unsigned i = 0; i < kSamples; ++i) {
    const double t = (double)(number * (uint64_t)kSamples + i) / kRate;
    f->samples[i] = (int16_t)htole16((uint16_t)(int16_t)(8000 * sin(2 * M_PI * 440 * t)));
  }
}

static int send_sound(const char* gid, const char* qpn, unsigned frames, unsigned skip) {
  static struct frame f;
  struct endpoint e = open_endpoint(&f, sizeof f);
  struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
  must(inet_pton(AF_INET6, gid, path.grh.dgid.raw) == 1, "not a GID");
  struct ibv_ah* there = ibv_create_ah(e.pd, &path);
  must(there != NULL, "ibv_create_ah");
  struct ibv_sge sge = {(uintptr_t)&f, sizeof f, e.mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge,
                           .num_sge = 1,
                           .opcode = IBV_WR_SEND,
                           .wr.ud = {.ah = there, .remote_qpn = (uint32_t)strtoul(qpn, NULL, 0), .remote_qkey = kQkey}};
  struct ibv_send_wr* bad;
  const uint64_t begin = now_ns();
  unsigned sent = 0;
  for (uint32_t number = 0; number < frames; ++number) {
    // The pace is that of the clock: a sleep that was too long is not made up for by all the rest.
    const uint64_t due = begin + (uint64_t)number * kPeriodNs;
    const struct timespec t = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    if (skip != 0 && number % skip == skip - 1 && number + 1 < frames) continue;
    make_tone(&f, number);
    f.number = htobe32(number);
    f.last = htobe32(number + 1 == frames);
    f.sent_ns = htobe64(now_ns());
    struct ibv_wc wc;
    must(ibv_post_send(e.qp, &wr, &bad) == 0, "ibv_post_send");
    must(next_completion(&e, &wc, UINT64_MAX), "no completion");  // the frame's memory is ours again
    ++sent;
  }
  printf("sent %u of %u frames\n", sent, frames);
  ibv_destroy_ah(there);
  close_endpoint(&e);
  return 0;
}

// --- the receiver ---

struct player {
  FILE* out;
  int16_t last[kSamples];
  uint32_t next;  // the frame that is due
  unsigned heard, concealed, late;
  double jitter_us;  // RFC 3550 section 6.4.1
  int64_t transit_ns;
};

static void play(struct player* p, const int16_t* samples) {
  if (p->out != NULL) must(fwrite(samples, sizeof *samples, kSamples, p->out) == kSamples, "write");
  ++p->next;
}

static void conceal(struct player* p) {
  for (unsigned i = 0; i < kSamples; ++i)
    p->last[i] = (int16_t)htole16((uint16_t)((int16_t)le16toh((uint16_t)p->last[i]) / 2));
  play(p, p->last);
  ++p->concealed;
}

static void hear(struct player* p, const struct frame* f) {
  const uint32_t number = be32toh(f->number);
  const int64_t transit = (int64_t)(now_ns() - be64toh(f->sent_ns));  // the clocks may differ: only its changes count
  if (p->heard > 0) p->jitter_us += (llabs(transit - p->transit_ns) / 1e3 - p->jitter_us) / 16;
  p->transit_ns = transit;
  ++p->heard;
  if (number < p->next) {  // its place has been filled
    ++p->late;
    return;
  }
  while (p->next < number) conceal(p);
  memcpy(p->last, f->samples, sizeof p->last);
  play(p, f->samples);
}

static void report(const struct player* p) {
  printf("%u frames: heard %u, concealed %u (%.1f %%), late %u; jitter %.0f us\n", p->next, p->heard, p->concealed,
         p->next > 0 ? 100.0 * p->concealed / p->next : 0, p->late, p->jitter_us);
  fflush(stdout);
}

static int receive_sound(const char* file) {
  struct slot {
    char grh[kGrh];
    struct frame frame;
  };
  static struct slot slots[kDepth];
  struct endpoint e = open_endpoint(slots, sizeof slots);
  struct ibv_sge sge = {.length = sizeof slots[0], .lkey = e.mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  for (wr.wr_id = 0; wr.wr_id < kDepth; ++wr.wr_id) {
    sge.addr = (uintptr_t)&slots[wr.wr_id];
    must(ibv_post_recv(e.qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  struct player p = {.out = file != NULL ? fopen(file, "wb") : NULL};
  must(file == NULL || p.out != NULL, file);
  char gid[INET6_ADDRSTRLEN];
  printf("send to %s %#x\n", inet_ntop(AF_INET6, e.gid.raw, gid, sizeof gid), e.qp->qp_num);
  fflush(stdout);

  struct ibv_wc wc;
  uint64_t silence = UINT64_MAX;  // ends it, once something was heard
  int ended = 0;
  while (!ended && next_completion(&e, &wc, silence)) {
    const struct slot* s = &slots[wc.wr_id];
    if (wc.byte_len == sizeof *s) {
      hear(&p, &s->frame);
      ended = be32toh(s->frame.last);
      silence = now_ns() + 2000000000u;
      if (p.next % 100 == 0) report(&p);
    }
    wr.wr_id = wc.wr_id;
    sge.addr = (uintptr_t)s;
    must(ibv_post_recv(e.qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  report(&p);
  if (p.out != NULL) must(fclose(p.out) == 0, file);
  close_endpoint(&e);
  return 0;
}

int main(int argc, char** argv) {
  if (argc >= 2 && strcmp(argv[1], "receive") == 0) return receive_sound(argv[2]);
  if (argc >= 4 && strcmp(argv[1], "send") == 0)
    return send_sound(argv[2], argv[3], 100 * (argc > 4 ? (unsigned)atoi(argv[4]) : 10),
                      argc > 5 ? (unsigned)atoi(argv[5]) : 0);
  fprintf(stderr, "usage: %s receive [FILE] | send GID QPN [SECONDS] [SKIP]\n", argv[0]);
  return 2;
}
