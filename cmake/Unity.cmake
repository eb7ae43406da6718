# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# EWARP_UNITY: the files of a library are compiled twelve at a time, as if they were one. A build from nothing then reads
# the headers once for twelve files, in half the time; one after a change of a single file takes longer. All presets have it
# but debug, in which one changes files.
option(EWARP_UNITY "Compile the product's files twelve at a time: sooner from nothing, later after a change" OFF)

# Each compiled by itself: a name of its own is another file's, too, a test puts it in the place of the library's, or it
# includes Linux's <linux/tcp.h> where others include <netinet/tcp.h>.
set(EWARP_SEPARATE_FILES
  llp/local_stream.cc llp/tcp.cc llp/watcher_uring.cc mpa/startup_frame.cc rdmap/datagram/respond.cc
  provider/cli/counter_names.cc provider/cli/doctor.cc provider/cli/main.cc provider/verbs/rd/send_queue.cc
  mpi_shim/channel/verbs/device.cc)
# Nearly all files of the libfabric provider have a table of calls of the same name.
set(EWARP_SEPARATE_TARGETS etherwarp-fi)

# ewarp_unity(directories...): for all targets in the directories and below.
function(ewarp_unity)
  ewarp_targets(targets ${ARGN})
  list(REMOVE_ITEM targets ${EWARP_SEPARATE_TARGETS})
  set_target_properties(${targets} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  list(TRANSFORM EWARP_SEPARATE_FILES PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE separate)
  set_source_files_properties(${separate} TARGET_DIRECTORY ${targets} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
