// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/watched.h"

#include <cassert>
#include <utility>

#include "mpi_shim/ofi/completion_queue.h"
#include "mpi_shim/ofi/counter.h"
#include "mpi_shim/ofi/event_queue.h"
#include "mpi_shim/ofi/fid.h"

namespace ewarp::ofi {

bool Watched::is_possible(const fid& object) {
  return object.fclass == FI_CLASS_CQ || object.fclass == FI_CLASS_CNTR || object.fclass == FI_CLASS_EQ;
}

void Watched::progress() {
  assert(is_possible(*object_));
  if (object_->fclass == FI_CLASS_CQ) object<CompletionQueue, fid_cq>(object_).sources.poll();
  if (object_->fclass == FI_CLASS_CNTR) object<Counter, fid_cntr>(object_).sources.poll();
}

bool Watched::has_news() {
  assert(is_possible(*object_));
  if (object_->fclass == FI_CLASS_CQ) return object<CompletionQueue, fid_cq>(object_).has_some();
  if (object_->fclass == FI_CLASS_EQ) return object<EventQueue, fid_eq>(object_).has_some();
  const std::uint64_t now = object<Counter, fid_cntr>(object_).counted();
  return std::exchange(counted_, now) != now;
}

bool Watched::prepare_to_sleep() {
  assert(is_possible(*object_));
  if (object_->fclass == FI_CLASS_CQ) return object<CompletionQueue, fid_cq>(object_).prepare_to_sleep();
  if (object_->fclass == FI_CLASS_EQ) return object<EventQueue, fid_eq>(object_).prepare_to_sleep();
  return object<Counter, fid_cntr>(object_).prepare_to_sleep();
}

}  // namespace ewarp::ofi
