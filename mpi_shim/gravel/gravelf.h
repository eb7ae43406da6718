! SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
! Gravel for FORTRAN 77: include 'gravelf.h' behind IMPLICIT NONE.
! The subroutines are those of gravel.h, with the error as an
! additional, last argument:
!
!     call gravel_init(comm, ierr)
!     call gravel_register_buffer(buf, size, ierr)
!     call gravel_post_os_put(request, buf, size, offset, ierr)
!     call gravel_test(request, flag, ierr)
!     call gravel_reason(text)
!
! Sizes and offsets are INTEGER*8, requests, ranks, tags, flags and
! errors INTEGER. A buffer must not be an array section that is not
! contiguous: the compiler would pass a copy.
      integer GRAVEL_REQUEST_NULL
      integer GRAVEL_ANY_SOURCE, GRAVEL_ANY_TAG
      integer GRAVEL_SUCCESS, GRAVEL_ERR_ARGUMENT, GRAVEL_ERR_RANK
      integer GRAVEL_ERR_TAG, GRAVEL_ERR_REQUEST, GRAVEL_ERR_STATE
      integer GRAVEL_ERR_UNREGISTERED, GRAVEL_ERR_RANGE
      integer GRAVEL_ERR_PEER, GRAVEL_ERR_BUSY, GRAVEL_ERR_MEMORY
      integer GRAVEL_ERR_DEVICE, GRAVEL_ERR_JOB
      parameter (GRAVEL_REQUEST_NULL=0)
      parameter (GRAVEL_ANY_SOURCE=-1, GRAVEL_ANY_TAG=-1)
      parameter (GRAVEL_SUCCESS=0, GRAVEL_ERR_ARGUMENT=1)
      parameter (GRAVEL_ERR_RANK=2, GRAVEL_ERR_TAG=3)
      parameter (GRAVEL_ERR_REQUEST=4, GRAVEL_ERR_STATE=5)
      parameter (GRAVEL_ERR_UNREGISTERED=6, GRAVEL_ERR_RANGE=7)
      parameter (GRAVEL_ERR_PEER=8, GRAVEL_ERR_BUSY=9)
      parameter (GRAVEL_ERR_MEMORY=10, GRAVEL_ERR_DEVICE=11)
      parameter (GRAVEL_ERR_JOB=12)
      external gravel_init, gravel_finalize
      external gravel_register_buffer, gravel_unregister_buffer
      external gravel_post_rcv_buffer_rdma
      external gravel_wait_send_request_rdma
      external gravel_wait_send_buffer_rdma
      external gravel_post_os_get
      external gravel_post_send_request_rdma
      external gravel_post_send_buffer_rdma
      external gravel_wait_rcv_buffer
      external gravel_post_os_put, gravel_send_fin
      external gravel_test, gravel_wait, gravel_waitall
      external gravel_reason, gravel_strerror
