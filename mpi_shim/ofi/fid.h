// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What all objects of libfabric have in common. Each of ours derives from the public struct, so that a pointer to the
// struct, or to the fid at its beginning, leads back to the object.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <sys/types.h>

#include <new>
#include <type_traits>

namespace ewarp::ofi {

// Stands for any call that we do not have: libfabric calls without looking for null.
struct Unsupported {
  template <class R, class... A>
  using Function = R (*)(A...);
  template <class R, class... A>
  constexpr operator Function<R, A...>() const {
    return [](A...) -> R { return static_cast<R>(-FI_ENOSYS); };
  }
};
inline constexpr Unsupported kUnsupported;

// The object of class T that derives from the public struct Base.
template <class T, class Base>
T& object(fid* f) {
  return *static_cast<T*>(reinterpret_cast<Base*>(f));
}

// For calls that make something: nothing is thrown into C.
template <class F>
int guarded(F&& f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  } catch (...) {
    return -FI_EOTHER;
  }
}

// For the tables of calls: F, with nothing thrown into C. A request that could not be made is -FI_ENOMEM.
template <auto F>
struct Entry;
template <class R, class... A, R (*F)(A...)>
struct Entry<F> {
  static_assert(std::is_same_v<R, int> || std::is_same_v<R, ssize_t>);
  static R call(A... a) noexcept {
    try {
      return F(a...);
    } catch (const std::bad_alloc&) {
      return -FI_ENOMEM;
    } catch (...) {
      return -FI_EOTHER;
    }
  }
};
template <auto F>
inline constexpr auto entry = &Entry<F>::call;

}  // namespace ewarp::ofi
