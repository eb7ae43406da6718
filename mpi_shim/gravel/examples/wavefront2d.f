! SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
! A wavefront in FORTRAN 77: an element of a table is the sum of
! those to its north and west, modulo 9973. A process waits for its
! northern and western neighbours' edges, computes its block, and
! sends its own edges south and east. Every block is compared with
! one that a single process computes.
!
!   etherwarp mpirun -n 4 gravel_wavefront2d_f
      program wavef
      implicit none
      include 'mpif.h'
      include 'gravelf.h'
      integer edge, sweeps, modul
      parameter (edge=64, sweeps=20, modul=9973)
      integer block(0:edge, 0:edge)
      integer north(edge), west(edge), south(edge), east(edge)
      integer grid, dims(2), place(2), rank, procs, ierr
      integer up, down, left, right, sweep, bad, total
      logical round(2)
      integer*8 octets
      common /data/ block, north, west, south, east
      common /job/ rank, up, down, left, right
      parameter (octets=4*edge)
      data dims /0, 0/, round /.false., .false./

      call MPI_Init(ierr)
      call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
      call MPI_Comm_size(MPI_COMM_WORLD, procs, ierr)
      call MPI_Dims_create(procs, 2, dims, ierr)
      call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, round, .false.,
     &                     grid, ierr)
      call MPI_Cart_coords(grid, rank, 2, place, ierr)
      call MPI_Cart_shift(grid, 0, 1, up, down, ierr)
      call MPI_Cart_shift(grid, 1, 1, left, right, ierr)
      call gravel_init(grid, ierr)
      call must(ierr, 'init')
      call gravel_register_buffer(north, octets, ierr)
      call must(ierr, 'register north')
      call gravel_register_buffer(west, octets, ierr)
      call must(ierr, 'register west')
      call gravel_register_buffer(south, octets, ierr)
      call must(ierr, 'register south')
      call gravel_register_buffer(east, octets, ierr)
      call must(ierr, 'register east')
      bad = 0
      do sweep = 1, sweeps
        call once(sweep)
        call verify(sweep, dims, place, bad)
      end do
      call MPI_Allreduce(bad, total, 1, MPI_INTEGER, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      call gravel_finalize(ierr)
      call must(ierr, 'finalize')
      if (rank .eq. 0) then
        print '(a,i0,a,i0,a,i0,a)', 'gravel_wavefront2d_f: ',
     &    dims(1), ' x ', dims(2), ' processes: ', total, ' wrong'
        if (total .eq. 0) print '(a)', 'verified'
      end if
      if (total .ne. 0) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
      call MPI_Finalize(ierr)
      end

      subroutine must(ierr, what)
      implicit none
      include 'mpif.h'
      include 'gravelf.h'
      integer ierr, none
      character*(*) what
      character*200 text
      if (ierr .eq. GRAVEL_SUCCESS) return
      call gravel_reason(text)
      print *, 'gravel_wavefront2d_f: ', what, ': ', text
      call MPI_Abort(MPI_COMM_WORLD, 1, none)
      end

! One sweep over the table: edges in, block, edges out.
      subroutine once(sweep)
      implicit none
      include 'mpif.h'
      include 'gravelf.h'
      integer edge, modul, sweep, i, j, ierr, in(2), out(2)
      parameter (edge=64, modul=9973)
      integer block(0:edge, 0:edge)
      integer north(edge), west(edge), south(edge), east(edge)
      integer rank, up, down, left, right
      common /data/ block, north, west, south, east
      common /job/ rank, up, down, left, right
      in(1) = GRAVEL_REQUEST_NULL
      in(2) = GRAVEL_REQUEST_NULL
      do i = 1, edge
        if (up .eq. MPI_PROC_NULL) north(i) = sweep
        if (left .eq. MPI_PROC_NULL) west(i) = sweep
      end do
      call edgein(up, north, 1, in(1))
      call edgein(left, west, 2, in(2))
      call gravel_waitall(2, in, ierr)
      call must(ierr, 'waitall')
      do i = 1, edge
        block(0, i) = north(i)
        block(i, 0) = west(i)
      end do
      do j = 1, edge
        do i = 1, edge
          block(i, j) = mod(block(i-1, j) + block(i, j-1), modul)
        end do
      end do
      do i = 1, edge
        south(i) = block(edge, i)
        east(i) = block(i, edge)
      end do
      call edgeout(down, south, 1, out(1))
      call edgeout(right, east, 2, out(2))
      call gravel_waitall(2, out, ierr)
      call must(ierr, 'waitall')
      end

      subroutine edgein(proc, buf, tag, request)
      implicit none
      include 'mpif.h'
      include 'gravelf.h'
      integer proc, buf(*), tag, request, ierr
      integer*8 octets
      parameter (octets=4*64)
      if (proc .eq. MPI_PROC_NULL) return
      call gravel_post_rcv_buffer_rdma(proc, buf, octets, tag, request,
     &                                 ierr)
      call must(ierr, 'post_rcv_buffer_rdma')
      end

      subroutine edgeout(to, buf, wanted, request)
      implicit none
      include 'mpif.h'
      include 'gravelf.h'
      integer to, buf(*), wanted, request, proc, tag, ierr
      integer*8 size, zero
      parameter (zero=0)
      request = GRAVEL_REQUEST_NULL
      if (to .eq. MPI_PROC_NULL) return
      proc = to
      tag = wanted
      call gravel_wait_rcv_buffer(proc, tag, size, request, ierr)
      call must(ierr, 'wait_rcv_buffer')
      call gravel_post_os_put(request, buf, size, zero, ierr)
      call must(ierr, 'post_os_put')
      call gravel_send_fin(request, ierr)
      call must(ierr, 'send_fin')
      end

! The whole table, column by column.
      subroutine verify(sweep, dims, place, bad)
      implicit none
      integer edge, modul, most
      parameter (edge=64, modul=9973, most=4096)
      integer sweep, dims(2), place(2), bad, i, j, column(0:most)
      integer block(0:edge, 0:edge)
      integer north(edge), west(edge), south(edge), east(edge)
      common /data/ block, north, west, south, east
      do i = 1, min(most, edge*dims(1))
        column(i) = sweep
      end do
      column(0) = sweep
      do j = 1, edge*dims(2)
        do i = 1, min(most, edge*dims(1))
          column(i) = mod(column(i) + column(i-1), modul)
        end do
        if (j .gt. edge*place(2) .and. j .le. edge*(place(2)+1)) then
          do i = 1, edge
            if (block(i, j-edge*place(2)) .ne.
     &          column(edge*place(1)+i)) bad = bad + 1
          end do
        end if
      end do
      end
