! SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
! Every subroutine of gravelf.h, by a process that exchanges with
! itself.
      program grvf77
      implicit none
      include 'mpif.h'
      include 'gravelf.h'
      integer n, tag
      parameter (n=1000, tag=3)
      integer in(n), out(n), r(3), proc, found, flag, i, ierr
      integer*8 octets, half, zero, minus, size
      parameter (octets=4*n, half=2*n, zero=0, minus=-1)
      character*200 text
      common /buffrs/ in, out

      call MPI_Init(ierr)
      call gravel_finalize(ierr)
      call gives(GRAVEL_ERR_STATE, ierr, 'before')
      call gravel_strerror(GRAVEL_ERR_PEER, text)
      if (text .ne.
     &    'the other process has ended, or cannot be reached') stop 1
      call gravel_init(MPI_COMM_SELF, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'init')
      call gravel_register_buffer(in, minus, ierr)
      call gives(GRAVEL_ERR_ARGUMENT, ierr, 'register minus')
      call gravel_register_buffer(in, octets, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'register in')
      call gravel_unregister_buffer(in, minus, ierr)
      call gives(GRAVEL_ERR_ARGUMENT, ierr, 'unregister minus')
      call gravel_register_buffer(out, octets, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'register out')

! By Write, in two puts, announced by the producer.
      do i = 1, n
        out(i) = i*7
      end do
      call gravel_post_send_request_rdma(0, minus, tag, r(1), ierr)
      call gives(GRAVEL_ERR_ARGUMENT, ierr, 'send request minus')
      call gravel_post_send_request_rdma(0, octets, tag, r(1), ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'post_send_request_rdma')
      proc = GRAVEL_ANY_SOURCE
      found = GRAVEL_ANY_TAG
      call gravel_wait_send_request_rdma(proc, found, size, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'wait_send_request_rdma')
      if (proc .ne. 0 .or. found .ne. tag .or. size .ne. octets) stop 2
      call gravel_post_rcv_buffer_rdma(0, in, minus, tag, r(2), ierr)
      call gives(GRAVEL_ERR_ARGUMENT, ierr, 'receive minus')
      call gravel_post_rcv_buffer_rdma(0, in, size, tag, r(2), ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'post_rcv_buffer_rdma')
      call gravel_test(r(2), flag, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'test')
      if (flag .ne. 0) stop 3
      call gravel_wait_rcv_buffer(proc, found, size, r(3), ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'wait_rcv_buffer')
      call gravel_post_os_put(r(3), out, octets, half, ierr)
      call gives(GRAVEL_ERR_RANGE, ierr, 'beyond the buffer')
      call gravel_reason(text)
      if (text .ne. 'beyond the end of the other side''s buffer') stop 4
      call gravel_post_os_put(r(3), out, half, minus, ierr)
      call gives(GRAVEL_ERR_ARGUMENT, ierr, 'put minus')
      call gravel_post_os_put(r(3), out(n/2+1), half, half, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'post_os_put')
      call gravel_post_os_put(r(3), out, half, zero, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'post_os_put')
      call gravel_send_fin(r(3), ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'send_fin')
      call gravel_waitall(3, r, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'waitall')
      if (r(2) .ne. GRAVEL_REQUEST_NULL) stop 5
      call same('Write')

! By Read.
      call gravel_post_send_buffer_rdma(0, out, minus, tag, r(1), ierr)
      call gives(GRAVEL_ERR_ARGUMENT, ierr, 'offer minus')
      call gravel_post_send_buffer_rdma(0, out, octets, tag, r(1), ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'post_send_buffer_rdma')
      call gravel_wait_send_buffer_rdma(proc, found, size, r(2), ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'wait_send_buffer_rdma')
      call gravel_post_os_get(r(2), in, minus, zero, ierr)
      call gives(GRAVEL_ERR_ARGUMENT, ierr, 'get minus')
      call gravel_post_os_get(r(2), in, octets, zero, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'post_os_get')
      call gravel_wait(r(2), ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'wait')
      flag = 0
   10 call gravel_test(r(1), flag, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'test')
      if (flag .eq. 0) goto 10
      call same('Read')

      call gravel_unregister_buffer(in, octets, ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'unregister in')
      call gravel_finalize(ierr)
      call gives(GRAVEL_SUCCESS, ierr, 'finalize')
      call MPI_Finalize(ierr)
      print '(a)', 'verified'
      end

      subroutine gives(wanted, got, what)
      implicit none
      integer wanted, got
      character*(*) what
      if (wanted .eq. got) return
      print *, what, ': ', got, ', not ', wanted
      stop 1
      end

! What was sent is there; the buffer is emptied for the next time.
      subroutine same(how)
      implicit none
      integer n, i
      parameter (n=1000)
      integer in(n), out(n)
      character*(*) how
      common /buffrs/ in, out
      do i = 1, n
        if (in(i) .ne. i*7 .or. out(i) .ne. i*7) then
          print *, 'other octets by ', how
          stop 1
        end if
        in(i) = 0
      end do
      end
