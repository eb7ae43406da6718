// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One of several processes that send messages to each other over the channel; channel.py starts them and judges.
//
//   channel_peer DIRECTORY RANK RANKS SEED ROUNDS [VICTIM]
//
// Each writes its address to DIRECTORY/RANK and reads the others'. In every round each rank sends some messages to
// each other one; who sends what follows from the seed, so every receiver knows it too. VICTIM is a rank that will be
// killed: after the rounds it waits for that, and the others wait for messages from it that never come.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "channel_ends.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

struct Message {
  std::size_t from, to;
  Tag tag;
  std::size_t size;
  std::uint64_t number;
};

Bytes octets(const Message& m) {
  Bytes out(m.size);
  for (std::size_t i = 0; i < m.size; ++i)
    out[i] = static_cast<std::byte>(i < 8 ? m.number >> (8 * i) : m.from * 31 + m.number * 7 + i + (i >> 9));
  return out;
}

std::size_t size_of(std::mt19937& random) {
  static constexpr std::size_t kMost[] = {100, 4000, 14000, 45000, 300000};
  return 8 + random() % kMost[random() % std::size(kMost)];
}

class Peer {
 public:
  Peer(std::string directory, std::size_t rank, std::size_t ranks, unsigned seed)
      : rank_(rank), ranks_(ranks), random_(seed), endpoint_(open_endpoint()) {
    meet(Files(std::move(directory)));
  }

  void round(std::uint64_t number);
  void each_protocol();
  void to_oneself();
  void one_sided();
  void wait_for_the_end_of(std::size_t victim);
  void finish(std::size_t without);
  Endpoint& endpoint() { return *endpoint_; }

 private:
  struct Receive {
    Bytes data;
    Request request;
    const Message* message;  // null: from anybody
    std::size_t capacity;
  };

  void meet(const Files& files);
  void wait_for(std::vector<Request>& requests);
  std::size_t rank_of(PeerId peer) const;
  void check(const Receive& r, const Message& m, const Status& status) const;

  std::size_t rank_, ranks_;
  std::mt19937 random_;
  std::unique_ptr<Endpoint> endpoint_;
  std::vector<PeerId> peers_;
};

void Peer::meet(const Files& files) {
  files.write(std::to_string(rank_), endpoint_->address());
  for (std::size_t i = 0; i < ranks_; ++i) peers_.push_back(endpoint_->peer(files.wait_for(std::to_string(i))).value());
}

std::size_t Peer::rank_of(PeerId peer) const {
  const auto at = std::find(peers_.begin(), peers_.end(), peer);
  must(at != peers_.end(), "a message from a peer that nobody knows");
  return static_cast<std::size_t>(at - peers_.begin());
}

void Peer::check(const Receive& r, const Message& m, const Status& status) const {
  const std::string which = "message " + std::to_string(m.number) + " of rank " + std::to_string(m.from) + ": ";
  must(status.error == (m.size > r.capacity ? Error::truncated : Error::none), which + text(status.error));
  must(status.length == m.size && status.tag == m.tag && rank_of(status.source) == m.from, which + "another status");
  const Bytes want = octets(m);
  must(std::equal(r.data.begin(), r.data.begin() + static_cast<std::ptrdiff_t>(std::min(m.size, r.capacity)),
                  want.begin()),
       which + "other octets");
}

// Tags below 4 are received from their senders, tag 4 from anybody. Receives and sends are started in an order of this
// rank's own, so that either side may be first.
void Peer::round(std::uint64_t number) {
  std::vector<Message> all;
  for (std::size_t from = 0; from < ranks_; ++from)
    for (std::size_t to = 0; to < ranks_; ++to)
      for (auto n = random_() % 4; n > 0; --n)
        all.push_back({from, to, number * 8 + random_() % 5, size_of(random_), number * 100000 + all.size()});
  std::mt19937 order(static_cast<unsigned>(random_() + rank_ * 977));

  std::vector<const Message*> outgoing, incoming;
  std::map<std::size_t, std::vector<const Message*>> anybody;  // by sender, in order
  for (const Message& m : all) {
    if (m.from == rank_) outgoing.push_back(&m);
    if (m.to != rank_) continue;
    incoming.push_back(&m);
    if (m.tag % 8 == 4) anybody[m.from].push_back(&m);
  }
  std::vector<std::pair<Request, Bytes>> sends;
  std::vector<Receive> receives;
  receives.reserve(incoming.size());
  sends.reserve(outgoing.size());
  std::size_t next_out = 0, next_in = 0;
  while (next_out < outgoing.size() || next_in < incoming.size()) {
    const bool send = next_in == incoming.size() || (next_out < outgoing.size() && order() % 2 == 0);
    if (send) {
      const Message& m = *outgoing[next_out++];
      Bytes data = octets(m);
      const Request r = endpoint_->isend(peers_[m.to], m.tag, data, order() % 16 == 0);
      must(static_cast<bool>(r), "no request left");
      sends.emplace_back(r, std::move(data));
    } else {
      const Message& m = *incoming[next_in++];
      const bool any = m.tag % 8 == 4;
      const std::size_t capacity = any ? 400000 : order() % 8 == 0 ? m.size / 2 : m.size + (order() % 4 == 0 ? 100 : 0);
      Receive& r = receives.emplace_back(Receive{Bytes(capacity), {}, any ? nullptr : &m, capacity});
      r.request = endpoint_->irecv(any ? kAnySource : peers_[m.from], m.tag, r.data);
    }
    if (order() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(order() % 2000));
  }
  for (auto& [request, data] : sends) end_well(*endpoint_, request, "a send");
  for (Receive& r : receives) {
    const Status status = end_of(*endpoint_, r.request, "a receive");
    if (r.message == nullptr) {
      auto& queue = anybody[rank_of(status.source)];
      must(!queue.empty(), "more messages than were sent");
      check(r, *queue.front(), status);
      queue.erase(queue.begin());
    } else {
      check(r, *r.message, status);
    }
  }
}

// Ranks 0 and 1, in an order that leaves no choice: a small message tells that what was begun before it is there.
void Peer::each_protocol() {
  if (rank_ > 1) return;
  const PeerId other = peers_[1 - rank_];
  Bytes flag(8), hybrid(20000), announced(100000), large(100000);
  std::vector<Request> requests;
  const auto send = [&](Tag tag, const Bytes& data) { requests.push_back(endpoint_->isend(other, tag, data)); };
  const auto receive = [&](Tag tag, Bytes& data) { requests.push_back(endpoint_->irecv(other, tag, data)); };
  const auto hear = [&](Tag tag) {
    must(endpoint_->wait(endpoint_->irecv(other, tag, flag)).error == Error::none, "a small message does not come");
  };
  if (rank_ == 0) {
    send(8100, hybrid);
    send(8101, large);
    send(8102, flag);
    hear(8103);
    send(8104, announced);
  } else {
    hear(8102);
    receive(8100, hybrid);
    receive(8101, large);
    receive(8104, announced);
    send(8103, flag);
  }
  wait_for(requests);
}

// Rank 1 never asks for what rank 0 sends; it goes on with messages to itself, which end at once, until it is told.
void Peer::to_oneself() {
  if (rank_ > 1) return;
  struct Told final : Listener {
    void on_done(const Completion& done) override {
      error = done.status.error;
      ++count;
    }
    Error error = Error::none;  // before count
    std::atomic<int> count{0};
  };
  const PeerId other = peers_[1 - rank_];
  for (const std::size_t size : {8, 20000, 200000}) {
    Bytes in(size), flag(8), own(8);
    const Bytes out(size, std::byte{0x5a});
    std::vector<Request> requests;
    if (rank_ == 0) {
      requests.push_back(endpoint_->irecv(other, 8200, flag));
      wait_for(requests);
      std::this_thread::sleep_for(20ms);  // so that it has begun
      requests.push_back(endpoint_->isend(other, 8201, out));
      wait_for(requests);
      continue;
    }
    Told told;
    endpoint_->irecv(other, 8201, in, 0, ReceiveOptions{.report = {.listener = &told, .context = nullptr, .label = 0}});
    requests.push_back(endpoint_->isend(other, 8200, flag));
    wait_for(requests);
    const auto until = Clock::now() + 30s;
    while (told.count.load() == 0) {
      requests.push_back(endpoint_->irecv(peers_[rank_], 8202, own));
      requests.push_back(endpoint_->isend(peers_[rank_], 8202, flag));
      wait_for(requests);
      must(Clock::now() < until, "nothing comes to who talks to himself");
    }
    must(told.error == Error::none && in == out, "other octets than were sent");
  }
}

// Puts into every other rank's window and gets what was put, of sizes on both sides of the eager threshold, from and to
// buffers that stay the same: where registrations are kept, those of 5000 octets are used until one is a frequent one.
// How many uses that takes follows from what a registration costs on this machine; those of 200 never pay for it. Other
// octets of the windows stay as they were.
void Peer::one_sided() {
  constexpr std::size_t kSizes[] = {1, 200, 5000, 100000}, kSlot = 120000;
  constexpr std::byte kUntouched{0xa5};
  Bytes window(ranks_ * kSlot, kUntouched);
  auto exposed = endpoint_->expose(window);
  must(exposed.has_value(), "no window");
  std::vector<wire::Remote> windows(ranks_);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < ranks_; ++i) {
    if (i == rank_) continue;
    requests.push_back(endpoint_->irecv(peers_[i], 8000, std::as_writable_bytes(std::span(&windows[i], 1))));
    requests.push_back(endpoint_->isend(peers_[i], 8000, std::as_bytes(std::span(&exposed->remote, 1))));
  }
  wait_for(requests);
  std::map<std::size_t, std::vector<Bytes>> all_sources, all_targets;
  for (const std::size_t size : kSizes) all_sources[size] = all_targets[size] = std::vector<Bytes>(ranks_, Bytes(size));
  const char* const registration = std::getenv("EWARP_CHANNEL_REGISTRATION");
  const bool keeps = registration != nullptr && std::string_view(registration) == "kept";
  const auto found = [this] { return endpoint_->counters()[Count::frequent_buffer_sends] > 0; };
  for (std::size_t n = 0; n < 100 || (keeps && n < 20000 && !found()); ++n)
    for (const std::size_t size : kSizes) {
      if (n < 100 ? size > 5000 && n % 20 != 0 : size != 5000) continue;
      std::vector<Bytes>&sources = all_sources[size], &targets = all_targets[size];
      for (std::size_t i = 0; i < ranks_; ++i) std::ranges::copy(octets({rank_, i, 0, size, n}), sources[i].begin());
      for (std::size_t i = 0; i < ranks_; ++i) {
        if (i == rank_) continue;
        wire::Remote slot = windows[i];
        slot.address += rank_ * kSlot + 8;
        requests.push_back(endpoint_->put(peers_[i], sources[i], slot));
        requests.push_back(endpoint_->get(peers_[i], targets[i], slot));
      }
      wait_for(requests);
      for (std::size_t i = 0; i < ranks_; ++i)
        must(i == rank_ || targets[i] == sources[i], "a get brings other octets than were put");
    }
  finish(ranks_);
  for (std::size_t i = 0; i < ranks_; ++i) {
    const auto* slot = window.data() + i * kSlot;
    const std::size_t put = i == rank_ ? 0 : 100000;
    const Bytes want = octets({i, rank_, 0, put, 80});  // the last of that size
    for (std::size_t k = put > 0 ? 5000 : 0; k < put; ++k) must(slot[8 + k] == want[k], "a put brought other octets");
    must(std::all_of(slot, slot + 8, [](std::byte b) { return b == kUntouched; }) &&
             std::all_of(slot + 8 + put, slot + kSlot, [](std::byte b) { return b == kUntouched; }),
         "a put reached beyond its target");
  }
  endpoint_->conceal(*exposed);
}

void Peer::wait_for(std::vector<Request>& requests) {
  for (const Request r : std::exchange(requests, {})) end_well(*endpoint_, r);
}

// Every request that concerns it fails, and says so soon; one that concerns others does not.
void Peer::wait_for_the_end_of(std::size_t victim) {
  if (rank_ == victim) {
    std::printf("victim waits\n");
    std::fflush(stdout);
    for (;;) pause();
  }
  // The progress thread goes to rest with nothing to wait for; what is posted then must not be forgotten.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Bytes small(100), large(1 << 20), sent(1 << 20), any(100);
  std::vector<Request> concerned = {
      endpoint_->irecv(peers_[victim], 7000, small),
      endpoint_->irecv(peers_[victim], 7001, large),
      endpoint_->isend(peers_[victim], 7002, sent),
  };
  const Request other = endpoint_->irecv(kAnySource, 7003, any);
  std::printf("waits for the end\n");
  std::fflush(stdout);
  for (const Request r : concerned) {
    const Status status = end_of(*endpoint_, r, "a request of a dead peer");
    must(status.error == Error::peer_down, std::string("a request of a dead peer: ") + text(status.error));
  }
  std::printf("saw it after\n");
  must(endpoint_->wait(endpoint_->isend(peers_[victim], 7004, sent)).error == Error::peer_down,
       "a dead peer takes messages");
  Status status;
  must(!endpoint_->test(other, &status), "a receive from anybody ended, too");
  endpoint_->cancel(other);
  must(endpoint_->wait(other).error == Error::cancelled, "it cannot be cancelled");
}

// Nobody leaves before all have what they wait for: a message from everyone to everyone.
void Peer::finish(std::size_t without) {
  std::vector<Request> requests;
  std::vector<Bytes> data(ranks_, Bytes(50000));
  for (std::size_t i = 0; i < ranks_; ++i) {
    if (i == rank_ || i == without) continue;
    requests.push_back(endpoint_->irecv(peers_[i], 9000, data[i]));
    requests.push_back(endpoint_->isend(peers_[i], 9000, Octets(data[rank_])));
  }
  wait_for(requests);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const std::size_t rank = std::strtoul(argv[2], nullptr, 0), ranks = std::strtoul(argv[3], nullptr, 0);
  const auto seed = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 0));
  const std::size_t victim = argc > 6 ? std::strtoul(argv[6], nullptr, 0) : ranks;
  try {
    Peer peer(argv[1], rank, ranks, seed);
    const unsigned long rounds = std::strtoul(argv[5], nullptr, 0);
    for (unsigned long i = 1; i <= rounds; ++i) peer.round(i);
    if (victim == ranks) peer.each_protocol();
    if (victim == ranks) peer.to_oneself();
    if (victim == ranks) peer.one_sided();
    if (victim < ranks) peer.wait_for_the_end_of(victim);
    peer.finish(victim);
    peer.endpoint().close();
    std::printf("%s", peer.endpoint().counters().text().c_str());
  } catch (const std::exception& e) {
    std::printf("rank %zu, seed %u: %s\n", rank, seed, e.what());
    return 1;
  }
  std::printf("done\n");
  return 0;
}
