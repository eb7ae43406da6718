// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Multicast groups: which UD queue pairs receive what is sent to a group (ibv_attach_mcast()).
#pragma once

#include <infiniband/verbs.h>

namespace ewarp::verbs {

class UdQueuePair;
class QueuePair;

// 0, EINVAL (no UD QP, no multicast GID), or why the group could not be joined: ENOBUFS (too many groups), ENODEV.
// Attaching again changes nothing.
int attach_group(QueuePair& qp, const ibv_gid& group);
// 0 or EINVAL (not attached).
int detach_group(QueuePair& qp, const ibv_gid& group);
bool has_groups(QueuePair& qp);

// The QP goes away. Engine held.
void leave_groups(UdQueuePair& qp);
void forget_groups_in_child();

}  // namespace ewarp::verbs
