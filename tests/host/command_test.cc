// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The command fd of an opened device: what libibverbs of this release and of newer ones asks there.
#include "provider/host/command.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cerrno>
#include <cstring>
#include <vector>

extern "C" {
#include <cmocka.h>
}

using namespace ewarp;

namespace {

constexpr std::uint16_t kNewer = 77;  // an attribute that does not exist yet

ib_uverbs_attr number(std::uint16_t id, std::uint64_t value, std::uint16_t flags = UVERBS_ATTR_F_MANDATORY) {
  ib_uverbs_attr a{};
  a.attr_id = id;
  a.len = sizeof value;
  a.flags = flags;
  a.data = value;
  return a;
}

ib_uverbs_attr room(std::uint16_t id, void* to, std::size_t size) {
  ib_uverbs_attr a = number(id, reinterpret_cast<std::uintptr_t>(to));
  a.len = static_cast<std::uint16_t>(size);
  return a;
}

int ask(std::uint16_t object, std::uint16_t method, const std::vector<ib_uverbs_attr>& attributes) {
  std::vector<std::byte> memory(sizeof(ib_uverbs_ioctl_hdr) + attributes.size() * sizeof(ib_uverbs_attr));
  ib_uverbs_ioctl_hdr header{};
  header.length = static_cast<std::uint16_t>(memory.size());
  header.object_id = object;
  header.method_id = method;
  header.num_attrs = static_cast<std::uint16_t>(attributes.size());
  std::memcpy(memory.data(), &header, sizeof header);
  std::memcpy(memory.data() + sizeof header, attributes.data(), attributes.size() * sizeof(ib_uverbs_attr));
  return host::command_ioctl(*verbs::devices().front(), RDMA_VERBS_IOCTL, memory.data());
}

void newer_objects_and_methods(void**) {
  const struct {
    const char* name;
    std::uint16_t object, method;
  } kCases[] = {
      {"GET_CONTEXT", UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT},
      {"QUERY_PORT", UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT},
      {"a method of later", UVERBS_OBJECT_DEVICE, 40},
      {"an object of later", 60, 0},
      {"a driver's own object", 1u << 12, 0},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.name);
    assert_int_equal(ask(c.object, c.method, {number(0, 1)}), -EPROTONOSUPPORT);
  }
}

// As in the kernel: passed over, unless the library insists.
void newer_attributes(void**) {
  ibv_gid_entry entry{};
  std::vector<ib_uverbs_attr> attributes = {
      number(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 1), number(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 0),
      number(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0), room(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry, sizeof entry)};
  const auto gid = [&] { return ask(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, attributes); };
  assert_int_equal(gid(), 0);
  assert_int_equal(entry.port_num, 1);
  attributes.push_back(number(kNewer, 5, 0));
  assert_int_equal(gid(), 0);
  attributes.back().flags = UVERBS_ATTR_F_MANDATORY;
  assert_int_equal(gid(), -EPROTONOSUPPORT);

  ibv_gid_entry table[64] = {};
  std::uint64_t count = 0;
  assert_int_equal(ask(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE,
                       {number(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, sizeof *table),
                        room(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table, sizeof table),
                        room(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count, sizeof count), number(kNewer, 5)}),
                   -EPROTONOSUPPORT);
  assert_int_equal(count, 0);
}

// Newer libraries know a longer entry: the rest of it reads 0.
void entries_of_another_size(void**) {
  struct {
    ibv_gid_entry entry;
    std::uint64_t newer;
  } table[64];
  std::memset(table, 0xa5, sizeof table);
  std::uint64_t count = 0;
  assert_int_equal(
      ask(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE,
          {number(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, sizeof *table), number(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0),
           room(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table, sizeof table),
           room(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count, sizeof count)}),
      0);
  assert_int_equal(count, verbs::devices().front()->gids().size());
  for (std::size_t i = 0; i < count; ++i) {
    assert_int_equal(table[i].entry.gid_index, i);
    assert_true(table[i].newer == 0);
  }
}

void other_ioctls(void**) {
  assert_int_equal(host::command_ioctl(*verbs::devices().front(), RDMA_VERBS_IOCTL + 1, nullptr), -ENOTTY);
  assert_int_equal(host::command_ioctl(*verbs::devices().front(), RDMA_VERBS_IOCTL, nullptr), -EFAULT);
  // The write() commands, which libibverbs asks for here where there is no newer form.
  for (const std::uint64_t command : {IB_USER_VERBS_CMD_GET_CONTEXT, IB_USER_VERBS_CMD_CREATE_QP})
    assert_int_equal(ask(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, {number(UVERBS_ATTR_WRITE_CMD, command)}),
                     -EPROTONOSUPPORT);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(newer_objects_and_methods),
      cmocka_unit_test(newer_attributes),
      cmocka_unit_test(entries_of_another_size),
      cmocka_unit_test(other_ioctls),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
