// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The sysfs of our devices, for those who read it: libibverbs (P_Keys; discovery where netlink is forbidden), UCX, Open
// MPI. Files are made when they are opened; directories come from a tree in a private directory, made when one is
// listed.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <string_view>

namespace ewarp::host::sysfs {

enum class Kind { not_ours, file, directory, absent };

// What this absolute path is. file: *text is its content now.
Kind look_up(std::string_view path, std::string* text);

// An fd of the generated directory, which lists the kernel's devices too, or -errno.
int open_directory(std::string_view path, int flags);

// Every file of ours, by path.
std::map<std::string, std::string> snapshot();

}  // namespace ewarp::host::sysfs
