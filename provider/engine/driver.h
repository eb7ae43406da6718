// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who drives the engine: an application that polls, or the background thread. Without I/O, and without a clock: callers
// say what time it is.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "provider/engine/reactor.h"

namespace ewarp::verbs {

// Threading: step() and wants_pass() by the background thread; passed(), may_put_off(), put_off() and came() by the
// holder of the engine; the rest by any thread.
class Driver {
 public:
  using Time = Reactor::Clock::time_point;
  using Duration = Reactor::Clock::duration;

  enum class State : std::uint8_t {
    serving,  // the background thread is woken by every socket, and makes passes
    aside,    // an application polls; the background thread sleeps as long as that puts its return off
  };

  // longest: so late it may be seen that an application has stopped polling. crowded: there is no CPU to spare, and the
  // background thread would run instead of an application; then it may be half as late again where nobody waits.
  explicit Driver(Duration longest, bool crowded = false)
      : longest_(longest), crowded_(crowded), period_(first_period().count()) {}

  // What the background thread does, it does instead of an application.
  bool crowded() const { return crowded_; }

  // --- applications ---

  // An application's thread has made a pass, served so many sockets and moved so many octets. worked: so long it has
  // posted before. Engine held.
  void passed(std::size_t octets, std::size_t sockets = 1, Duration worked = {}) {
    add_work(std::max<std::size_t>(sockets, 1) + octets / kOctetsOfAUnit + static_cast<std::uint64_t>(worked / kUnit));
    passes_.store(passes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::uint64_t passes() const { return passes_.load(std::memory_order_relaxed); }
  // An application's thread has sent so many octets for what it or another one has posted. It polls if there are passes
  // as well: nothing is received here. Engine held.
  void sent(std::size_t octets) { add_work(octets / kOctetsOfAUnit); }
  // It would have made a pass, but the background thread was in the middle of its own.
  void kept_out() { kept_out_.fetch_add(1, std::memory_order_relaxed); }
  // So much has been done since the last call of put_off() that another is worth asking what time it is. Engine held.
  bool may_put_off() const { return (work() - asked_) * kUnit >= margin() / 2 && application_drives(); }
  // True: applications poll, and the background thread returns later than was said: at returns_at(). So nobody is woken
  // to see what the application can say itself. Engine held.
  bool put_off(Time now) {
    const std::uint64_t work = asked_ = this->work();
    if (now - since() < period() - margin() || !polled(work, now - since())) return false;
    wait_longer(now, work);
    return true;
  }
  // A pass has received something, or the background thread has sent. waited_for: the background thread has met it, and
  // a peer may wait for the answer, a program that makes no passes for what was written, a sleeping thread for its
  // event. Otherwise it is seen by who polls, whose own pass is soon enough. Engine held.
  void came(bool waited_for) {
    const Came what = waited_for ? kWaitedFor : kPatient;
    // Written once a look, whatever comes until then.
    if ((came_.load(std::memory_order_relaxed) & what) == 0) came_.fetch_or(what, std::memory_order_relaxed);
  }
  // Passes of applications have served the streams lately.
  bool application_drives() const { return state_.load(std::memory_order_seq_cst) == State::aside; }
  // Nothing was left to the background thread that is not done yet.
  bool may_leave() const { return passes() >= least_.load(std::memory_order_relaxed); }
  // An application's thread is about to poll for a while: the next octets are its.
  void claim() {
    if (state_.load(std::memory_order_relaxed) != State::aside)
      state_.exchange(State::aside, std::memory_order_seq_cst);
  }
  // From now on the background thread is to serve: the application will sleep, or has left it something to do. True: it
  // stands aside and has to be woken.
  bool reclaim() {
    // Pairs with step() and the thread's way to sleep: it says what it does, then looks at the state and at its work.
    reclaims_.fetch_add(1, std::memory_order_seq_cst);
    return state_.load(std::memory_order_relaxed) == State::aside &&
           state_.exchange(State::serving, std::memory_order_seq_cst) == State::aside;
  }
  // The background thread does not step aside before applications have made so many passes in all.
  void serve_until(std::uint64_t passes) { least_.store(passes, std::memory_order_relaxed); }

  // --- the background thread ---

  // It has been woken, or looks around between two passes. held: by an application, which may be in the middle of a
  // long pass.
  State step(Time now, bool held = false) {
    const std::uint64_t reclaims = reclaims_.load(std::memory_order_seq_cst);
    const State state = state_.load(std::memory_order_seq_cst);
    if (!is_due(state, now)) return state == seen_ && now >= since() ? state : begin(state, now);
    switch (state == State::aside ? patience(now, held) : Patience::none) {
      case Patience::none:
        break;
      case Patience::short_time:
        return wait_for_pass(now);
      case Patience::another:
        return wait_for_another(now);
    }
    const bool patient = is_patient();
    if (state == State::serving) return begin(patient || is_polled(now) ? step_aside(patient, reclaims) : state, now);
    // Nobody has put it off.
    if (!patient) return begin(serve_again(), now);
    set_period(std::min(std::max(2 * period(), longest_), longest_ + longest_ / 2));
    return begin(state_.load(std::memory_order_seq_cst), now);  // one that was reclaimed meanwhile serves
  }
  // Standing aside, and nobody has put it off: before step() it is to be seen what has come, by a pass. Not if an
  // application polls, and was in the middle of something that has kept it from putting this off.
  bool wants_pass(Time now, bool held = false) const {
    return crowded_ && state_.load(std::memory_order_relaxed) == State::aside && is_due(State::aside, now) &&
           (held ? !is_polled(now) : patience(now, held) == Patience::none);
  }
  // Standing aside: when it serves again, unless that is put off.
  Time returns_at() const { return since() + period(); }
  // The engine is busy, or so it seems: somebody else is at it. Worth another look after so long.
  static constexpr Duration first_period() { return kWindow; }

 private:
  // Over so long it is seen whether an application polls: it does if a unit of its work is made every kUnit, and a
  // pass.
  static constexpr Duration kWindow = std::chrono::microseconds(50);
  static constexpr Duration kUnit = std::chrono::microseconds(10);
  // So long before the return it is put off, at most: each time is a system call that costs some 10 us.
  static constexpr Duration kMargin = std::chrono::microseconds(250);
  // An empty pass, a socket's turn and the time to move so much are of the order of a microsecond.
  static constexpr std::size_t kOctetsOfAUnit = 8192;
  // What has come since the last look; bits.
  enum Came : std::uint8_t { kPatient = 1, kWaitedFor = 2 };

  bool is_due(State state, Time now) const {
    return state == seen_ && now >= since() && now - since() >= (state == State::aside ? period() : kWindow);
  }
  bool is_polled(Time now) const { return polled(work(), now - since()) && may_leave(); }
  // Whether to return where nobody has put that off.
  enum class Patience : std::uint8_t { none, short_time, another };
  Patience patience(Time now, bool held) const {
    // A long pass, or a poster that holds the engine for a moment: that is soon known.
    if (!is_polled(now)) return held ? Patience::short_time : Patience::none;
    // As if the application had put it off.
    if (held) return Patience::another;
    // It may have stopped polling since.
    if (since() != asked_again_) return Patience::short_time;
    return (work() - work_then_asked_) * kUnit >= first_period() ? Patience::another : Patience::none;
  }
  // What came was nothing that anybody waits for, so the CPU is left to who computes on it. If nothing came it is as
  // before, while the application makes passes.
  bool is_patient() const {
    const unsigned came = came_.load(std::memory_order_relaxed);
    return crowded_ && (came & kWaitedFor) == 0 && reclaims_.load(std::memory_order_relaxed) == reclaims_then_ &&
           may_leave() &&
           (came == kPatient || (patient_before_ && work() != work_then_.load(std::memory_order_relaxed)));
  }
  State enter(State state) {
    state_.store(state, std::memory_order_seq_cst);
    return state;
  }
  // An application that reclaims it meanwhile has its way.
  State step_aside(bool patient, std::uint64_t reclaims) {
    if (patient) set_period(longest_ / 2);
    enter(State::aside);
    return reclaims_.load(std::memory_order_seq_cst) == reclaims ? State::aside : enter(State::serving);
  }
  State wait_for_pass(Time now) {
    asked_again_ = now - period() + first_period();
    work_then_asked_ = work();
    since_.store(asked_again_.time_since_epoch().count(), std::memory_order_relaxed);
    return State::aside;
  }
  State wait_for_another(Time now) {
    wait_longer(now, work());
    return State::aside;
  }
  State serve_again() {
    set_period(first_period());
    return enter(State::serving);
  }
  State begin(State state, Time now) {
    seen_ = state;
    const unsigned came = came_.exchange(0, std::memory_order_relaxed);
    patient_before_ = (came & kWaitedFor) == 0 && (patient_before_ || came == kPatient);
    reclaims_then_ = reclaims_.load(std::memory_order_relaxed);
    look_from(now, work());
    return state;
  }
  // The passes of applications so far, and those that they would have made; and units of their work.
  std::uint64_t polls() const { return passes() + kept_out_.load(std::memory_order_relaxed); }
  // Only the holder writes.
  void add_work(std::uint64_t units) {
    work_.store(work_.load(std::memory_order_relaxed) + units, std::memory_order_relaxed);
  }
  std::uint64_t work() const {
    return work_.load(std::memory_order_relaxed) + kept_out_.load(std::memory_order_relaxed);
  }
  Duration period() const { return Duration(period_.load(std::memory_order_relaxed)); }
  Time since() const { return Time(Duration(since_.load(std::memory_order_relaxed))); }
  Duration margin() const { return std::min(period() / 2, kMargin); }
  bool polled(std::uint64_t work, Duration elapsed) const {
    return (work - work_then_.load(std::memory_order_relaxed)) * kUnit >= elapsed &&
           polls() != polls_then_.load(std::memory_order_relaxed);
  }
  // In proportion to how long it has been polling: each time that it is put off costs it a system call.
  void wait_longer(Time now, std::uint64_t work) {
    set_period(std::min(period() + period() / 4, longest_));
    look_from(now, work);
  }
  void set_period(Duration period) { period_.store(period.count(), std::memory_order_relaxed); }
  void look_from(Time now, std::uint64_t work) {
    since_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    work_then_.store(work, std::memory_order_relaxed);
    polls_then_.store(polls(), std::memory_order_relaxed);
  }

  std::atomic<State> state_{State::serving};
  std::atomic<std::uint64_t> work_{0}, kept_out_{0}, passes_{0}, least_{0}, reclaims_{0};
  std::atomic<std::uint8_t> came_{0};
  const Duration longest_;
  const bool crowded_;
  // Of the look to come. By the background thread, and by the holder who puts it off; should they meet, the look comes
  // at either's time.
  std::atomic<Duration::rep> period_;
  std::atomic<Duration::rep> since_{Time::max().time_since_epoch().count()};
  std::atomic<std::uint64_t> work_then_{0}, polls_then_{0};
  std::uint64_t asked_ = 0;  // engine held
  // Background thread.
  State seen_ = State::serving;
  bool patient_before_ = false;
  std::uint64_t reclaims_then_ = 0;  // when it was begun
  // As wait_for_pass() has left since_ and work().
  Time asked_again_{};
  std::uint64_t work_then_asked_ = 0;
};

}  // namespace ewarp::verbs
