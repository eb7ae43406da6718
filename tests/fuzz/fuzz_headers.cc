// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// DDP and RDMAP headers of one ULPDU: every parser on every offset that could be a header's; values print and emit.
#include <cstring>

#include "ddp/header.h"
#include "ddp/segment.h"
#include "ddp/untagged.h"
#include "rdmap/header.h"
#include "tests/fuzz/fuzz.h"

namespace ewarp::fuzz {
namespace {

// A value that parsed emits to something that parses to the same value.
template <class Header>
void check_fixed(Octets in) {
  const std::vector<std::byte> copy = exact(in);
  const auto got = Header::parse(copy);
  if (!got.ok()) return;
  std::vector<std::byte> out(Header::kSize, std::byte{0xa5});
  got.value().emit(std::span(out).template first<Header::kSize>());
  const auto again = Header::parse(out);
  FUZZ_CHECK(again.ok() && again.value() == got.value());
}

void check_terminate(Octets in) {
  const std::vector<std::byte> copy = exact(in);
  const auto got = rdmap::Terminate::parse(copy);
  if (!got.ok()) return;
  const auto emitted = got.value().emit();
  FUZZ_CHECK(emitted.size() >= 4 && emitted.size() <= 52 && emitted.size() <= in.size());
  auto again = rdmap::Terminate::parse(emitted);
  FUZZ_CHECK(again.ok() && !again.value().swapped);
  again.value().swapped = got.value().swapped;
  FUZZ_CHECK(again.value() == got.value());
  FUZZ_CHECK(!rdmap::to_string(got.value()).empty());
}

void check_queues(Octets in) {
  const auto h = ddp::UntaggedHeader::parse(in);
  if (!h.ok()) return;
  FUZZ_CHECK(!to_string(h.value()).empty());
  ddp::UntaggedQueues queues(4);
  if (queues.check_queue(h.value()).has_value()) return;
  FUZZ_CHECK(h.value().qn < 4 && h.value().msn == 1);
  const std::size_t payload = in.size() - ddp::UntaggedHeader::kSize;
  if (queues.check_offset(h.value(), payload).has_value()) return;
  queues.advance(h.value(), payload);
  FUZZ_CHECK(queues.in_message(h.value().qn) != h.value().last);
  FUZZ_CHECK(queues.check_queue(h.value()).has_value() == h.value().last);
}

void check_atomics(Octets in) {
  const auto a = rdmap::AtomicRequest::parse(in);
  if (!a.ok()) return;
  const auto& v = a.value();
  FUZZ_CHECK(rdmap::fetch_add(v.to, v.data, 0) == v.to + v.data);
  FUZZ_CHECK(rdmap::compare_swap(v.to, v.data, 0, v.compare, v.compare_mask) == v.to);
}

void check_all(Octets in) {
  check_fixed<ddp::TaggedHeader>(in);
  check_fixed<ddp::UntaggedHeader>(in);
  check_fixed<rdmap::ReadRequest>(in);
  check_fixed<rdmap::AtomicRequest>(in);
  check_fixed<rdmap::AtomicResponse>(in);
  check_terminate(in);
  check_queues(in);
  check_atomics(in);
}

}  // namespace
}  // namespace ewarp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  const ewarp::Octets in = Input(data, size).rest();
  check_all(in);
  // Behind MPA's length field, the tagged and the untagged header, with and without that field.
  for (const std::size_t skip : {2u, 14u, 16u, 18u, 20u})
    if (in.size() >= skip) check_all(in.subspan(skip));
  if (!in.empty()) {
    const auto opcode = ewarp::rdmap::opcode_of(ewarp::get_be<std::uint8_t>(in, 0));
    const auto* traits = ewarp::rdmap::traits(opcode);
    FUZZ_CHECK(traits == nullptr || std::strlen(traits->name) > 0);
  }
  return 0;
}
