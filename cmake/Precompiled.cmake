# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Two thirds of a compilation go into reading the standard library's headers. Here they are read once for all files that are
# compiled with the same flags. Not beside ccache, which saves more, and does not keep what was compiled with them.
# scripts/lint compiles each file without them, so that a missing #include shows.
set(EWARP_PRECOMPILED OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(EWARP_PRECOMPILED ON)
endif()

# ewarp_precompiled(owner [OBJECT]): makes the target that the headers belong to: an executable, or a library of objects.
function(ewarp_precompiled owner)
  set(source ${PROJECT_BINARY_DIR}/generated/${owner}.cc)
  if(ARGN)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(${owner} OBJECT ${source})
  else()
    file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
    add_executable(${owner} ${source})
  endif()
  list(TRANSFORM EWARP_PRECOMPILED_HEADERS REPLACE "(.+)" "<\\1>" OUTPUT_VARIABLE headers)
  target_precompile_headers(${owner} PRIVATE ${headers})
endfunction()
set(EWARP_PRECOMPILED_HEADERS algorithm array atomic bit chrono cstring deque functional map memory optional span string
    string_view system_error thread unordered_map utility vector)

# ewarp_precompile(owner TYPES types... IN directories...): gives them to all targets of these types, as in the property TYPE,
# in the directories and below. Those that have a source in C stay without.
function(ewarp_precompile owner)
  cmake_parse_arguments(P "" "" "TYPES;IN" ${ARGN})
  ewarp_targets(targets ${P_IN})
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    if(type IN_LIST P_TYPES AND NOT sources MATCHES "\\.c(;|$)")
      target_precompile_headers(${target} REUSE_FROM ${owner})
      # g++ 12 warns wrongly of std::string's own code (GCC bug 105651), and keeps that to itself where a header of the
      # system says it, which a precompiled one is not. So a warning is no error here: a build with ccache holds to that.
      target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
                             -Wno-stringop-overread -Wno-error)
    endif()
  endforeach()
endfunction()
