// Opening the device, and measuring what decides about copies.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "mpi_shim/channel/link.h"
#include "mpi_shim/channel/verbs_transport.h"

namespace ewarp::channel {
namespace {

constexpr std::size_t kFirstCqSize = 1024;

std::string failed(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

}  // namespace

VerbsTransport::VerbsTransport(const Tuning& tuning, const VerbsOptions& options)
    : tuning_(tuning), options_(options), address_(options.address) {}

VerbsTransport::~VerbsTransport() {
  for (Peer& peer : peers_)
    if (peer.connection) destroy(*peer.connection);
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  for (const Record& record : records_) give_back(record);
  cache_.reset();
  headers_.reset();
  bounces_.reset();
  sinks_.reset();
  for (ibv_mr* memory : {heartbeat_memory_, sink_memory_, everything_})
    if (memory != nullptr) ibv_dereg_mr(memory);
  if (cq_ != nullptr) {
    take_events();
    if (unacknowledged_ > 0) ibv_ack_cq_events(cq_, unacknowledged_);
    ibv_destroy_cq(cq_);
  }
  if (completions_ != nullptr) ibv_destroy_comp_channel(completions_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

std::string VerbsTransport::open() {
  if (address_.unspecified()) return address_.text() + " is no address that peers can use";
  std::string error;
  device_ = options_.device ? options_.device : Device::open(address_, &error);
  if (!device_) return error;
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return failed("rdma_create_event_channel");
  if (error = listen(); !error.empty()) return error;
  if (listener_->verbs != nullptr && listener_->verbs != device_->context())
    return address_.text() + " belongs to another device than " + device_->name();
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  return open_device();
}

std::string VerbsTransport::open_device() {
  context_ = device_->context();
  pd_ = device_->pd();
  longest_transfer_ = device_->longest_transfer();
  ibv_device_attr device{};
  if (ibv_query_device(context_, &device) != 0) return failed("ibv_query_device");
  read_depth_ =
      static_cast<std::uint8_t>(std::clamp(std::min(device.max_qp_rd_atom, device.max_qp_init_rd_atom), 1, 16));
  completions_ = ibv_create_comp_channel(context_);
  if (completions_ == nullptr) return failed("ibv_create_comp_channel");
  fcntl(completions_->fd, F_SETFL, fcntl(completions_->fd, F_GETFL) | O_NONBLOCK);
  cq_size_ = std::min(kFirstCqSize, static_cast<std::size_t>(device.max_cqe));
  cq_ = ibv_create_cq(context_, static_cast<int>(cq_size_), nullptr, completions_, 0);
  if (cq_ == nullptr) return failed("ibv_create_cq");
  heartbeat_memory_ = ibv_reg_mr(pd_, &heartbeat_, sizeof heartbeat_, IBV_ACCESS_REMOTE_READ);
  sink_memory_ = ibv_reg_mr(pd_, &heartbeat_sink_, sizeof heartbeat_sink_, kSink);
  if (heartbeat_memory_ == nullptr || sink_memory_ == nullptr) return failed("ibv_reg_mr");
  headers_ = std::make_unique<BufferPool>(pd_, wire::Message::kLongest, 64);
  bounces_ = std::make_unique<BufferPool>(pd_, wire::Message::kLongest + tuning_.eager_threshold, 8);
  sinks_ = std::make_unique<BufferPool>(pd_, std::max(tuning_.eager_threshold, std::size_t{1}), 8, kSink);
  costs_ = measure();
  if (!kept()) everything_ = register_everything();
  frequent_ = std::make_unique<FrequentBuffers>(costs_);
  return {};
}

// Null where the adapter wants to be told of each piece (no on-demand paging of the whole address space).
ibv_mr* VerbsTransport::register_everything() {
  constexpr std::uint32_t kNeeded = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE;
  ibv_device_attr_ex device{};
  if (ibv_query_device_ex(context_, nullptr, &device) != 0) return nullptr;
  const ibv_odp_caps& caps = device.odp_caps;
  if ((caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) == 0 || (caps.per_transport_caps.rc_odp_caps & kNeeded) != kNeeded)
    return nullptr;
  return ibv_reg_mr(pd_, nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND);
}

// The best of a few rounds: what else the machine does only makes it slower.
MemoryCosts VerbsTransport::measure() {
  constexpr std::size_t kOctets = 64 << 10;
  std::vector<std::byte> from(kOctets), to(kOctets);
  std::uint64_t registration = ~std::uint64_t{0}, copy = registration;
  for (int round = 0; round < 8; ++round) {
    std::uint64_t began = now();
    ibv_mr* mr = ibv_reg_mr(pd_, from.data(), from.size(), IBV_ACCESS_LOCAL_WRITE);
    if (mr != nullptr) ibv_dereg_mr(mr);
    registration = std::min(registration, now() - began);
    began = now();
    std::memcpy(to.data(), from.data(), kOctets);
    from[0] = to[static_cast<std::size_t>(round)];  // so that the copy is made
    copy = std::min(copy, now() - began);
  }
  dear_ = options_.registration == Registration::dear || kept() ||
          (options_.registration == Registration::measured && registration >= 5'000);
  return {.registration_ns = static_cast<double>(registration),
          .copy_ns_per_octet = static_cast<double>(copy) / kOctets,
          .lookup_ns = 50};
}

void VerbsTransport::attach(TransportEvents& events, Counters& counters, std::function<PeerId()> add_peer) {
  events_ = &events;
  counters_ = &counters;
  add_peer_ = std::move(add_peer);
  by_address_[address_] = 0;
  peers_.resize(1);
  peers_[0].address = address_;
  cache_ = std::make_unique<RegistrationCache>(pd_, kept() ? options_.kept_registrations : 0, counters);
}

bool VerbsTransport::room_in_cq(std::size_t more) {
  cq_used_ += more;
  if (cq_used_ <= cq_size_) return true;
  const std::size_t wanted = std::max(2 * cq_size_, cq_used_);
  if (ibv_resize_cq(cq_, static_cast<int>(wanted)) != 0) return false;
  cq_size_ = wanted;
  return true;
}

}  // namespace ewarp::channel
