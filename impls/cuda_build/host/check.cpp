// What a checked build's accesses are held against: where memory ends, what has been written, who else was there.
//
// Two accesses to a byte, one of them a write, are a race unless something orders them: the same thread, a barrier of their
// block between them, or a __syncwarp of their warp; of two blocks, what order.cpp knows of. Two atomics do not race.
#include <algorithm>
#include <cstring>

#include "machine.h"

namespace warpcheck {

namespace {

constexpr std::uintptr_t kPageBytes = 4096;

std::uint32_t number_of(const Fiber& fiber) {
  return 1 + fiber.owner->number * kMaxThreads + fiber.warp * kLanes + fiber.lane;
}

std::uint32_t block_of(const Mark& mark) { return (mark.thread - 1) / kMaxThreads; }

bool ordered(const Mark& before, const Fiber& now) {
  if (before.thread == number_of(now)) return true;
  if (block_of(before) != now.owner->number)
    return machine->fenced && (now.acquired.covers(before) || now.owner->acquired.covers(before));
  if (before.epoch < now.owner->epoch) return true;
  const int thread = (before.thread - 1) % kMaxThreads;
  return thread / kLanes == now.warp && before.clock < now.known[thread % kLanes];
}

bool reads_only(int access) { return access == kRead || access == kAtomicRead; }

[[noreturn]] void race(const Mark& before, const char* what, const char* where, int access) {
  const int thread = (before.thread - 1) % kMaxThreads;
  const char* now = reads_only(access) ? "read" : access == kAtomic ? "updated" : "written";
  const Block& block = *static_cast<Fiber*>(warpcheck_thread)->owner;
  if (block_of(before) != block.number)
    warpcheck_fail(kDeviceError, "race: %s memory that thread %d of block %u %s is %s, and nothing orders blocks", where, thread,
                   block_of(before), what, now);
  warpcheck_fail(kDeviceError, "race: %s memory that thread %d %s is %s with no barrier between", where, thread, what, now);
}

void record(Mark& mark, const Fiber& fiber, std::uint8_t bytes, bool atomic) {
  Mark fresh{number_of(fiber), fiber.owner->epoch, fiber.clock, bytes, atomic};
  const bool same_time = mark.epoch == fresh.epoch && mark.clock == fresh.clock;
  if (same_time && mark.thread == fresh.thread && mark.atomic == atomic) fresh.bytes |= mark.bytes;
  mark = fresh;
}

void record_read(Cell& cell, const Fiber& fiber, std::uint8_t bytes, bool atomic) {
  for (Mark& read : cell.reads)
    if (!read.thread || ordered(read, fiber)) return record(read, fiber, bytes, atomic);
  // Two readers that nothing orders are enough: whoever writes, one of them is another thread. Better if they are of two blocks.
  if (block_of(cell.reads[0]) == block_of(cell.reads[1])) record(cell.reads[1], fiber, bytes, atomic);
}

void check_cell(Cell& cell, const Fiber& fiber, std::uint8_t bytes, int access, const char* where) {
  const bool atomic = access == kAtomic || access == kAtomicRead;
  const auto meets = [&](const Mark& mark) {
    return mark.thread && (mark.bytes & bytes) && !(mark.atomic && atomic) && !ordered(mark, fiber);
  };
  if (meets(cell.write)) race(cell.write, cell.write.atomic ? "updated" : "wrote", where, access);
  if (reads_only(access)) return record_read(cell, fiber, bytes, atomic);
  for (const Mark& read : cell.reads)
    if (meets(read)) race(read, "read", where, access);
  record(cell.write, fiber, bytes, atomic);
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

void check_shared(Cell* cells, std::uintptr_t offset, const Fiber& fiber, std::size_t bytes, int access) {
  const Launch& l = *machine->launch;
  for_granules(offset, bytes, [&](std::uintptr_t granule, std::uint8_t mask) {
    Cell& cell = cells[granule];
    if (l.check_memory && access != kWrite && access != kStartWrite && (cell.written & mask) != mask)
      warpcheck_fail(kDeviceError, "shared memory is read that no thread of the block has written");
    if (access == kWrite || access == kAtomic) cell.written |= mask;
    if (access == kStartWrite) cell.written &= ~mask;
    if (l.check_races) check_cell(cell, fiber, mask, access, "shared");
  });
}

}  // namespace

void start_checking(Block& block) {
  block.epoch = 1;
  block.acquired = {};
  for (int t = 0; t < block.threads; ++t) block.fibers[t].released = block.fibers[t].pending = block.fibers[t].acquired = {};
  block.dynamic_cells.assign(machine->launch->shared_bytes / kGranule + 1, Cell{});
  block.static_cells.assign(machine->launch->entry->tls_size / kGranule + 1, Cell{});
}

void check_access(Fiber& fiber, const void* where, std::size_t bytes, std::size_t alignment, int access) {
  const Launch& l = *machine->launch;
  if (!checked(l) || bytes == 0) return;
  const auto* address = static_cast<const unsigned char*>(where);
  if (l.check_memory && reinterpret_cast<std::uintptr_t>(address) % alignment)
    warpcheck_fail(kDeviceError, "a misaligned access of %zu bytes", bytes);

  Block& block = *fiber.owner;
  const unsigned char* const segment = machine->static_shared;
  if (segment <= address && address < segment + l.entry->tls_size) {
    if (l.check_memory && !inside_any(l.variables, l.variable_count, reinterpret_cast<std::uintptr_t>(segment), address, bytes))
      warpcheck_fail(kDeviceError, "an access outside of every __shared__ variable");
    return check_shared(block.static_cells.data(), address - segment, fiber, bytes, access);
  }
  const unsigned char* const dynamic = block.dynamic_begin;
  if (dynamic - kMargin <= address && address < dynamic + l.shared_bytes + kMargin) {
    if (inside(dynamic, dynamic + l.shared_bytes, address, bytes))
      return check_shared(block.dynamic_cells.data(), address - dynamic, fiber, bytes, access);
    warpcheck_fail(kDeviceError, "an access outside of the block's %zu bytes of shared memory", l.shared_bytes);
  }
  for (const auto& other : machine->blocks) {
    const auto* stacks = reinterpret_cast<const unsigned char*>(other->stacks);
    if (inside(stacks, stacks + kMaxThreads * kStackStride, address, bytes)) return;  // what a thread calls its own
    const auto* meetings = reinterpret_cast<const unsigned char*>(other.get());
    if (inside(meetings, meetings + sizeof(Block), address, bytes)) return;  // on behalf of a warp operation
  }
  if (l.check_memory && l.memory_count && !inside(l.entry->image_begin, l.entry->image_end, address, bytes) &&
      !inside_any(l.memory, l.memory_count, 0, address, bytes))
    warpcheck_fail(kDeviceError, "%s %zu bytes outside of every tensor", reads_only(access) ? "reads" : "writes", bytes);
  if (!l.check_races) return;
  if (access == kAtomic || access == kAtomicRead) order_by_atomic(fiber, reinterpret_cast<std::uintptr_t>(address));
  for_granules(reinterpret_cast<std::uintptr_t>(address), bytes, [&](std::uintptr_t granule, std::uint8_t mask) {
    constexpr std::uintptr_t kCells = kPageBytes / kGranule;
    check_cell(global_cells(granule / kCells)[granule % kCells], fiber, mask, access, "global");
  });
}

}  // namespace warpcheck

using namespace warpcheck;

void warpcheck_access(const void* address, std::size_t bytes, std::size_t alignment, int access) {
  if (machine && machine->inside) check_access(*static_cast<Fiber*>(warpcheck_thread), address, bytes, alignment, access);
}

void warpcheck_sync_lanes(void**, std::uint32_t mask) {
  if (!checked(*machine->launch)) return;
  Fiber& self = *static_cast<Fiber*>(warpcheck_thread);
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
}
