# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# EWARP_UNITY: the files of a library are compiled twelve at a time, as if they were one. A build from nothing then reads
# the headers once for twelve files; one after a change of a single file takes longer. So the presets of the sanitizers and
# of the asserts have it, which CI builds from nothing, and release does not.
option(EWARP_UNITY "Compile the product's files twelve at a time: sooner from nothing, later after a change" OFF)

# Each compiled by itself: a name of its own is another file's, too, a test puts it in the place of the library's, or it
# includes Linux's <linux/tcp.h> where others include <netinet/tcp.h>.
set(EWARP_SEPARATE_FILES
  llp/local_stream.cc llp/tcp.cc llp/watcher_uring.cc mpa/startup_frame.cc rdmap/datagram/respond.cc
  provider/cli/counter_names.cc provider/cli/doctor.cc provider/cli/main.cc provider/verbs/rd/send_queue.cc
  mpi_shim/channel/verbs/device.cc mpi_shim/acp/job/place.cc mpi_shim/acp/verbs/rc_address.cc
  mpi_shim/acp/verbs/rc_connect.cc mpi_shim/acp/verbs/rd_transport.cc)
# Nearly all files of the libfabric provider have a table of calls of the same name.
set(EWARP_SEPARATE_TARGETS etherwarp-fi)

# ewarp_unity(IN directories...): for all targets in the directories and below.
function(ewarp_unity)
  cmake_parse_arguments(U "" "" "IN" ${ARGN})
  foreach(directory ${U_IN})
    get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      if(NOT type MATCHES "LIBRARY|EXECUTABLE" OR type STREQUAL INTERFACE_LIBRARY OR target IN_LIST EWARP_SEPARATE_TARGETS)
        continue()
      endif()
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
      foreach(file ${EWARP_SEPARATE_FILES})
        set_source_files_properties(${PROJECT_SOURCE_DIR}/${file} TARGET_DIRECTORY ${target} PROPERTIES
                                    SKIP_UNITY_BUILD_INCLUSION ON)
      endforeach()
    endforeach()
    get_property(below DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
    if(below)
      ewarp_unity(IN ${below})
    endif()
  endforeach()
endfunction()
