// CUDA for g++: put in front of a .cu file (-include), it makes each __global__ function one that a fiber can run.
//
// Static shared memory is thread-local storage: a launch runs in one operating system thread, so every launch has its own, and
// the runtime finds all of it as one segment, to poison it and to swap it when blocks take turns. `extern __shared__` has no
// such spelling in C++; the compiler's caller rewrites it.
#pragma once

#define WARPCHECK_HOST 1
#define __CUDA_FP16_DISABLE_IMPLICIT_INTEGER_CONVERTS_FOR_HOST_COMPILERS__
#define __CUDA_BF16_DISABLE_IMPLICIT_INTEGER_CONVERTS_FOR_HOST_COMPILERS__

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#undef __shared__
#define __shared__ thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))

#include "builtins.h"
#include "checked.h"
#include "half.h"
#include "memory.h"
#include "runtime.h"
#include "warp.h"

namespace warpcheck {
WARPCHECK_UNCHECKED Index thread_index() { return warpcheck_thread->thread; }
WARPCHECK_UNCHECKED Index block_index() { return warpcheck_thread->block; }
WARPCHECK_UNCHECKED Index block_size() { return warpcheck_thread->block_dim; }
WARPCHECK_UNCHECKED Index grid_size() { return warpcheck_thread->grid_dim; }
WARPCHECK_UNCHECKED void* dynamic_shared() { return warpcheck_thread->dynamic_shared; }
}  // namespace warpcheck

#define threadIdx (warpcheck::thread_index())
#define blockIdx (warpcheck::block_index())
#define blockDim (warpcheck::block_size())
#define gridDim (warpcheck::grid_size())
#define warpSize 32

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  warpcheck_barrier(0, 0, warpcheck::kBarrierPlain, 0, file, line);
}
inline int __syncthreads_count(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return warpcheck_barrier(0, 0, warpcheck::kBarrierCount, predicate, file, line);
}
inline int __syncthreads_and(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return warpcheck_barrier(0, 0, warpcheck::kBarrierAnd, predicate, file, line);
}
inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return warpcheck_barrier(0, 0, warpcheck::kBarrierOr, predicate, file, line);
}

inline long long clock64() { return warpcheck_nanoseconds(); }
inline void __nanosleep(unsigned int) { warpcheck_pause(); }
[[noreturn]] inline void __trap() { warpcheck_fail(warpcheck::kDeviceError, "a trap"); }

namespace warpcheck {

template <typename... Parameters, std::size_t... I>
WARPCHECK_UNCHECKED void call_with(void (*kernel)(Parameters...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[I])...);
}

template <typename... Parameters>
void call(void (*kernel)(Parameters...), void** arguments) {
  call_with(kernel, arguments, std::index_sequence_for<Parameters...>());
}

template <typename... Parameters>
struct Sizes {
  static constexpr int kCount = sizeof...(Parameters);
  static constexpr int kBytes[kCount + 1] = {int(sizeof(Parameters))..., 0};
};
template <typename... Parameters>
constexpr Sizes<Parameters...> sizes_of(void (*)(Parameters...)) { return {}; }

}  // namespace warpcheck

// What the loader appends to a source, for the entry point it wants.
#define WARPCHECK_ENTRY(NAME)                                                                        \
  static thread_local char warpcheck_anchor;                                                         \
  extern "C" __attribute__((visibility("default"))) warpcheck::Entry warpcheck_entry = {             \
      [](void** arguments) { warpcheck::call(&NAME, arguments); },                                   \
      decltype(warpcheck::sizes_of(&NAME))::kBytes, decltype(warpcheck::sizes_of(&NAME))::kCount,    \
      []() -> void* { return &warpcheck_anchor; }, 0, 0, nullptr, nullptr};
