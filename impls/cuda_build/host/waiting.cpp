// Where threads wait for each other: barriers, warp operations, asynchronous copies.
#include <cstdio>
#include <cstring>

#include "machine.h"

namespace warpcheck {

namespace {

// A copy may happen at any time between its start and its end, so it counts as an access at both.
void check_copy(Fiber& self, const Copy& copy, int access) {
  check_access(thread_actor(self), copy.global, copy.valid_bytes, 1, kRead);
  check_access(thread_actor(self), copy.shared, copy.bytes, copy.bytes, access);
}

void land(Fiber& self, const Copy& copy) {
  check_copy(self, copy, kWrite);
  std::memcpy(copy.shared, copy.global, copy.valid_bytes);
  std::memset(static_cast<char*>(copy.shared) + copy.valid_bytes, 0, copy.bytes - copy.valid_bytes);
}

}  // namespace

void suspend(Fiber& self) {
  self.owner->warps[self.warp].runnable &= ~(1u << self.lane);
  machine->give_way(self);
}

void Machine::release(Block& block, Barrier& barrier) {
  barrier.result = barrier.accumulated;
  barrier.arrived = 0;
  // A barrier of some threads only counts as one of all: the race detector misses races there, and invents none.
  ++block.epoch;
  if (fenced) order_by_barrier(block);
  for (int w = 0; w < block.warp_count; ++w) {
    block.warps[w].runnable |= barrier.waiting[w];
    barrier.waiting[w] = 0;
  }
}

Barrier& Machine::arrive(Fiber& self, int id, int count, int kind, int predicate, const char* file, int line) {
  if (id < 0 || id >= kBarriers) warpcheck_fail(kDeviceError, "there is no barrier %d", id);
  Barrier& barrier = self.owner->barriers[id];
  if (barrier.arrived == 0) {
    barrier.expected = count;
    barrier.kind = kind;
    barrier.file = file;
    barrier.line = line;
    barrier.accumulated = kind == kBarrierAnd;
  } else if (id == 0 && (barrier.line != line || std::strcmp(barrier.file, file) != 0)) {
    warpcheck_fail(kDeviceError, "threads of a block are at different barriers, lines %d and %d", barrier.line, line);
  } else if (barrier.expected != count || barrier.kind != kind) {
    warpcheck_fail(kDeviceError, "barrier %d is used with different counts or kinds at once", id);
  }
  if (kind == kBarrierCount) barrier.accumulated += predicate != 0;
  if (kind == kBarrierAnd) barrier.accumulated &= predicate != 0;
  if (kind == kBarrierOr) barrier.accumulated |= predicate != 0;
  ++barrier.arrived;
  return barrier;
}

void Machine::fail(int why, const char* format, std::va_list arguments) {
  inside = false;
  status = why;
  int used = std::vsnprintf(message, message_size, format, arguments);
  if (const Thread* t = warpcheck_thread; t && used >= 0 && static_cast<std::size_t>(used) < message_size)
    std::snprintf(message + used, message_size - used, " [thread (%u, %u, %u) of block (%u, %u, %u)]", t->thread.x, t->thread.y,
                  t->thread.z, t->block.x, t->block.y, t->block.z);
  siglongjmp(escape, 1);
}

// Nobody can run: says who waits for what in the first such block.
void Machine::fail_stuck() {
  Block* block = nullptr;
  for (auto& candidate : blocks)
    if (candidate->active && !block) block = candidate.get();
  char what[512] = "";
  int used = 0;
  const auto tell = [&](auto... parts) {
    if (used < static_cast<int>(sizeof what)) used += std::snprintf(what + used, sizeof what - used, parts...);
  };
  for (int id = 0; id < kBarriers; ++id) {
    const Barrier& barrier = block->barriers[id];
    int waiting = 0;
    for (int w = 0; w < block->warp_count; ++w) waiting += __builtin_popcount(barrier.waiting[w]);
    if (waiting) tell("%s%d wait at the barrier in line %d", used ? ", " : "", waiting, barrier.line);
  }
  int in_cluster = 0;
  for (int w = 0; w < block->warp_count; ++w) in_cluster += __builtin_popcount(block->warps[w].cluster_waiting);
  if (in_cluster) tell("%s%d wait at the cluster barrier", used ? ", " : "", in_cluster);
  for (const auto& [place, barrier] : block->mbarriers)
    if (!barrier.waiting.empty())
      tell("%s%d wait at the mbarrier in line %d", used ? ", " : "", static_cast<int>(barrier.waiting.size()), barrier.line);
  for (int w = 0; w < block->warp_count; ++w)
    for (std::uint32_t rest = block->warps[w].meetings_used; rest; rest &= rest - 1) {
      const Meeting& meeting = block->warps[w].meetings[__builtin_ctz(rest)];
      tell("%s%d of warp %d wait in %s with mask 0x%08x", used ? ", " : "", __builtin_popcount(meeting.arrived), w, meeting.name,
           meeting.mask);
    }
  warpcheck_thread = nullptr;
  warpcheck_fail(kHang, "no thread of block (%u, %u, %u) can go on: of %d threads %d have exited, %s", block->index.x,
                 block->index.y, block->index.z, block->threads, block->threads - block->live, what);
}

}  // namespace warpcheck

using namespace warpcheck;

void warpcheck_fail(int status, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  machine->fail(status, format, arguments);
}

void warpcheck_pause() {
  Machine& m = *machine;
  if (m.launch->seeded) {
    if (!m.loads.empty() && m.random() % 4 == 0) m.land(m.random() % m.loads.size());
    if (m.random() % 4 == 0) m.resume(*m.pick_any());
  } else if (++m.pauses % 64 == 0) {
    // Whoever it spins on runs at last: the next runnable thread after this one, in the order of threads and then of blocks.
    Fiber& self = this_fiber();
    Fiber* next = nullptr;
    bool passed = false;
    for (int round = 0; round < 2 && !next; ++round)
      for (auto& block : m.blocks)
        for (int t = 0; block->active && t < block->threads && !next; ++t) {
          Fiber& fiber = block->fibers[t];
          if (&fiber == &self) passed = true;
          else if (passed && (block->warps[fiber.warp].runnable >> fiber.lane & 1)) next = &fiber;
        }
    if (next) m.resume(*next);
  }
}

int warpcheck_barrier(int id, int count, int kind, int predicate, const char* file, int line) {
  Machine& m = *machine;
  Fiber& self = this_fiber();
  Block& block = *self.owner;
  Barrier& barrier = m.arrive(self, id, count, kind, predicate, file, line);
  if (barrier.arrived == (count ? count : block.live)) {
    m.release(block, barrier);
    if (m.launch->seeded) m.give_way(self);
  } else {
    barrier.waiting[self.warp] |= 1u << self.lane;
    suspend(self);
  }
  return barrier.result;
}

void warpcheck_barrier_arrive(int id, int count, const char* file, int line) {
  Block& block = *this_fiber().owner;
  Barrier& barrier = machine->arrive(this_fiber(), id, count, kBarrierPlain, 0, file, line);
  if (barrier.arrived == count) machine->release(block, barrier);
}

void warpcheck_meet(std::uint32_t mask, Combine combine, void* operands, const char* name) {
  Fiber& self = this_fiber();
  Warp& warp = self.owner->warps[self.warp];
  const std::uint32_t bit = 1u << self.lane;
  if (!(mask & bit)) warpcheck_fail(kDeviceError, "the mask 0x%08x of %s lacks the calling lane %u", mask, name, self.lane);
  if (mask & ~warp.live)
    warpcheck_fail(kDeviceError, "the mask 0x%08x of %s names a lane that has exited or never was", mask, name);
  Meeting* meeting = nullptr;
  for (std::uint32_t used = warp.meetings_used; used && !meeting; used &= used - 1)
    if (warp.meetings[__builtin_ctz(used)].mask == mask) meeting = &warp.meetings[__builtin_ctz(used)];
  if (!meeting) {
    const int free = __builtin_ctz(~warp.meetings_used);
    meeting = &warp.meetings[free];
    meeting->mask = mask;
    meeting->arrived = 0;
    meeting->combine = combine;
    meeting->name = name;
    warp.meetings_used |= 1u << free;
  } else if (meeting->combine != combine) {
    warpcheck_fail(kDeviceError, "lanes of one mask, 0x%08x, are in different operations, %s and %s", mask, meeting->name, name);
  }
  meeting->operands[self.lane] = operands;
  meeting->arrived |= bit;
  if (meeting->arrived != mask) return suspend(self);
  // The others wait in this very operation, so their operands, on their stacks, can be read and written.
  combine(meeting->operands, mask);
  warp.meetings_used &= ~(1u << (meeting - warp.meetings));
  warp.runnable |= mask;
  if (machine->launch->seeded) machine->give_way(self);
}

void warpcheck_copy_async(void* shared, const void* global, int bytes, int valid_bytes) {
  const auto misaligned = [&](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % bytes != 0; };
  if (misaligned(shared) || (valid_bytes && misaligned(global)))
    warpcheck_fail(kDeviceError, "cp.async of %d bytes at a misaligned address", bytes);
  Fiber& self = this_fiber();
  const Copy copy{shared, global, bytes, valid_bytes, self.groups};
  // It may land at once or as late as its wait. By default it is late, which shows a wait that is missing.
  if (machine->launch->seeded && machine->random() % 2) return land(self, copy);
  check_copy(self, copy, kStartWrite);
  machine->inside = false;  // nothing may end the launch while it holds the allocator's lock
  self.copies.push_back(copy);
  machine->inside = true;
}

void warpcheck_copy_commit() { ++this_fiber().groups; }

// Lands all but the last `groups_left` committed groups; -1: all copies, committed or not.
void warpcheck_copy_wait(int groups_left) {
  Fiber& self = this_fiber();
  std::size_t kept = 0;
  for (const Copy& copy : self.copies) {
    if (copy.group < self.groups - groups_left) land(self, copy);
    else self.copies[kept++] = copy;
  }
  self.copies.resize(kept);
}
