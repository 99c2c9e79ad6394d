// What orders the accesses of two threads besides barriers, for the race detector: a fence, an atomic that comes after it, an
// atomic of the other thread on the same address that comes later still, a fence after that; or arriving at an mbarrier and
// waiting for it. Barriers and __syncwarp spread what a thread has learnt. Volatile accesses count as atomics.
#include <algorithm>

#include "machine.h"

namespace warpcheck {

namespace {

void raise(std::unordered_map<std::uint32_t, std::uint32_t>& to, const std::unordered_map<std::uint32_t, std::uint32_t>& from) {
  for (const auto& [who, time] : from) {
    auto& known = to[who];
    known = std::max(known, time);
  }
}

}  // namespace

void Knowledge::join(const Knowledge& other) {
  raise(blocks, other.blocks);
  raise(threads, other.threads);
}

bool Knowledge::covers(const Mark& mark) const {
  const auto thread = threads.find(mark.thread);
  if (thread != threads.end() && mark.clock < thread->second) return true;
  if ((mark.thread - 1) % kNumbers >= kMaxThreads) return false;  // a bulk copy ends when it likes
  const auto block = blocks.find((mark.thread - 1) / kNumbers);
  return block != blocks.end() && mark.epoch < block->second;
}

void order_by_atomic(Fiber& fiber, std::uintptr_t address) {
  if (!machine->fenced) return;
  const Uninterrupted scope;
  Knowledge& left = machine->left_at[address];
  left.join(fiber.released);
  fiber.pending.join(left);
}

void order_by_barrier(Block& block) {
  const Uninterrupted scope;
  for (int t = 0; t < block.threads; ++t) {
    Knowledge& acquired = block.fibers[t].acquired;
    if (acquired.blocks.empty() && acquired.threads.empty()) continue;
    block.acquired.join(acquired);
    acquired = {};
  }
}

void release(Fiber& self) {
  if (!machine->launch->check_races) return;
  const Uninterrupted scope;
  machine->fenced = true;
  const std::uint32_t first = 1 + self.owner->number * kNumbers + self.warp * kLanes;
  self.known[self.lane] = self.fenced = ++self.clock;
  self.released = self.acquired;
  self.released.join(self.owner->acquired);
  self.released.blocks[self.owner->number] = self.owner->epoch;
  for (int lane = 0; lane < kLanes; ++lane)
    if (self.known[lane]) self.released.threads[first + lane] = self.known[lane];
}

void acquire(Fiber& self, const Knowledge& known) {
  if (!machine->launch->check_races) return;
  const Uninterrupted scope;
  self.acquired.join(known);
}

}  // namespace warpcheck

using namespace warpcheck;

void warpcheck_fence() {
  if (!machine->launch->check_races) return;
  Fiber& self = this_fiber();
  acquire(self, self.pending);
  {
    const Uninterrupted scope;
    self.pending = {};
  }
  release(self);
}

// fence.proxy.async (or fence.mbarrier_init, which is for initialised mbarriers only).
void warpcheck_fence_proxy(int inits_only) {
  if (!machine->launch->check_races) return;
  Fiber& self = this_fiber();
  self.known[self.lane] = self.inits_fenced = ++self.clock;
  if (inits_only) return release(self);
  self.proxy_fenced = self.clock;
  self.proxy_epoch = self.owner->epoch;
}
