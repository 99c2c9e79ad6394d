// What a checked build's accesses are held against: where memory ends, what has been written, who else was there.
//
// Two accesses to a byte, one of them a write, are a race unless something orders them: the same thread, a barrier of their
// block or cluster between them, or a __syncwarp of their warp; and what order.cpp knows of. Two atomics do not race.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "machine.h"

namespace warpcheck {

namespace {

constexpr std::uintptr_t kPageBytes = 4096;

std::uint32_t number_of(const Fiber& fiber) { return 1 + fiber.owner->number * kNumbers + fiber.warp * kLanes + fiber.lane; }

std::uint32_t block_of(const Mark& mark) { return (mark.thread - 1) / kNumbers; }

int thread_of(const Mark& mark) { return static_cast<int>((mark.thread - 1) % kNumbers); }  // kMaxThreads and more: a bulk copy

bool reads_only(int access) { return access == kRead || access == kAtomicRead || access == kReadOnly; }

// "thread 3", of which block if it is not this one.
struct Who {
  char text[64];
  Who(const Mark& mark, std::uint32_t here) {
    int used = thread_of(mark) < kMaxThreads ? std::snprintf(text, sizeof text, "thread %d", thread_of(mark))
                                             : std::snprintf(text, sizeof text, "a bulk copy");
    if (block_of(mark) != here) std::snprintf(text + used, sizeof text - used, " of block %u", block_of(mark));
  }
};

[[noreturn]] void race(const Mark& before, const char* what, const char* where, int access, const Actor& actor) {
  const char* now = reads_only(access) ? "read" : access == kAtomic ? "updated" : "written";
  const std::uint32_t here = actor.fiber.owner->number;
  warpcheck_fail(kDeviceError, "race: %s memory that %s %s is %s%s, and %s", where, Who(before, here).text, what, now,
                 actor.is_agent() ? " by a bulk copy" : "",
                 block_of(before) != here ? "nothing orders blocks" : "there is no barrier between");
}

void record(Mark& mark, const Actor& actor, std::uint8_t bytes, bool atomic) {
  Mark fresh{actor.number, actor.fiber.owner->epoch, actor.clock, bytes, atomic};
  const bool same_time = mark.epoch == fresh.epoch && mark.clock == fresh.clock;
  if (same_time && mark.thread == fresh.thread && mark.atomic == atomic) fresh.bytes |= mark.bytes;
  mark = fresh;
}

void record_read(Cell& cell, const Actor& actor, std::uint8_t bytes, bool atomic) {
  for (Mark& read : cell.reads)
    if (!read.thread || ordered(read, actor.fiber)) return record(read, actor, bytes, atomic);
  // Two readers that nothing orders are enough: whoever writes, one of them is another thread. Better if they are of two blocks.
  if (block_of(cell.reads[0]) == block_of(cell.reads[1])) record(cell.reads[1], actor, bytes, atomic);
}

// Whether the asynchronous proxy sees what a thread has written before: a fence.proxy.async is between, of either side.
bool proxied(const Mark& before, const Fiber& now) {
  if (!before.thread || thread_of(before) >= kMaxThreads || block_of(before) != now.owner->number) return true;
  if (now.owner->fibers[thread_of(before)].proxy_fenced > before.clock || before.epoch < now.proxy_epoch) return true;
  return now.proxy_fenced == now.clock && now.proxy_epoch == now.owner->epoch;
}

void check_cell(Cell& cell, const Actor& actor, std::uint8_t bytes, int access, const char* where) {
  const bool atomic = access == kAtomic || access == kAtomicRead;
  const auto meets = [&](const Mark& mark) {
    return mark.thread && (mark.bytes & bytes) && !(mark.atomic && atomic) && !ordered(mark, actor.fiber);
  };
  if (meets(cell.write)) race(cell.write, cell.write.atomic ? "updated" : "wrote", where, access, actor);
  if (access == kReadOnly && cell.write.bytes & bytes)
    warpcheck_fail(kDeviceError, "a read-only load of %s memory that %s wrote in the same launch", where,
                   Who(cell.write, actor.fiber.owner->number).text);
  if (actor.is_agent() && cell.write.bytes & bytes && !proxied(cell.write, actor.fiber))
    warpcheck_fail(kDeviceError, "race: a bulk copy comes to %s memory that %s wrote, and no fence.proxy.async is between", where,
                   Who(cell.write, actor.fiber.owner->number).text);
  if (reads_only(access)) return record_read(cell, actor, bytes, atomic);
  for (const Mark& read : cell.reads)
    if (meets(read)) race(read, "read", where, access, actor);
  record(cell.write, actor, bytes, atomic);
}

Cell* global_cells(std::uintptr_t page) {
  Machine& m = *machine;
  if (m.last_page != page) {
    m.inside = false;  // nothing may end the launch while it holds the allocator's lock
    auto& cells = m.pages[page];
    if (!cells) cells = std::make_unique<Cell[]>(kPageBytes / kGranule);
    m.last_page = page;
    m.last_cells = cells.get();
    m.inside = true;
  }
  return m.last_cells;
}

template <typename Visit>
void for_granules(std::uintptr_t offset, std::size_t bytes, Visit visit) {
  static_assert(kGranule == 2);
  for (std::uintptr_t at = offset; at < offset + bytes;) {
    const std::uintptr_t end = std::min<std::uintptr_t>(at / kGranule * kGranule + kGranule, offset + bytes);
    visit(at / kGranule, static_cast<std::uint8_t>(((1 << (end - at)) - 1) << at % kGranule));
    at = end;
  }
}

bool inside(const unsigned char* begin, const unsigned char* end, const unsigned char* address, std::size_t bytes) {
  return begin <= address && address + bytes <= end;
}

// Whether one of the ranges, relative to `base`, holds all of it.
bool inside_any(const Range* ranges, int count, std::uintptr_t base, const unsigned char* address, std::size_t bytes) {
  for (int i = 0; i < count; ++i)
    if (inside(ranges[i].begin + base, ranges[i].end + base, address, bytes)) return true;
  return false;
}

Cell* cells_of(const SharedPlace& place) {
  return (place.dynamic ? place.block->dynamic_cells : place.block->static_cells).data();
}

// Places, unlike addresses, are the same for all blocks of a cluster.
std::uintptr_t name_of(const SharedPlace& place) {
  return (std::uintptr_t(place.block->number) << 20 | std::uintptr_t(place.dynamic) << 19 | place.offset) << 1 | 1;
}

void check_shared(const SharedPlace& place, const Actor& actor, std::size_t bytes, int access) {
  const Launch& l = *machine->launch;
  Block& self = *actor.fiber.owner;
  if (place.block != &self) {
    place.block->shared_is_seen = true;
    if (!place.block->active) warpcheck_fail(kDeviceError, "an access to the shared memory of a block that has exited");
    if (!self.peers_run) warpcheck_fail(kDeviceError, "an access to another block's shared memory before a cluster barrier");
  }
  if (l.check_races && (access == kAtomic || access == kAtomicRead)) order_by_atomic(actor.fiber, name_of(place));
  Cell* const cells = cells_of(place);
  for_granules(place.offset, bytes, [&](std::uintptr_t granule, std::uint8_t mask) {
    Cell& cell = cells[granule];
    if (l.check_memory && access != kWrite && access != kStartWrite && (cell.written & mask) != mask)
      warpcheck_fail(kDeviceError, "shared memory is read that no thread of the block has written");
    if (access == kWrite || access == kAtomic) cell.written |= mask;
    if (access == kStartWrite) cell.written &= ~mask;
    if (l.check_races) check_cell(cell, actor, mask, access, "shared");
  });
}

bool on_stack_of(const Block& block, const void* where, std::size_t bytes) {
  const auto* stacks = reinterpret_cast<const unsigned char*>(block.stacks);
  return inside(stacks, stacks + kMaxThreads * kStackStride, static_cast<const unsigned char*>(where), bytes);
}

}  // namespace

bool ordered(const Mark& before, const Fiber& now) {
  if (before.thread == number_of(now)) return true;
  const Block& block = *now.owner;
  const std::uint32_t from = block_of(before);
  const int thread = thread_of(before);
  if (thread < kMaxThreads) {
    if (from == block.number) {
      if (before.epoch < block.epoch) return true;
      if (thread / kLanes == now.warp && before.clock < now.known[thread % kLanes]) return true;
    }
    if (now.cluster_waited) {
      const Block& other = *block.cluster->blocks[from % static_cast<std::uint32_t>(machine->launch->cluster)];
      if (other.number == from && before.clock < other.fibers[thread].cluster_released[now.cluster_waited % 3]) return true;
    }
  }
  return machine->fenced && (now.acquired.covers(before) || block.acquired.covers(before));
}

Actor thread_actor(Fiber& fiber) { return {fiber, number_of(fiber), fiber.clock}; }

Actor new_agent(Fiber& fiber) {
  const std::uint32_t count = fiber.owner->copies_started++;
  return {fiber, 1 + fiber.owner->number * kNumbers + kMaxThreads + count % kAgents, 1 + count / kAgents};
}

void start_checking(Block& block) {
  block.epoch = 1;
  block.acquired = {};
  for (int t = 0; t < block.threads; ++t) block.fibers[t].released = block.fibers[t].pending = block.fibers[t].acquired = {};
  block.dynamic_cells.assign(machine->launch->shared_bytes / kGranule + 1, Cell{});
  block.static_cells.assign(machine->launch->entry->tls_size / kGranule + 1, Cell{});
}

void landed(const SharedPlace& place, std::size_t bytes) {
  if (!checked(*machine->launch)) return;
  Cell* const cells = cells_of(place);
  for_granules(place.offset, bytes, [&](std::uintptr_t granule, std::uint8_t mask) { cells[granule].written |= mask; });
}

// The block's last thread exits: nothing of another block may still be on its way to the block's shared memory.
void check_exit(Fiber& last) {
  Block& block = *last.owner;
  if (!machine->launch->check_races || !block.shared_is_seen) return;
  const auto known = [&](const Mark& mark) {
    for (int t = 0; t < block.threads; ++t)
      if (ordered(mark, block.fibers[t])) return true;
    return false;
  };
  for (const auto* cells : {&block.dynamic_cells, &block.static_cells})
    for (const Cell& cell : *cells)
      for (const Mark& mark : {cell.write, cell.reads[0], cell.reads[1]})
        if (mark.thread && block_of(mark) != block.number && !known(mark))
          warpcheck_fail(kDeviceError, "race: the block exits, and nothing orders that after %s's access to its shared memory",
                         Who(mark, block.number).text);
}

void check_access(const Actor& actor, const void* where, std::size_t bytes, std::size_t alignment, int access) {
  const Launch& l = *machine->launch;
  if (!checked(l) || bytes == 0) return;
  const auto* address = static_cast<const unsigned char*>(where);
  if (l.check_memory && reinterpret_cast<std::uintptr_t>(address) % alignment)
    warpcheck_fail(kDeviceError, "a misaligned access of %zu bytes", bytes);

  if (const SharedPlace place = find_shared(*actor.fiber.owner, address, bytes); place.block) {
    if (place.dynamic) {
      if (place.offset + bytes > l.shared_bytes)  // before its begin, too
        warpcheck_fail(kDeviceError, "an access outside of the block's %zu bytes of shared memory", l.shared_bytes);
    } else if (l.check_memory) {
      const auto* const offset = reinterpret_cast<const unsigned char*>(place.offset);
      if (!inside_any(l.variables, l.variable_count, 0, offset, bytes))
        warpcheck_fail(kDeviceError, "an access outside of every __shared__ variable");
    }
    return check_shared(place, actor, bytes, access);
  }
  for (const auto& other : machine->blocks) {
    if (on_stack_of(*other, where, bytes)) return;  // what a thread calls its own
    const auto* meetings = reinterpret_cast<const unsigned char*>(other.get());
    if (inside(meetings, meetings + sizeof(Block), address, bytes)) return;  // on behalf of a warp operation
  }
  if (l.check_memory && l.memory_count && !inside(l.entry->image_begin, l.entry->image_end, address, bytes) &&
      !inside_any(l.memory, l.memory_count, 0, address, bytes))
    warpcheck_fail(kDeviceError, "%s %zu bytes outside of every tensor", reads_only(access) ? "reads" : "writes", bytes);
  if (!l.check_races) return;
  if (access == kAtomic || access == kAtomicRead) order_by_atomic(actor.fiber, reinterpret_cast<std::uintptr_t>(address));
  for_granules(reinterpret_cast<std::uintptr_t>(address), bytes, [&](std::uintptr_t granule, std::uint8_t mask) {
    constexpr std::uintptr_t kCells = kPageBytes / kGranule;
    check_cell(global_cells(granule / kCells)[granule % kCells], actor, mask, access, "global");
  });
}

}  // namespace warpcheck

using namespace warpcheck;

void warpcheck_access(const void* address, std::size_t bytes, std::size_t alignment, int access) {
  if (!machine || !machine->inside) return;
  Fiber& self = this_fiber();
  if (on_stack_of(*self.owner, address, bytes)) return;  // most accesses are
  check_access(thread_actor(self), address, bytes, alignment, access);
}

void warpcheck_sync_lanes(void**, std::uint32_t mask) {
  if (!checked(*machine->launch)) return;
  const Fiber& self = this_fiber();
  Fiber* const warp = &self.owner->fibers[self.warp * kLanes];
  std::uint32_t known[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1)) continue;
    ++warp[lane].clock;
    for (int other = 0; other < kLanes; ++other) known[other] = std::max(known[other], warp[lane].known[other]);
  }
  for (int lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1) known[lane] = warp[lane].clock;
  for (int lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1) std::memcpy(warp[lane].known, known, sizeof known);
  if (!machine->fenced) return;
  const Uninterrupted scope;
  Knowledge all;
  for (int lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1) all.join(warp[lane].acquired);
  for (int lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1) warp[lane].acquired = all;
}
