// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The event channel: an eventfd whose count is the number of queued events, and GET_EVENT.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>

#include "llp/fd.h"
#include "llp/guarded_copy.h"
#include "provider/cm/cm.h"
#include "provider/cm/datagram.h"
#include "provider/cm/id.h"
#include "provider/engine/shortage.h"

namespace ewarp::cm {
namespace {

// Never destroyed: the reactor's thread may still run while the process ends.
std::atomic<Manager*> current_manager{nullptr};
// In a forked child: the parent's. Kept in sight of leak checkers.
Manager* abandoned_manager = nullptr;

FdRegistry& file_registry() {
  static constinit FdRegistry registry;
  return registry;
}

// Takes one token without blocking, also where the consumer left the fd blocking: a token that is not there was taken
// by a GET_EVENT, which will find the queue empty and wait again.
bool take_token(const File& file) {
  if (!file.has_counter()) return false;
  std::uint64_t one;
  const iovec into{&one, sizeof(one)};
  return syscall(SYS_preadv2, file.counter(), &into, 1, -1L, -1L, RWF_NOWAIT) > 0;
}

void give_token(const File& file) {
  if (!file.has_counter()) return;
  const std::uint64_t one = 1;
  raw_write(file.counter(), &one, sizeof(one));
}

// The two places where a command may wait. Cancellation points, as write() to the kernel's file is: rping cancels
// threads that wait here. 0 or errno.
int wait_for_token(int fd) {
  std::uint64_t one;
  return ::read(fd, &one, sizeof(one)) < 0 ? errno : 0;
}

// 0: a token was taken. ENOMSG: the kernel's channel may have an event.
int wait_beside_kernel(const File& file, bool waits) {
  while (true) {
    pollfd both[] = {{file.counter(), POLLIN, 0}, {file.kernel()->fd(), POLLIN, 0}};
    const int ready = ::poll(both, 2, waits ? -1 : 0);
    if (ready < 0) return errno;
    if (ready == 0) return EAGAIN;
    if (both[0].revents != 0 && take_token(file)) return 0;
    if (both[1].revents != 0) return ENOMSG;
  }
}

}  // namespace

Manager& manager() {
  Manager* m = current_manager.load(std::memory_order_acquire);
  if (m != nullptr) return *m;
  auto fresh = std::make_unique<Manager>();
  if (current_manager.compare_exchange_strong(m, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *m;
}

File::File(int fd, int counter, std::unique_ptr<KernelChannel> kernel)
    : fd_(fd), counter_(counter), counter_mark_(llp::mark_file(counter)), kernel_(std::move(kernel)) {}

File::~File() {
  if (counter_ != fd_ && has_counter()) raw_close(counter_);
}

bool File::has_counter() const {
  return llp::file_mark(counter_) == counter_mark_;
}

FileRef find_file(int fd) {
  const Lock lock;
  const auto it = manager().files.find(fd);
  return it == manager().files.end() ? nullptr : it->second;
}

void File::post(Event event) {
  if (!open) return;
  events_.push_back(std::move(event));
  give_token(*this);
}

std::list<Event> File::take_events_of(const Id& owner) {
  return take_events_if([&](const Event& event) { return event.owner.get() == &owner; });
}

std::list<Event> File::take_events_if(const std::function<bool(const Event&)>& gone) {
  std::list<Event> taken;
  for (auto at = events_.begin(); at != events_.end();) {
    const auto next = std::next(at);
    if (gone(*at)) taken.splice(taken.end(), events_, at);
    at = next;
  }
  for (std::size_t i = 0; i < taken.size() && open; ++i) take_token(*this);
  return taken;
}

namespace {

// The front event to the consumer. EAGAIN: there is none; EBADF: the channel was closed.
int fetch_event(const FileRef& file, std::uint64_t response, std::size_t size) {
  const NoCancel guard;
  const Lock lock;
  if (!file->open) return EBADF;
  if (file->events().empty()) return EAGAIN;
  Event& event = file->events().front();
  if (const int error = copy_out(response, &event.body, sizeof(event.body), size); error != 0) {
    give_token(*file);
    return error;
  }
  const Event fetched = std::move(event);
  file->events().pop_front();
  ++fetched.owner->events_reported;
  if (fetched.group != nullptr) ++fetched.group->events_reported;
  if (fetched.request != nullptr) {
    fetched.request->unheard_of = false;
    request_fetched(lock, fetched.owner);
  }
  return 0;
}

}  // namespace

int wait_in_closed_file() {
  ::pause();
  return EINTR;
}

int get_event(FileRef file, std::uint64_t response, std::size_t size, Octets command) {
  // Libraries older than the ece member pass less; the kernel draws the same line.
  if (size < offsetof(rdma_ucm_event_resp, reserved)) return ENOSPC;
  while (true) {
    // Another thread may have changed them while this one waited.
    const int flags = fcntl(file->fd(), F_GETFL);
    if (flags < 0) {
      file.reset();
      return wait_in_closed_file();
    }
    const bool waits = (flags & O_NONBLOCK) == 0;
    int error = file->kernel() == nullptr ? wait_for_token(file->fd()) : wait_beside_kernel(*file, waits);
    if (error == 0) {
      error = fetch_event(file, response, size);
    } else if (error == ENOMSG) {
      error = file->kernel()->write(command.data(), command.size());
      // Another thread was faster.
    }
    if (error == EBADF) {
      if (file->kernel() != nullptr) give_token(*file);  // for the next one that waits
      file.reset();                                      // and the kernel's channel with it
      return waits ? wait_in_closed_file() : EAGAIN;
    }
    if (error != EAGAIN || !waits) return error;
  }
}

namespace {

void move_id(const Lock&, const FileRef& from, const FileRef& to, Id& id) EWARP_REQUIRES(manager_mutex) {
  to->ids().insert(from->ids().extract(id.number));
  id.file = to;
}

}  // namespace

int migrate(const FileRef& to, int from_fd, std::uint32_t number, std::uint32_t* events_reported) {
  const FileRef from = find_file(from_fd);
  if (from == nullptr) return EINVAL;
  const bool beside_kernel = to->kernel() != nullptr && from->kernel() != nullptr;
  std::vector<std::uint32_t> requests;  // which wait to be fetched with their listener's events
  {
    const Lock lock;
    IdRef id;
    if (!to->open) return EBADF;  // nobody would destroy it
    const int error = find_id(lock, from, number, &id);
    if (error == ENOENT && beside_kernel) {
      // one that a kernel's listener made
    } else if (error != 0) {
      return error;
    } else {
      *events_reported = id->events_reported;
      if (from == to) return 0;
      move_id(lock, from, to, *id);
      for (Event& event : from->take_events_of(*id)) {
        if (event.request != nullptr) {
          move_id(lock, from, to, *event.request);
          requests.push_back(event.request->number);
        }
        to->post(std::move(event));
      }
    }
  }
  if (!beside_kernel) return 0;
  for (std::uint32_t reported = 0; const std::uint32_t request : requests)
    to->kernel()->migrate(*from->kernel(), request, &reported);
  return to->kernel()->migrate(*from->kernel(), number, events_reported);
}

int copy_out(std::uint64_t to, const void* from, std::size_t size, std::size_t room) {
  const std::size_t n = std::min(size, room);
  return llp::guarded_copy(reinterpret_cast<void*>(to), from, n) ? 0 : EFAULT;
}

bool copy_in(void* to, const void* from, std::size_t size) {
  return llp::guarded_copy(to, from, size);
}

namespace {

// What the consumer polls where events come from two places. Or -1 with errno.
int poll_both(int counter, int kernel, int flags) {
  const int fd = llp::make_high_fd([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (fd < 0) return -1;
  epoll_event readable{};
  readable.events = EPOLLIN;
  if (epoll_ctl(fd, EPOLL_CTL_ADD, counter, &readable) == 0 && epoll_ctl(fd, EPOLL_CTL_ADD, kernel, &readable) == 0 &&
      ((flags & O_NONBLOCK) == 0 || fcntl(fd, F_SETFL, O_NONBLOCK) == 0))
    return fd;
  const int error = errno;
  raw_close(fd);
  errno = error;
  return -1;
}

}  // namespace

int ucma_open(int flags) {
  llp::install_copy_guard();
  const int eventfd_flags = EFD_SEMAPHORE | EFD_CLOEXEC | ((flags & O_NONBLOCK) != 0 ? EFD_NONBLOCK : 0);
  int counter = llp::make_high_fd([&] { return eventfd(0, eventfd_flags); });
  if (counter < 0) return -errno;
  std::unique_ptr<KernelChannel> kernel;
  if (const int error = KernelChannel::open(&kernel); error != 0) {
    raw_close(counter);
    return -error;
  }
  int fd = counter;
  if (kernel != nullptr && (fd = poll_both(counter, kernel->fd(), flags)) < 0) {
    const int error = errno;
    raw_close(counter);
    return -error;
  }
  int error = ENOMEM;
  try {
    auto file = std::make_shared<File>(fd, counter, std::move(kernel));
    counter = fd;  // it closes the other one
    const Lock lock;
    FileRef& entry = manager().files[fd];
    error = file_registry().add(fd) ? 0 : EMFILE;
    if (error == 0) entry = std::move(file);
  } catch (const std::bad_alloc&) {
  }
  if (error == 0) return fd;
  if (counter != fd) raw_close(counter);
  raw_close(fd);
  return -error;
}

namespace {

// An id of a file that is closed. False: there is none.
bool destroy_one_of(File& file) {
  IdRef id;
  std::shared_ptr<verbs::QueuePair> stream;
  {
    const Lock lock;
    if (file.ids().empty()) return false;
    const auto it = manager().ids.find(*file.ids().begin());
    assert(it != manager().ids.end());
    id = it->second;
    stream = destroy(lock, id);
  }
  end_stream(id, stream, false);
  return true;
}

}  // namespace

void ucma_close(int fd) {
  if (!ucma_is(fd)) return;
  const verbs::shortage::Scope patience;  // nobody can close it again
  file_registry().remove(fd);
  const FileRef file = find_file(fd);
  if (file == nullptr) return;  // inherited over fork()
  {
    const Lock lock;
    manager().files.erase(fd);
    file->open = false;  // no id comes any more
  }
  while (destroy_one_of(*file)) {
  }
  const Lock lock;
  file->events().clear();
  if (file->kernel() != nullptr) give_token(*file);  // a thread that waits leaves the kernel's channel alone
}

bool ucma_is(int fd) {
  return file_registry().contains(fd);
}

void in_child() {
  manager_mutex.renew_in_child();
  // Whatever the parent's threads were doing to it, the old manager is out of use from here on.
  abandoned_manager = current_manager.exchange(nullptr, std::memory_order_acq_rel);
  Socket::close_all_in_child();
}

}  // namespace ewarp::cm
