// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The channel's options as environment variables: EWARP_CHANNEL_ and the name in capitals.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mpi_shim/channel/channel.h"
#include "provider/base/option_table.h"

namespace ewarp::channel {

// One for each field of EndpointOptions, but for the device, and of Tuning.
std::span<const OptionDoc> option_docs();
// "EWARP_CHANNEL_COPY_LIMIT" for "copy_limit".
std::string option_variable(std::string_view name);

// Nothing is printed. problems: unknown names and bad values, one line each; they change nothing.
struct OptionsRead {
  EndpointOptions options;
  std::vector<std::string> problems;
};
// environment: strings NAME=value, the last may be a null pointer.
OptionsRead read_options(std::span<const char* const> environment, const EndpointOptions& defaults = {});
// The environment of this process; nothing is read in a set-user-ID program.
OptionsRead read_options(const EndpointOptions& defaults = {});

}  // namespace ewarp::channel
