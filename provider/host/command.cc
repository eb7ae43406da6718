// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/host/command.h"

#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <span>

#include "llp/fd.h"
#include "provider/host/fds.h"

namespace ewarp::host {
namespace {

using Attributes = std::span<ib_uverbs_attr>;

// As the kernel: what it does not know it passes over, unless the library insists on it.
bool knows(Attributes attributes, std::initializer_list<std::uint16_t> known) {
  return std::all_of(attributes.begin(), attributes.end(), [&](const ib_uverbs_attr& a) {
    return (a.flags & UVERBS_ATTR_F_MANDATORY) == 0 || std::find(known.begin(), known.end(), a.attr_id) != known.end();
  });
}

ib_uverbs_attr* find(Attributes attributes, std::uint16_t id) {
  const auto found = std::find_if(attributes.begin(), attributes.end(), [&](auto& a) { return a.attr_id == id; });
  return found == attributes.end() ? nullptr : &*found;
}

// Attributes of up to 8 octets are in the attribute itself.
bool read_number(Attributes attributes, std::uint16_t id, std::uint64_t* out) {
  const ib_uverbs_attr* a = find(attributes, id);
  if (a == nullptr || a->len > sizeof *out) return false;
  *out = 0;
  std::memcpy(out, &a->data, a->len);
  return true;
}

void* target(const ib_uverbs_attr& a) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(a.data));
}

// False: no such attribute, or it is too short.
bool write_result(Attributes attributes, std::uint16_t id, const void* from, std::size_t size) {
  ib_uverbs_attr* a = find(attributes, id);
  if (a == nullptr || a->len < size) return false;
  std::memcpy(target(*a), from, size);
  a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
  return true;
}

int create_comp_channel(Attributes attributes) {
  int fd = -1, error = 0;
  const auto channel = open_event_channel(sizeof(ib_uverbs_comp_event_desc), &fd, &error);
  if (!channel) return -error;
  const ib_uverbs_create_comp_channel_resp response{static_cast<std::uint32_t>(fd)};
  if (write_result(attributes, UVERBS_ATTR_CORE_OUT, &response, sizeof response)) return 0;
  fds().remove(fd);
  raw_close(fd);
  return -EINVAL;
}

int invoke_write(Attributes attributes) {
  if (!knows(attributes, {UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_WRITE_CMD, UVERBS_ATTR_UHW_IN,
                          UVERBS_ATTR_UHW_OUT}))
    return -EPROTONOSUPPORT;
  std::uint64_t command;
  if (!read_number(attributes, UVERBS_ATTR_WRITE_CMD, &command)) return -EINVAL;
  if (command == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) return create_comp_channel(attributes);
  // libibverbs asks with this one, and without room for the answer, whether commands may come by ioctl: an interface
  // that knew it would say so.
  if (command == IB_USER_VERBS_CMD_QUERY_DEVICE && find(attributes, UVERBS_ATTR_CORE_OUT) == nullptr) return -ENOSPC;
  return -EPROTONOSUPPORT;
}

ibv_gid_entry gid_entry(const verbs::Device& device, const ibv_gid& gid, std::uint32_t index) {
  ibv_gid_entry entry{};
  entry.gid = gid;
  entry.gid_index = index;
  entry.port_num = 1;
  // What it is to programs that send datagrams: libibverbs looks for one of this type when it makes an address of a
  // received IP header.
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = device.interface_index();
  return entry;
}

int query_gid_entry(const verbs::Device& device, Attributes attributes) {
  if (!knows(attributes, {UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX,
                          UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY}))
    return -EPROTONOSUPPORT;
  std::uint64_t port, index, flags = 0;
  if (!read_number(attributes, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, &port) ||
      !read_number(attributes, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, &index))
    return -EINVAL;
  read_number(attributes, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, &flags);
  const auto gids = device.gids();
  if (flags != 0 || port != 1 || index >= gids.size()) return -EINVAL;
  const ibv_gid_entry entry = gid_entry(device, gids[index], static_cast<std::uint32_t>(index));
  const ib_uverbs_attr* out = find(attributes, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY);
  if (out == nullptr) return -EINVAL;
  // A library with a smaller entry gets the front of it.
  const std::size_t size = std::min<std::size_t>(sizeof entry, out->len);
  return write_result(attributes, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry, size) ? 0 : -EINVAL;
}

int query_gid_table(const verbs::Device& device, Attributes attributes) {
  if (!knows(attributes, {UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS,
                          UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES}))
    return -EPROTONOSUPPORT;
  std::uint64_t entry_size, flags = 0;
  if (!read_number(attributes, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, &entry_size)) return -EINVAL;
  read_number(attributes, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, &flags);
  ib_uverbs_attr* out = find(attributes, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  const auto gids = device.gids();
  if (out == nullptr || flags != 0 || entry_size == 0 || out->len / entry_size < gids.size()) return -EINVAL;
  for (std::size_t i = 0; i < gids.size(); ++i) {
    const ibv_gid_entry entry = gid_entry(device, gids[i], static_cast<std::uint32_t>(i));
    auto* to = static_cast<std::byte*>(target(*out)) + i * entry_size;
    std::memset(to, 0, entry_size);
    std::memcpy(to, &entry, std::min<std::size_t>(sizeof entry, entry_size));
  }
  out->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
  const std::uint64_t count = gids.size();
  return write_result(attributes, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count, sizeof count) ? 0 : -EINVAL;
}

}  // namespace

int open_command(verbs::Device& device) {
  auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC));
  // A root directory without /dev: any fd will do, as nothing is read from it or written to it.
  if (fd < 0 && errno != EMFILE && errno != ENFILE) fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return -errno;
  fd = llp::high_fd(fd);
  OpenFile file;
  file.kind = ETHERWARP_FD_COMMAND;
  file.device = &device;
  if (const int error = fds().add(fd, std::move(file)); error != 0) {
    raw_close(fd);
    return -error;
  }
  return fd;
}

int command_ioctl(verbs::Device& device, unsigned long request, void* argument) {
  if (request != RDMA_VERBS_IOCTL) return -ENOTTY;
  auto* header = static_cast<ib_uverbs_ioctl_hdr*>(argument);
  if (header == nullptr) return -EFAULT;
  if (header->length != sizeof *header + header->num_attrs * sizeof(ib_uverbs_attr)) return -EINVAL;
  const Attributes attributes(header->attrs, header->num_attrs);
  if (header->object_id != UVERBS_OBJECT_DEVICE) return -EPROTONOSUPPORT;
  switch (header->method_id) {
    case UVERBS_METHOD_INVOKE_WRITE:
      return invoke_write(attributes);
    case UVERBS_METHOD_QUERY_GID_ENTRY:
      return query_gid_entry(device, attributes);
    case UVERBS_METHOD_QUERY_GID_TABLE:
      return query_gid_table(device, attributes);
    default:
      return -EPROTONOSUPPORT;
  }
}

}  // namespace ewarp::host
