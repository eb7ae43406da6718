// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What applications do, one thing per run: `host_probe WHAT`. Exit status 0: all was as it should be; 77: this machine
// does not permit it; else a line on stderr says what was not.
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/host/check.h"

extern char** environ;

namespace {

constexpr int kSkip = 77;

// The lowest free number, and how many are open.
int open_fds() {
  DIR* list = opendir("/proc/self/fd");
  if (list == nullptr) return 0;
  int n = 0;
  while (readdir(list) != nullptr) ++n;
  closedir(list);
  return n;
}

std::vector<ibv_device*> our_devices(ibv_device** list) {
  std::vector<ibv_device*> out;
  for (; *list != nullptr; ++list)
    if (strncmp(ibv_get_device_name(*list), "ewarp_", 6) == 0) out.push_back(*list);
  return out;
}

ibv_device** get_list() {
  int n = 0;
  ibv_device** list = ibv_get_device_list(&n);
  CHECK(list != nullptr);
  CHECK(!our_devices(list).empty());
  return list;
}

ibv_context* open_first() {
  ibv_device** list = get_list();
  ibv_context* context = ibv_open_device(our_devices(list)[0]);
  CHECK(context != nullptr);
  ibv_free_device_list(list);
  return context;
}

// --- devices --------------------------------------------------------------------------------------------------------

void use_gids(ibv_context* context, const ibv_port_attr& port) {
  std::vector<ibv_gid_entry> table(static_cast<std::size_t>(port.gid_tbl_len) + 4);
  CHECK(ibv_query_gid_table(context, table.data(), table.size(), 0) == port.gid_tbl_len);
  if (port.gid_tbl_len > 1) CHECK(ibv_query_gid_table(context, table.data(), 1, 0) == -EINVAL);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    CHECK(ibv_query_gid(context, 1, i, &gid) == 0);
    ibv_gid_entry entry{};
    CHECK(ibv_query_gid_ex(context, 1, static_cast<std::uint32_t>(i), &entry, 0) == 0);
    CHECK(memcmp(&gid, &entry.gid, sizeof gid) == 0 &&
          memcmp(&gid, &table[static_cast<std::size_t>(i)].gid, sizeof gid) == 0);
    CHECK(entry.port_num == 1 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.ndev_ifindex != 0);
  }
  ibv_gid beyond;
  CHECK(ibv_query_gid(context, 1, port.gid_tbl_len, &beyond) != 0);
  CHECK(ibv_query_gid(context, 2, 0, &beyond) != 0);
}

void use_srq(ibv_pd* pd) {
  ibv_context* context = pd->context;
  ibv_srq_init_attr srq_init{};
  srq_init.attr.max_wr = srq_init.attr.max_sge = 3;
  ibv_srq* srq = ibv_create_srq(pd, &srq_init);
  CHECK(srq != nullptr && srq->context == context && srq->pd == pd && srq_init.attr.max_wr >= 3);
  ibv_srq_attr limit{0, 0, 2}, queried{};
  CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);  // fewer are there, so the event comes at once
  CHECK(ibv_query_srq(srq, &queried) == 0 && queried.max_wr == srq_init.attr.max_wr && queried.srq_limit == 0);
  ibv_recv_wr receive{}, *bad = nullptr;
  receive.num_sge = 4;
  CHECK(ibv_post_srq_recv(srq, &receive, &bad) == EINVAL && bad == &receive);
  ibv_async_event event{};
  CHECK(ibv_get_async_event(context, &event) == 0 && event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED &&
        event.element.srq == srq);
  CHECK(ibv_dealloc_pd(pd) == EBUSY);
  ibv_ack_async_event(&event);

  ibv_cq* cq = ibv_create_cq(context, 10, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.cap = {1, 99, 1, 99, 0};
  ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp != nullptr && qp->srq == srq && init.cap.max_recv_wr == 0);
  CHECK(ibv_destroy_srq(srq) == EBUSY);
  ibv_qp_attr to_init{}, to_error{};
  to_init.qp_state = IBV_QPS_INIT;
  to_error.qp_state = IBV_QPS_ERR;
  CHECK(ibv_modify_qp(qp, &to_init, IBV_QP_STATE) == 0);
  CHECK(ibv_post_recv(qp, &receive, &bad) == EINVAL);
  CHECK(ibv_modify_qp(qp, &to_error, IBV_QP_STATE) == 0);
  CHECK(ibv_get_async_event(context, &event) == 0 && event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED &&
        event.element.qp == qp);
  ibv_ack_async_event(&event);
  CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_srq(srq) == 0);

  ibv_srq_init_attr_ex of_type{};
  of_type.attr = srq_init.attr;
  of_type.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  of_type.pd = pd;
  of_type.srq_type = IBV_SRQT_BASIC;
  CHECK((srq = ibv_create_srq_ex(context, &of_type)) != nullptr && ibv_destroy_srq(srq) == 0);
  of_type.srq_type = IBV_SRQT_XRC;
  CHECK(ibv_create_srq_ex(context, &of_type) == nullptr && errno == EOPNOTSUPP);
}

// Bound only with a connection; see tests/verbs/window_test.cc.
// An address handle, a UD queue pair in a group.
void use_datagrams(ibv_pd* pd) {
  ibv_ah_attr attr{};
  attr.port_num = 1;
  CHECK(ibv_create_ah(pd, &attr) == nullptr && errno == EINVAL);  // without a GID
  attr.is_global = 1;
  CHECK(ibv_query_gid(pd->context, 1, 0, &attr.grh.dgid) == 0);
  ibv_ah* ah = ibv_create_ah(pd, &attr);
  CHECK(ah != nullptr && ah->pd == pd && ah->context == pd->context);
  CHECK(ibv_dealloc_pd(pd) == EBUSY);

  ibv_cq* cq = ibv_create_cq(pd->context, 10, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp != nullptr && qp->qp_type == IBV_QPT_UD && qp->qp_num > 0 && qp->qp_num < 0xffffff);
  ibv_gid group{};
  group.raw[10] = group.raw[11] = 0xff;
  group.raw[12] = group.raw[13] = 239;
  CHECK(ibv_attach_mcast(qp, &attr.grh.dgid, 0) == EINVAL);
  // Not every interface can join (one without multicast).
  if (ibv_attach_mcast(qp, &group, 0) == 0) {
    CHECK(ibv_destroy_qp(qp) == EBUSY);
    CHECK(ibv_detach_mcast(qp, &group, 0) == 0);
  }
  CHECK(ibv_detach_mcast(qp, &group, 0) == EINVAL);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_destroy_ah(ah) == 0);
}

void use_window(ibv_pd* pd) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ibv_mw* mw = ibv_alloc_mw(pd, type);
    CHECK(mw != nullptr && mw->pd == pd && mw->context == pd->context && mw->type == type && mw->rkey != 0);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_dealloc_mw(mw) == 0);
  }
}

void use_device(ibv_device* device) {
  CHECK(device->node_type == IBV_NODE_RNIC && device->transport_type == IBV_TRANSPORT_IWARP);
  ibv_context* context = ibv_open_device(device);
  CHECK(context != nullptr);
  struct stat st;
  CHECK(fstat(context->cmd_fd, &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == 3999);
  CHECK(context->cmd_fd >= 256 && context->async_fd >= 256);

  ibv_device_attr attr;
  CHECK(ibv_query_device(context, &attr) == 0 && attr.phys_port_cnt == 1);
  CHECK(attr.node_guid == ibv_get_device_guid(device) && attr.node_guid != 0);
  ibv_device_attr_ex ex;
  CHECK(ibv_query_device_ex(context, nullptr, &ex) == 0 && ex.phys_port_cnt_ex == 1);
  ibv_port_attr port;
  CHECK(ibv_query_port(context, 1, &port) == 0 && port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(ibv_query_port(context, 2, &port) == EINVAL);
  CHECK(ibv_query_port(context, 1, &port) == 0);
  __be16 pkey = 0;
  CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
  CHECK(ibv_query_pkey(context, 1, 1, &pkey) != 0);
  use_gids(context, port);

  ibv_pd* pd = ibv_alloc_pd(context);
  CHECK(pd != nullptr);
  std::vector<char> memory(8192);
  ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  CHECK(mr != nullptr && mr->lkey != 0 && mr->pd == pd && mr->length == memory.size());
  CHECK(ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_REMOTE_WRITE) == nullptr && errno == EINVAL);
  CHECK(ibv_dealloc_pd(pd) == EBUSY);
  const std::uint32_t key = mr->rkey;
  CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
  CHECK(mr->rkey != key);
  CHECK(ibv_dereg_mr(mr) == 0);

  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  CHECK(channel != nullptr && channel->fd >= 256);
  CHECK(ibv_create_cq(context, 0, nullptr, channel, 0) == nullptr && errno == EINVAL);
  CHECK(ibv_create_cq(context, 10, nullptr, channel, 1) == nullptr && errno == EINVAL);
  ibv_comp_channel foreign{context, 0, 0};
  CHECK(ibv_create_cq(context, 10, nullptr, &foreign, 0) == nullptr && errno == EINVAL);
  ibv_cq* cq = ibv_create_cq(context, 10, &pkey, channel, 0);
  CHECK(cq != nullptr && cq->cqe >= 10 && cq->channel == channel && cq->cq_context == &pkey);
  CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
  ibv_wc wc;
  CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
  CHECK(ibv_resize_cq(cq, 100) == 0 && cq->cqe >= 100);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);

  use_srq(pd);
  use_window(pd);
  use_datagrams(pd);

  pollfd async{context->async_fd, POLLIN, 0};
  CHECK(poll(&async, 1, 0) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(context) == 0);
}

int devices() {
  ibv_device** list = get_list();
  for (ibv_device* device : our_devices(list)) printf("%s\n", ibv_get_device_name(device));
  ibv_free_device_list(list);
  return 0;
}

int open_all() {
  ibv_device** list = get_list();
  for (ibv_device* device : our_devices(list)) use_device(device);
  // From here on nothing may be left behind.
  const int before = open_fds();
  for (int i = 0; i < 20; ++i)
    for (ibv_device* device : our_devices(list)) use_device(device);
  // A group's socket is closed by the thread that watched it.
  for (int i = 0; open_fds() > before && i < 5000; ++i) poll(nullptr, 0, 1);
  CHECK(open_fds() <= before);
  ibv_free_device_list(list);
  return 0;
}

int threads() {
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([] {
      for (int i = 0; i < 10; ++i) {
        ibv_device** list = get_list();
        for (ibv_device* device : our_devices(list)) use_device(device);
        ibv_free_device_list(list);
      }
    });
  for (auto& t : all) t.join();
  return 0;
}

// Programs close a device that they still use; only the process's end cleans up.
int close_early() {
  ibv_context* context = open_first();
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  CHECK(pd != nullptr && cq != nullptr);
  CHECK(ibv_close_device(context) == 0);
  return 0;
}

// Netlink as other readers do it: with a look at the size first.
int netlink() {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
  CHECK(fd >= 0);
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  nlmsghdr request{};
  request.nlmsg_len = sizeof request;
  request.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
  request.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.nlmsg_seq = 4711;
  iovec out{&request, sizeof request};
  msghdr message{};
  message.msg_iov = &out;
  message.msg_iovlen = 1;
  CHECK(sendmsg(fd, &message, 0) == sizeof request);
  int devices = 0;
  for (bool done = false; !done;) {
    char tiny[4];
    iovec small{tiny, sizeof tiny};
    msghdr peek{};
    peek.msg_iov = &small;
    peek.msg_iovlen = 1;
    const ssize_t size = recvmsg(fd, &peek, MSG_PEEK | MSG_TRUNC);
    CHECK(size >= static_cast<ssize_t>(sizeof(nlmsghdr)) && (peek.msg_flags & MSG_TRUNC) != 0);
    std::vector<char> buffer(static_cast<std::size_t>(size));
    iovec in{buffer.data(), buffer.size()};
    sockaddr_nl from{};
    msghdr real{};
    real.msg_iov = &in;
    real.msg_iovlen = 1;
    real.msg_name = &from;
    real.msg_namelen = sizeof from;
    CHECK(recvmsg(fd, &real, 0) == size);
    CHECK(real.msg_namelen == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0);
    auto left = static_cast<unsigned>(size);
    for (auto* m = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
      CHECK(m->nlmsg_seq == 4711);
      CHECK(!done);
      if (m->nlmsg_type == NLMSG_DONE)
        done = true;
      else
        ++devices;
    }
  }
  CHECK(devices > 0);
  // Something nobody knows: an error, no silence.
  request.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, 999);
  request.nlmsg_flags = NLM_F_REQUEST;
  CHECK(sendmsg(fd, &message, 0) == sizeof request);
  char buffer[256];
  iovec in{buffer, sizeof buffer};
  msghdr answer{};
  answer.msg_iov = &in;
  answer.msg_iovlen = 1;
  CHECK(recvmsg(fd, &answer, MSG_DONTWAIT) > 0);
  CHECK(reinterpret_cast<nlmsghdr*>(buffer)->nlmsg_type == NLMSG_ERROR);
  close(fd);
  return 0;
}

// --- sysfs ----------------------------------------------------------------------------------------------------------

std::string read_file(const std::string& path) {
  FILE* file = fopen(path.c_str(), "r");
  if (file == nullptr) return "(none)";
  char text[256] = {};
  const bool read = fgets(text, sizeof text, file) != nullptr;
  fclose(file);
  return read ? text : "";
}

int sysfs() {
  struct stat st;
  const std::string ib = "/sys/class/infiniband/ewarp_lo", uverbs = "/sys/class/infiniband_verbs";
  CHECK(stat("/sys/class/infiniband", &st) == 0 && S_ISDIR(st.st_mode));
  CHECK(stat(ib.c_str(), &st) == 0 && S_ISDIR(st.st_mode));
  CHECK(read_file(ib + "/node_type") == "4: RNIC\n");
  CHECK(read_file(ib + "/ports/1/state") == "4: ACTIVE\n");
  CHECK(read_file(ib + "/ports/1/link_layer") == "Ethernet\n");
  CHECK(read_file(ib + "/ports/1/gids/0") == "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
  CHECK(read_file(ib + "/ports/1/gid_attrs/ndevs/0") == "lo\n");
  CHECK(read_file(ib + "/ports/1/pkeys/0") == "0xffff\n");
  CHECK(read_file("/sys/class/infiniband//ewarp_lo//ports/1/pkeys/0") == "0xffff\n");
  CHECK(read_file(ib + "/ports/1/pkeys/1") == "(none)" && errno == ENOENT);
  CHECK(read_file(ib + "/ports/2/state") == "(none)" && errno == ENOENT);
  CHECK(read_file(ib + "x/node_type") == "(none)" && errno == ENOENT);
  CHECK(read_file(uverbs + "/abi_version") == "6\n");
  CHECK(read_file("/sys/class/misc/rdma_cm/abi_version") == "4\n");
  CHECK(open((ib + "/node_type").c_str(), O_WRONLY) < 0 && errno == EACCES);
  CHECK(access((ib + "/node_type").c_str(), R_OK) == 0 && access((ib + "/node_type").c_str(), W_OK) < 0);

  std::string device;
  DIR* list = opendir(uverbs.c_str());
  CHECK(list != nullptr);
  while (const dirent* entry = readdir(list)) {
    if (strncmp(entry->d_name, "uverbs1", 7) != 0) continue;
    device = entry->d_name;
    const int at = openat(dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY);
    CHECK(at >= 0);
    const int file = openat(at, "ibdev", O_RDONLY);
    CHECK(file >= 0);
    char name[64];
    CHECK(read(file, name, sizeof name) > 6 && strncmp(name, "ewarp_", 6) == 0);
    close(file);
    close(at);
  }
  closedir(list);
  CHECK(!device.empty());
  const std::string node = "/dev/infiniband/" + device;
  CHECK(stat(node.c_str(), &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == 3999);
  CHECK(access(node.c_str(), R_OK | W_OK) == 0);
  CHECK(stat("/dev/infiniband/rdma_cm", &st) == 0 && S_ISCHR(st.st_mode));
  CHECK(stat("/dev/infiniband/uverbs999", &st) < 0 && errno == ENOENT);
  const int fd = open(node.c_str(), O_RDWR);
  CHECK(fd >= 256 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode));
  CHECK(ioctl(fd, FIONREAD, &st) < 0 && errno == ENOTTY);
  close(fd);
  return 0;
}

// --- everything else stays as it is ---------------------------------------------------------------------------------

int plain() {
  char path[] = "/tmp/ewarp-probe-XXXXXX";
  CHECK(mkdtemp(path) != nullptr);
  CHECK(chdir(path) == 0);
  umask(0);
  struct stat st;
  int fd = open("file", O_CREAT | O_EXCL | O_RDWR, 0640);
  CHECK(fd >= 0 && fd < 64);
  CHECK(fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0640);
  CHECK(write(fd, "octets", 6) == 6 && stat("file", &st) == 0 && st.st_size == 6);
  CHECK(close(fd) == 0 && close(fd) < 0 && errno == EBADF);
  CHECK(write(fd, "x", 1) < 0 && errno == EBADF);
  CHECK(write(-1, "x", 1) < 0 && errno == EBADF);
  CHECK(write(1 << 21, "x", 1) < 0 && errno == EBADF);
  fd = openat(AT_FDCWD, "file2", O_CREAT | O_WRONLY, 0604);
  CHECK(fstatat(AT_FDCWD, "file2", &st, 0) == 0 && (st.st_mode & 0777) == 0604);
  close(fd);
  fd = open(".", O_TMPFILE | O_RDWR, 0600);
  if (fd >= 0) CHECK(fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600 && close(fd) == 0);
  CHECK(open("absent", O_RDONLY) < 0 && errno == ENOENT);
  CHECK(stat("absent", &st) < 0 && errno == ENOENT);
  CHECK(symlink("file", "link") == 0);
  CHECK(lstat("link", &st) == 0 && S_ISLNK(st.st_mode) && stat("link", &st) == 0 && S_ISREG(st.st_mode));
  CHECK(access("file", R_OK) == 0 && access("absent", R_OK) < 0 && errno == ENOENT);
  CHECK(read_file("file") == "octets");
  CHECK(fopen("absent", "r") == nullptr && errno == ENOENT);
  DIR* list = opendir(".");
  CHECK(list != nullptr && dirfd(list) >= 0);
  closedir(list);
  CHECK(open("/dev/infinibandit", O_RDONLY) < 0 && errno == ENOENT);
  CHECK(stat("/sys/class/infinibandit", &st) < 0 && errno == ENOENT);

  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  char text[] = "message";
  iovec part{text, sizeof text};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  CHECK(sendmsg(pair[0], &message, 0) == sizeof text);
  int available = 0;
  CHECK(ioctl(pair[1], FIONREAD, &available) == 0 && available == sizeof text);
  CHECK(recvmsg(pair[1], &message, 0) == sizeof text);
  const int route = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  CHECK(route >= 0 || errno == EPERM || errno == EAFNOSUPPORT);
  close(route);
  close(pair[0]);
  close(pair[1]);
  for (const char* name : {"file", "file2", "link"}) unlink(name);
  CHECK(chdir("/") == 0);
  rmdir(path);
  return 0;
}

// --- other processes ------------------------------------------------------------------------------------------------

int wait_for(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int fork_and_exec() {
  ibv_context* context = open_first();
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  CHECK(channel != nullptr);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    // An inherited command fd is a file like any other; a device that is opened anew works.
    struct stat st;
    CHECK(fstat(context->cmd_fd, &st) == 0);
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    ibv_device** list = get_list();
    use_device(our_devices(list)[0]);
    _exit(0);
  }
  CHECK(wait_for(child) == 0);
  if (const char* plain = getenv("PLAIN_PRELOAD")) setenv("LD_PRELOAD", plain, 1);
  CHECK(system("exit 7") >> 8 == 7);
  FILE* pipe = popen("echo from a shell", "r");
  char line[64] = {};
  CHECK(pipe != nullptr && fgets(line, sizeof line, pipe) != nullptr && strcmp(line, "from a shell\n") == 0);
  CHECK(pclose(pipe) == 0);
  pid_t spawned;
  const char* const arguments[] = {"true", nullptr};
  CHECK(posix_spawnp(&spawned, "true", nullptr, nullptr, const_cast<char**>(arguments), environ) == 0);
  CHECK(wait_for(spawned) == 0);

  // The parent's objects are as they were.
  ibv_cq* cq = ibv_create_cq(context, 1, nullptr, channel, 0);
  CHECK(cq != nullptr);
  CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0 && ibv_close_device(context) == 0);
  return 0;
}

// A child of vfork() shares our memory, and its close() must not be taken for ours.
int vfork_closes() {
  ibv_context* context = open_first();
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  const int command = context->cmd_fd, events = channel->fd;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const pid_t child = vfork();
#pragma GCC diagnostic pop
  if (child == 0) {
    close(command);
    close(events);
    _exit(0);
  }
  CHECK(wait_for(child) == 0);
  ibv_gid gid;
  CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
  ibv_cq* cq = ibv_create_cq(context, 1, nullptr, channel, 0);
  CHECK(cq != nullptr);
  CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0 && ibv_close_device(context) == 0);
  return 0;
}

// A thread that asks a channel for an event just after another has closed it waits, as one that had asked just before.
int closed_channel() {
  struct {
    rdma_ucm_cmd_hdr header;
    rdma_ucm_get_event get;
  } command{};
  rdma_ucm_event_resp response;
  command.header = {RDMA_USER_CM_CMD_GET_EVENT, sizeof command.get, sizeof response};
  command.get.response = reinterpret_cast<std::uintptr_t>(&response);
  const auto refused = [&command](int fd) { return write(fd, &command, sizeof command) == -1 && errno == EBADF; };

  const int impatient = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK);
  CHECK(impatient >= 0 && close(impatient) == 0 && refused(impatient));
  const int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0 && close(fd) == 0);
  std::atomic<bool> returned{false};
  std::thread asks([&] {
    write(fd, &command, sizeof command);
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(!returned);
  CHECK(pthread_cancel(asks.native_handle()) == 0);
  asks.join();
  CHECK(!returned);
  command.header.cmd = RDMA_USER_CM_CMD_CREATE_ID;
  CHECK(refused(fd));
  command.header.cmd = RDMA_USER_CM_CMD_GET_EVENT;
  // Another file with the number is like any other.
  const int null = open("/dev/null", O_WRONLY);
  CHECK(dup2(null, fd) == fd && write(fd, &command, sizeof command) == sizeof command);
  CHECK(close(fd) == 0 && close(null) == 0 && refused(fd));
  return 0;
}

// Closed without close(), and the number used again.
int stale_numbers() {
  ibv_context* context = open_first();
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  const int command = context->cmd_fd, events = channel->fd;
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  CHECK(dup2(pipe_ends[1], command) == command && dup2(pipe_ends[0], events) == events);
  struct stat st;
  CHECK(fstat(command, &st) == 0 && S_ISFIFO(st.st_mode));
  int available = 1;
  CHECK(ioctl(events, FIONREAD, &available) == 0 && available == 0);
  CHECK(write(command, "x", 1) == 1);
  CHECK(ibv_create_comp_channel(context) == nullptr);
  CHECK(ibv_create_cq(context, 1, nullptr, channel, 0) == nullptr);
  CHECK(close(command) == 0 && close(events) == 0);
  return 0;
}

// The number comes back as a file of the same kind, for which the kernel has the same inode, and even the same id.
int stale_twins() {
  const int channel = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  struct stat st;
  CHECK(channel >= 0 && fstat(channel, &st) == 0 && S_ISCHR(st.st_mode));
  CHECK(syscall(SYS_close_range, channel, channel, 0) == 0);
  const int counter = eventfd(0, EFD_NONBLOCK);
  CHECK(dup2(counter, channel) == channel);
  CHECK(fstat(channel, &st) == 0 && !S_ISCHR(st.st_mode));
  const std::uint64_t seven = 7;
  std::uint64_t count = 0;
  CHECK(write(channel, &seven, sizeof seven) == sizeof seven);
  CHECK(read(counter, &count, sizeof count) == sizeof count && count == 7);

  ibv_context* context = open_first();
  const int command = context->cmd_fd;
  CHECK(fstat(command, &st) == 0);
  const dev_t ours = st.st_rdev;
  CHECK(syscall(SYS_close_range, command, command, 0) == 0);
  const int null = open("/dev/null", O_RDWR);
  CHECK(dup2(null, command) == command && fstat(command, &st) == 0 && st.st_rdev != ours);
  return 0;
}

// --- the twin -------------------------------------------------------------------------------------------------------

ibv_device* named(ibv_device** list, const char* name) {
  for (; *list != nullptr; ++list)
    if (strcmp(ibv_get_device_name(*list), name) == 0) return *list;
  return nullptr;
}

int twin() {
  ibv_device** list = get_list();
  ibv_device *rnic = named(list, "ewarp_lo"), *other = named(list, "ewarpx_lo");
  CHECK(rnic != nullptr && other != nullptr);
  CHECK(rnic->node_type == IBV_NODE_RNIC && rnic->transport_type == IBV_TRANSPORT_IWARP);
  CHECK(other->node_type == IBV_NODE_CA && other->transport_type == IBV_TRANSPORT_IB);
  CHECK(std::popcount(ibv_get_device_guid(rnic) ^ ibv_get_device_guid(other)) == 1);
  CHECK(read_file("/sys/class/infiniband/ewarpx_lo/node_type") == "1: CA\n");
  CHECK(read_file("/sys/class/infiniband/ewarpx_lo/ports/1/link_layer") == "Ethernet\n");

  ibv_context* context = ibv_open_device(other);
  CHECK(context != nullptr);
  ibv_port_attr port;
  CHECK(ibv_query_port(context, 1, &port) == 0 && port.link_layer == IBV_LINK_LAYER_ETHERNET);
  use_gids(context, port);
  CHECK(ibv_close_device(context) == 0);
  ibv_free_device_list(list);
  return 0;
}

int no_twin() {
  ibv_device** list = get_list();
  CHECK(named(list, "ewarpx_lo") == nullptr);
  ibv_free_device_list(list);
  CHECK(read_file("/sys/class/infiniband/ewarpx_lo/node_type") == "(none)");
  return 0;
}

// --- where netlink is forbidden -------------------------------------------------------------------------------------

int forbid_netlink(int error) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof rules / sizeof *rules, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return kSkip;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return kSkip;
  CHECK(syscall(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) < 0 && errno == error);
  return 0;
}

// --- libibverbs by dlopen -------------------------------------------------------------------------------------------

int by_dlopen() {
  // This program is linked to libibverbs, so only the paths can be asked before it: as UCX does.
  struct stat st;
  CHECK(stat("/dev/infiniband/rdma_cm", &st) == 0);
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  using GetList = ibv_device** (*)(int*);
  const auto get = reinterpret_cast<GetList>(dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1"));
  CHECK(get != nullptr);
  int n = 0;
  ibv_device** list = get(&n);
  CHECK(list != nullptr && n > 0);
  ibv_free_device_list(list);
  return 0;
}

struct Entry {
  const char* name;
  int (*run)();
};
constexpr Entry kAll[] = {
    {"devices", devices},     {"open", open_all},
    {"threads", threads},     {"close-early", close_early},
    {"netlink", netlink},     {"sysfs", sysfs},
    {"plain", plain},         {"fork", fork_and_exec},
    {"vfork", vfork_closes},  {"closed-channel", closed_channel},
    {"stale", stale_numbers}, {"stale-twins", stale_twins},
    {"dlopen", by_dlopen},    {"twin", twin},
    {"no-twin", no_twin},
};

}  // namespace

int main(int argc, char** argv) {
  int at = 1;
  if (argc > at && strncmp(argv[at], "no-netlink=", 11) == 0)
    if (const int status = forbid_netlink(atoi(argv[at++] + 11)); status != 0) return status;
  if (argc <= at) return 2;
  for (const Entry& entry : kAll)
    if (strcmp(entry.name, argv[at]) == 0) return entry.run();
  // Another program, under the same restrictions.
  execvp(argv[at], argv + at);
  return 2;
}
