# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Gravel, and what begins it by each MPI library that was there when it was built. Part of Install.cmake.
install(TARGETS gravel LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(FILES mpi_shim/gravel/gravel.h mpi_shim/gravel/gravelf.h mpi_shim/gravel/gravel.f90 mpi_shim/gravel/mpi/gravel_mpi.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gravel COMPONENT development)
foreach(example ring1d.c ring1d.f90 wavefront2d.c wavefront2d.f)
  install(FILES mpi_shim/gravel/examples/${example} DESTINATION ${EWARP_EXAMPLES} COMPONENT development
          RENAME gravel_${example})
endforeach()
# What a compiler of Fortran makes of gravel.f90 is for this compiler and this kind of machine.
if(EWARP_GRAVEL_MODULE)
  install(FILES ${EWARP_GRAVEL_MODULE} DESTINATION ${CMAKE_INSTALL_LIBDIR}/etherwarp/fortran COMPONENT development)
endif()

function(ewarp_gravel_pc name)
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${name}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${ARGN}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${ARGN}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()
ewarp_gravel_pc(gravel gravel)
foreach(EWARP_MPI ${EWARP_GRAVEL_MPI})
  install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libgravel_${EWARP_MPI}.a DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT development)
  ewarp_gravel_pc(gravel-mpi gravel-${EWARP_MPI})
endforeach()
