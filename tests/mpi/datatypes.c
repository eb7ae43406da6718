// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Derived datatypes: every constructor, typed at both ends, at one, and against octets in memory; pack and unpack.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { kRoom = 1 << 20 };  // octets that any of the types below, times its count, stays within

struct shape {
  const char* name;
  MPI_Datatype type;
  int count;
};

struct record {
  char c;
  double d;
  int i[3];
  short s;
};

static MPI_Datatype record_type(void) {
  const int lengths[] = {1, 1, 3, 1};
  const MPI_Aint at[] = {offsetof(struct record, c), offsetof(struct record, d), offsetof(struct record, i),
                         offsetof(struct record, s)};
  const MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_SHORT};
  MPI_Datatype bare, type;
  MPI(MPI_Type_create_struct(4, lengths, at, types, &bare));
  MPI(MPI_Type_create_resized(bare, 0, sizeof(struct record), &type));
  MPI(MPI_Type_free(&bare));
  return type;
}

static int shapes(struct shape* out, int scale) {
  static const int kLengths[] = {3, 1, 5, 2}, kAt[] = {7, 0, 20, 13};
  static const MPI_Aint kOctetsAt[] = {64, 0, 200, 120};
  const int sizes[] = {12 * scale, 10, 8}, part[] = {5 * scale, 4, 3}, start[] = {2, 3, 5};
  MPI_Datatype inner;
  int n = 0;
  out[n++] = (struct shape){"contiguous", MPI_DATATYPE_NULL, 3};
  MPI(MPI_Type_contiguous(100 * scale, MPI_INT, &out[n - 1].type));
  out[n++] = (struct shape){"vector", MPI_DATATYPE_NULL, 2};
  MPI(MPI_Type_vector(50 * scale, 3, 7, MPI_FLOAT, &out[n - 1].type));
  out[n++] = (struct shape){"hvector", MPI_DATATYPE_NULL, 2};
  MPI(MPI_Type_create_hvector(50 * scale, 2, 29, MPI_SHORT, &out[n - 1].type));
  out[n++] = (struct shape){"indexed", MPI_DATATYPE_NULL, 20 * scale};
  MPI(MPI_Type_indexed(4, kLengths, kAt, MPI_DOUBLE, &out[n - 1].type));
  out[n++] = (struct shape){"hindexed", MPI_DATATYPE_NULL, 20 * scale};
  MPI(MPI_Type_create_hindexed(4, kLengths, kOctetsAt, MPI_INT, &out[n - 1].type));
  out[n++] = (struct shape){"indexed_block", MPI_DATATYPE_NULL, 20 * scale};
  MPI(MPI_Type_create_indexed_block(4, 2, kAt, MPI_LONG, &out[n - 1].type));
  out[n++] = (struct shape){"hindexed_block", MPI_DATATYPE_NULL, 20 * scale};
  MPI(MPI_Type_create_hindexed_block(4, 6, kOctetsAt, MPI_CHAR, &out[n - 1].type));
  out[n++] = (struct shape){"struct", record_type(), 60 * scale};
  out[n++] = (struct shape){"subarray", MPI_DATATYPE_NULL, 2};
  MPI(MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_C, MPI_INT, &out[n - 1].type));
  out[n++] = (struct shape){"subarray, Fortran", MPI_DATATYPE_NULL, 2};
  MPI(MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_FORTRAN, MPI_SHORT, &out[n - 1].type));
  // A column of a matrix whose neighbours lie between its elements.
  out[n++] = (struct shape){"column", MPI_DATATYPE_NULL, 10};
  MPI(MPI_Type_vector(40 * scale, 1, 10, MPI_DOUBLE, &inner));
  MPI(MPI_Type_create_resized(inner, 0, sizeof(double), &out[n - 1].type));
  MPI(MPI_Type_free(&inner));
  // Types of types.
  out[n++] = (struct shape){"vector of structs", MPI_DATATYPE_NULL, 2};
  inner = record_type();
  MPI(MPI_Type_vector(10 * scale, 2, 3, inner, &out[n - 1].type));
  MPI(MPI_Type_free(&inner));
  for (int i = 0; i < n; ++i) MPI(MPI_Type_commit(&out[i].type));
  return n;
}

// The octets of `count` elements at `at`, by MPI_Pack, which moves nothing over the network.
static int packed(const void* at, const struct shape* s, char* out) {
  int position = 0;
  MPI(MPI_Pack(at, s->count, s->type, out, kRoom, &position, comm));
  return position;
}

// Typed data goes round; what lies between the elements stays as it was.
static void round_trip(const struct shape* s, int way) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  char *out = need_memory(kRoom), *in = need_memory(kRoom), *model = need_memory(kRoom);
  char *octets = need_memory(kRoom), *theirs = need_memory(kRoom);
  MPI_Status status;
  MPI_Request requests[2];
  int elements, type_size;
  MPI(MPI_Type_size(s->type, &type_size));
  fill(out, kRoom, seed_of(rank, to, (uint64_t)way));
  // The neighbour's data as it must arrive: its octets unpacked over a pattern.
  fill(in, kRoom, seed_of(from, rank, (uint64_t)way));
  const int length = packed(in, s, theirs);
  CHECK(length == type_size * s->count, "%s: %d octets packed of %d", s->name, length, type_size * s->count);
  memset(in, 0x55, kRoom);
  memset(model, 0x55, kRoom);
  int position = 0;
  MPI(MPI_Unpack(theirs, length, &position, model, s->count, s->type, comm));
  switch (way) {
    case 0:  // typed at both ends
      MPI(MPI_Irecv(in, s->count, s->type, from, 1, comm, &requests[0]));
      MPI(MPI_Isend(out, s->count, s->type, to, 1, comm, &requests[1]));
      MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
      MPI(MPI_Wait(&requests[0], &status));
      break;
    case 1:  // packed by the sender
      position = packed(out, s, octets);
      MPI(MPI_Sendrecv(octets, position, MPI_PACKED, to, 1, in, s->count, s->type, from, 1, comm, &status));
      break;
    case 2:  // unpacked by the receiver
      MPI(MPI_Sendrecv(out, s->count, s->type, to, 1, octets, kRoom, MPI_PACKED, from, 1, comm, &status));
      MPI(MPI_Get_count(&status, MPI_PACKED, &position));
      CHECK(position == length && memcmp(octets, theirs, (size_t)length) == 0, "%s: other octets", s->name);
      position = 0;
      MPI(MPI_Unpack(octets, length, &position, in, s->count, s->type, comm));
      break;
    default:  // synchronously, found by a probe
      MPI(MPI_Issend(out, s->count, s->type, to, 1, comm, &requests[1]));
#ifdef OPEN_MPI
      // Over any libfabric provider its MPI_Mrecv neither unpacks what it received nor tells a synchronous sender
      // (4.1.4).
      MPI(MPI_Probe(from, 1, comm, &status));
      MPI(MPI_Recv(in, s->count, s->type, from, 1, comm, &status));
#else
      MPI_Message message;
      MPI(MPI_Mprobe(from, 1, comm, &message, &status));
      MPI(MPI_Mrecv(in, s->count, s->type, &message, &status));
#endif
      MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
  }
  if (way != 2) {
    MPI(MPI_Get_count(&status, s->type, &elements));
    CHECK(elements == s->count, "%s: %d elements of %d", s->name, elements, s->count);
  }
  int first = 0;
  while (first < kRoom && in[first] == model[first]) ++first;
  CHECK(first == kRoom, "%s, way %d: octet %d is %02x, not %02x", s->name, way, first, in[first] & 255,
        model[first] & 255);
  free(theirs);
  free(octets);
  free(model);
  free(in);
  free(out);
}

// Fewer elements than there is room for, and a part of one.
static void partial(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  MPI_Datatype pair;
  MPI_Status status;
  int out[7] = {rank, 1, 2, 3, 4, 5, 6}, in[20], elements, count;
  MPI(MPI_Type_contiguous(2, MPI_INT, &pair));
  MPI(MPI_Type_commit(&pair));
  MPI(MPI_Sendrecv(out, 7, MPI_INT, to, 1, in, 10, pair, from, 1, comm, &status));
  MPI(MPI_Get_count(&status, pair, &count));
  MPI(MPI_Get_elements(&status, pair, &elements));
  CHECK(count == MPI_UNDEFINED && elements == 7, "%d pairs, %d elements", count, elements);
  CHECK(in[0] == from && memcmp(in + 1, out + 1, 6 * sizeof(int)) == 0, "other elements");
  MPI(MPI_Type_free(&pair));
}

void datatypes(void) {
  struct shape list[16];
  for (int scale = 1; scale <= 32; scale *= size > 4 && !full ? 31 : 4) {
    const int n = shapes(list, scale);
    for (int i = 0; i < n; ++i)
      for (int way = 0; way < 4; ++way) {
        MPI_Aint low, extent;
        MPI(MPI_Type_get_true_extent(list[i].type, &low, &extent));
        MPI_Aint lower, each;
        MPI(MPI_Type_get_extent(list[i].type, &lower, &each));
        CHECK(low >= 0 && low + extent + each * (list[i].count - 1) <= kRoom, "%s is too large", list[i].name);
        round_trip(&list[i], way);
      }
    for (int i = 0; i < n; ++i) MPI(MPI_Type_free(&list[i].type));
  }
  partial();
}
