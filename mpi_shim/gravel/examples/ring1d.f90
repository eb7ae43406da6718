! SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
! A ring: every process receives from the one before and sends to the one behind, with one handshake and several puts,
! then by Read, and looks at every element.
!
!   etherwarp mpirun -n 4 gravel_ring1d_f
program ring1d
  use mpi
  use gravel
  implicit none
  integer, parameter :: elements = 4096, strips = 4, rounds = 20, tag = 3
  integer(gravel_size_kind), parameter :: octets = 8
  double precision, asynchronous :: in(elements), out(elements)
  integer :: rank, procs, previous, next, round, bad, all, ierr

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, procs, ierr)
  previous = mod(rank + procs - 1, procs)
  next = mod(rank + 1, procs)
  call must(gravel_init(MPI_COMM_WORLD), 'init')
  call must(gravel_register_buffer(in, elements * octets), 'register_buffer')
  call must(gravel_register_buffer(out, elements * octets), 'register_buffer')
  bad = 0
  do round = 1, rounds
    call by_many_puts()
    bad = bad + wrong()
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call by_read()
    bad = bad + wrong()
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end do
  call MPI_Allreduce(bad, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(gravel_finalize(), 'finalize')
  if (rank == 0) print '(a,i0,a,i0,a)', 'gravel_ring1d_f: ', procs, ' processes, ', all, ' wrong'
  if (rank == 0 .and. all == 0) print '(a)', 'verified'
  if (all /= 0) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  call MPI_Finalize(ierr)

contains

  subroutine must(error, what)
    integer, intent(in) :: error
    character(len=*), intent(in) :: what
    character(len=200) :: reason
    if (error == GRAVEL_SUCCESS) return
    call gravel_reason(reason)
    print '(a,i0,4a)', 'gravel_ring1d_f: process ', rank, ': ', what, ': ', trim(reason)
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine

  double precision function value(of, i)
    integer, intent(in) :: of, i
    value = of * 1d6 + round * 1d3 + mod(i, 997)
  end function

  subroutine compute(first, last)
    integer, intent(in) :: first, last
    integer :: i
    do i = first, last
      out(i) = value(rank, i)
    end do
  end subroutine

  subroutine by_many_puts()
    integer(gravel_request_kind) :: r(2)
    integer(gravel_size_kind) :: size
    integer :: proc, found, s, first, last
    call must(gravel_post_rcv_buffer_rdma(previous, in, elements * octets, tag, r(1)), 'post_rcv_buffer_rdma')
    proc = next
    found = tag
    call must(gravel_wait_rcv_buffer(proc, found, size, r(2)), 'wait_rcv_buffer')
    do s = 1, strips
      first = elements / strips * (s - 1) + 1
      last = elements / strips * s
      call compute(first, last)
      call must(gravel_post_os_put(r(2), out(first:last), (last - first + 1) * octets, (first - 1) * octets), &
                'post_os_put')
    end do
    call must(gravel_send_fin(r(2)), 'send_fin')
    call must(gravel_waitall(2, r), 'waitall')
  end subroutine

  subroutine by_read()
    integer(gravel_request_kind) :: r(2)
    integer(gravel_size_kind) :: size
    integer :: proc, found
    call compute(1, elements)
    call must(gravel_post_send_buffer_rdma(next, out, elements * octets, tag, r(1)), 'post_send_buffer_rdma')
    proc = GRAVEL_ANY_SOURCE
    found = GRAVEL_ANY_TAG
    call must(gravel_wait_send_buffer_rdma(proc, found, size, r(2)), 'wait_send_buffer_rdma')
    call must(gravel_post_os_get(r(2), in, size, 0_gravel_size_kind), 'post_os_get')
    call must(gravel_waitall(2, r), 'waitall')
  end subroutine

  integer function wrong()
    integer :: i
    wrong = 0
    do i = 1, elements
      if (in(i) /= value(previous, i)) wrong = wrong + 1
    end do
  end function

end program
