// What g++'s -fsanitize=thread and -fsanitize=undefined call, for checked builds: not their own runtimes but this one's.
#pragma once

#include "runtime.h"

#if defined(__SANITIZE_THREAD__)

// Never instrumented, so that looking up who one is does not count as an access.
#define WARPCHECK_UNCHECKED __attribute__((noinline, no_sanitize("thread"), no_sanitize("undefined")))
#define WARPCHECK_HOOK extern "C" __attribute__((used, visibility("hidden"), no_sanitize("thread"))) void

#define WARPCHECK_ACCESSES(BYTES)                                                                       \
  WARPCHECK_HOOK __tsan_read##BYTES(void* p) { warpcheck_access(p, BYTES, BYTES, warpcheck::kRead); }   \
  WARPCHECK_HOOK __tsan_write##BYTES(void* p) { warpcheck_access(p, BYTES, BYTES, warpcheck::kWrite); } \
  WARPCHECK_HOOK __tsan_unaligned_read##BYTES(void* p) { warpcheck_access(p, BYTES, 1, warpcheck::kRead); } \
  WARPCHECK_HOOK __tsan_unaligned_write##BYTES(void* p) { warpcheck_access(p, BYTES, 1, warpcheck::kWrite); }
#define WARPCHECK_VOLATILE(BYTES)                                                                               \
  WARPCHECK_HOOK __tsan_volatile_read##BYTES(void* p) {                                                         \
    warpcheck_pause();  /* others may run now, but not between this access and the load */                      \
    warpcheck_access(p, BYTES, BYTES, warpcheck::kAtomicRead);                                                  \
  }                                                                                                             \
  WARPCHECK_HOOK __tsan_volatile_write##BYTES(void* p) { warpcheck_access(p, BYTES, BYTES, warpcheck::kAtomic); }
WARPCHECK_VOLATILE(1)
WARPCHECK_VOLATILE(2)
WARPCHECK_VOLATILE(4)
WARPCHECK_VOLATILE(8)
WARPCHECK_VOLATILE(16)
WARPCHECK_ACCESSES(1)
WARPCHECK_ACCESSES(2)
WARPCHECK_ACCESSES(4)
WARPCHECK_ACCESSES(8)
WARPCHECK_ACCESSES(16)
WARPCHECK_HOOK __tsan_read_range(void* p, std::size_t bytes) { warpcheck_access(p, bytes, 1, warpcheck::kRead); }
WARPCHECK_HOOK __tsan_write_range(void* p, std::size_t bytes) { warpcheck_access(p, bytes, 1, warpcheck::kWrite); }
WARPCHECK_HOOK __tsan_init() {}
WARPCHECK_HOOK __tsan_func_entry(void*) {}
WARPCHECK_HOOK __tsan_func_exit(void*) {}
WARPCHECK_HOOK __tsan_vptr_update(void*, void*) {}

#else
#define WARPCHECK_UNCHECKED inline
#endif

#if defined(WARPCHECK_UNDEFINED)

namespace warpcheck {
struct UndefinedAt {  // how the compiler's description of a fault starts
  const char* file;
  std::uint32_t line, column;
};
}  // namespace warpcheck

#define WARPCHECK_UNDEFINED_HANDLER(NAME, WHAT)                                                                       \
  extern "C" __attribute__((used, visibility("hidden"), no_sanitize("thread"))) void __ubsan_handle_##NAME(            \
      const warpcheck::UndefinedAt* at, void*, void*) {                                                               \
    warpcheck_fail(warpcheck::kDeviceError, "undefined behaviour in line %u: %s", at->line, WHAT);                    \
  }
WARPCHECK_UNDEFINED_HANDLER(add_overflow, "a signed sum overflows")
WARPCHECK_UNDEFINED_HANDLER(sub_overflow, "a signed difference overflows")
WARPCHECK_UNDEFINED_HANDLER(mul_overflow, "a signed product overflows")
WARPCHECK_UNDEFINED_HANDLER(negate_overflow, "a negation overflows")
WARPCHECK_UNDEFINED_HANDLER(divrem_overflow, "a division by zero, or one that overflows")
WARPCHECK_UNDEFINED_HANDLER(shift_out_of_bounds, "a shift by too much, or of a negative number")
WARPCHECK_UNDEFINED_HANDLER(out_of_bounds, "an index past its array")
WARPCHECK_UNDEFINED_HANDLER(builtin_unreachable, "a place that is said to be unreachable")
WARPCHECK_UNDEFINED_HANDLER(missing_return, "a function ends without its value")
WARPCHECK_UNDEFINED_HANDLER(vla_bound_not_positive, "an array without elements")
WARPCHECK_UNDEFINED_HANDLER(float_cast_overflow, "a conversion whose result does not fit")
WARPCHECK_UNDEFINED_HANDLER(load_invalid_value, "a bool or enum with a value it cannot have")
WARPCHECK_UNDEFINED_HANDLER(invalid_builtin, "__builtin_ctz or __builtin_clz of zero")
WARPCHECK_UNDEFINED_HANDLER(nonnull_arg, "a null pointer where none may be")
WARPCHECK_UNDEFINED_HANDLER(pointer_overflow, "a pointer that wraps around")
WARPCHECK_UNDEFINED_HANDLER(type_mismatch_v1, "a misaligned or null pointer is used")

#endif
