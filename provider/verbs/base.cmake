# What the provider and the command-line tool share: no verbs, no sockets.
add_library(ewarp_base STATIC
  ${CMAKE_CURRENT_LIST_DIR}/options.cc
  ${CMAKE_CURRENT_LIST_DIR}/log.cc
  ${CMAKE_CURRENT_LIST_DIR}/stats.cc)
target_link_libraries(ewarp_base PUBLIC ewarp_options fmt::fmt Threads::Threads)
