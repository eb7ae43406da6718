// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/context.h"

#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include "provider/engine/reactor.h"

extern "C" {
#include <cmocka.h>
}

using namespace ewarp::verbs;

namespace ewarp::verbs {
Reactor& reactor() {
  abort();
}
}  // namespace ewarp::verbs

namespace {

struct Fixture {
  std::shared_ptr<EventChannel> channel;
  alignas(Device) std::byte no_device[sizeof(Device)];  // only referred to
  Context context;

  Fixture() : channel(make()), context(reinterpret_cast<Device&>(no_device), channel) {}
  static std::shared_ptr<EventChannel> make() {
    int error = 0;
    return EventChannel::create(sizeof(ib_uverbs_async_event_desc), &error);
  }
  ib_uverbs_async_event_desc take() const {
    ib_uverbs_async_event_desc event{};
    assert_int_equal(read(channel->read_fd(), &event, sizeof event), sizeof event);
    return event;
  }
};

void an_event_says_what_and_where(void**) {
  Fixture f;
  f.context.raise(IBV_EVENT_QP_FATAL, 0x123456789abcdef0);
  f.context.raise(IBV_EVENT_PORT_ERR, 1);
  const auto first = f.take();
  assert_int_equal(first.event_type, IBV_EVENT_QP_FATAL);
  assert_true(first.element == 0x123456789abcdef0);
  const auto second = f.take();
  assert_int_equal(second.event_type, IBV_EVENT_PORT_ERR);
  assert_int_equal(second.element, 1);
}

void retiring_counts_what_was_read(void**) {
  struct Case {
    const char* name;
    int raised, read, purged_before, expected;
  };
  const Case cases[] = {
      {"none", 0, 0, 0, 0},      {"all unread", 3, 0, 0, 0},        {"all read", 3, 3, 0, 3},
      {"some read", 5, 2, 0, 2}, {"purged in between", 5, 2, 1, 2},
  };
  for (const Case& c : cases) {
    print_message("case: %s\n", c.name);
    Fixture f;
    for (int i = 0; i < c.raised; ++i) f.context.raise(IBV_EVENT_QP_REQ_ERR, 77);
    for (int i = 0; i < c.read; ++i) f.take();
    if (c.purged_before != 0) assert_int_equal(f.context.purge_async(77), c.raised - c.read);
    f.context.raise(IBV_EVENT_CQ_ERR, 78);
    assert_int_equal(f.context.retire_async(77).value(), c.expected);
    assert_int_equal(f.context.retire_async(77).value(), 0);  // forgotten: the address may name a new object
    assert_int_equal(f.take().element, 78);
    assert_int_equal(f.context.retire_async(78).value(), 1);
  }
}

// It is a child's: nobody reads there, so nothing is to be acknowledged.
void a_closed_channel_is_told_nothing(void**) {
  Fixture f;
  f.context.raise(IBV_EVENT_QP_REQ_ERR, 77);
  f.channel->close_in_child();
  f.context.raise(IBV_EVENT_QP_REQ_ERR, 77);
  assert_false(f.context.retire_async(77).has_value());
  assert_false(f.context.retire_async(78).has_value());
}

void without_a_channel_nothing_happens(void**) {
  alignas(Device) std::byte no_device[sizeof(Device)];
  Context context(reinterpret_cast<Device&>(no_device), nullptr);
  context.raise(IBV_EVENT_QP_FATAL, 1);
  assert_int_equal(context.purge_async(1), 0);
  assert_int_equal(context.retire_async(1).value(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_event_says_what_and_where),
      cmocka_unit_test(retiring_counts_what_was_read),
      cmocka_unit_test(a_closed_channel_is_told_nothing),
      cmocka_unit_test(without_a_channel_nothing_happens),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
