/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gravelf.h: Gravel as FORTRAN 77 calls it. Every argument is a reference, the last one is the error; names end in an
 * underscore, and the length of a text comes behind all other arguments (gfortran).
 */
#include <string.h>

#include "mpi_shim/gravel/gravel.h"

#define FORTRAN(name, ...)                                                      \
  __attribute__((visibility("default"))) void name##_(__VA_ARGS__, int* error); \
  void name##_(__VA_ARGS__, int* error)

__attribute__((visibility("default"))) void gravel_finalize_(int* error);
void gravel_finalize_(int* error) {
  *error = gravel_finalize();
}

FORTRAN(gravel_register_buffer, void* buf, const int64_t* size) {
  *error = *size < 0 ? GRAVEL_ERR_ARGUMENT : gravel_register_buffer(buf, (size_t)*size);
}

FORTRAN(gravel_unregister_buffer, void* buf, const int64_t* size) {
  *error = *size < 0 ? GRAVEL_ERR_ARGUMENT : gravel_unregister_buffer(buf, (size_t)*size);
}

FORTRAN(gravel_post_rcv_buffer_rdma, const int* proc, void* buf, const int64_t* size, const int* tag,
        gravel_request* request) {
  *error = *size < 0 ? GRAVEL_ERR_ARGUMENT : gravel_post_rcv_buffer_rdma(*proc, buf, (size_t)*size, *tag, request);
}

FORTRAN(gravel_wait_send_request_rdma, int* proc, int* tag, int64_t* size) {
  size_t found = 0;
  *error = gravel_wait_send_request_rdma(proc, tag, &found);
  *size = (int64_t)found;
}

FORTRAN(gravel_wait_send_buffer_rdma, int* proc, int* tag, int64_t* size, gravel_request* request) {
  size_t found = 0;
  *error = gravel_wait_send_buffer_rdma(proc, tag, &found, request);
  *size = (int64_t)found;
}

FORTRAN(gravel_post_os_get, const gravel_request* request, void* buf, const int64_t* size, const int64_t* offset) {
  *error = *size < 0 || *offset < 0 ? GRAVEL_ERR_ARGUMENT
                                    : gravel_post_os_get(*request, buf, (size_t)*size, (size_t)*offset);
}

FORTRAN(gravel_post_send_request_rdma, const int* proc, const int64_t* size, const int* tag, gravel_request* request) {
  *error = *size < 0 ? GRAVEL_ERR_ARGUMENT : gravel_post_send_request_rdma(*proc, (size_t)*size, *tag, request);
}

FORTRAN(gravel_post_send_buffer_rdma, const int* proc, const void* buf, const int64_t* size, const int* tag,
        gravel_request* request) {
  *error = *size < 0 ? GRAVEL_ERR_ARGUMENT : gravel_post_send_buffer_rdma(*proc, buf, (size_t)*size, *tag, request);
}

FORTRAN(gravel_wait_rcv_buffer, int* proc, int* tag, int64_t* size, gravel_request* request) {
  size_t found = 0;
  *error = gravel_wait_rcv_buffer(proc, tag, &found, request);
  *size = (int64_t)found;
}

FORTRAN(gravel_post_os_put, const gravel_request* request, const void* buf, const int64_t* size,
        const int64_t* offset) {
  *error = *size < 0 || *offset < 0 ? GRAVEL_ERR_ARGUMENT
                                    : gravel_post_os_put(*request, buf, (size_t)*size, (size_t)*offset);
}

FORTRAN(gravel_send_fin, const gravel_request* request) {
  *error = gravel_send_fin(*request);
}

/* flag: an INTEGER, 0 or 1. */
FORTRAN(gravel_test, const gravel_request* request, int* flag) {
  *error = gravel_test(*request, flag);
}

FORTRAN(gravel_wait, const gravel_request* request) {
  *error = gravel_wait(*request);
}

FORTRAN(gravel_waitall, const int* count, gravel_request* requests) {
  *error = gravel_waitall(*count, requests);
}

/* A text with blanks behind it. */
static void copy_text(char* to, size_t room, const char* from) {
  const size_t length = strlen(from);
  memset(to, ' ', room);
  memcpy(to, from, length < room ? length : room);
}

__attribute__((visibility("default"))) void gravel_reason_(char* text, size_t room);
void gravel_reason_(char* text, size_t room) {
  copy_text(text, room, gravel_reason());
}

__attribute__((visibility("default"))) void gravel_strerror_(const int* code, char* text, size_t room);
void gravel_strerror_(const int* code, char* text, size_t room) {
  copy_text(text, room, gravel_strerror(*code));
}
