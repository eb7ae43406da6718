// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/netif.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "llp/fd.h"

namespace ewarp::llp {

namespace {

class Socket {
 public:
  explicit Socket(int family) : fd_(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close_fd(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Any socket takes the interface ioctls but for IPv4's own (SIOCGIFNETMASK); a host may lack one of the families.
class AnySocket {
 public:
  int fd() const { return inet_.fd() >= 0 ? inet_.fd() : local_->fd(); }

 private:
  const Socket inet_{AF_INET};
  const std::optional<Socket> local_ = inet_.fd() < 0 ? std::optional<Socket>(std::in_place, AF_UNIX) : std::nullopt;
};

class AddressList {
 public:
  AddressList() {
    if (getifaddrs(&head_) == 0) return;
    head_ = nullptr;
    error_ = errno;
  }
  ~AddressList() {
    if (head_ != nullptr) freeifaddrs(head_);
  }
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
  const ifaddrs* head() const { return head_; }
  int error() const { return error_; }

 private:
  ifaddrs* head_ = nullptr;
  int error_ = 0;
};

const sockaddr_in& v4(const sockaddr& a) {
  return reinterpret_cast<const sockaddr_in&>(a);
}
const sockaddr_in6& v6(const sockaddr& a) {
  return reinterpret_cast<const sockaddr_in6&>(a);
}
const sockaddr& generic(const sockaddr_storage& a) {
  return reinterpret_cast<const sockaddr&>(a);
}

// The address without its port; an IPv4-mapped one as IPv4.
sockaddr_storage normal(const sockaddr& a) {
  sockaddr_storage result{};
  auto& as_v4 = reinterpret_cast<sockaddr_in&>(result);
  if (a.sa_family == AF_INET) {
    as_v4.sin_family = AF_INET;
    as_v4.sin_addr = v4(a).sin_addr;
  } else if (a.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6(a).sin6_addr)) {
    as_v4.sin_family = AF_INET;
    std::memcpy(&as_v4.sin_addr, &v6(a).sin6_addr.s6_addr[12], sizeof as_v4.sin_addr);
  } else if (a.sa_family == AF_INET6) {
    auto& as_v6 = reinterpret_cast<sockaddr_in6&>(result);
    as_v6.sin6_family = AF_INET6;
    as_v6.sin6_addr = v6(a).sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&as_v6.sin6_addr)) as_v6.sin6_scope_id = v6(a).sin6_scope_id;
  }
  return result;
}

sockaddr_storage mapped(const sockaddr& v4_address) {
  sockaddr_storage result{};
  auto& as_v6 = reinterpret_cast<sockaddr_in6&>(result);
  as_v6.sin6_family = AF_INET6;
  as_v6.sin6_addr.s6_addr[10] = as_v6.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&as_v6.sin6_addr.s6_addr[12], &v4(v4_address).sin_addr, sizeof(in_addr));
  return result;
}

unsigned prefix_length(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  if (mask->sa_family == AF_INET) return static_cast<unsigned>(std::popcount(v4(*mask).sin_addr.s_addr));
  unsigned bits = 0;
  for (const std::uint8_t octet : v6(*mask).sin6_addr.s6_addr) bits += static_cast<unsigned>(std::popcount(octet));
  return bits;
}

ifreq request(const std::string& name) {
  ifreq r{};
  name.copy(r.ifr_name, IFNAMSIZ - 1);
  return r;
}

unsigned index_of(int fd, const std::string& name) {
  ifreq r = request(name);
  return ioctl(fd, SIOCGIFINDEX, &r) == 0 ? static_cast<unsigned>(r.ifr_ifindex) : 0;
}

unsigned mtu_of(int fd, const std::string& name) {
  ifreq r = request(name);
  return ioctl(fd, SIOCGIFMTU, &r) == 0 ? static_cast<unsigned>(r.ifr_mtu) : 0;
}

std::uint64_t speed_of(int fd, const std::string& name) {
  ifreq r = request(name);
  ethtool_cmd command{};
  command.cmd = ETHTOOL_GSET;
  r.ifr_data = reinterpret_cast<char*>(&command);
  if (ioctl(fd, SIOCETHTOOL, &r) != 0) return 0;
  const std::uint32_t speed = ethtool_cmd_speed(&command);
  return speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : speed;
}

// The label of an IPv4 address ("eth0:1") stands where the name is expected.
std::string interface_name(const ifaddrs& entry) {
  const std::string label = entry.ifa_name;
  return label.substr(0, label.find(':'));
}

void set_flags(Interface& i, unsigned flags) {
  i.up = (flags & IFF_UP) != 0;
  i.running = (flags & IFF_RUNNING) != 0;
  i.loopback = (flags & IFF_LOOPBACK) != 0;
}

void add_entry(Interface& i, const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr) return;
  if (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6) {
    i.addresses.push_back({normal(*entry.ifa_addr), prefix_length(entry.ifa_netmask)});
  } else if (entry.ifa_addr->sa_family == AF_PACKET) {
    const auto& link = reinterpret_cast<const sockaddr_ll&>(*entry.ifa_addr);
    if (link.sll_halen == sizeof i.mac) std::memcpy(i.mac, link.sll_addr, sizeof i.mac);
  }
}

// IPv4, then global IPv6, then link-local; within each as the kernel lists them.
int rank(const Address& a) {
  if (a.address.ss_family == AF_INET) return 0;
  return IN6_IS_ADDR_LINKLOCAL(&v6(generic(a.address)).sin6_addr) ? 2 : 1;
}

// The interface of this name, added if it is new; its flags are the caller's to fill in then.
Interface& find_or_add(std::vector<Interface>& list, const std::string& name, int fd, bool* is_new) {
  const auto i = std::find_if(list.begin(), list.end(), [&](const Interface& x) { return x.name == name; });
  *is_new = i == list.end();
  if (!*is_new) return *i;
  Interface& added = list.emplace_back();
  added.name = name;
  added.index = index_of(fd, name);
  added.mtu = mtu_of(fd, name);
  added.speed_mbps = speed_of(fd, name);
  return added;
}

// --- where AF_NETLINK is forbidden (seccomp) there is no getifaddrs(): ioctls and /proc know the same ---

Interface& find_or_ask(std::vector<Interface>& list, const std::string& name, int fd) {
  bool is_new;
  Interface& i = find_or_add(list, name, fd, &is_new);
  if (!is_new) return i;
  ifreq r = request(name);
  if (ioctl(fd, SIOCGIFFLAGS, &r) == 0) set_flags(i, static_cast<unsigned short>(r.ifr_flags));
  if (ioctl(fd, SIOCGIFHWADDR, &r) == 0) std::memcpy(i.mac, r.ifr_hwaddr.sa_data, sizeof i.mac);
  return i;
}

void add_v4_by_ioctl(std::vector<Interface>& list, int fd) {
  std::vector<ifreq> entries(512);
  ifconf all{};
  all.ifc_len = static_cast<int>(entries.size() * sizeof(ifreq));
  all.ifc_req = entries.data();
  if (ioctl(fd, SIOCGIFCONF, &all) != 0) return;
  entries.resize(static_cast<std::size_t>(all.ifc_len) / sizeof(ifreq));
  for (ifreq& entry : entries) {
    const std::string label = entry.ifr_name;
    sockaddr_storage address{};  // whole, so that a look at it as IPv6 stays inside
    std::memcpy(&address, &entry.ifr_addr, sizeof entry.ifr_addr);
    const bool has_mask = ioctl(fd, SIOCGIFNETMASK, &entry) == 0;
    entry.ifr_netmask.sa_family = AF_INET;
    find_or_ask(list, label.substr(0, label.find(':')), fd)
        .addresses.push_back({normal(generic(address)), has_mask ? prefix_length(&entry.ifr_netmask) : 32});
  }
}

void add_v6_from_proc(std::vector<Interface>& list, int fd) {
  FILE* file = fopen("/proc/net/if_inet6", "re");
  if (file == nullptr) return;
  char digits[33], name[IFNAMSIZ];
  unsigned index, length;
  while (fscanf(file, "%32s %x %x %*x %*x %15s", digits, &index, &length, name) == 4) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_scope_id = index;
    for (std::size_t i = 0; i < 16; ++i) {
      const char pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
      address.sin6_addr.s6_addr[i] = static_cast<std::uint8_t>(std::strtoul(pair, nullptr, 16));
    }
    find_or_ask(list, name, fd).addresses.push_back({normal(reinterpret_cast<const sockaddr&>(address)), length});
  }
  fclose(file);
}

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

// What the first good answer was. Never freed, and no lock: a forked child may ask.
std::atomic<const std::vector<Interface>*> first_answer{nullptr};

std::optional<std::vector<Interface>> ask() {
  std::vector<Interface> result;
  const AddressList list;
  const AnySocket ask;
  if (out_of_descriptors(list.error()) || ask.fd() < 0) return std::nullopt;
  if (list.head() == nullptr) {
    add_v4_by_ioctl(result, ask.fd());
    add_v6_from_proc(result, ask.fd());
  }
  for (const ifaddrs* entry = list.head(); entry != nullptr; entry = entry->ifa_next) {
    bool is_new;
    Interface& i = find_or_add(result, interface_name(*entry), ask.fd(), &is_new);
    if (is_new) set_flags(i, entry->ifa_flags);
    add_entry(i, *entry);
  }
  for (Interface& i : result)
    std::stable_sort(i.addresses.begin(), i.addresses.end(),
                     [](const Address& a, const Address& b) { return rank(a) < rank(b); });
  // Gone between the two questions.
  std::erase_if(result, [](const Interface& i) { return i.index == 0; });
  if (first_answer.load(std::memory_order_relaxed) == nullptr) {
    auto answer = std::make_unique<const std::vector<Interface>>(result);
    const std::vector<Interface>* none = nullptr;
    if (first_answer.compare_exchange_strong(none, answer.get(), std::memory_order_acq_rel)) answer.release();
  }
  return result;
}

// To a program that has used its last descriptor, or on a host without memory, its interfaces must not seem gone.
std::vector<Interface> all() {
  if (auto now = ask()) return std::move(*now);
  const auto* before = first_answer.load(std::memory_order_acquire);
  return before != nullptr ? *before : std::vector<Interface>();
}

bool in_prefix(in_addr a, in_addr network, unsigned length) {
  const std::uint32_t mask = length == 0 ? 0 : ~std::uint32_t{0} << (32 - length);
  return ((ntohl(a.s_addr) ^ ntohl(network.s_addr)) & mask) == 0;
}

// Everything in a network of the loopback interface is local, not just its address: 127.0.0.2 as well as 127.0.0.1.
bool owns_v4(const Interface& i, const Address& own, const sockaddr& local) {
  return in_prefix(v4(local).sin_addr, v4(generic(own.address)).sin_addr, i.loopback ? own.prefix_length : 32);
}

bool owns_v6(const Address& own, const sockaddr& local) {
  const sockaddr_in6& mine = v6(generic(own.address));
  const sockaddr_in6& asked = v6(local);
  if (!IN6_ARE_ADDR_EQUAL(&mine.sin6_addr, &asked.sin6_addr)) return false;
  return asked.sin6_scope_id == 0 || asked.sin6_scope_id == mine.sin6_scope_id;
}

bool owns_normal(const Interface& i, const sockaddr& local) {
  return std::any_of(i.addresses.begin(), i.addresses.end(), [&](const Address& own) {
    if (own.address.ss_family != local.sa_family) return false;
    return local.sa_family == AF_INET ? owns_v4(i, own, local) : owns_v6(own, local);
  });
}

socklen_t size_of(sa_family_t family) {
  return static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
}

void set_port(sockaddr_storage& a, std::uint16_t port) {
  if (a.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in&>(a).sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6&>(a).sin6_port = htons(port);
}

}  // namespace

bool Address::operator==(const Address& other) const {
  return prefix_length == other.prefix_length && std::memcmp(&address, &other.address, sizeof address) == 0;
}

std::optional<std::vector<Interface>> look_at_interfaces() {
  return ask();
}

std::vector<Interface> interfaces() {
  std::vector<Interface> result = all();
  std::erase_if(result, [](const Interface& i) { return i.addresses.empty(); });
  return result;
}

std::optional<Interface> interface(unsigned index) {
  for (Interface& i : all())
    if (i.index == index) return std::move(i);
  return std::nullopt;
}

unsigned interface_of(const sockaddr& local) {
  const sockaddr_storage wanted = normal(local);
  if (wanted.ss_family != AF_INET && wanted.ss_family != AF_INET6) return 0;
  for (const Interface& i : all())
    if (owns_normal(i, generic(wanted))) return i.index;
  return 0;
}

bool owns(const Interface& i, const sockaddr& local) {
  return owns_normal(i, generic(normal(local)));
}

bool is_local(const sockaddr& address) {
  return interface_of(address) != 0;
}

int source_for(const sockaddr& to, sockaddr_storage* source) {
  constexpr std::uint16_t kDiscard = 9;  // any port will do: nothing is sent
  sockaddr_storage target = normal(to);
  if (target.ss_family != AF_INET && target.ss_family != AF_INET6) return EAFNOSUPPORT;
  set_port(target, kDiscard);
  const Socket ask(target.ss_family);
  if (ask.fd() < 0) return errno;
  if (connect(ask.fd(), &generic(target), size_of(target.ss_family)) != 0) return errno;
  sockaddr_storage found{};
  socklen_t size = sizeof found;
  if (getsockname(ask.fd(), reinterpret_cast<sockaddr*>(&found), &size) != 0) return errno;
  set_port(found, 0);
  *source = to.sa_family == AF_INET6 && found.ss_family == AF_INET ? mapped(generic(found)) : found;
  return 0;
}

}  // namespace ewarp::llp
