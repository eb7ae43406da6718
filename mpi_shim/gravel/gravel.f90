! SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
! Gravel for Fortran: a module with the functions of gravel.h, by ISO_C_BINDING and assumed types (Fortran 2018). Each
! gives GRAVEL_SUCCESS or a GRAVEL_ERR_.
!
!   error = gravel_post_rcv_buffer_rdma(from, buffer, size, tag, request)
!
! Sizes and offsets are integers of kind c_size_t, in octets: storage_size(buffer) / 8 * size(buffer). A buffer is any
! contiguous variable; of an array section that is not contiguous the compiler would pass a copy. Between the call that
! names a buffer and the wait for its request the compiler must not keep the buffer in registers: declare it asynchronous
! (or target).
module gravel
  use, intrinsic :: iso_c_binding, only: c_int, c_int32_t, c_size_t
  implicit none
  private

  integer, parameter, public :: gravel_request_kind = c_int32_t, gravel_size_kind = c_size_t
  integer(c_int32_t), parameter, public :: GRAVEL_REQUEST_NULL = 0
  integer(c_int), parameter, public :: GRAVEL_ANY_SOURCE = -1, GRAVEL_ANY_TAG = -1
  integer(c_int), parameter, public :: GRAVEL_SUCCESS = 0, GRAVEL_ERR_ARGUMENT = 1, GRAVEL_ERR_RANK = 2, &
      GRAVEL_ERR_TAG = 3, GRAVEL_ERR_REQUEST = 4, GRAVEL_ERR_STATE = 5, GRAVEL_ERR_UNREGISTERED = 6, &
      GRAVEL_ERR_RANGE = 7, GRAVEL_ERR_PEER = 8, GRAVEL_ERR_BUSY = 9, GRAVEL_ERR_MEMORY = 10, &
      GRAVEL_ERR_DEVICE = 11, GRAVEL_ERR_JOB = 12

  public :: gravel_init, gravel_finalize, gravel_register_buffer, gravel_unregister_buffer
  public :: gravel_post_rcv_buffer_rdma, gravel_wait_send_request_rdma, gravel_wait_send_buffer_rdma
  public :: gravel_post_os_get, gravel_post_send_request_rdma, gravel_post_send_buffer_rdma
  public :: gravel_wait_rcv_buffer, gravel_post_os_put, gravel_send_fin
  public :: gravel_test, gravel_wait, gravel_waitall, gravel_reason, gravel_strerror

  interface
    ! comm: as of mpif.h or the module mpi; with mpi_f08 comm%MPI_VAL.
    integer(c_int) function gravel_init(comm) bind(C, name="gravel_init_f")
      import :: c_int
      integer(c_int), value :: comm
    end function

    integer(c_int) function gravel_finalize() bind(C, name="gravel_finalize")
      import :: c_int
    end function

    integer(c_int) function gravel_register_buffer(buf, size) bind(C, name="gravel_register_buffer")
      import :: c_int, c_size_t
      type(*), dimension(*), asynchronous :: buf
      integer(c_size_t), value :: size
    end function

    integer(c_int) function gravel_unregister_buffer(buf, size) bind(C, name="gravel_unregister_buffer")
      import :: c_int, c_size_t
      type(*), dimension(*), asynchronous :: buf
      integer(c_size_t), value :: size
    end function

    integer(c_int) function gravel_post_rcv_buffer_rdma(proc, buf, size, tag, request) &
        bind(C, name="gravel_post_rcv_buffer_rdma")
      import :: c_int, c_int32_t, c_size_t
      integer(c_int), value :: proc, tag
      type(*), dimension(*), asynchronous :: buf
      integer(c_size_t), value :: size
      integer(c_int32_t), intent(out) :: request
    end function

    integer(c_int) function gravel_wait_send_request_rdma(proc, tag, size) &
        bind(C, name="gravel_wait_send_request_rdma")
      import :: c_int, c_size_t
      integer(c_int), intent(inout) :: proc, tag
      integer(c_size_t), intent(out) :: size
    end function

    integer(c_int) function gravel_wait_send_buffer_rdma(proc, tag, size, request) &
        bind(C, name="gravel_wait_send_buffer_rdma")
      import :: c_int, c_int32_t, c_size_t
      integer(c_int), intent(inout) :: proc, tag
      integer(c_size_t), intent(out) :: size
      integer(c_int32_t), intent(out) :: request
    end function

    integer(c_int) function gravel_post_os_get(request, buf, size, offset) bind(C, name="gravel_post_os_get")
      import :: c_int, c_int32_t, c_size_t
      integer(c_int32_t), value :: request
      type(*), dimension(*), asynchronous :: buf
      integer(c_size_t), value :: size, offset
    end function

    integer(c_int) function gravel_post_send_request_rdma(proc, size, tag, request) &
        bind(C, name="gravel_post_send_request_rdma")
      import :: c_int, c_int32_t, c_size_t
      integer(c_int), value :: proc, tag
      integer(c_size_t), value :: size
      integer(c_int32_t), intent(out) :: request
    end function

    integer(c_int) function gravel_post_send_buffer_rdma(proc, buf, size, tag, request) &
        bind(C, name="gravel_post_send_buffer_rdma")
      import :: c_int, c_int32_t, c_size_t
      integer(c_int), value :: proc, tag
      type(*), dimension(*), intent(in), asynchronous :: buf
      integer(c_size_t), value :: size
      integer(c_int32_t), intent(out) :: request
    end function

    integer(c_int) function gravel_wait_rcv_buffer(proc, tag, size, request) bind(C, name="gravel_wait_rcv_buffer")
      import :: c_int, c_int32_t, c_size_t
      integer(c_int), intent(inout) :: proc, tag
      integer(c_size_t), intent(out) :: size
      integer(c_int32_t), intent(out) :: request
    end function

    integer(c_int) function gravel_post_os_put(request, buf, size, offset) bind(C, name="gravel_post_os_put")
      import :: c_int, c_int32_t, c_size_t
      integer(c_int32_t), value :: request
      type(*), dimension(*), intent(in), asynchronous :: buf
      integer(c_size_t), value :: size, offset
    end function

    integer(c_int) function gravel_send_fin(request) bind(C, name="gravel_send_fin")
      import :: c_int, c_int32_t
      integer(c_int32_t), value :: request
    end function

    ! flag: 0 or 1.
    integer(c_int) function gravel_test(request, flag) bind(C, name="gravel_test")
      import :: c_int, c_int32_t
      integer(c_int32_t), value :: request
      integer(c_int), intent(out) :: flag
    end function

    integer(c_int) function gravel_wait(request) bind(C, name="gravel_wait")
      import :: c_int, c_int32_t
      integer(c_int32_t), value :: request
    end function

    integer(c_int) function gravel_waitall(count, requests) bind(C, name="gravel_waitall")
      import :: c_int, c_int32_t
      integer(c_int), value :: count
      integer(c_int32_t), intent(inout) :: requests(*)
    end function

    ! Blanks behind the text.
    subroutine gravel_reason(text)
      character(len=*), intent(out) :: text
    end subroutine

    subroutine gravel_strerror(code, text)
      import :: c_int
      integer(c_int), intent(in) :: code
      character(len=*), intent(out) :: text
    end subroutine
  end interface
end module gravel
