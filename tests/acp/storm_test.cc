// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Random sends, receives and frees on random buffers, against a reference: the n-th receive gets the n-th message, as
// much of it as fits. EWARP_SEED=n repeats a run, EWARP_SEEDS=n makes more.
#include <cerrno>

#include "tests/acp/scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::acp::test {
namespace {

struct Message {
  std::vector<std::byte> octets;
  Request* request;
};

class Storm {
 public:
  explicit Storm(unsigned seed) : random_(seed), scene_(options()), pool_(1u << 16) {}

  void run() {
    for (int i = 0; i < 4000; ++i) {
      if (random_() % 8 == 0) send();
      if (random_() % 8 == 0) receive();
      if (!scene_.receiver_exists && random_() % 64 == 0) scene_.create_receiver();
      scene_.now += random_() % 10'000;
      scene_.step(random_);
      assert_false(scene_.lies);
    }
    finish();
    compare();
  }

 private:
  Options options() {
    return {.slot = 16u + 8 * static_cast<std::uint32_t>(random_() % 16),
            .send_slots = 1 + static_cast<std::uint32_t>(random_() % 4),
            .receive_slots = 1 + static_cast<std::uint32_t>(random_() % 9),
            .mode = random_() % 2 == 0 ? Mode::paper : Mode::immediate,
            .copied = static_cast<std::uint32_t>(random_() % 3 * 32),
            .refuse = static_cast<unsigned>(random_() % 2 * (2 + random_() % 5))};
  }
  std::size_t length() { return random_() % 4 == 0 ? random_() % 1000 : random_() % 40; }
  void send() {
    std::vector<std::byte> octets(length());
    for (auto& o : octets) o = static_cast<std::byte>(random_());
    begin(scene_.sender, Kind::send, sent_, std::move(octets));
  }
  void receive() {
    begin(scene_.receiver, Kind::receive, received_, std::vector<std::byte>(length(), std::byte{0xee}));
  }
  void begin(End& end, Kind kind, std::vector<Message>& list, std::vector<std::byte> octets) {
    list.push_back({std::move(octets), nullptr});
    auto& m = list.back();
    m.request = pool_.take(kind, m.octets.data(), m.octets.size());
    assert_non_null(m.request);
    end.push(*m.request);
  }
  // Frees in either order; the fewer of sends and receives decide what must have happened.
  void finish() {
    Request* frees[2];
    End* ends[2] = {&scene_.sender, &scene_.receiver};
    for (int i = 0; i < 2; ++i) {
      frees[i] = pool_.take(Kind::free, nullptr, 0);
      ends[i]->set_freed();
      ends[i]->push(*frees[i]);
    }
    if (!scene_.receiver_exists) scene_.create_receiver();
    for (int i = 0; i < 200'000 && !(scene_.sender.over() && scene_.receiver.over()); ++i) {
      scene_.now += 10'000;
      scene_.step(random_);
      assert_false(scene_.lies);
    }
    assert_true(scene_.sender.over() && scene_.receiver.over());
    assert_true(frees[0]->done && frees[0]->error == 0 && frees[1]->done && frees[1]->error == 0);
  }
  void compare() {
    for (const auto& m : sent_) assert_true(m.request->done && m.request->error == 0);
    for (std::size_t i = 0; i < received_.size(); ++i) {
      const auto& r = received_[i];
      assert_true(r.request->done);
      assert_int_equal(r.request->error, i < sent_.size() ? 0 : EPIPE);
      const std::size_t n = i < sent_.size() ? std::min(sent_[i].octets.size(), r.octets.size()) : 0;
      assert_int_equal(r.request->moved, n);
      if (n != 0) assert_memory_equal(r.octets.data(), sent_[i].octets.data(), n);
      for (std::size_t at = n; at < r.octets.size(); ++at) assert_true(r.octets[at] == std::byte{0xee});
    }
  }

  std::mt19937 random_;
  Scene scene_;
  RequestPool pool_;
  std::vector<Message> sent_, received_;
};

unsigned number(const char* name, unsigned otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(value, nullptr, 0));
}

void storms(void**) {
  const unsigned first = number("EWARP_SEED", 1), count = number("EWARP_SEEDS", 200);
  for (unsigned seed = first; seed < first + count; ++seed) {
    print_message("seed %u\n", seed);
    Storm(seed).run();
  }
}

}  // namespace
}  // namespace ewarp::acp::test

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(ewarp::acp::test::storms)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
