// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Options of ACP programs: environment variables ACP_NAME (docs/user/acp.md).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mpi_shim/acp/core/wire.h"
#include "mpi_shim/acp/verbs/transport.h"
#include "provider/base/option_table.h"

namespace ewarp::acp {

struct Options {
  std::uint32_t slot_size = 65536;  // octets
  std::uint32_t sb_slots = 2;
  std::uint32_t rb_slots = 8;
  Mode mode = Mode::immediate;
  bool progress_thread = false;
  std::uint32_t starter_size = 4096;  // octets
  TransportKind transport = TransportKind::automatic;
  std::string device;         // empty: chosen
  std::int32_t spin_us = -1;  // -1: chosen
};

std::span<const OptionDoc> option_docs();
std::string option_variable(std::string_view name);

struct OptionsRead {
  Options options;
  std::vector<std::string> problems;  // one line each; the default stands
};
OptionsRead read_options(std::span<const char* const> environment);
// Of this process. Problems are said on stderr.
Options options_from_environment();

}  // namespace ewarp::acp
