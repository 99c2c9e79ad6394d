// Atomics, read-only loads and fences. Atomics are atomic between operating system threads too: two launches may share memory.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "checked.h"
#include "runtime.h"

namespace warpcheck {

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 2, unsigned short,
                                  std::conditional_t<sizeof(T) == 4, unsigned int, unsigned long long>>;

// A vector's address, which a GPU wants aligned whoever checks.
template <typename T>
WARPCHECK_UNCHECKED T* aligned(T* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignof(T))
    warpcheck_fail(kDeviceError, "a misaligned access of %zu bytes", sizeof(T));
  return address;
}

// *address = f(*address), and the value before.
template <typename T, typename F>
WARPCHECK_UNCHECKED T atomic_update(T* address, F f) {
  using Bits = BitsOf<T>;
  static_assert(sizeof(T) == sizeof(Bits));
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T))
    warpcheck_fail(kDeviceError, "an atomic operation at a misaligned address");
#if defined(__SANITIZE_THREAD__)
  warpcheck_access(address, sizeof(T), sizeof(T), kAtomic);
#endif
  auto* bits = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(bits, __ATOMIC_RELAXED), after;
  do {
    T value;
    std::memcpy(static_cast<void*>(&value), &before, sizeof value);
    const T changed = f(value);
    std::memcpy(&after, static_cast<const void*>(&changed), sizeof after);
  } while (!__atomic_compare_exchange_n(bits, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  warpcheck_pause();
  T value;
  std::memcpy(static_cast<void*>(&value), &before, sizeof value);
  return value;
}

}  // namespace warpcheck

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return static_cast<T>(x + value); });
}
template <typename T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return static_cast<T>(x - value); });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return x < value ? x : value; });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return x < value ? value : x; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return x == compare ? value : x; });
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return x & value; });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return x | value; });
}
template <typename T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return warpcheck::atomic_update(address, [=](T x) { return x ^ value; });
}
inline unsigned int atomicInc(unsigned int* address, unsigned int last) {
  return warpcheck::atomic_update(address, [=](unsigned int x) { return x >= last ? 0 : x + 1; });
}
inline unsigned int atomicDec(unsigned int* address, unsigned int last) {
  return warpcheck::atomic_update(address, [=](unsigned int x) { return x == 0 || x > last ? last : x - 1; });
}

namespace warpcheck {

// A load through the path that does not see what is written in the same launch.
template <typename T>
WARPCHECK_UNCHECKED T read_only(const T* address) {
#if defined(__SANITIZE_THREAD__)
  warpcheck_access(address, sizeof(T), alignof(T), kReadOnly);
#endif
  T value;
  std::memcpy(static_cast<void*>(&value), aligned(address), sizeof value);
  return value;
}

}  // namespace warpcheck

template <typename T>
T __ldg(const T* address) { return warpcheck::read_only(address); }
template <typename T>
T __ldcg(const T* address) { return *address; }
template <typename T>
T __ldca(const T* address) { return *address; }
template <typename T>
T __ldcs(const T* address) { return *address; }
template <typename T>
void __stcg(T* address, std::type_identity_t<T> value) { *address = value; }
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) { *address = value; }
template <typename T>
void __stwt(T* address, std::type_identity_t<T> value) { *address = value; }

inline void __threadfence() { warpcheck_fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { warpcheck_fence(); }
