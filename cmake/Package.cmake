# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Packages of Debian, which scripts/package has cpack make (preset package): `etherwarp` is the component runtime of
# Install.cmake, `libetherwarp-dev` the component development. Included only with EWARP_PACKAGE.
set(EWARP_PACKAGE_RELEASE 1 CACHE STRING "Debian's part of the version; it names the release of Debian")
set(EWARP_PACKAGE_VERSION ${PROJECT_VERSION}-${EWARP_PACKAGE_RELEASE})
set(EWARP_MAINTAINER "The EtherWARP authors <dev@etherwarp.invalid>")
string(TIMESTAMP EWARP_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, where that is set

# What Debian asks of every package: a copyright file, a change log, manual pages compressed.
set(package ${CMAKE_CURRENT_BINARY_DIR}/package)
find_program(EWARP_GZIP gzip REQUIRED)
function(ewarp_compressed from to)
  execute_process(COMMAND ${EWARP_GZIP} -9nc ${from} OUTPUT_FILE ${to} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
configure_file(${CMAKE_CURRENT_LIST_DIR}/package/changelog.in ${package}/changelog @ONLY)
ewarp_compressed(${package}/changelog ${package}/changelog.Debian.gz)
ewarp_compressed(${PROJECT_SOURCE_DIR}/docs/user/etherwarp.1 ${package}/etherwarp.1.gz)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/user/etherwarp.1)
install(FILES ${package}/etherwarp.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/package/copyright ${package}/changelog.Debian.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/etherwarp COMPONENT runtime)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/package/copyright ${package}/changelog.Debian.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libetherwarp-dev COMPONENT development)

set(CPACK_GENERATOR DEB)
set(CPACK_SET_DESTDIR ON)  # the driver file lies in /etc, and names the provider where it will be
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PACKAGE_CONTACT ${EWARP_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${EWARP_PACKAGE_RELEASE})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SOURCE etherwarp)

# dpkg-shlibdeps finds the packages of the libraries. Of ours only the libfabric provider is linked with libibverbs and
# librdmacm; without it they are named here, because programs find EtherWARP through them.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME etherwarp)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION net)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "ibverbs-utils, rdmacm-utils, perftest, openmpi-bin")
if(NOT TARGET etherwarp-fi)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libibverbs1 (>= 36.0), librdmacm1 (>= 36.0)")
endif()
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION [[
RDMA without RDMA hardware: run verbs programs over Ethernet
EtherWARP is an RDMA device in user space. Unmodified programs that use
libibverbs, librdmacm or rsockets find a device for each network interface,
without a kernel module, a daemon or privileges. It speaks iWARP over TCP
sockets; datagrams go over UDP.

This package has the command `etherwarp`, which runs programs over EtherWARP
and shows what they do, the preload library, the provider for libibverbs, the
provider for libfabric (MPI programs, by `etherwarp mpirun`), and the library
of EtherWARP's own verbs, libetherwarpdv.]])

# conffiles: the driver file goes when the package is purged. shlibs, triggers: of libetherwarpdv.so.1.
configure_file(${CMAKE_CURRENT_LIST_DIR}/package/shlibs.in ${package}/shlibs @ONLY)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/package/conffiles
    ${CMAKE_CURRENT_LIST_DIR}/package/triggers ${package}/shlibs)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libetherwarp-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "etherwarp (= ${EWARP_PACKAGE_VERSION}), libibverbs-dev, librdmacm-dev")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION [[
RDMA without RDMA hardware: headers and libraries for programs
EtherWARP is an RDMA device in user space, for programs that use libibverbs,
librdmacm, libfabric or MPI. They need nothing of this package.

This package is for programs that use more: EtherWARP's own verbs for reliable
datagrams (etherwarpdv) and its message channel (C++20, a static library).
Examples are in /usr/share/doc/libetherwarp-dev/examples.]])
include(CPack)
