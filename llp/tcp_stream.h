// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// TCP as an llp::Stream.
#pragma once

#include <memory>

#include "llp/local_agreement.h"
#include "llp/stream.h"

namespace ewarp::llp {

// Takes the fd of a connected stream socket, also where it throws (std::bad_alloc). TCP's, or, in tests, another kind.
std::unique_ptr<Stream> tcp_stream(int fd, std::unique_ptr<LocalAgreement> agreement = nullptr);

}  // namespace ewarp::llp
