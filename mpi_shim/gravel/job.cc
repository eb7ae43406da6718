// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Beginning and end of a job, and what carries the machine's octets.
#include "mpi_shim/gravel/job.h"

#include <unistd.h>

#include <cstdlib>
#include <new>

#include "mpi_shim/gravel/text.h"

namespace ewarp::gravel {
namespace {

constexpr channel::Tag kFarewell = 1, kWatching = 2;

// What a completion's label says: the end of a peer, nothing of interest, or otherwise a transfer's request and the
// slot of its buffer.
constexpr std::uint64_t kEnd = std::uint64_t{1} << 63, kNothing = std::uint64_t{1} << 62;

// How a transfer ended.
Error outcome(channel::Error error) {
  if (error == channel::Error::none) return Error::none;
  return error == channel::Error::no_memory ? Error::memory : Error::peer;
}

std::uint64_t transfer_label(RequestId request, const Local& own) {
  return std::uint64_t{own.slot} << 32 | request;
}

// Open MPI and MPICH tell how many processes of the job are on this host.
bool too_few_cpus() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* ranks = std::getenv(name)) return std::atol(ranks) > sysconf(_SC_NPROCESSORS_ONLN);
  return false;
}

// The channel carries puts, gets and farewells here, and no messages of a size worth tuning for: little memory a peer.
channel::EndpointOptions channel_options(const std::string& secret) {
  channel::EndpointOptions defaults;
  defaults.address.clear();
  defaults.shares_cpu = too_few_cpus();
  auto options = channel::EndpointOptions::from_environment(defaults);
  const std::uint64_t death_ns = options.tuning.death_ns;
  options.tuning = {};
  options.tuning.death_ns = death_ns;
  options.tuning.eager_threshold = 1024;
  options.tuning.receive_depth = 8;
  options.tuning.hybrid_buffers = 0;
  options.progress_thread = true;
  options.job += secret;
  return options;
}

}  // namespace

Job::Job(const Bootstrap& bootstrap, Boards&& boards, std::shared_ptr<channel::Device> device)
    : rank_(bootstrap.rank),
      device_(std::move(device)),
      boards_(std::move(boards)),
      machine_(bootstrap.rank, bootstrap.procs, boards_.data(), *this),
      peers_(static_cast<std::size_t>(bootstrap.procs)) {}

Job::~Job() {
  if (endpoint_) {
    try {
      say_farewell();
    } catch (const std::bad_alloc&) {  // who is not told sees that the connection ends
    }
    endpoint_->close();
  }
  for (const auto& region : regions_)
    if (region) device_->conceal(*region);
}

// --- the beginning ---

std::unique_ptr<Job> Job::open(const Bootstrap& bootstrap, const std::string& secret, std::string* why) {
  channel::EndpointOptions options = channel_options(secret);
  Interface interface = find_interface(options.address, why);
  if (!interface.device) return nullptr;
  auto boards = Boards::make(bootstrap.procs, interface.device);
  if (!boards) {
    *why = "no memory for the ledgers";
    return nullptr;
  }
  interface.address.port = 0;  // processes of one host would ask for the same
  options.address = interface.address.text();
  options.device = interface.device;
  std::unique_ptr<Job> job(new Job(bootstrap, std::move(*boards), std::move(interface.device)));
  job->endpoint_ = channel::Endpoint::open(options, why);
  return job->endpoint_ ? std::move(job) : nullptr;
}

// The others wait for this process's card, whatever goes wrong here.
std::unique_ptr<Job> Job::open_or_say_why(const Bootstrap& bootstrap, const std::string& secret, std::string* why) {
  try {
    return open(bootstrap, secret, why);
  } catch (const std::exception& e) {
    *why = e.what();
    return nullptr;
  }
}

Card Job::card() const {
  Card out;
  const Remote boards = boards_.remote();
  out.key = boards.key;
  out.boards = boards.address;
  set_text(out.address, endpoint_->address());
  return out;
}

Error Job::meet(const std::vector<Card>& cards, std::string* reason) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const auto id = endpoint_->peer(std::string(cards[i].address.data()));
    if (!id) {
      *reason = "process " + std::to_string(i) + " has no address";
      return Error::job;
    }
    const std::size_t ours = static_cast<std::size_t>(rank_) * board::kOctets;
    peers_[i] = {.id = *id, .board = {cards[i].boards + ours, cards[i].key}};
  }
  return Error::none;
}

// What keeps a process from taking part; empty if nothing does.
static std::string obstacle(const Card& card, std::size_t proc) {
  const std::string who = "process " + std::to_string(proc);
  if (card.version != Card::kVersion)
    return who + " has version " + std::to_string(card.version) + " of Gravel, this one has version " +
           std::to_string(Card::kVersion);
  return card.address[0] == '\0' ? who + ": " + card.why.data() : "";
}

std::unique_ptr<Job> Job::start(const Bootstrap& bootstrap, Error* error, std::string* reason) {
  *error = Error::job;
  *reason = "the gather failed";
  const std::string secret = share_secret(bootstrap);
  if (secret.empty()) return nullptr;
  std::string why;
  auto job = open_or_say_why(bootstrap, secret, &why);
  Card mine = job ? job->card() : Card{};
  if (!job) set_text(mine.why, why);
  const std::vector<Card> cards = bootstrap.all(mine);
  if (cards.empty()) return nullptr;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    *reason = obstacle(cards[i], i);
    if (reason->empty()) continue;
    *error = cards[i].version == Card::kVersion ? Error::device : Error::job;
    return nullptr;
  }
  *error = job->meet(cards, reason);
  return *error == Error::none ? std::move(job) : nullptr;
}

// --- ends of peers ---

// A receive that nobody sends for before he leaves: it ends with him, in order or not. It makes the channel look after
// a silent peer, too. The peer is told, so that it says farewell even if it never has to do with this process.
bool Job::watch(Proc proc) {
  if (!is_peer(proc) || peer(proc).told) return true;
  Peer& p = peer(proc);
  if (!p.watched) {
    const auto end = report(kEnd | static_cast<std::uint64_t>(proc));
    p.watched =
        events_.expect([&] { return static_cast<bool>(endpoint_->irecv(p.id, kFarewell, {}, 0, {.report = end})); });
  }
  if (!p.watched) return false;
  p.told = static_cast<bool>(endpoint_->isend(p.id, kWatching, {}, {.inject = true, .report = report(kNothing)}));
  return p.told;
}

bool Job::watch_source(Proc proc) {
  if (proc != kAnySource) return watch(proc);
  while (watched_ < machine_.procs() && watch(watched_)) ++watched_;
  return watched_ == machine_.procs();
}

bool Job::watches_us(Proc proc) {
  return peer(proc).watched || endpoint_->iprobe(peer(proc).id, kWatching).has_value();
}

void Job::say_farewell() {
  for (Proc proc = 0; proc < machine_.procs(); ++proc)
    if (is_peer(proc) && machine_.peer_state(proc) == Machine::PeerState::present && watches_us(proc))
      endpoint_->isend(peer(proc).id, kFarewell, {}, {.inject = true, .report = report(kNothing)});
}

// --- what carries the octets ---

bool Job::enter(Proc to, std::size_t offset, Octets octets) {
  const Remote& board = peer(to).board;
  return static_cast<bool>(endpoint_->put(peer(to).id, octets, {board.address + offset, board.key},
                                          {.inject = true, .report = report(kNothing)}));
}

bool Job::put(Proc to, const Local& source, Remote target, RequestId request) {
  const bool taken = events_.expect([&] {
    return static_cast<bool>(endpoint_->put(peer(to).id, {source.data, source.size}, {target.address, target.key},
                                            {.report = report(transfer_label(request, source))}));
  });
  if (taken) buffers_.use(source);  // its end is handled later, by this thread
  return taken;
}

bool Job::get(Proc from, const Local& target, Remote source, RequestId request) {
  const bool taken = events_.expect([&] {
    return static_cast<bool>(endpoint_->get(peer(from).id, {target.data, target.size}, {source.address, source.key},
                                            report(transfer_label(request, target))));
  });
  if (taken) buffers_.use(target);
  return taken;
}

void Job::on_done(const channel::Completion& completion) {
  if (completion.label != kNothing) events_.add({.label = completion.label, .error = completion.status.error});
}

void Job::handle(const Event& event) {
  if (event.label & kEnd)
    return machine_.on_gone(static_cast<Proc>(event.label & ~kEnd), event.error == channel::Error::none);
  buffers_.leave(static_cast<std::uint32_t>(event.label >> 32));
  machine_.on_moved(static_cast<RequestId>(event.label), outcome(event.error));
}

void Job::pump(Proc proc) {
  endpoint_->progress();
  events_.handle_all([this](const Event& event) { handle(event); });
  if (proc != kAnySource) machine_.look(proc);
  machine_.look_around();
}

}  // namespace ewarp::gravel
