// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Directories of our sysfs on disk, for programs that list them: a tree in a private directory, which processes with
// the same content share.
#pragma once

#include <map>
#include <string>

namespace ewarp::host::sysfs {

using Files = std::map<std::string, std::string>;  // by absolute path

// The root of a tree with these files and symbolic links, which this process and its forked children keep until it asks
// for another one. Trees that no process keeps any more are removed. Empty if none can be made: no place in
// $ETHERWARP_RUNDIR, /dev/shm or /tmp. Threading: any thread.
std::string tree_with(const Files& files, const Files& links);

// A descriptor of a directory in this tree, or a negative errno. The tree stays until the descriptor, and what was
// duplicated of it, is closed, even when the process asks for another one. -EAGAIN: it has done so meanwhile.
// Threading: any thread.
int open_in_tree(const std::string& root, const std::string& directory, int flags);

}  // namespace ewarp::host::sysfs
