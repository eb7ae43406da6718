// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "mpi_shim/gravel/core/types.h"

namespace ewarp::gravel {

// What an error means; of a number that is none, too.
const char* text(Error error);

}  // namespace ewarp::gravel
