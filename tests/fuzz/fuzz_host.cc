// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What stands in for the kernel, as the preload library calls it: netlink requests and what a kernel with devices of
// its own would answer, ioctl commands, paths of sysfs and of device files, and file numbers that are closed behind our
// back. Results are what the kernel's could be, and nothing is written but where the program said.
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "provider/cm/cm.h"
#include "provider/engine/reactor.h"
#include "provider/host/host.h"
#include "provider/host/netlink.h"
#include "tests/fuzz/own_network.h"
#include "tests/fuzz/records.h"

// What is behind the boundary: fuzz_ucma has the commands; nothing here waits for a channel.
namespace ewarp::cm {
int ucma_open(int) {
  return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}
ssize_t ucma_write(int, const void*, std::size_t) {
  return -EINVAL;
}
ssize_t ucma_write_closed(const void*, std::size_t) {
  return -EBADF;
}
void ucma_close(int) {}
bool ucma_is(int) {
  return false;
}
void in_child() {}
}  // namespace ewarp::cm

namespace ewarp::verbs {
namespace {
class Idle final : public Reactor {
  int start() noexcept override { return 0; }
  void post(std::function<void()>) override {}
  std::uint64_t add_timer(Clock::time_point, std::function<void()>) override { return 1; }
  void cancel_timer(std::uint64_t) override {}
  void watch(int, std::uint32_t, std::function<void(std::uint32_t)>) override {}
  void unwatch(int) override {}
};
}  // namespace
Reactor& reactor() {
  static Idle idle;
  return idle;
}
}  // namespace ewarp::verbs

namespace ewarp::fuzz {
namespace {

using Bytes = std::vector<std::byte>;
using Talk = Records<1, 40>;
using Record = std::array<std::uint8_t, Talk::kRecord>;

// A result that the kernel could have given, or the word that it was not for us.
void check_result(long result) {
  FUZZ_CHECK(result >= 0 || result == ETHERWARP_NOT_OURS || (result < 0 && result > -4096));
}

std::string name_of(unsigned which) {
  static const char* const kNames[] = {"ewarp_lo", "ewarp_none", "uverbs", "rdma_cm", "", "mlx5_0", "ewarp_lo\0x"};
  return kNames[which % std::size(kNames)];
}

Bytes netlink_message(const Record& r) {
  Bytes out(NLMSG_HDRLEN);
  std::size_t at = 8;
  for (int n = r[6] & 3; n > 0 && at + 4 < r.size(); --n, at += 6) {
    static constexpr std::uint16_t kTypes[] = {RDMA_NLDEV_ATTR_DEV_INDEX, RDMA_NLDEV_ATTR_DEV_NAME,
                                               RDMA_NLDEV_ATTR_CHARDEV_TYPE, RDMA_NLDEV_ATTR_PORT_INDEX, 999};
    Bytes value;
    if (r[at] & 8) {
      for (const char c : name_of(r[at + 1])) value.push_back(static_cast<std::byte>(c));
      if ((r[at] & 16) == 0) value.push_back(std::byte{0});
    } else {
      for (std::size_t i = 0; i < 4; ++i) value.push_back(static_cast<std::byte>(r[at + 1 + i]));
    }
    const nlattr head{static_cast<std::uint16_t>(NLA_HDRLEN + value.size() + (r[at] & 32 ? r[at + 5] : 0)),
                      kTypes[(r[at] & 7) % std::size(kTypes)]};
    const auto* octets = reinterpret_cast<const std::byte*>(&head);
    out.insert(out.end(), octets, octets + sizeof head);
    out.insert(out.end(), value.begin(), value.end());
    out.resize(NLA_ALIGN(out.size()));
  }
  static constexpr std::uint16_t kTypes[] = {RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET),
                                             RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET),
                                             RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET_CHARDEV),
                                             RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_PORT_GET),
                                             NLMSG_DONE,
                                             NLMSG_ERROR};
  nlmsghdr h{};
  h.nlmsg_len = static_cast<std::uint32_t>(out.size() + (r[2] & 1 ? r[3] - 128u : 0));
  h.nlmsg_type = kTypes[r[4] % std::size(kTypes)];
  h.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | (r[2] & 2 ? NLM_F_DUMP : 0) | (r[2] & 4 ? NLM_F_ACK : 0));
  h.nlmsg_seq = r[5] & 3;
  std::memcpy(out.data(), &h, sizeof h);
  if (r[2] & 8) out.resize(r[7] % (out.size() + 1));
  return out;
}

std::string path_of(const Record& r) {
  static const char* const kParts[] = {"/sys/class/infiniband",
                                       "/sys/class/infiniband_verbs",
                                       "/dev/infiniband",
                                       "/",
                                       "/..",
                                       "/.",
                                       "/ewarp_lo",
                                       "/uverbs192",
                                       "/uverbs",
                                       "/rdma_cm",
                                       "/ports",
                                       "/1",
                                       "/gids",
                                       "/0",
                                       "/pkeys",
                                       "/node_type",
                                       "/state",
                                       "/abi_version",
                                       "/ibdev",
                                       "/device",
                                       "/ewarp_none",
                                       "x",
                                       "/hw_counters",
                                       "/gid_attrs",
                                       "/types",
                                       "/ndevs",
                                       "/fw_ver",
                                       "/node_guid",
                                       "/sys/class",
                                       "/sys"};
  std::string path;
  for (std::size_t i = 4; i < r.size() && r[i] != 0; ++i) {
    if (r[i] < 128)
      path += kParts[r[i] % std::size(kParts)];
    else
      path += static_cast<char>(r[i] & 127 ? r[i] & 127 : 'y');
  }
  return path;
}

class Program {
 public:
  Program() {
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, kernel_) == 0);
    beside_ = std::make_unique<host::NetlinkSession>(kernel_[0], true);
    alone_ = std::make_unique<host::NetlinkSession>(-1, false);
  }
  ~Program() {
    for (const int fd : fds_) shut(fd);
    close(kernel_[0]);
    close(kernel_[1]);
  }

  void act(const Record& r) {
    switch (r[0] & 15) {
      case 0:
      case 1:
        send(r);
        break;
      case 2:
      case 3:
        receive(r);
        break;
      case 4: {
        const Bytes said = netlink_message(r);
        if (!said.empty()) (void)::send(kernel_[1], said.data(), said.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
      }
      case 5:
      case 6:
      case 7:
        paths(r);
        break;
      case 8:
        open_one(r[1] & 1 ? "/dev/infiniband/uverbs192" : "/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK);
        break;
      case 9:
        keep(etherwarp_host.netlink_socket(SOCK_RAW | SOCK_CLOEXEC));
        break;
      case 10:
        if (const int fd = some(r); fd >= 0) {
          struct stat s {};
          check_result(etherwarp_host.fstat(fd, &s));
        }
        break;
      case 11:
        if (const int fd = some(r); fd >= 0) {
          if (r[2] & 1) close(fd);  // behind our back
          shut(fd);
          std::erase(fds_, fd);
        }
        break;
      default:
        ioctl_command(r);
        break;
    }
  }

 private:
  static void shut(int fd) {
    etherwarp_host.closing(fd);
    close(fd);
  }
  void keep(int fd) {
    check_result(fd);
    if (fd >= 0) fds_.push_back(fd);
  }
  int some(const Record& r) const { return fds_.empty() ? -1 : fds_[r[1] % fds_.size()]; }
  void open_one(const std::string& path, int flags) {
    if (fds_.size() < 16) keep(etherwarp_host.open(path.c_str(), flags));
  }

  void send(const Record& r) {
    Bytes m = netlink_message(r);
    // In two pieces, the second of which may be empty.
    const std::size_t cut = r[1] % (m.size() + 1);
    iovec parts[2] = {{m.data(), cut}, {m.data() + cut, m.size() - cut}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    check_result((r[0] & 16 ? *beside_ : *alone_).send(&message, MSG_DONTWAIT));
  }
  void receive(const Record& r) {
    Bytes first(r[1]), second(r[2] * 32u);
    iovec parts[2] = {{first.data(), first.size()}, {second.data(), second.size()}};
    Bytes name(r[3] % (sizeof(sockaddr_nl) + 1));
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    message.msg_name = name.empty() ? nullptr : name.data();
    message.msg_namelen = static_cast<socklen_t>(name.size());
    const int flags = MSG_DONTWAIT | (r[4] & 1 ? MSG_PEEK : 0) | (r[4] & 2 ? MSG_TRUNC : 0);
    const ssize_t n = (r[0] & 16 ? *beside_ : *alone_).receive(&message, flags);
    check_result(n);
    if (n >= 0 && !(flags & MSG_TRUNC)) FUZZ_CHECK(static_cast<std::size_t>(n) <= first.size() + second.size());
  }
  void paths(const Record& r) {
    const std::string path = path_of(r);
    struct stat s {};
    check_result(etherwarp_host.stat(path.c_str(), &s));
    check_result(etherwarp_host.access(path.c_str(), r[1] & 7));
    if ((r[1] & 8) == 0) return;
    static constexpr int kFlags[] = {O_RDONLY, O_RDWR, O_RDONLY | O_DIRECTORY, O_WRONLY | O_TRUNC,
                                     O_RDONLY | O_CLOEXEC};
    open_one(path, kFlags[r[2] % std::size(kFlags)] | O_NONBLOCK);
  }

  // Where an attribute is a number the value is in it; where it is room, it names octets of exactly its length.
  static bool is_room(std::uint16_t method, std::uint16_t id) {
    switch (method) {
      case UVERBS_METHOD_INVOKE_WRITE:
        return id == UVERBS_ATTR_CORE_OUT || id == UVERBS_ATTR_UHW_OUT || id == UVERBS_ATTR_CORE_IN;
      case UVERBS_METHOD_QUERY_GID_ENTRY:
        return id == UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY;
      case UVERBS_METHOD_QUERY_GID_TABLE:
        return id == UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES || id == UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES;
      default:
        return true;
    }
  }
  void ioctl_command(const Record& r) {
    static constexpr std::uint16_t kMethods[] = {UVERBS_METHOD_INVOKE_WRITE, UVERBS_METHOD_QUERY_GID_ENTRY,
                                                 UVERBS_METHOD_QUERY_GID_TABLE, UVERBS_METHOD_QUERY_PORT};
    static constexpr std::uint16_t kOwnIds[] = {UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_WRITE_CMD,
                                                UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT};
    ib_uverbs_ioctl_hdr header{};
    header.object_id = r[3] & 1 ? r[3] : std::uint16_t{UVERBS_OBJECT_DEVICE};
    header.method_id = kMethods[r[2] % std::size(kMethods)];
    const std::size_t count = r[4] % 6;
    std::vector<Bytes> rooms(count);
    std::vector<ib_uverbs_attr> attributes(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t* at = &r[6 + i * 5];
      ib_uverbs_attr& a = attributes[i];
      a.attr_id = header.method_id == UVERBS_METHOD_INVOKE_WRITE ? kOwnIds[at[0] % std::size(kOwnIds)] : at[0] % 5;
      if (at[0] & 128) a.attr_id = static_cast<std::uint16_t>(a.attr_id + 70);
      a.flags = at[1] & 1 ? UVERBS_ATTR_F_MANDATORY : 0;
      if (is_room(header.method_id, a.attr_id)) {
        rooms[i].resize(at[2] + 256u * (at[3] & 7));
        a.len = static_cast<std::uint16_t>(rooms[i].size());
        a.data = reinterpret_cast<std::uintptr_t>(rooms[i].data());
      } else {
        a.len = at[1] & 2 ? at[4] : 8;
        a.data = at[2] == 0xff ? std::uint64_t{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL}
                               : at[2] | std::uint64_t{at[3]} << (at[1] >> 2);
      }
    }
    header.num_attrs = static_cast<std::uint16_t>(count);
    header.length = static_cast<std::uint16_t>(sizeof header + count * sizeof(ib_uverbs_attr) + (r[3] & 2 ? r[5] : 0));
    Bytes memory(sizeof header + count * sizeof(ib_uverbs_attr));
    std::memcpy(memory.data(), &header, sizeof header);
    if (count > 0) std::memcpy(memory.data() + sizeof header, attributes.data(), count * sizeof(ib_uverbs_attr));
    const int fd = some(r);
    if (fd < 0) return;
    const int result = etherwarp_host.ioctl(fd, r[3] & 4 ? 0x1234 : RDMA_VERBS_IOCTL, memory.data());
    check_result(result);
    // An event channel: its descriptor stands in the answer.
    if (result != 0 || header.method_id != UVERBS_METHOD_INVOKE_WRITE) return;
    const auto* answered = reinterpret_cast<const ib_uverbs_attr*>(memory.data() + sizeof header);
    for (std::size_t i = 0; i < count; ++i)
      if (answered[i].flags & UVERBS_ATTR_F_VALID_OUTPUT) {
        std::uint32_t channel;
        std::memcpy(&channel, rooms[i].data(), sizeof channel);
        fds_.push_back(static_cast<int>(channel));
      }
  }

  int kernel_[2];
  std::unique_ptr<host::NetlinkSession> beside_, alone_;
  std::vector<int> fds_;
};

// The directories of sysfs are made in a place of this process's own, which is removed again.
std::string* g_place = nullptr;

void prepare() {
  char place[] = "/tmp/fuzz_host.XXXXXX";
  FUZZ_CHECK(mkdtemp(place) != nullptr);
  g_place = new std::string(place);
  setenv("ETHERWARP_RUNDIR", place, 1);
  std::atexit([] {
    std::error_code error;
    std::filesystem::remove_all(*g_place, error);
  });
  (void)enter_own_network();  // else the devices are those of the machine
  static const etherwarp_preload_ops kPreload = {ETHERWARP_HOST_VERSION, [](int, unsigned char) { return 1; }};
  etherwarp_host.attach(&kPreload);
}

}  // namespace
}  // namespace ewarp::fuzz

FUZZ_MUTATES(ewarp::fuzz::Talk)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  static const bool prepared = (prepare(), true);
  (void)prepared;
  const Talk talk(data, size);
  Program program;
  for (std::size_t i = 0; i < talk.count() && i < 100; ++i) program.act(talk[i]);
  return 0;
}
