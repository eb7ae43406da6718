# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# What `cmake --install` puts where:
#   bin/etherwarp
#   lib/etherwarp/libetherwarp-preload.so
#   lib/libibverbs/libetherwarp-rdmav34.so    beside rdma-core's own providers, with a link for each further interface
#   lib/libetherwarpdv.so                     EtherWARP's own verbs (include/infiniband/etherwarpdv.h)
#   lib/libewarp_acp.so                       the ACP interface (include/etherwarp/acp.h)
#   lib/libfabric/libetherwarp-fi.so          where libfabric looks by itself, if the prefix is its own
#   lib/libewarp_channel.a, and what it needs of ours, include/etherwarp/mpi_shim/channel/
#   lib/libgravel.so, lib/libgravel_openmpi.a, libgravel_mpich.a, include/gravel/, lib/etherwarp/fortran/gravel.mod
#   lib/pkgconfig/etherwarp.pc, etherwarp-acp.pc, etherwarp-channel.pc, etherwarpdv.pc, gravel.pc, gravel-openmpi.pc,
#   gravel-mpich.pc
#   share/doc/etherwarp/examples/             acp_ring.c, channel_pingpong.cc, rd_ping.c, rd_many.c, ud_media_stream.c,
#   gravel_*
#   share/man/man1/etherwarp.1
#   /etc/libibverbs.d/etherwarp.driver        (below the prefix, unless that is /usr or /usr/local)
# Each file belongs to a component: runtime, or development (what programs are built with). cmake/Package.cmake makes a
# package of each.
set(EWARP_EXAMPLES ${CMAKE_INSTALL_DATADIR}/doc/etherwarp/examples CACHE STRING "Where the examples are installed")
install(TARGETS etherwarp RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
if(NOT EWARP_PACKAGE)  # a package has it compressed
  install(FILES docs/user/etherwarp.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
endif()
install(TARGETS etherwarp-preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/etherwarp COMPONENT runtime)
install(TARGETS etherwarp-rdmav34 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/libibverbs COMPONENT runtime)

if(TARGET etherwarp-fi)
  install(TARGETS etherwarp-fi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/libfabric COMPONENT runtime)
endif()
install(TARGETS ewarp_channel ewarp_channel_core ewarp_channel_memory ewarp_channel_options ewarp_option_table
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
# channel.h and what it includes, under the names by which it does.
foreach(header channel core/counters core/types core/wire verbs/address verbs/device)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES mpi_shim/channel/${header}.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/etherwarp/mpi_shim/channel/${folder} COMPONENT development)
endforeach()
install(FILES mpi_shim/channel/examples/pingpong.cc DESTINATION ${EWARP_EXAMPLES} COMPONENT development
        RENAME channel_pingpong.cc)
foreach(file rd_end.c rd_end.h rd_many.c rd_ping.c ud_media_stream.c)
  install(FILES provider/examples/${file} DESTINATION ${EWARP_EXAMPLES} COMPONENT development)
endforeach()

# The way back from the .pc file to the prefix, so that the tree can be moved.
file(RELATIVE_PATH EWARP_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(${CMAKE_CURRENT_LIST_DIR}/etherwarp.pc.in ${CMAKE_CURRENT_BINARY_DIR}/etherwarp.pc @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/etherwarp-channel.pc.in ${CMAKE_CURRENT_BINARY_DIR}/etherwarp-channel.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/etherwarp.pc ${CMAKE_CURRENT_BINARY_DIR}/etherwarp-channel.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

include(${CMAKE_CURRENT_LIST_DIR}/InstallGravel.cmake)

# Programs run with libetherwarpdv.so.1; libetherwarpdv.so is for their linker.
install(TARGETS etherwarpdv LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
        NAMELINK_COMPONENT development)
install(FILES provider/direct/infiniband/etherwarpdv.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/infiniband
        COMPONENT development)
configure_file(provider/direct/etherwarpdv.pc.in ${CMAKE_CURRENT_BINARY_DIR}/etherwarpdv.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/etherwarpdv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

# As libetherwarpdv, on which it stands; both are in the same place, wherever that is.
set_target_properties(ewarp_acp PROPERTIES INSTALL_RPATH $ORIGIN)
install(TARGETS ewarp_acp LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(FILES mpi_shim/acp/acp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/etherwarp COMPONENT development)
install(FILES mpi_shim/acp/examples/ring.c DESTINATION ${EWARP_EXAMPLES} COMPONENT development RENAME acp_ring.c)
configure_file(${CMAKE_CURRENT_LIST_DIR}/etherwarp-acp.pc.in ${CMAKE_CURRENT_BINARY_DIR}/etherwarp-acp.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/etherwarp-acp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

# Decided when installing, because `cmake --install --prefix` may change the prefix then. An absolute name in the driver
# file reaches a provider that is not in libibverbs' own directory; libibverbs adds "-rdmav34.so", or "-rdmav65.so".
install(CODE "
  set(libdir \"${CMAKE_INSTALL_LIBDIR}\")
  if(CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?/?$\")
    set(directory /etc/libibverbs.d)
  else()
    set(directory \"\${CMAKE_INSTALL_PREFIX}/etc/libibverbs.d\")
  endif()
  get_filename_component(provider \"\${CMAKE_INSTALL_PREFIX}/\${libdir}/libibverbs/libetherwarp\" ABSOLUTE)
  set(file \"\$ENV{DESTDIR}\${directory}/etherwarp.driver\")
  message(STATUS \"Installing: \${file}\")
  file(WRITE \"\${file}\" \"driver \${provider}\\n\")
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${directory}/etherwarp.driver\")
" COMPONENT runtime)
