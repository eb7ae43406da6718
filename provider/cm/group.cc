// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Multicast groups of an id. On IP nothing has to be arranged with anybody: the event comes at once.
#include <algorithm>
#include <cerrno>

#include "provider/cm/datagram.h"
#include "provider/verbs/device/device.h"

namespace ewarp::cm {

int join(const IdRef& id, std::uint64_t uid, const Address& address, std::uint32_t* number) {
  const std::lock_guard serial(id->command_mutex);
  if (!id->is_datagram() || !address.is_multicast()) return EINVAL;
  Address local;
  verbs::Device* device;
  {
    const Lock lock;
    if (id->state != State::bound && id->state != State::address_resolved && id->state != State::route_resolved)
      return EINVAL;
    local = id->local;
    device = id->device;
  }
  if (device == nullptr && !local.is_any()) device = verbs::device_of(*local.get());
  if (device == nullptr || local.family() != address.family()) return EINVAL;
  const std::uint8_t index = gid_index_of(*device, local);

  const Lock lock;
  if (id->state == State::destroyed) return EINVAL;
  Manager& m = manager();
  auto group = std::make_shared<Group>();
  group->number = m.next_group++;
  group->uid = uid;
  group->id = id;
  m.groups[group->number] = group;
  Event event;
  event.owner = id;
  event.group = group;
  event.body.uid = uid;
  event.body.id = group->number;
  event.body.event = static_cast<std::uint32_t>(EventType::multicast_join);
  event.body.param.ud = ud_param(address.gid(), index, id->options.tos.value_or(0), llp::kMulticastQpn, kUdpQkey, {});
  id->file->post(std::move(event));
  *number = group->number;
  return 0;
}

int leave(const FileRef& file, std::uint32_t number, std::uint32_t* events_reported) {
  const Lock lock;
  Manager& m = manager();
  const auto found = m.groups.find(number);
  if (found == m.groups.end()) return ENOENT;
  const auto group = found->second;
  const IdRef id = group->id.lock();
  if (id == nullptr || id->file != file) return EINVAL;
  m.groups.erase(found);
  file->take_events_if([&](const Event& e) { return e.group == group; });
  *events_reported = group->events_reported;
  return 0;
}

void leave_all(const Lock&, const Id& id) {
  std::erase_if(manager().groups, [&](const auto& entry) { return entry.second->id.lock().get() == &id; });
}

}  // namespace ewarp::cm
