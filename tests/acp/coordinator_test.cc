// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The coordinator of a job, and members that say what they are told to.
#include "mpi_shim/acp/job/coordinator.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::acp::test {
namespace {

constexpr int kPatienceMs = 10'000;
constexpr std::uint32_t kProcs = 2;

class TestMember {
 public:
  TestMember(const Coordinator& c, std::uint32_t rank) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<std::uint16_t>(c.port()));
    assert_int_equal(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const timeval patience{kPatienceMs / 1000, 0};
    assert_int_equal(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    say(Word::hello, rank);
    Hello hello{.version = kJobVersion, .procs = kProcs, .secret = {}, .contact = {}};
    std::memset(hello.secret, 's', sizeof hello.secret);
    write_all(&hello, sizeof hello);
  }
  ~TestMember() { close(fd_); }
  TestMember(const TestMember&) = delete;
  TestMember& operator=(const TestMember&) = delete;

  void say(Word word, std::uint32_t value = 0) {
    const Frame frame{word, value};
    write_all(&frame, sizeof frame);
  }
  // The next thing that the coordinator has said.
  void hears(Word word, std::uint32_t value) {
    Frame frame;
    read_all(&frame, sizeof frame);
    assert_int_equal(frame.word, word);
    assert_int_equal(frame.value, value);
  }
  void hears_table() {
    hears(Word::table, kProcs);
    Contact contacts[kProcs];
    read_all(contacts, sizeof contacts);
  }

 private:
  void write_all(const void* from, std::size_t octets) {
    assert_int_equal(send(fd_, from, octets, MSG_NOSIGNAL), octets);
  }
  void read_all(void* to, std::size_t octets) { assert_int_equal(recv(fd_, to, octets, MSG_WAITALL), octets); }

  int fd_;
};

struct Job {
  Job() : coordinator(kProcs, std::string(kSecretOctets, 's')) {
    assert_int_equal(coordinator.listen(), 0);
    for (std::uint32_t rank = 0; rank < kProcs; ++rank) members[rank] = std::make_unique<TestMember>(coordinator, rank);
    while (!coordinator.complete()) step();
    for (const auto& m : members) m->hears_table();
  }
  // Waits for what has been said. What it is not told in one step comes in the next.
  void step() {
    std::vector<pollfd> none;
    assert_true(coordinator.step(&none, kPatienceMs));
  }

  Coordinator coordinator;
  std::unique_ptr<TestMember> members[kProcs];
};

void all_arrive(void**) {
  Job job;
  for (int round = 0; round < 3; ++round) {
    for (const auto& m : job.members) {
      m->say(Word::arrived);
      job.step();
    }
    for (const auto& m : job.members) m->hears(Word::all_arrived, 0);
  }
}

// It had arrived when it died. The other one arrives and is not told that all have, now or at the next meeting.
void no_meeting_with_one_that_is_gone(void**) {
  Job job;
  job.members[1]->say(Word::arrived);
  job.step();
  job.members[1].reset();
  job.step();
  job.members[0]->hears(Word::gone, 1);
  for (int again = 0; again < 2; ++again) {
    job.members[0]->say(Word::arrived);
    job.step();
  }
  job.members[0]->say(Word::abort);
  job.step();
  job.members[0]->hears(Word::abort, 0);
}

// Both are told, and the one that did not know has its end ended, too. Of one that is gone there is nothing to tell.
void who_has_lost_a_channel_is_heard(void**) {
  Job job;
  job.members[0]->say(Word::parted, 1);
  job.step();
  job.members[1]->hears(Word::parted, 0);
  job.members[0]->hears(Word::parted, 1);
  job.members[1].reset();
  job.step();
  job.members[0]->hears(Word::gone, 1);
  job.members[0]->say(Word::parted, 1);
  job.step();
  job.members[0]->say(Word::abort);
  job.step();
  job.members[0]->hears(Word::abort, 0);
}

// With a rank that is none, or with itself.
void nobody_has_lost_a_channel_with_nobody(void**) {
  for (const std::uint32_t other : {0u, kProcs, ~0u}) {
    Job job;
    job.members[0]->say(Word::parted, other);
    job.step();
    job.members[1]->hears(Word::gone, 0);
  }
}

}  // namespace
}  // namespace ewarp::acp::test

int main() {
  using namespace ewarp::acp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_arrive),
      cmocka_unit_test(no_meeting_with_one_that_is_gone),
      cmocka_unit_test(who_has_lost_a_channel_is_heard),
      cmocka_unit_test(nobody_has_lost_a_channel_with_nobody),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
