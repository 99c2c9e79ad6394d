// What orders the accesses of two blocks, for the race detector: a fence, an atomic that comes after it, an atomic of the other
// block on the same address that comes later still, a fence after that. Within a block, a barrier spreads what a thread has
// learnt. Volatile accesses count as atomics.
#include <algorithm>

#include "machine.h"

namespace warpcheck {

namespace {

void raise(std::unordered_map<std::uint32_t, std::uint32_t>& to, const std::unordered_map<std::uint32_t, std::uint32_t>& from) {
  for (const auto& [who, epoch] : from) {
    auto& known = to[who];
    known = std::max(known, epoch);
  }
}

// The launch may not be ended while one of these holds the allocator's lock.
class Uninterrupted {
 public:
  Uninterrupted() { machine->inside = false; }
  ~Uninterrupted() { machine->inside = true; }
};

}  // namespace

void Knowledge::join(const Knowledge& other) {
  raise(blocks, other.blocks);
  raise(threads, other.threads);
}

bool Knowledge::covers(const Mark& mark) const {
  const auto block = blocks.find((mark.thread - 1) / kMaxThreads);
  if (block != blocks.end() && mark.epoch < block->second) return true;
  const auto thread = threads.find(mark.thread);
  return thread != threads.end() && mark.epoch <= thread->second;
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

}  // namespace warpcheck

using namespace warpcheck;

void warpcheck_fence() {
  if (!machine->launch->check_races) return;
  const Uninterrupted scope;
  Fiber& self = *static_cast<Fiber*>(warpcheck_thread);
  machine->fenced = true;
  self.acquired.join(self.pending);
  self.pending = {};
  self.released = self.acquired;
  self.released.join(self.owner->acquired);
  self.released.blocks[self.owner->number] = self.owner->epoch;
  self.released.threads[1 + self.owner->number * kMaxThreads + self.warp * kLanes + self.lane] = self.owner->epoch;
}
