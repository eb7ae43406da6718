// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whose an id is on a machine that has a kernel's rdma_cm as well (kernel.h).
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "provider/base/log.h"
#include "provider/cm/id.h"
#include "provider/verbs/device/device.h"

namespace ewarp::cm {
namespace {

// Where a command's body names the id; -1: nowhere, or in a name space of its own (a multicast's).
int id_offset(std::uint32_t command) {
  switch (command) {
    case RDMA_USER_CM_CMD_DESTROY_ID:
      return offsetof(rdma_ucm_destroy_id, id);
    case RDMA_USER_CM_CMD_BIND_IP:
      return offsetof(rdma_ucm_bind_ip, id);
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return offsetof(rdma_ucm_resolve_ip, id);
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return offsetof(rdma_ucm_resolve_route, id);
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_QUERY:
      return offsetof(rdma_ucm_query, id);
    case RDMA_USER_CM_CMD_CONNECT:
      return offsetof(rdma_ucm_connect, id);
    case RDMA_USER_CM_CMD_LISTEN:
      return offsetof(rdma_ucm_listen, id);
    case RDMA_USER_CM_CMD_ACCEPT:
      return offsetof(rdma_ucm_accept, id);
    case RDMA_USER_CM_CMD_REJECT:
      return offsetof(rdma_ucm_reject, id);
    case RDMA_USER_CM_CMD_DISCONNECT:
      return offsetof(rdma_ucm_disconnect, id);
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return offsetof(rdma_ucm_init_qp_attr, id);
    case RDMA_USER_CM_CMD_SET_OPTION:
      return offsetof(rdma_ucm_set_option, id);
    case RDMA_USER_CM_CMD_NOTIFY:
      return offsetof(rdma_ucm_notify, id);
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
      return offsetof(rdma_ucm_join_ip_mcast, id);
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      return offsetof(rdma_ucm_join_mcast, id);
    case RDMA_USER_CM_CMD_BIND:
      return offsetof(rdma_ucm_bind, id);
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
      return offsetof(rdma_ucm_resolve_addr, id);
    default:
      return -1;
  }
}

// The address that decides: a local one to bind to, a destination to resolve. family() is 0 for what is not IP.
Address deciding_address(const WrittenCommand& command) {
  std::size_t offset = 0, size = sizeof(sockaddr_in6);
  switch (command.number) {
    case RDMA_USER_CM_CMD_BIND_IP:
      offset = offsetof(rdma_ucm_bind_ip, addr);
      break;
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      offset = offsetof(rdma_ucm_resolve_ip, dst_addr);
      break;
    case RDMA_USER_CM_CMD_BIND:
      offset = offsetof(rdma_ucm_bind, addr);
      size = sizeof(rdma_ucm_bind::addr);
      break;
    default:
      offset = offsetof(rdma_ucm_resolve_addr, dst_addr);
      size = sizeof(rdma_ucm_resolve_addr::dst_addr);
      break;
  }
  return command.body.size() < offset + size ? Address() : Address::from(command.body.data() + offset, size);
}

template <class T>
int tell(const KernelChannel& kernel, std::uint32_t command, const T& body) {
  struct {
    rdma_ucm_cmd_hdr header;
    T body;
  } packet{{command, sizeof(T), 0}, body};
  return kernel.write(&packet, offsetof(decltype(packet), body) + sizeof(T));
}

int forward(const File& file, const WrittenCommand& command) {
  return file.kernel()->write(command.whole.data(), command.whole.size());
}

int bind_in_kernel(const Id& id) {
  rdma_ucm_bind_ip bind{};
  std::memcpy(&bind.addr, id.local.get(), id.local.size());
  bind.id = id.number;
  return tell(*id.file->kernel(), RDMA_USER_CM_CMD_BIND_IP, bind);
}

int settle(const IdRef& id, Claim claim, int error) {
  if (error == 0) {
    id->claim = claim;
    log::debug("cm: id {} belongs to {}", id->number, claim == Claim::kernel ? "the kernel's rdma_cm" : "us");
  }
  return error;
}

// A local address that was bound here already goes along.
int settle_in_kernel(const IdRef& id, const WrittenCommand& command) {
  {
    const Lock lock;
    if (id->state == State::bound) {
      id->socket.close();
      if (const int error = bind_in_kernel(*id); error != 0) return error;
    }
  }
  return settle(id, Claim::kernel, forward(*id->file, command));
}

// Listening on the unspecified address: on the kernel's devices too, where it can. (Its iWARP devices cannot: the port
// is ours already.)
int listen_in_both(const IdRef& id, const rdma_ucm_listen& command, const std::function<int()>& here) {
  if (const int error = here(); error != 0) return error;
  int error = bind_in_kernel(*id);
  if (error == 0) error = tell(*id->file->kernel(), RDMA_USER_CM_CMD_LISTEN, command);
  if (error != 0) log::info("the kernel's rdma_cm does not listen at {}: {}", id->local.text(), std::strerror(error));
  return settle(id, error == 0 ? Claim::both : Claim::ours, 0);
}

int decide(const IdRef& id, const WrittenCommand& command, const std::function<int()>& here) {
  switch (command.number) {
    case RDMA_USER_CM_CMD_BIND_IP:
    case RDMA_USER_CM_CMD_BIND: {
      const Address address = deciding_address(command);
      if (address.family() != 0 && address.is_any()) return here();
      const bool ours = address.family() != 0 && verbs::device_of(*address.get()) != nullptr;
      return ours ? settle(id, Claim::ours, here()) : settle_in_kernel(id, command);
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP:
    case RDMA_USER_CM_CMD_RESOLVE_ADDR: {
      const Address destination = deciding_address(command);
      const bool ours = destination.family() != 0 && reachable(id, destination);
      return ours ? settle(id, Claim::ours, here()) : settle_in_kernel(id, command);
    }
    case RDMA_USER_CM_CMD_LISTEN: {
      rdma_ucm_listen listen;
      if (command.body.size() < sizeof(listen)) return here();
      std::memcpy(&listen, command.body.data(), sizeof(listen));
      return listen_in_both(id, listen, here);
    }
    case RDMA_USER_CM_CMD_SET_OPTION:
      forward(*id->file, command);  // as far as it goes: whoever gets the id has the option
      return here();
    default:
      return here();
  }
}

}  // namespace

int run_beside_kernel(const FileRef& file, const WrittenCommand& command, const std::function<int()>& here) {
  if (command.number == RDMA_USER_CM_CMD_LEAVE_MCAST) return here() == 0 ? 0 : forward(*file, command);
  if (command.number > RDMA_USER_CM_CMD_JOIN_MCAST) return forward(*file, command);
  const int offset = id_offset(command.number);
  std::uint32_t number;
  if (offset < 0 || command.body.size() < static_cast<std::size_t>(offset) + sizeof(number)) return here();
  std::memcpy(&number, command.body.data() + offset, sizeof(number));
  IdRef id;
  int found;
  {
    const Lock lock;
    found = find_id(lock, file, number, &id);
  }
  if (found == ENOENT) return forward(*file, command);  // one that a kernel's listener made, or none at all
  if (found != 0 || command.number == RDMA_USER_CM_CMD_DESTROY_ID) return here();
  switch (id->claim) {
    case Claim::kernel:
      return forward(*file, command);
    case Claim::undecided:
      return decide(id, command, here);
    default:
      return here();
  }
}

}  // namespace ewarp::cm
