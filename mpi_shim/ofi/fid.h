// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What all objects of libfabric have in common. Each of ours derives from the public struct, so that a pointer to the
// struct, or to the fid at its beginning, leads back to the object.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <new>

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

}  // namespace ewarp::ofi
