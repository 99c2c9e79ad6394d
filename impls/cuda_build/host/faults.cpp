// What ends a launch from outside: invalid addresses, traps, time. Each becomes a verdict instead of a dead process.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ctime>

#include "machine.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace warpcheck {

namespace {

const int kTimer = SIGRTMIN + 9;
const int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, kTimer};
struct sigaction previous[sizeof kSignals / sizeof kSignals[0]];

const char* reason(int signal, const siginfo_t* info) {
  if (signal == SIGFPE) return "an integer division by zero, or one that overflows";
  if (signal == SIGILL) return "a trap";
  if (signal == SIGBUS) return "an access that is misaligned or past the end of a mapped file";
  // An address that no process can have is not told, and looks like zero.
  const bool told = info->si_code != SI_KERNEL;
  if (told && reinterpret_cast<std::uintptr_t>(info->si_addr) < 1 << 20) return "an access close to address zero";
  return "an access to an address where nothing is, or a stack that is full";
}

void on_signal(int signal, siginfo_t* info, void*) {
  if (machine && machine->inside) {
    machine->inside = false;
    if (signal == kTimer) warpcheck_fail(kHang, "no end after %g s of CPU time", machine->launch->budget);
    warpcheck_fail(kDeviceError, "%s", reason(signal, info));
  }
  if (signal == kTimer) return;
  // Not ours: whoever was here first gets it, once.
  for (std::size_t i = 0; i < sizeof kSignals / sizeof kSignals[0]; ++i)
    if (kSignals[i] == signal) sigaction(signal, &previous[i], nullptr);
}

struct AlternateStack {
  char bytes[64 * 1024];
  ~AlternateStack() {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
};

}  // namespace

void install_handlers() {
  for (std::size_t i = 0; i < sizeof kSignals / sizeof kSignals[0]; ++i) {
    struct sigaction now;
    sigaction(kSignals[i], nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal) continue;
    previous[i] = now;
    struct sigaction ours{};
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(kSignals[i], &ours, nullptr);
  }
  // A full stack cannot take a signal: it needs one of its own.
  stack_t stack;
  sigaltstack(nullptr, &stack);
  if (!(stack.ss_flags & SS_DISABLE)) return;
  static thread_local auto alternate = std::make_unique<AlternateStack>();
  stack = {};
  stack.ss_sp = alternate->bytes;
  stack.ss_size = sizeof alternate->bytes;
  sigaltstack(&stack, nullptr);
}

Watchdog::Watchdog(double seconds) {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kTimer;
  event.sigev_notify_thread_id = static_cast<int>(syscall(SYS_gettid));
  armed_ = seconds > 0 && timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
  if (!armed_) return;
  itimerspec when{};
  double whole;
  when.it_value.tv_nsec = static_cast<long>(std::modf(seconds, &whole) * 1e9);
  when.it_value.tv_sec = static_cast<time_t>(whole);
  // Again and again: a signal that comes while the scheduler itself runs is let pass.
  when.it_interval.tv_nsec = 10'000'000;
  timer_settime(timer_, 0, &when, nullptr);
}

Watchdog::~Watchdog() {
  if (armed_) timer_delete(timer_);
}

}  // namespace warpcheck

long long warpcheck_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}
