// Switching between stacks: a few instructions on x86-64, ucontext elsewhere (each switch is then two system calls).
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(WARPCHECK_UCONTEXT)
#define WARPCHECK_UCONTEXT
#endif

#if defined(WARPCHECK_UCONTEXT)

#include <ucontext.h>

namespace warpcheck {
struct Context {
  ucontext_t saved;
};

inline void make_context(Context& context, void* stack, std::size_t size, void (*start)()) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stack;
  context.saved.uc_stack.ss_size = size;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, start, 0);
}

inline void switch_context(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }
}  // namespace warpcheck

#else

extern "C" void warpcheck_switch(void** save, void* load);  // in context.cpp

namespace warpcheck {
struct Context {
  void* sp;
};

inline void make_context(Context& context, void* stack, std::size_t size, void (*start)()) {
  // At a function's first instruction the stack pointer is 8 below a multiple of 16.
  std::uintptr_t top = (reinterpret_cast<std::uintptr_t>(stack) + size) & ~std::uintptr_t(15);
  void** sp = reinterpret_cast<void**>(top - 8);
  *sp = nullptr;  // where start would return to; it does not
  *--sp = reinterpret_cast<void*>(start);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  context.sp = sp;
}

inline void switch_context(Context& from, Context& to) { warpcheck_switch(&from.sp, to.sp); }
}  // namespace warpcheck

#endif
