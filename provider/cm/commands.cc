// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Decodes ucma commands and calls what they ask for. Lengths and return values as the kernel's ucma_write().
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "provider/base/log.h"
#include "provider/cm/cm.h"
#include "provider/cm/datagram.h"
#include "provider/cm/id.h"
#include "provider/engine/shortage.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::cm {
namespace {

constexpr std::size_t kLargest = 512;  // no command has more octets after its header

struct Command {
  FileRef file;
  Octets whole;         // with its header, in the consumer's memory
  std::size_t in = 0;   // octets in body
  std::size_t out = 0;  // room at the response address
  alignas(8) std::byte body[kLargest] = {};

  // False: too short. `needed` octets must be there; later members of T are then zero.
  template <class T>
  bool read(T* to, std::size_t needed = sizeof(T)) const {
    static_assert(sizeof(T) <= kLargest);
    if (in < needed) return false;
    std::memcpy(to, body, sizeof(T));
    return true;
  }
};

int with_id(const Command& c, std::uint32_t number, IdRef* id) {
  const Lock lock;
  return find_id(lock, c.file, number, id);
}

// Reads a T, finds the id that its member `id` names, calls body(command, id).
template <class T, class Body>
int on_id(const Command& c, Body body, std::size_t needed = sizeof(T)) {
  T command;
  if (!c.read(&command, needed)) return EINVAL;
  IdRef id;
  if (const int error = with_id(c, command.id, &id); error != 0) return error;
  return body(command, id);
}

int create_id(const Command& c) {
  rdma_ucm_create_id command;
  if (c.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  if (!c.read(&command)) return EINVAL;
  std::uint8_t qp_type;
  switch (command.ps) {
    case RDMA_PS_TCP:
      qp_type = IBV_QPT_RC;
      break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      qp_type = IBV_QPT_UD;
      break;
    case RDMA_PS_IB:
      qp_type = command.qp_type;
      break;
    default:
      return EINVAL;
  }
  const Lock lock;
  if (!c.file->open) return EBADF;
  IdRef id;
  if (const int error = new_id(lock, c.file, command.uid, command.ps, qp_type, &id); error != 0) return error;
  if (c.file->kernel() != nullptr) id->claim = Claim::undecided;
  const rdma_ucm_create_id_resp response{id->number};
  const int error = copy_out(command.response, &response, sizeof(response), c.out);
  if (error != 0) {
    destroy(lock, id);
    forget_in_kernel(*id);
  }
  return error;
}

int destroy_id(const Command& c) {
  const verbs::shortage::Scope patience;  // an id that is half gone cannot be destroyed again
  if (c.out < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  return on_id<rdma_ucm_destroy_id>(c, [&](const rdma_ucm_destroy_id& command, const IdRef& id) {
    const std::lock_guard serial(id->command_mutex);
    rdma_ucm_destroy_id_resp response{};
    std::shared_ptr<verbs::QueuePair> stream;
    {
      const Lock lock;
      if (id->state == State::destroyed) return ENOENT;
      stream = destroy(lock, id);
      response.events_reported = id->events_reported;
    }
    end_stream(id, stream, false);
    response.events_reported += forget_in_kernel(*id);
    return copy_out(command.response, &response, sizeof(response), c.out);
  });
}

// The family that an address claims, for errors: IPv4 and IPv6 are ours.
int check_address(const Address& address, const void* raw) {
  if (address.family() != 0) return 0;
  sa_family_t claimed;
  std::memcpy(&claimed, raw, sizeof(claimed));
  // AF_IB is what librdmacm probes with: refused, it keeps to the *_IP commands.
  return claimed == 0 || claimed == AF_INET || claimed == AF_INET6 ? EINVAL : EAFNOSUPPORT;
}

int bind_to(const IdRef& id, const void* raw, std::size_t size) {
  const Address address = Address::from(raw, size);
  if (const int error = check_address(address, raw); error != 0) return error;
  return bind(id, address);
}

int resolve(const IdRef& id, const void* source, std::size_t source_size, const void* to, std::size_t to_size) {
  const Address destination = Address::from(to, to_size);
  if (const int error = check_address(destination, to); error != 0) return error;
  Address from;
  sa_family_t claimed = 0;
  if (source_size >= sizeof(claimed)) std::memcpy(&claimed, source, sizeof(claimed));
  if (claimed != 0) {
    from = Address::from(source, source_size);
    if (const int error = check_address(from, source); error != 0) return error;
  }
  return resolve_address(id, from, destination);
}

int bind_ip_command(const Command& c) {
  return on_id<rdma_ucm_bind_ip>(c, [](const rdma_ucm_bind_ip& command, const IdRef& id) {
    return bind_to(id, &command.addr, sizeof(command.addr));
  });
}

int bind_command(const Command& c) {
  return on_id<rdma_ucm_bind>(c, [](const rdma_ucm_bind& command, const IdRef& id) {
    if (command.reserved != 0 || command.addr_size == 0 || command.addr_size > sizeof(command.addr)) return EINVAL;
    return bind_to(id, &command.addr, command.addr_size);
  });
}

int resolve_ip_command(const Command& c) {
  return on_id<rdma_ucm_resolve_ip>(c, [](const rdma_ucm_resolve_ip& command, const IdRef& id) {
    return resolve(id, &command.src_addr, sizeof(command.src_addr), &command.dst_addr, sizeof(command.dst_addr));
  });
}

int resolve_addr_command(const Command& c) {
  return on_id<rdma_ucm_resolve_addr>(c, [](const rdma_ucm_resolve_addr& command, const IdRef& id) {
    if (command.reserved != 0 || command.src_size > sizeof(command.src_addr)) return EINVAL;
    if (command.dst_size == 0 || command.dst_size > sizeof(command.dst_addr)) return EINVAL;
    return resolve(id, &command.src_addr, command.src_size, &command.dst_addr, command.dst_size);
  });
}

int resolve_route_command(const Command& c) {
  return on_id<rdma_ucm_resolve_route>(
      c, [](const rdma_ucm_resolve_route&, const IdRef& id) { return resolve_route(id); });
}

// The kernel's QUERY_ROUTE takes commands without `option`, of old libraries.
int query_route_command(const Command& c) {
  return on_id<rdma_ucm_query>(
      c, [&](const rdma_ucm_query& command, const IdRef& id) { return query_route(id, command.response, c.out); },
      offsetof(rdma_ucm_query, option));
}

int query_command(const Command& c) {
  return on_id<rdma_ucm_query>(c, [&](const rdma_ucm_query& command, const IdRef& id) {
    return query(id, command.option, command.response, c.out);
  });
}

int connect_command(const Command& c) {
  // Libraries before the ece member send less.
  return on_id<rdma_ucm_connect>(
      c, [](const rdma_ucm_connect& command, const IdRef& id) { return connect(id, command.conn_param); },
      offsetof(rdma_ucm_connect, ece));
}

int listen_command(const Command& c) {
  return on_id<rdma_ucm_listen>(
      c, [](const rdma_ucm_listen& command, const IdRef& id) { return listen(id, command.backlog); });
}

int accept_command(const Command& c) {
  return on_id<rdma_ucm_accept>(
      c,
      [](const rdma_ucm_accept& command, const IdRef& id) {
        // Not valid: the active side's RTU, which iWARP does not have.
        if (command.conn_param.valid == 0) return EINVAL;
        return accept(id, command.uid, command.conn_param);
      },
      offsetof(rdma_ucm_accept, ece));
}

int reject_command(const Command& c) {
  return on_id<rdma_ucm_reject>(c, [](const rdma_ucm_reject& command, const IdRef& id) {
    // Consumer defined (also when 0) or vendor option not supported, IBTA's 28 and 35. MPA carries no reason.
    if (command.reason != 0 && command.reason != 28 && command.reason != 35) return EINVAL;
    return reject(id, std::as_bytes(std::span(command.private_data)).first(command.private_data_len));
  });
}

int disconnect_command(const Command& c) {
  return on_id<rdma_ucm_disconnect>(c, [](const rdma_ucm_disconnect&, const IdRef& id) { return disconnect(id); });
}

int init_qp_attr_command(const Command& c) {
  return on_id<rdma_ucm_init_qp_attr>(c, [&](const rdma_ucm_init_qp_attr& command, const IdRef& id) {
    return init_qp_attr(id, command.qp_state, command.response, c.out);
  });
}

int set_option_command(const Command& c) {
  return on_id<rdma_ucm_set_option>(c, [](const rdma_ucm_set_option& command, const IdRef& id) {
    return set_option(id, command.level, command.optname, command.optval, command.optlen);
  });
}

// What the consumer saw on the QP (IBV_EVENT_COMM_EST): InfiniBand needs to know, TCP does not.
int notify_command(const Command& c) {
  return on_id<rdma_ucm_notify>(c, [](const rdma_ucm_notify&, const IdRef&) { return 0; });
}

int join_group(const Command& c, const IdRef& id, std::uint64_t uid, std::uint64_t response, const void* raw,
               std::size_t size) {
  const Address group = Address::from(raw, size);
  if (const int error = check_address(group, raw); error != 0) return error;
  rdma_ucm_create_id_resp answer{};
  if (const int error = join(id, uid, group, &answer.id); error != 0) return error;
  const int error = copy_out(response, &answer, sizeof(answer), c.out);
  std::uint32_t ignored;
  if (error != 0) leave(c.file, answer.id, &ignored);
  return error;
}

int join_ip_command(const Command& c) {
  if (c.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  return on_id<rdma_ucm_join_ip_mcast>(c, [&](const rdma_ucm_join_ip_mcast& command, const IdRef& id) {
    return join_group(c, id, command.uid, command.response, &command.addr, sizeof(command.addr));
  });
}

int join_command(const Command& c) {
  if (c.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  return on_id<rdma_ucm_join_mcast>(c, [&](const rdma_ucm_join_mcast& command, const IdRef& id) {
    if (command.addr_size == 0 || command.addr_size > sizeof(command.addr)) return EINVAL;
    return join_group(c, id, command.uid, command.response, &command.addr, command.addr_size);
  });
}

int leave_command(const Command& c) {
  const verbs::shortage::Scope patience;  // as in destroy_id()
  rdma_ucm_destroy_id command;
  if (c.out < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  if (!c.read(&command)) return EINVAL;
  rdma_ucm_destroy_id_resp response{};
  if (const int error = leave(c.file, command.id, &response.events_reported); error != 0) return error;
  return copy_out(command.response, &response, sizeof(response), c.out);
}

int migrate_command(const Command& c) {
  rdma_ucm_migrate_id command;
  if (c.out < sizeof(rdma_ucm_migrate_resp)) return ENOSPC;
  if (!c.read(&command)) return EINVAL;
  rdma_ucm_migrate_resp response{};
  const int error = migrate(c.file, static_cast<int>(command.fd), command.id, &response.events_reported);
  if (error != 0) return error;
  return copy_out(command.response, &response, sizeof(response), c.out);
}

// By command number; null: known and not offered.
constexpr int (*kHandlers[])(const Command&) = {
    create_id,              // 0
    destroy_id,             // 1
    bind_ip_command,        // 2
    resolve_ip_command,     // 3
    resolve_route_command,  // 4
    query_route_command,    // 5
    connect_command,        // 6
    listen_command,         // 7
    accept_command,         // 8
    reject_command,         // 9
    disconnect_command,     // 10
    init_qp_attr_command,   // 11
    nullptr,                // 12 GET_EVENT: may wait, see below
    nullptr,                // 13 GET_OPTION: nor has the kernel
    set_option_command,     // 14
    notify_command,         // 15
    join_ip_command,        // 16 JOIN_IP_MCAST
    leave_command,          // 17 LEAVE_MCAST
    migrate_command,        // 18
    query_command,          // 19
    bind_command,           // 20
    resolve_addr_command,   // 21
    join_command,           // 22 JOIN_MCAST
    nullptr,                // 23 RESOLVE_IB_SERVICE: InfiniBand's subnet administration
    nullptr,                // 24 WRITE_CM_EVENT
};
static_assert(std::size(kHandlers) == RDMA_USER_CM_CMD_JOIN_MCAST + 3, "the header need not know the last two");

int run_command(int fd, std::uint32_t number, Command& command) {
  command.file = find_file(fd);
  if (command.file == nullptr) return ucma_is(fd) ? EPERM : EBADF;
  const auto here = [&] {
    return number >= std::size(kHandlers) ? EINVAL : kHandlers[number] == nullptr ? ENOSYS : kHandlers[number](command);
  };
  if (command.file->kernel() == nullptr) return here();
  return run_beside_kernel(command.file, {number, Octets(command.body, command.in), command.whole}, here);
}

// Nothing is thrown into the C library that called. A GET_EVENT that is cancelled unwinds through here, and is not run
// so.
int run_guarded(int fd, std::uint32_t number, Command& command) {
  try {
    return run_command(fd, number, command);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::system_error& e) {
    return e.code().value() != 0 ? e.code().value() : EIO;
  }
}

int run_get_event(int fd, const Command& command) {
  rdma_ucm_get_event get;
  if (!command.read(&get)) return EINVAL;
  FileRef file = find_file(fd);
  if (file == nullptr) return ucma_is(fd) ? EPERM : wait_in_closed_file();
  return get_event(std::move(file), get.response, command.out, command.whole);
}

}  // namespace

ssize_t ucma_write_closed(const void* buf, std::size_t len) {
  rdma_ucm_cmd_hdr header;
  if (len >= sizeof(header) && copy_in(&header, buf, sizeof(header)) && header.cmd == RDMA_USER_CM_CMD_GET_EVENT)
    wait_in_closed_file();
  return -EBADF;
}

ssize_t ucma_write(int fd, const void* buf, std::size_t len) {
  rdma_ucm_cmd_hdr header;
  if (len < sizeof(header)) return -EINVAL;
  if (!copy_in(&header, buf, sizeof(header))) return -EFAULT;
  if (header.in + sizeof(header) > len) return -EINVAL;
  Command command;
  command.in = std::min<std::size_t>(header.in, kLargest);
  command.out = header.out;
  command.whole = Octets(static_cast<const std::byte*>(buf), len);
  if (!copy_in(command.body, static_cast<const std::byte*>(buf) + sizeof(header), command.in)) return -EFAULT;
  int error;
  if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
    error = run_get_event(fd, command);  // may be cancelled while it waits
  } else {
    const NoCancel guard;
    error = run_guarded(fd, header.cmd, command);
    log::explain_shortage(error);
  }
  return error != 0 ? -error : static_cast<ssize_t>(len);
}

}  // namespace ewarp::cm
