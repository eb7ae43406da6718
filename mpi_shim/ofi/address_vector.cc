// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/address_vector.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi_shim/ofi/fid.h"

namespace ewarp::ofi {

AddressVector::AddressVector(Domain& domain, fi_av_type t, bool events, void* context_)
    : type(t == FI_AV_UNSPEC ? FI_AV_TABLE : t), has_events(events), domain_(domain) {
  fid = {.fclass = FI_CLASS_AV, .context = context_, .ops = nullptr};
  ++domain_.users;
}

AddressVector::~AddressVector() {
  if (EventQueue* q = queue()) --q->users;
  --domain_.users;
}

int AddressVector::bind(EventQueue& queue) {
  EventQueue* none = nullptr;
  if (!queue_.compare_exchange_strong(none, &queue)) return -FI_EINVAL;
  ++queue.users;
  return 0;
}

fi_addr_t AddressVector::insert(const channel::Address& address) {
  const llp::Guard lock(mutex_);
  const auto [at, added] = by_address_.try_emplace(address, size_);
  if (added)
    entries_.make(size_++).address = address;
  else
    repeated_.fetch_add(1, std::memory_order_release);
  ++entries_.find(at->second)->insertions;
  return at->second;
}

bool AddressVector::remove(fi_addr_t at) {
  const llp::Guard lock(mutex_);
  Entry* e = at < size_ ? entries_.find(at) : nullptr;
  if (e == nullptr || e->insertions == 0) return false;
  if (--e->insertions == 0) by_address_.erase(e->address);
  return true;
}

std::optional<channel::Address> AddressVector::find(fi_addr_t at) {
  const llp::Guard lock(mutex_);
  const Entry* e = at < size_ ? entries_.find(at) : nullptr;
  return e != nullptr && e->insertions > 0 ? std::optional(e->address) : std::nullopt;
}

fi_addr_t AddressVector::find(const channel::Address& address) {
  const llp::Guard lock(mutex_);
  const auto at = by_address_.find(address);
  return at == by_address_.end() ? FI_ADDR_NOTAVAIL : at->second;
}

namespace {

using channel::Address;
using Addresses = std::vector<std::optional<Address>>;  // nothing: it is no address, or nobody knows the name

// One of an array of addresses, all of the family of the first.
std::optional<Address> element(const void* addresses, std::size_t i) {
  const auto* first = static_cast<const sockaddr*>(addresses);
  const std::size_t size = first->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return Address::from(*reinterpret_cast<const sockaddr*>(static_cast<const std::byte*>(addresses) + i * size));
}

std::optional<Address> resolve(const char* node, const char* service) {
  addrinfo wanted{}, *list = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(node, service, &wanted, &list) != 0) return std::nullopt;
  const auto out = Address::from(*list->ai_addr);
  freeaddrinfo(list);
  return out;
}

// 0, or why a vector does not take such insertions. A context, with FI_SYNC_ERR, is an array for the errors.
int check(const AddressVector& v, std::uint64_t flags) {
  if ((flags & ~(FI_MORE | FI_SYNC_ERR)) != 0 || (v.has_events && (flags & FI_SYNC_ERR) != 0)) return -FI_EBADFLAGS;
  return v.has_events && v.queue() == nullptr ? -FI_ENOEQ : 0;
}

// How many were inserted; with events 0, and they tell it.
int insert_all(AddressVector& v, const Addresses& addresses, fi_addr_t* out, std::uint64_t flags, void* context) {
  int* errors = (flags & FI_SYNC_ERR) != 0 ? static_cast<int*>(context) : nullptr;
  int inserted = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto& a = addresses[i];
    const bool good = a && !a->unspecified() && a->port != 0;
    const fi_addr_t at = good ? v.insert(*a) : FI_ADDR_NOTAVAIL;
    if (out != nullptr) out[i] = at;
    if (errors != nullptr) errors[i] = good ? 0 : FI_EINVAL;
    if (!good && v.has_events) {
      fi_eq_err_entry e{};
      e.fid = &v.fid;
      e.context = context;
      e.data = i;
      e.err = FI_EINVAL;
      v.queue()->tell_error(e);
    }
    inserted += good ? 1 : 0;
  }
  if (!v.has_events) return inserted;
  v.queue()->tell(FI_AV_COMPLETE, {.fid = &v.fid, .context = context, .data = static_cast<std::uint64_t>(inserted)});
  return 0;
}

int insert(fid_av* v, const void* addresses, size_t count, fi_addr_t* out, uint64_t flags, void* context) {
  AddressVector& to = AddressVector::from(v);
  if (const int error = check(to, flags); error != 0) return error;
  Addresses all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(element(addresses, i));
  return insert_all(to, all, out, flags, context);
}

int insert_service(fid_av* v, const char* node, const char* service, fi_addr_t* out, uint64_t flags, void* context) {
  AddressVector& to = AddressVector::from(v);
  if (node == nullptr || service == nullptr) return -FI_EINVAL;
  if (const int error = check(to, flags); error != 0) return error;
  const auto address = resolve(node, service);
  if (!address && !to.has_events) return -FI_ENODATA;
  return insert_all(to, {address}, out, flags, context);
}

// node0, node1, ... each with ports service, service + 1, ...
int insert_symmetric(fid_av* v, const char* node, size_t nodes, const char* service, size_t services, fi_addr_t* out,
                     uint64_t flags, void* context) {
  AddressVector& to = AddressVector::from(v);
  if (node == nullptr || service == nullptr) return -FI_EINVAL;
  if (const int error = check(to, flags); error != 0) return error;
  std::string base = node;
  const std::size_t digits = base.size() - (base.find_last_not_of("0123456789") + 1);
  if (nodes > 1 && digits == 0) return -FI_EINVAL;
  const unsigned long first = nodes > 1 ? std::stoul(base.substr(base.size() - digits)) : 0;
  const unsigned long port = std::stoul(service);
  if (nodes > 1) base.resize(base.size() - digits);
  Addresses all;
  for (std::size_t n = 0; n < nodes; ++n)
    for (std::size_t s = 0; s < services; ++s) {
      const std::string host = nodes > 1 ? base + std::to_string(first + n) : base;
      all.push_back(resolve(host.c_str(), std::to_string(port + s).c_str()));
    }
  return insert_all(to, all, out, flags, context);
}

int bind(struct fid* f, struct fid* queue, uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  if (queue->fclass != FI_CLASS_EQ) return -FI_EINVAL;
  return object<AddressVector, fid_av>(f).bind(object<EventQueue, fid_eq>(queue));
}

int remove(fid_av* v, fi_addr_t* at, size_t count, uint64_t) noexcept {
  int result = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (!AddressVector::from(v).remove(at[i])) result = -FI_EINVAL;
  return result;
}

int lookup(fid_av* v, fi_addr_t at, void* out, size_t* length) noexcept {
  const auto address = AddressVector::from(v).find(at);
  if (!address) return -FI_EINVAL;
  const sockaddr_storage s = address->socket_address();
  const std::size_t size = address->v4() ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (*length > 0) std::memcpy(out, &s, std::min(size, *length));  // without room there may be no address of it
  *length = size;
  return 0;
}

const char* text_of(fid_av*, const void* address, char* buffer, size_t* length) noexcept {
  const auto a = Address::from(*static_cast<const sockaddr*>(address));
  const std::string text = a ? (a->v4() ? "fi_sockaddr_in://" : "fi_sockaddr_in6://") + a->text() : "?";
  if (buffer != nullptr && *length > 0) {
    std::strncpy(buffer, text.c_str(), *length - 1);
    buffer[*length - 1] = '\0';
  }
  *length = text.size() + 1;
  return buffer;
}

int close_vector(struct fid* f) noexcept {
  auto& v = object<AddressVector, fid_av>(f);
  if (v.users.load() > 0) return -FI_EBUSY;
  delete &v;
  return 0;
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close_vector,
                  .bind = entry<bind>,
                  .control = kUnsupported,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_av vector_ops = {.size = sizeof(fi_ops_av),
                        .insert = entry<insert>,
                        .insertsvc = entry<insert_service>,
                        .insertsym = entry<insert_symmetric>,
                        .remove = remove,
                        .lookup = lookup,
                        .straddr = text_of,
                        .av_set = kUnsupported};

}  // namespace

int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** out, void* context) noexcept {
  return guarded([&] {
    if (attributes->name != nullptr || (attributes->flags & FI_READ) != 0 || attributes->rx_ctx_bits > 0)
      return -FI_ENOSYS;
    if ((attributes->flags & ~(FI_EVENT | FI_SYMMETRIC)) != 0) return -FI_EBADFLAGS;
    auto v = std::make_unique<AddressVector>(Domain::from(domain), attributes->type,
                                             (attributes->flags & FI_EVENT) != 0, context);
    attributes->type = v->type;
    v->fid.ops = &fid_ops;
    v->ops = &vector_ops;
    *out = v.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
