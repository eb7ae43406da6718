// The event channel: an eventfd whose count is the number of queued events, and GET_EVENT.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "llp/fd.h"
#include "llp/guarded_copy.h"
#include "provider/cm/cm.h"
#include "provider/cm/id.h"

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
void take_token(int fd) {
  std::uint64_t one;
  const iovec into{&one, sizeof(one)};
  syscall(SYS_preadv2, fd, &into, 1, -1L, -1L, RWF_NOWAIT);
}

void give_token(int fd) {
  const std::uint64_t one = 1;
  raw_write(fd, &one, sizeof(one));
}

// The one place where a command may wait. A cancellation point, as write() to the kernel's file is: rping cancels
// threads that wait here. 0 or errno.
int wait_for_token(int fd) {
  std::uint64_t one;
  return ::read(fd, &one, sizeof(one)) < 0 ? errno : 0;
}

}  // namespace

Manager& manager() {
  Manager* m = current_manager.load(std::memory_order_acquire);
  if (m != nullptr) return *m;
  auto fresh = std::make_unique<Manager>();
  if (current_manager.compare_exchange_strong(m, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *m;
}

FileRef find_file(int fd) {
  const auto lock = lock_manager();
  const auto it = manager().files.find(fd);
  return it == manager().files.end() ? nullptr : it->second;
}

void File::post(Event event) {
  if (!open) return;
  events_.push_back(std::move(event));
  give_token(fd_);
}

std::vector<Event> File::take_events_of(const Id& owner) {
  std::vector<Event> taken;
  std::deque<Event> kept;
  for (Event& event : events_) {
    if (event.owner.get() == &owner) {
      taken.push_back(std::move(event));
    } else {
      kept.push_back(std::move(event));
    }
  }
  events_ = std::move(kept);
  for (std::size_t i = 0; i < taken.size() && open; ++i) take_token(fd_);
  return taken;
}

namespace {

// The front event to the consumer. EAGAIN: there is none; EBADF: the channel was closed.
int fetch_event(const FileRef& file, std::uint64_t response, std::size_t size) {
  const NoCancel guard;
  const auto lock = lock_manager();
  if (!file->open) return EBADF;
  if (file->events().empty()) return EAGAIN;
  Event& event = file->events().front();
  if (const int error = copy_out(response, &event.body, sizeof(event.body), size); error != 0) {
    give_token(file->fd());
    return error;
  }
  const Event fetched = std::move(event);
  file->events().pop_front();
  ++fetched.owner->events_reported;
  if (fetched.request != nullptr) request_fetched(lock, fetched.owner);
  return 0;
}

}  // namespace

int wait_in_closed_file() {
  ::pause();
  return EINTR;
}

int get_event(const FileRef& file, std::uint64_t response, std::size_t size) {
  // Libraries older than the ece member pass less; the kernel draws the same line.
  if (size < offsetof(rdma_ucm_event_resp, reserved)) return ENOSPC;
  const int flags = fcntl(file->fd(), F_GETFL);
  if (flags < 0) return wait_in_closed_file();
  while (true) {
    const int waited = wait_for_token(file->fd());
    if (waited != 0 && waited != EBADF) return waited;
    const int error = waited == 0 ? fetch_event(file, response, size) : EBADF;
    if (error == EBADF) return (flags & O_NONBLOCK) != 0 ? EAGAIN : wait_in_closed_file();
    if (error != EAGAIN) return error;
  }
}

int migrate(const FileRef& to, int from_fd, std::uint32_t number, std::uint32_t* events_reported) {
  const FileRef from = find_file(from_fd);
  if (from == nullptr) return EINVAL;
  const auto lock = lock_manager();
  IdRef id;
  if (const int error = find_id(lock, from, number, &id); error != 0) return error;
  *events_reported = id->events_reported;
  if (from == to) return 0;
  from->ids().erase(number);
  to->ids().insert(number);
  id->file = to;
  for (Event& event : from->take_events_of(*id)) to->post(std::move(event));
  return 0;
}

int copy_out(std::uint64_t to, const void* from, std::size_t size, std::size_t room) {
  const std::size_t n = std::min(size, room);
  return llp::guarded_copy(reinterpret_cast<void*>(to), from, n) ? 0 : EFAULT;
}

bool copy_in(void* to, const void* from, std::size_t size) {
  return llp::guarded_copy(to, from, size);
}

int ucma_open(int flags) {
  llp::install_copy_guard();
  const int eventfd_flags = EFD_SEMAPHORE | EFD_CLOEXEC | ((flags & O_NONBLOCK) != 0 ? EFD_NONBLOCK : 0);
  int fd = eventfd(0, eventfd_flags);
  if (fd < 0 && errno == EMFILE && llp::raise_fd_limit()) fd = eventfd(0, eventfd_flags);
  if (fd < 0) return -errno;
  fd = llp::high_fd(fd);
  const auto lock = lock_manager();
  if (!file_registry().add(fd)) {
    raw_close(fd);
    return -EMFILE;
  }
  manager().files[fd] = std::make_shared<File>(fd);
  return fd;
}

void ucma_close(int fd) {
  if (!ucma_is(fd)) return;
  file_registry().remove(fd);
  const FileRef file = find_file(fd);
  if (file == nullptr) return;  // inherited over fork()
  std::vector<std::shared_ptr<verbs::QueuePair>> streams;
  {
    const auto lock = lock_manager();
    manager().files.erase(fd);
    file->open = false;
    const std::vector<std::uint32_t> numbers(file->ids().begin(), file->ids().end());
    for (const std::uint32_t number : numbers) {
      // Destroying a listener takes its unanswered requests with it.
      const auto it = manager().ids.find(number);
      if (it == manager().ids.end()) continue;
      const IdRef id = it->second;
      streams.push_back(destroy(lock, id));
    }
    file->events().clear();
  }
  for (const auto& qp : streams) abort_stream(qp);
}

bool ucma_is(int fd) {
  return file_registry().contains(fd);
}

void in_child() {
  // Whatever the parent's threads were doing to it, the old manager is out of use from here on.
  abandoned_manager = current_manager.exchange(nullptr, std::memory_order_acq_rel);
  socket_registry().for_each([](int fd) {
    socket_registry().remove(fd);
    raw_close(fd);
  });
}

}  // namespace ewarp::cm
