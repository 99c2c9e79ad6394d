// The switch itself, where it is ours.
#include "context.h"

#if !defined(WARPCHECK_UCONTEXT)

// Saves what the System V ABI says a call preserves, and nothing else: no thread changes its rounding mode.
asm(R"(
.text
.p2align 4
.globl warpcheck_switch
.hidden warpcheck_switch
.type warpcheck_switch,@function
warpcheck_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size warpcheck_switch, .-warpcheck_switch
)");

#endif
