// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/cm/standins.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <ranges>
#include <thread>

#include "llp/netif.h"
#include "provider/engine/reactor.h"
#include "provider/engine/shortage.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::verbs {
namespace {

class PollReactor final : public Reactor {
 public:
  PollReactor() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    std::thread([this] { run(); }).detach();
  }

  int start() noexcept override { return 0; }
  void post(std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake();
  }
  std::uint64_t add_timer(Clock::time_point when, std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    timers_.emplace(++last_timer_, Timer{when, std::move(task)});
    wake();
    return last_timer_;
  }
  void cancel_timer(std::uint64_t id) override {
    std::function<void()> dropped;  // its captures must not die under the lock
    const std::lock_guard lock(mutex_);
    if (const auto it = timers_.find(id); it != timers_.end()) {
      dropped = std::move(it->second.task);
      timers_.erase(it);
    }
  }
  void watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> on_ready) override {
    const std::lock_guard lock(mutex_);
    watches_[fd] = Watch{events, std::move(on_ready)};
    wake();
  }
  void unwatch(int fd) override {
    std::function<void(std::uint32_t)> dropped;
    const std::lock_guard lock(mutex_);
    if (const auto it = watches_.find(fd); it != watches_.end()) {
      dropped = std::move(it->second.on_ready);
      watches_.erase(it);
    }
  }
  void settle() {
    // Twice: the first round may have made work for the second.
    for (int i = 0; i < 3; ++i) {
      std::mutex m;
      std::condition_variable done;
      bool ran = false;
      post([&] {
        const std::lock_guard lock(m);
        ran = true;
        done.notify_one();
      });
      std::unique_lock lock(m);
      done.wait(lock, [&] { return ran; });
    }
  }

 private:
  struct Timer {
    Clock::time_point when;
    std::function<void()> task;
  };
  struct Watch {
    std::uint32_t events;
    std::function<void(std::uint32_t)> on_ready;
  };

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = write(wake_, &one, sizeof(one));
  }
  void run() {
    while (true) {
      std::vector<pollfd> fds = {{wake_, POLLIN, 0}};
      int timeout = -1;
      {
        const std::lock_guard lock(mutex_);
        for (const auto& [fd, w] : std::ranges::reverse_view(watches_))
          fds.push_back({fd, static_cast<short>(w.events), 0});
        for (const auto& [id, t] : timers_) {
          const auto left = std::chrono::ceil<std::chrono::milliseconds>(t.when - Clock::now()).count();
          const int wait = left < 0 ? 0 : static_cast<int>(left);
          if (timeout < 0 || wait < timeout) timeout = wait;
        }
        if (!tasks_.empty()) timeout = 0;
      }
      poll(fds.data(), fds.size(), timeout);
      for (const pollfd& p : fds) ready(p);
      run_timers();
      run_tasks();
    }
  }
  void ready(const pollfd& p) {
    if (p.revents == 0) return;
    if (p.fd == wake_) {
      std::uint64_t count;
      [[maybe_unused]] const auto n = read(wake_, &count, sizeof(count));
      return;
    }
    std::function<void(std::uint32_t)> call;
    {
      const std::lock_guard lock(mutex_);
      const auto it = watches_.find(p.fd);
      // Replaced meanwhile by a watch for something else: poll again.
      if (it == watches_.end() || (p.revents & (it->second.events | POLLERR | POLLHUP)) == 0) return;
      call = std::move(it->second.on_ready);
      watches_.erase(it);
    }
    call(static_cast<std::uint32_t>(p.revents));
  }
  void run_timers() {
    std::vector<std::function<void()>> due;
    {
      const std::lock_guard lock(mutex_);
      for (auto it = timers_.begin(); it != timers_.end();) {
        if (it->second.when <= Clock::now()) {
          due.push_back(std::move(it->second.task));
          it = timers_.erase(it);
        } else {
          ++it;
        }
      }
    }
    for (const auto& task : due) task();
  }
  void run_tasks() {
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard lock(mutex_);
      now.swap(tasks_);
    }
    for (const auto& task : now) task();
  }

  const int wake_;
  std::mutex mutex_;
  std::map<int, Watch> watches_;
  std::map<std::uint64_t, Timer> timers_;
  std::vector<std::function<void()>> tasks_;
  std::uint64_t last_timer_ = 0;
};

PollReactor& poll_reactor() {
  static auto* instance = new PollReactor;  // outlives main(): its thread does
  return *instance;
}

std::uint16_t limit_ird = 128, limit_ord = 128;

}  // namespace

Reactor& reactor() {
  return poll_reactor();
}

// Takes a stream, reads what comes, and keeps the promises of StreamObserver.
class FakeQueuePair final : public QueuePair, public std::enable_shared_from_this<FakeQueuePair> {
 public:
  explicit FakeQueuePair(std::uint32_t number) : number_(number) {}

  std::uint32_t number() const override { return number_; }
  Context& context() const override { std::abort(); }
  void set_handle(std::uint64_t) override {}
  ibv_qp_type type() const override { return IBV_QPT_RC; }
  int post_send(ibv_send_wr*, ibv_send_wr**) override { return EINVAL; }
  int post_recv(ibv_recv_wr*, ibv_recv_wr**) override { return EINVAL; }
  int post_all(ibv_send_wr*) override { return EINVAL; }
  int modify(const ibv_qp_attr& attr, int mask) override {
    const std::lock_guard lock(mutex_);
    if ((mask & IBV_QP_STATE) == 0 || attr.qp_state != IBV_QPS_RESET) return 0;
    if (fd_ >= 0) end();
    view_.attached = established_ = false;
    return 0;
  }
  int query(ibv_qp_attr&, ibv_qp_init_attr&) override { return 0; }
  void destroy() override {}

  int attach(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params,
             std::shared_ptr<StreamObserver> observer) override {
    const std::lock_guard lock(mutex_);
    if (refuse != 0) return std::exchange(refuse, 0);
    if (view_.attached) return EINVAL;
    view_.attached = true;
    view_.params = params;
    stream_ = std::move(stream);
    const int fd = fd_ = stream_->fd();
    observer_ = std::move(observer);
    view_.lets_sends_wait = observer_->lets_sends_wait();
    if (params.terminate || (params.initiator && params.peer_to_peer)) {
      // Stands for the Terminate, or for the RTR.
      const char first[20] = {};
      [[maybe_unused]] const auto n = send(fd, first, sizeof(first), MSG_NOSIGNAL);
    }
    if (!params.terminate && (params.initiator || !params.peer_to_peer)) establish();
    rewatch();
    return 0;
  }
  void get_read_limits(std::uint16_t* ird, std::uint16_t* ord) override {
    *ird = limit_ird;
    *ord = limit_ord;
  }
  void disconnect(bool graceful, const StreamObserver* of = nullptr) override {
    const std::lock_guard lock(mutex_);
    if (of != nullptr && observer_.get() != of) return;
    ++(graceful ? view_.graceful_calls : view_.abort_calls);
    if (fd_ < 0) return;
    if (graceful) {
      shutdown(fd_, SHUT_WR);
    } else {
      const linger now{1, 0};
      setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      end();
    }
  }
  test::QpView view() {
    const std::lock_guard lock(mutex_);
    return view_;
  }

  int refuse = 0;

 private:
  void establish() {
    established_ = true;
    reactor().post([o = observer_] { o->on_established(); });
  }
  void rewatch() {
    reactor().watch(fd_, POLLIN, [self = shared_from_this()](std::uint32_t) { self->on_readable(); });
  }
  void on_readable() {
    const std::lock_guard lock(mutex_);
    if (fd_ < 0) return;
    char data[1024];
    const auto n = recv(fd_, data, sizeof(data), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return end();
    if (n > 0) view_.received += static_cast<std::size_t>(n);
    if (n > 0 && !established_) establish();
    rewatch();
  }
  void end() {
    reactor().unwatch(fd_);
    fd_ = -1;
    stream_.reset();
    view_.ended = true;
    reactor().post([o = std::move(observer_)] { o->on_disconnected(); });
  }

  const std::uint32_t number_;
  std::mutex mutex_;
  std::unique_ptr<llp::Stream> stream_;
  int fd_ = -1;  // its own
  bool established_ = false;
  std::shared_ptr<StreamObserver> observer_;
  test::QpView view_;
};

namespace {
std::mutex qps_mutex;
std::map<std::uint32_t, std::shared_ptr<FakeQueuePair>> qps;
stats::DevicePage device_page;
}  // namespace

std::shared_ptr<FakeQueuePair> find_fake_qp(std::uint32_t number) {
  const std::lock_guard lock(qps_mutex);
  const auto it = qps.find(number);
  return it == qps.end() ? nullptr : it->second;
}

std::shared_ptr<QueuePair> find_qp(std::uint32_t number) {
  return find_fake_qp(number);
}

Device::Device(const llp::Interface& interface, unsigned index, bool twin)
    : name_("ewarp_" + interface.name),
      interface_name_(interface.name),
      interface_index_(interface.index),
      index_(index),
      guid_(0x0200'00ff'fe00'0001),
      loopback_(interface.loopback),
      twin_(twin),
      counters_(&device_page) {}

std::vector<ibv_gid> Device::gids() const {
  ibv_gid v4{}, v6{};
  v4.raw[10] = v4.raw[11] = 0xff;
  v4.raw[12] = 127;
  v4.raw[15] = v6.raw[15] = 1;
  return {v4, v6};
}

std::span<Device* const> devices() {
  static auto* device = [] {
    for (const llp::Interface& i : llp::interfaces())
      if (i.loopback) return new Device(i, 0);
    std::abort();
  }();
  return {&device, 1};
}

Device* device_of(const sockaddr& local) {
  Device* const device = devices().front();
  return llp::interface_of(local) == device->interface_index() ? device : nullptr;
}

// Nobody waits for memory here.
shortage::Scope::Scope() {}
shortage::Scope::~Scope() {}

}  // namespace ewarp::verbs

namespace ewarp::test {

std::uint32_t make_qp() {
  static std::uint32_t last = 100;
  const std::lock_guard lock(verbs::qps_mutex);
  verbs::qps[++last] = std::make_shared<verbs::FakeQueuePair>(last);
  return last;
}

void destroy_qp(std::uint32_t number) {
  std::shared_ptr<verbs::FakeQueuePair> gone;
  {
    const std::lock_guard lock(verbs::qps_mutex);
    gone = std::move(verbs::qps[number]);
    verbs::qps.erase(number);
  }
  gone->disconnect(false);
}

void reset_qp(std::uint32_t number) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  verbs::find_fake_qp(number)->modify(attr, IBV_QP_STATE);
}

QpView view_qp(std::uint32_t number) {
  return verbs::find_fake_qp(number)->view();
}
void refuse_attach(std::uint32_t number, int error) {
  verbs::find_fake_qp(number)->refuse = error;
}
void set_read_limits(std::uint16_t ird, std::uint16_t ord) {
  verbs::limit_ird = ird;
  verbs::limit_ord = ord;
}
std::uint64_t failures_counted() {
  return verbs::device_page.connect_failures;
}
std::uint64_t loopback_guid() {
  return 0x0200'00ff'fe00'0001;
}
PausedReactor::PausedReactor() {
  const auto paused = std::make_shared<std::promise<void>>();
  verbs::reactor().post([paused, resumed = std::make_shared<std::future<void>>(resume_.get_future())] {
    paused->set_value();
    resumed->wait();
  });
  paused->get_future().wait();
}

PausedReactor::~PausedReactor() {
  resume_.set_value();
}

void settle() {
  verbs::poll_reactor().settle();
}

}  // namespace ewarp::test
