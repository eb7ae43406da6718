// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/half_messages.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "provider/base/options.h"
#include "provider/engine/engine.h"

namespace ewarp::verbs {

void HalfMessages::join(ReceiveHolder& holder) {
  engine_.assert_held();
  holders_.try_emplace(&holder);
  if (due_.capacity() < holders_.size()) due_.reserve(2 * holders_.size());
}

void HalfMessages::needed() {
  engine_.assert_held();
  needed_ = true;
  if (timer_ == 0 && options().half_message_ms != 0) look();
}

void HalfMessages::look_later() {
  const auto pause = std::chrono::milliseconds(std::max(options().half_message_ms / Standstill::kLooks, 1u));
  timer_ = engine_.add_timer(Reactor::Clock::now() + pause,
                             with_engine(engine_, weak_from_this(), [](HalfMessages& half) { half.look(); }));
}

void HalfMessages::look() {
  engine_.assert_held();
  timer_ = 0;
  if (!needed_) {
    for (auto& [holder, still] : holders_) still.forget();
    return;
  }
  look_later();
  due_.clear();
  for (auto& [holder, still] : holders_)
    if (still.look(holder->half_message())) due_.push_back(holder);
  // An end changes holders_. Queue pairs are destroyed with the engine held, so all of these are there.
  for (ReceiveHolder* holder : due_) holder->end_half_message();
}

std::chrono::milliseconds HalfMessages::patience() const {
  engine_.assert_held();
  const bool held = options().half_message_ms != 0 && std::any_of(holders_.begin(), holders_.end(), [](const auto& h) {
                      return h.first->half_message().has_value();
                    });
  return held ? 2 * std::chrono::milliseconds(options().half_message_ms) : std::chrono::milliseconds(0);
}

void HalfMessages::close() {
  engine_.assert_held();
  assert(holders_.empty());
  needed_ = false;
  engine_.cancel_timer(std::exchange(timer_, 0));
}

}  // namespace ewarp::verbs
