! SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
! Every function of the module gravel, by a process that exchanges with itself.
program gravel_f90
  use mpi
  use gravel
  implicit none
  integer, parameter :: elements = 1000, tag = 3
  integer(gravel_size_kind), parameter :: octets = 4 * elements, zero = 0, half = octets / 2
  integer, asynchronous, target :: in(elements), out(elements)
  integer(gravel_request_kind) :: r(3)
  integer(gravel_size_kind) :: size
  integer :: proc, found, flag, i, ierr
  character(len=200) :: text

  call MPI_Init(ierr)
  call gives(GRAVEL_ERR_STATE, gravel_finalize(), 'before')
  call gravel_strerror(GRAVEL_ERR_RANGE, text)
  if (text /= "beyond the end of the other side's buffer") call broken('strerror')
  call gives(GRAVEL_SUCCESS, gravel_init(MPI_COMM_SELF), 'init')
  call gives(GRAVEL_SUCCESS, gravel_register_buffer(in, octets), 'register in')
  call gives(GRAVEL_ERR_UNREGISTERED, gravel_unregister_buffer(out, octets), 'unregister out')
  call gives(GRAVEL_SUCCESS, gravel_register_buffer(out, octets), 'register out')

  ! By Write, in two puts, announced by the producer.
  out = [(i * 7, i = 1, elements)]
  call gives(GRAVEL_SUCCESS, gravel_post_send_request_rdma(0, octets, tag, r(1)), 'post_send_request_rdma')
  proc = GRAVEL_ANY_SOURCE
  found = GRAVEL_ANY_TAG
  call gives(GRAVEL_SUCCESS, gravel_wait_send_request_rdma(proc, found, size), 'wait_send_request_rdma')
  if (proc /= 0 .or. found /= tag .or. size /= octets) call broken('what was announced')
  call gives(GRAVEL_SUCCESS, gravel_post_rcv_buffer_rdma(proc, in, size, found, r(2)), 'post_rcv_buffer_rdma')
  call gives(GRAVEL_SUCCESS, gravel_test(r(2), flag), 'test')
  if (flag /= 0) call broken('done before it began')
  call gives(GRAVEL_SUCCESS, gravel_wait_rcv_buffer(proc, found, size, r(3)), 'wait_rcv_buffer')
  call gives(GRAVEL_ERR_RANGE, gravel_post_os_put(r(3), out, octets, half), 'beyond the buffer')
  call gravel_reason(text)
  if (text /= "beyond the end of the other side's buffer") call broken('reason')
  call gives(GRAVEL_SUCCESS, gravel_post_os_put(r(3), out(elements / 2 + 1:), half, half), 'post_os_put')
  call gives(GRAVEL_SUCCESS, gravel_post_os_put(r(3), out, half, zero), 'post_os_put')
  call gives(GRAVEL_SUCCESS, gravel_send_fin(r(3)), 'send_fin')
  call gives(GRAVEL_SUCCESS, gravel_waitall(3, r), 'waitall')
  if (any(r /= GRAVEL_REQUEST_NULL)) call broken('requests that are done')
  if (any(in /= out)) call broken('other octets by Write')

  ! By Read.
  in = 0
  call gives(GRAVEL_SUCCESS, gravel_post_send_buffer_rdma(0, out, octets, tag, r(1)), 'post_send_buffer_rdma')
  call gives(GRAVEL_SUCCESS, gravel_wait_send_buffer_rdma(proc, found, size, r(2)), 'wait_send_buffer_rdma')
  call gives(GRAVEL_SUCCESS, gravel_post_os_get(r(2), in, half, zero), 'post_os_get')
  call gives(GRAVEL_SUCCESS, gravel_post_os_get(r(2), in(elements / 2 + 1:), half, half), 'post_os_get')
  call gives(GRAVEL_SUCCESS, gravel_wait(r(2)), 'wait')
  flag = 0
  do while (flag == 0)
    call gives(GRAVEL_SUCCESS, gravel_test(r(1), flag), 'test')
  end do
  if (any(in /= out)) call broken('other octets by Read')

  call gives(GRAVEL_SUCCESS, gravel_unregister_buffer(in, octets), 'unregister in')
  call gives(GRAVEL_SUCCESS, gravel_unregister_buffer(out, octets), 'unregister out')
  call gives(GRAVEL_SUCCESS, gravel_finalize(), 'finalize')
  call MPI_Finalize(ierr)
  print '(a)', 'verified'

contains

  subroutine gives(wanted, got, what)
    integer, intent(in) :: wanted, got
    character(len=*), intent(in) :: what
    if (wanted == got) return
    print '(2a,i0,a,i0)', what, ': ', got, ', not ', wanted
    stop 1
  end subroutine

  subroutine broken(what)
    character(len=*), intent(in) :: what
    print '(a)', what
    stop 1
  end subroutine

end program
