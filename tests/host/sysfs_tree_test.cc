// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Directories of our sysfs on disk: who keeps them, and that nobody's are removed.
#include "provider/host/sysfs_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace {

constexpr int kAll = -1;
int allocations_left = kAll;  // until the next one fails, and all after it

}  // namespace

// In place of the C++ library's.
[[gnu::noinline]] void* operator new(std::size_t n) {
  if (allocations_left > 0) --allocations_left;
  void* p = allocations_left == 0 ? nullptr : std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  operator delete(p);
}

namespace ewarp::host::sysfs {
namespace {

namespace fs = std::filesystem;

Files content(const std::string& name) {
  Files out;
  for (int i = 0; i < 20; ++i) out["/sys/" + name + "/" + std::to_string(i)] = name;
  return out;
}

// A run directory of its own for each test.
class Place {
 public:
  Place() {
    char name[] = "/tmp/sysfs_tree_test.XXXXXX";
    assert_non_null(mkdtemp(name));
    path_ = name;
    setenv("ETHERWARP_RUNDIR", name, 1);
  }
  ~Place() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(path_), {}); }

 private:
  fs::path path_;
};

// A process that has a tree until it is killed. `heir`: that process has ended, and one that it forked has the tree.
class Keeper {
 public:
  explicit Keeper(const std::string& name, bool heir = false) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const std::string root = tree_with(content(name), {});
      if (heir && fork() != 0) _exit(0);
      const pid_t me = getpid();
      const bool told = write(ends[1], &me, sizeof me) == sizeof me &&
                        write(ends[1], root.data(), root.size()) == static_cast<ssize_t>(root.size());
      close(ends[1]);
      while (told) pause();
      _exit(1);
    }
    close(ends[1]);
    if (heir) waitpid(child, nullptr, 0);
    char text[256];
    assert_int_equal(read(ends[0], &keeper_, sizeof keeper_), sizeof keeper_);
    for (ssize_t size; (size = read(ends[0], text, sizeof text)) > 0;)
      root_.append(text, static_cast<std::size_t>(size));
    // Closed when the keeper has ended.
    close(ends[0]);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() { end(); }
  void end() {
    if (keeper_ == 0) return;
    kill(keeper_, SIGKILL);
    // An heir is no child of ours: wait until it is nobody's.
    if (waitpid(keeper_, nullptr, 0) < 0)
      while (kill(keeper_, 0) == 0 && !is_zombie(keeper_)) usleep(1000);
    keeper_ = 0;
  }
  const std::string& root() const { return root_; }

 private:
  static bool is_zombie(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    return text.find(") Z ") != std::string::npos;
  }
  pid_t keeper_ = 0;
  std::string root_;
};

void the_same_content_is_one_tree(void**) {
  const Place place;
  const Keeper one("a"), two("a");
  assert_false(one.root().empty());
  assert_string_equal(one.root().c_str(), two.root().c_str());
  assert_int_equal(place.entries(), 1);
  assert_true(fs::exists(one.root() + "/sys/a/19"));
}

void a_killed_process_keeps_nothing(void**) {
  const Place place;
  Keeper killed("a");
  killed.end();
  assert_true(fs::exists(killed.root()));
  const Keeper next("b");
  assert_false(fs::exists(killed.root()));
  assert_int_equal(place.entries(), 1);
}

void a_living_process_keeps_its_tree(void**) {
  const Place place;
  for (const bool heir : {false, true}) {
    print_message("case: %s\n", heir ? "a forked child" : "the process itself");
    Keeper lives("a", heir);
    {
      const Keeper next("b");
      assert_true(fs::exists(lives.root() + "/sys/a/19"));
      assert_int_equal(place.entries(), 2);
    }
    lives.end();
    const Keeper next("b");
    assert_false(fs::exists(lives.root()));
  }
}

void half_a_tree_is_removed_and_other_files_stay(void**) {
  const Place place;
  const Keeper first("a");
  fs::create_directories(place / "etherwarp-sysfs-new.1.0/sys");
  fs::create_directories(place / "etherwarp-sysfs-old.1.0/sys");
  fs::create_directories(place / "0123456789abcdef/own");
  std::ofstream(place / "etherwarp-sysfs-file") << "not a directory";
  std::ofstream(place / "1234") << "counters";
  fs::create_directory_symlink(place / "0123456789abcdef", place / "etherwarp-sysfs-link");
  const Keeper second("b");
  assert_false(fs::exists(place / "etherwarp-sysfs-new.1.0") || fs::exists(place / "etherwarp-sysfs-old.1.0"));
  assert_true(fs::exists(place / "0123456789abcdef/own") && fs::exists(place / "1234") &&
              fs::exists(place / "etherwarp-sysfs-file") && fs::exists(place / "etherwarp-sysfs-link"));
}

void the_one_before_is_given_up(void**) {
  const Place place;
  const pid_t child = fork();
  if (child == 0) {
    const std::string first = tree_with(content("a"), {});
    const std::string second = tree_with(content("b"), {});
    _exit(!first.empty() && !second.empty() && !fs::exists(first) && fs::exists(second) ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// Whatever allocation fails, the process goes on, and has a tree as soon as there is memory. One of nobody is there to
// be removed, and one that another process has.
void without_memory_it_is_an_error(void**) {
  const Files files = content("b");
  for (int n = 1, done = 0; done == 0; ++n) {
    const Place place;
    const Keeper lives("a");
    fs::create_directories(place / "etherwarp-sysfs-old.1.0/sys");
    const pid_t child = fork();
    if (child == 0) {
      allocations_left = n;
      bool short_of_memory = false;
      try {
        tree_with(files, {});
      } catch (const std::bad_alloc&) {
        short_of_memory = true;
      }
      allocations_left = kAll;
      const std::string root = tree_with(files, {});
      _exit(!fs::exists(root + "/sys/b/19") || !fs::exists(lives.root()) ? 1 : short_of_memory ? 2 : 3);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) < 2)
      fail_msg("allocation %d: status %#x", n, static_cast<unsigned>(status));
    done = WEXITSTATUS(status) == 3;
  }
}

// What a program lists stays until it closes it.
void an_open_listing_stays(void**) {
  const Place place;
  const pid_t child = fork();
  if (child == 0) {
    const std::string first = tree_with(content("a"), {});
    const int fd = open_in_tree(first, "/sys/a", O_RDONLY | O_DIRECTORY);
    if (fd < 0) _exit(1);
    for (const char* name : {"b", "c", "d"}) tree_with(content(name), {});
    DIR* listing = fdopendir(dup(fd));
    int entries = 0;
    while (readdir(listing) != nullptr) ++entries;
    if (entries != 20 + 2 || faccessat(fd, "3", R_OK, 0) != 0) _exit(2);
    close(fd);
    tree_with(content("e"), {});
    if (faccessat(dirfd(listing), "3", R_OK, 0) != 0) _exit(3);
    closedir(listing);
    tree_with(content("f"), {});
    if (place.entries() != 1) _exit(4);
    if (open_in_tree(first, "/sys/a", O_RDONLY | O_DIRECTORY) != -EAGAIN) _exit(5);
    if (open_in_tree(tree_with(content("f"), {}), "/sys/a", O_RDONLY | O_DIRECTORY) != -ENOENT) _exit(6);
    _exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// Processes that start and end at once: each finds its own tree whole.
void nobody_finds_half_a_tree(void**) {
  const Place place;
  constexpr int kProcesses = 4, kRounds = 100;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    for (int i = 0; i < kRounds; ++i) {
      const std::string name(1, static_cast<char>('a' + (p + i) % 3));
      const std::string root = tree_with(content(name), {});
      if (root.empty()) _exit(2);
      for (const auto& [path, text] : content(name)) {
        std::ifstream file(root + path);
        std::string found((std::istreambuf_iterator<char>(file)), {});
        if (found != text) _exit(3);
      }
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
  const Keeper last("d");
  assert_int_equal(place.entries(), 1);
}

}  // namespace
}  // namespace ewarp::host::sysfs

int main() {
  using namespace ewarp::host::sysfs;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_same_content_is_one_tree),    cmocka_unit_test(a_killed_process_keeps_nothing),
      cmocka_unit_test(a_living_process_keeps_its_tree), cmocka_unit_test(half_a_tree_is_removed_and_other_files_stay),
      cmocka_unit_test(the_one_before_is_given_up),      cmocka_unit_test(without_memory_it_is_an_error),
      cmocka_unit_test(an_open_listing_stays),           cmocka_unit_test(nobody_finds_half_a_tree),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
