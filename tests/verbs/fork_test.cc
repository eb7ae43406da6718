// fork(): what a child may do with the engine that it inherits.
#include <sys/wait.h>

#include <atomic>

#include "provider/verbs/port_monitor.h"
#include "provider/verbs/reactor.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::test;

namespace {

bool a_send_arrives() {
  Side a(4096), b(4096);
  join(a, b, params(true), params(false));
  return b.receive({b.sge(0, 8)}) == 0 && a.send(IBV_WR_SEND, {a.sge(0, 8)}) == 0 &&
         a.wait().status == IBV_WC_SUCCESS && b.wait().status == IBV_WC_SUCCESS;
}

bool in_child(bool (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

void start_the_engine() {
  std::atomic<bool> ran{false};
  reactor().post([&] { ran = true; });
  while (!ran) poll(nullptr, 0, 1);
  poll(nullptr, 0, 20);
}

// A server that opens its device and then forks its workers.
void the_child_of_an_unused_engine_begins_anew(void**) {
  assert_true(in_child(a_send_arrives));
  Context opened(any_device(), channel(16));
  port_monitor().add(opened);
  start_the_engine();
  assert_true(in_child(a_send_arrives));
  assert_true(a_send_arrives());
  port_monitor().remove(opened);
}

void the_child_of_a_used_engine_leaves_it_alone(void**) {
  Side a(4096), b(4096);
  join(a, b, params(true), params(false));
  assert_true(in_child([] { return forked_child(); }));
  assert_int_equal(b.receive({b.sge(0, 8)}), 0);
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 8)}), 0);
  assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
  assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_child_of_an_unused_engine_begins_anew),
      cmocka_unit_test(the_child_of_a_used_engine_leaves_it_alone),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
