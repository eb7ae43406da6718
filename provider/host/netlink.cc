// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/host/netlink.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "llp/mutex.h"
#include "provider/host/fds.h"
#include "provider/host/names.h"

namespace ewarp::host {
namespace {

using Datagram = std::vector<std::byte>;

constexpr std::uint16_t type_of(unsigned command) {
  return static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}
constexpr std::uint16_t kGetDevice = type_of(RDMA_NLDEV_CMD_GET);
constexpr std::uint16_t kGetSystem = type_of(RDMA_NLDEV_CMD_SYS_GET);
constexpr std::uint16_t kGetChardev = type_of(RDMA_NLDEV_CMD_GET_CHARDEV);

// --- reading --------------------------------------------------------------------------------------------------------

// The payload of an attribute of this kind in a message; nothing if it is not there.
std::optional<Octets> find_attribute(Octets message, unsigned wanted) {
  std::size_t at = NLMSG_HDRLEN;
  while (at + NLA_HDRLEN <= message.size()) {
    nlattr attribute;
    std::memcpy(&attribute, message.data() + at, sizeof attribute);
    if (attribute.nla_len < NLA_HDRLEN || attribute.nla_len > message.size() - at) return std::nullopt;
    if ((attribute.nla_type & NLA_TYPE_MASK) == wanted)
      return message.subspan(at + NLA_HDRLEN, attribute.nla_len - NLA_HDRLEN);
    at += NLA_ALIGN(attribute.nla_len);
  }
  return std::nullopt;
}

std::optional<std::uint32_t> find_u32(Octets message, unsigned wanted) {
  const auto payload = find_attribute(message, wanted);
  std::uint32_t value;
  if (!payload || payload->size() < sizeof value) return std::nullopt;
  std::memcpy(&value, payload->data(), sizeof value);
  return value;
}

std::string_view find_string(Octets message, unsigned wanted) {
  const auto payload = find_attribute(message, wanted);
  if (!payload) return {};
  const std::string_view text(reinterpret_cast<const char*>(payload->data()), payload->size());
  return text.substr(0, text.find('\0'));
}

verbs::Device* device_of_request(Octets request) {
  const auto index = find_u32(request, RDMA_NLDEV_ATTR_DEV_INDEX);
  if (!index || *index < verbs::kFirstRdmaIndex) return nullptr;
  const std::size_t at = *index - verbs::kFirstRdmaIndex;
  const auto all = verbs::devices();
  return at < all.size() ? all[at] : nullptr;
}

// --- writing --------------------------------------------------------------------------------------------------------

class Message {
 public:
  Message(const nlmsghdr& request, std::uint16_t type, std::uint16_t flags) : data_(NLMSG_HDRLEN) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = flags;
    header.nlmsg_seq = request.nlmsg_seq;
    header.nlmsg_pid = request.nlmsg_pid;
    std::memcpy(data_.data(), &header, sizeof header);
  }

  void raw(const void* from, std::size_t size) {
    const auto* octets = static_cast<const std::byte*>(from);
    data_.insert(data_.end(), octets, octets + size);
    data_.resize(NLMSG_ALIGN(data_.size()));
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void attribute(unsigned type, T value) { attribute(type, &value, sizeof value); }
  void attribute(unsigned type, const std::string& text) { attribute(type, text.c_str(), text.size() + 1); }

  Datagram finish() {
    const auto length = static_cast<std::uint32_t>(data_.size());
    std::memcpy(data_.data() + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
    return std::move(data_);
  }

 private:
  void attribute(unsigned type, const void* value, std::size_t size) {
    const nlattr head{static_cast<std::uint16_t>(NLA_HDRLEN + size), static_cast<std::uint16_t>(type)};
    raw(&head, sizeof head);
    raw(value, size);
  }
  Datagram data_;
};

Datagram device_message(const nlmsghdr& request, const verbs::Device& device, std::uint16_t flags) {
  Message m(request, kGetDevice, flags);
  m.attribute(RDMA_NLDEV_ATTR_DEV_INDEX, device.rdma_index());
  m.attribute(RDMA_NLDEV_ATTR_DEV_NAME, device.name());
  m.attribute(RDMA_NLDEV_ATTR_PORT_INDEX, std::uint32_t{1});  // here: how many ports there are
  m.attribute(RDMA_NLDEV_ATTR_NODE_GUID, device.guid());
  m.attribute(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, device.guid());
  m.attribute(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, static_cast<std::uint8_t>(device.node_type()));
  m.attribute(RDMA_NLDEV_ATTR_DEV_PROTOCOL, std::string(device.twin() ? "roce" : "iw"));
  return m.finish();
}

Datagram chardev_message(const nlmsghdr& request, const std::string& name, dev_t number, std::uint64_t abi,
                         std::optional<std::uint32_t> driver) {
  const std::uint64_t low = minor(number), high = major(number);
  Message m(request, kGetChardev, 0);
  m.attribute(RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
  m.attribute(RDMA_NLDEV_ATTR_CHARDEV, (low & 0xff) | high << 8 | (low & ~std::uint64_t{0xff}) << 12);
  m.attribute(RDMA_NLDEV_ATTR_CHARDEV_ABI, abi);
  if (driver) m.attribute(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, *driver);
  return m.finish();
}

// Nothing is pinned, so a fork() takes no page away from us.
Datagram system_message(const nlmsghdr& request) {
  Message m(request, kGetSystem, 0);
  m.attribute(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, std::uint8_t{1});
  return m.finish();
}

Datagram error_message(const nlmsghdr& request, int error) {
  nlmsgerr body{};
  body.error = -error;
  body.msg = request;
  Message m(request, NLMSG_ERROR, 0);
  m.raw(&body, sizeof body);
  return m.finish();
}

Datagram done_message(const nlmsghdr& request) {
  Message m(request, NLMSG_DONE, NLM_F_MULTI);
  const std::int32_t status = 0;
  m.raw(&status, sizeof status);
  return m.finish();
}

std::vector<Datagram> all_devices(const nlmsghdr& request) {
  std::vector<Datagram> out;
  for (const verbs::Device* device : verbs::devices()) out.push_back(device_message(request, *device, NLM_F_MULTI));
  return out;
}

// --- sockets --------------------------------------------------------------------------------------------------------

Datagram gather(const msghdr& message) {
  Datagram out;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* from = static_cast<const std::byte*>(message.msg_iov[i].iov_base);
    out.insert(out.end(), from, from + message.msg_iov[i].iov_len);
  }
  return out;
}

std::size_t scatter(Octets from, const msghdr& message) {
  std::size_t copied = 0;
  for (std::size_t i = 0; i < message.msg_iovlen && copied < from.size(); ++i) {
    const std::size_t n = std::min(message.msg_iov[i].iov_len, from.size() - copied);
    // A piece without octets may have no address, which memcpy() must not be given.
    if (n > 0) std::memcpy(message.msg_iov[i].iov_base, from.data() + copied, n);
    copied += n;
  }
  return copied;
}

// The first message of a datagram; false if there is none.
bool read_header(Octets datagram, nlmsghdr* header) {
  if (datagram.size() < sizeof *header) return false;
  std::memcpy(header, datagram.data(), sizeof *header);
  return header->nlmsg_len >= sizeof *header && header->nlmsg_len <= datagram.size();
}

}  // namespace

void NetlinkSession::queue(std::vector<Datagram> replies) {
  const llp::Guard lock(mutex_);
  for (auto& reply : replies) replies_.push_back(std::move(reply));
}

bool NetlinkSession::answer(Octets datagram) {
  nlmsghdr request;
  if (!read_header(datagram, &request)) return false;
  const bool dump = (request.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
  const verbs::Device* device = device_of_request(datagram);

  if (request.nlmsg_type == kGetDevice && dump) {
    if (real_) {
      const llp::Guard lock(mutex_);
      dumping_ = true;
      dump_sequence_ = request.nlmsg_seq;
      return false;
    }
    auto replies = all_devices(request);
    replies.push_back(done_message(request));
    queue(std::move(replies));
    return true;
  }
  if (request.nlmsg_type == kGetDevice && device != nullptr) {
    queue({device_message(request, *device, 0)});
    return true;
  }
  if (request.nlmsg_type == kGetChardev) {
    const auto type = find_string(datagram, RDMA_NLDEV_ATTR_CHARDEV_TYPE);
    if (type == "uverbs" && device != nullptr) {
      queue({chardev_message(request, uverbs_name(*device), uverbs_number(*device), kUverbsAbi, kDriverId)});
      return true;
    }
    if (type == "rdma_cm") {
      queue({chardev_message(request, "rdma_cm", cm_number(), kCmAbi, std::nullopt)});
      return true;
    }
  }
  if (real_) return false;
  if (request.nlmsg_type == kGetSystem)
    queue({system_message(request)});
  else
    queue({error_message(request, request.nlmsg_type == kGetChardev ? ENODEV : EOPNOTSUPP)});
  return true;
}

ssize_t NetlinkSession::send(const msghdr* message, int flags) {
  const Datagram datagram = gather(*message);
  if (answer(datagram)) return static_cast<ssize_t>(datagram.size());
  if (!real_) return -EINVAL;
  const ssize_t sent = syscall(SYS_sendmsg, fd_, message, flags);
  return sent < 0 ? -errno : sent;
}

// Puts our devices between the kernel's and the end of its dump. 0 or -errno.
int NetlinkSession::take_dump_from_kernel(int flags) {
  Datagram datagram(65536);
  iovec where{datagram.data(), datagram.size()};
  msghdr message{};
  message.msg_iov = &where;
  message.msg_iovlen = 1;
  const ssize_t size = syscall(SYS_recvmsg, fd_, &message, flags & MSG_DONTWAIT);
  if (size < 0) return -errno;
  datagram.resize(static_cast<std::size_t>(size));

  std::uint32_t dump = 0;
  {
    const llp::Guard lock(mutex_);
    dump = dump_sequence_;
  }
  std::vector<Datagram> replies(1);
  bool ended = false;
  nlmsghdr header;
  for (Octets rest = datagram; read_header(rest, &header);) {
    const bool last = header.nlmsg_seq == dump && (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR);
    if (last) {
      // A kernel that refuses the dump has no devices for us to stand beside.
      for (auto& reply : all_devices(header)) replies.push_back(std::move(reply));
      replies.push_back(done_message(header));
      ended = true;
    } else {
      replies.front().insert(replies.front().end(), rest.begin(), rest.begin() + header.nlmsg_len);
      replies.front().resize(NLMSG_ALIGN(replies.front().size()));
    }
    rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), rest.size()));
  }
  if (replies.front().empty()) replies.erase(replies.begin());
  queue(std::move(replies));
  if (ended) {
    const llp::Guard lock(mutex_);
    dumping_ = false;
  }
  return 0;
}

// Requires: there is a reply.
ssize_t NetlinkSession::deliver(msghdr* message, int flags) {
  assert(!replies_.empty());
  const Datagram& reply = replies_.front();
  const std::size_t copied = scatter(reply, *message);
  message->msg_flags = copied < reply.size() ? MSG_TRUNC : 0;
  message->msg_controllen = 0;
  if (message->msg_name != nullptr) {
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    std::memcpy(message->msg_name, &kernel, std::min<std::size_t>(message->msg_namelen, sizeof kernel));
    message->msg_namelen = sizeof kernel;
  }
  const auto size = static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? reply.size() : copied);
  if ((flags & MSG_PEEK) == 0) replies_.pop_front();
  return size;
}

ssize_t NetlinkSession::receive(msghdr* message, int flags) {
  for (;;) {
    {
      const llp::Guard lock(mutex_);
      if (!replies_.empty()) return deliver(message, flags);
      if (!real_) return -EAGAIN;  // nothing will ever come: better than to wait for it
      if (!dumping_) break;
    }
    if (const int error = take_dump_from_kernel(flags); error != 0) return error;
  }
  const ssize_t size = syscall(SYS_recvmsg, fd_, message, flags);
  return size < 0 ? -errno : size;
}

int open_netlink(int type) {
  bool real = true;
  auto fd = static_cast<int>(syscall(SYS_socket, AF_NETLINK, type, NETLINK_RDMA));
  if (fd < 0) {
    real = false;
    fd = static_cast<int>(syscall(SYS_socket, AF_NETLINK, type, NETLINK_ROUTE));
  }
  if (fd < 0) return -errno;
  OpenFile file;
  file.kind = ETHERWARP_FD_NETLINK;
  int error = ENOMEM;
  try {
    file.session = std::make_shared<NetlinkSession>(fd, real);
    error = fds().add(fd, std::move(file));
  } catch (const std::bad_alloc&) {
  }
  if (error == 0) return fd;
  raw_close(fd);
  return -error;
}

}  // namespace ewarp::host
