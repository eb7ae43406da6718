// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the ends of channels post.
#include <cstring>

#include "mpi_shim/acp/channels.h"

namespace ewarp::acp {

void Channels::post(End& end, Subject subject, Post p) {
  p.peer = end.peer();
  p.id = id_of(subject, end.number());
  end.posted();
  path_.post(p);
}

// Processes begin at different entries, so that their first claims seldom meet.
std::uint64_t Channels::entry_at(std::uint32_t peer, std::uint32_t entry) const {
  return path_.peers[peer].contact.address + offsetof(Area, requests) + entry * sizeof(ConnectRequest);
}

// Channels of a pair are connected one by one (Peer).
bool Channels::claim(Sender& end, std::uint32_t entry) {
  const Peer& peer = path_.peers[end.peer()];
  if (end.order() != peer.sends_answered || !path_.has_room()) return false;
  entry = (entry + path_.rank) % ConnectRequests::kEntries;
  post(end, Subject::claim,
       {.what = Operation::swap_if,
        .remote = entry_at(end.peer(), entry) + offsetof(ConnectRequest, owner),
        .rkey = peer.contact.rkey,
        .local = &end.words().found,
        .octets = sizeof end.words().found,
        .lkey = lkey(end),
        .value = std::uint64_t{path_.rank} + 1});
  return true;
}

bool Channels::ask(Sender& end, std::uint32_t entry) {
  if (!path_.has_room()) return false;
  entry = (entry + path_.rank) % ConnectRequests::kEntries;
  ConnectRequest request{};
  request.rank = path_.rank;
  request.end = end.number();
  request.address = reinterpret_cast<std::uintptr_t>(&end.words());
  request.rkey = path_.transport.registration(end.region).rkey;
  request.slot_size = send_shape_.slot_size;
  request.mode = static_cast<std::uint32_t>(send_shape_.mode);
  post(end, Subject::other,
       {.what = Operation::write_notice,
        .remote = entry_at(end.peer(), entry) + kRequestBody,
        .rkey = path_.peers[end.peer()].contact.rkey,
        .immediate = Immediate{Notice::request, entry, 0}.emit(),
        .local = &request.rank,
        .octets = sizeof request - kRequestBody,
        .copied = true});
  return true;
}

Put Channels::put(Sender& end, std::uint32_t from, std::uint32_t to, std::uint32_t octets, std::uint32_t filled) {
  const bool paper = send_shape_.mode == Mode::paper;
  if (!path_.has_room(paper ? 2 : 1)) return Put::no_room;
  const bool copied = octets <= path_.transport.most_copied();
  const Remote remote = end.remote();
  const std::uint64_t slots = remote.address + sizeof(ReceiverWords);
  post(end, copied ? Subject::other : Subject::put,
       {.what = paper ? Operation::write : Operation::write_notice,
        .remote = slots + std::uint64_t{to} * send_shape_.slot_size,
        .rkey = remote.rkey,
        .immediate = Immediate{Notice::slot, end.remote_end(), 0}.emit(),
        .local = end.slot(from),
        .octets = octets,
        .lkey = copied ? 0 : lkey(end),
        .copied = copied});
  if (paper)
    post(end, Subject::other,
         {.what = Operation::publish,
          .remote = remote.address + offsetof(ReceiverWords, tail),
          .rkey = remote.rkey,
          .value = filled,
          .compare = std::uint64_t{filled} - 1});
  return copied ? Put::copied : Put::posted;
}

bool Channels::answer(Receiver& end) {
  if (!path_.has_room()) return false;
  Answer answer = end.answer();
  answer.rkey = path_.transport.registration(end.region).rkey;
  const Remote remote = end.remote();
  post(end, Subject::other,
       {.what = Operation::write_notice,
        .remote = remote.address + offsetof(SenderWords, answer),
        .rkey = remote.rkey,
        .immediate = Immediate{Notice::answer, end.remote_end(), 0}.emit(),
        .local = &answer,
        .octets = sizeof answer,
        .copied = true});
  return true;
}

bool Channels::credit(Receiver& end, std::uint32_t n, std::uint32_t emptied) {
  if (receive_shape_.mode == Mode::immediate) return notify(end, Notice::credit, n);
  if (!path_.has_room()) return false;
  const Remote remote = end.remote();
  post(end, Subject::other,
       {.what = Operation::publish,
        .remote = remote.address + offsetof(SenderWords, head),
        .rkey = remote.rkey,
        .value = emptied,
        .compare = std::uint64_t{emptied} - n});
  return true;
}

bool Channels::tell_closed(Receiver& end) {
  return notify(end, Notice::closed, 0);
}

bool Channels::notify(Receiver& end, Notice notice, std::uint32_t count) {
  if (!path_.has_room()) return false;
  const Remote remote = end.remote();
  post(end, Subject::other,
       {.what = Operation::write_notice,
        .remote = remote.address,
        .rkey = remote.rkey,
        .immediate = Immediate{notice, end.remote_end(), count}.emit()});
  return true;
}

}  // namespace ewarp::acp
