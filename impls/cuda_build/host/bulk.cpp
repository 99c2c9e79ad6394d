// mbarriers, and the bulk copies that complete them or belong to a group of a thread.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "machine.h"

namespace warpcheck {

namespace {

constexpr std::uint64_t kValid = 0x72656972'7261626Du;  // what the eight bytes of an mbarrier hold
constexpr std::int64_t kMaxCount = (1 << 20) - 1;

std::uintptr_t key_of(const SharedPlace& place) { return place.offset << 1 | place.dynamic; }

SharedPlace place_of(void* barrier) {
  const SharedPlace place = find_shared(*this_fiber().owner, barrier, 8);
  if (!place.block) warpcheck_fail(kDeviceError, "an mbarrier outside of shared memory");
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8) warpcheck_fail(kDeviceError, "an mbarrier at a misaligned address");
  return place;
}

Mbarrier& mbarrier_at(const SharedPlace& place) {
  const auto found = place.block->mbarriers.find(key_of(place));
  if (found == place.block->mbarriers.end()) warpcheck_fail(kDeviceError, "an mbarrier is used that has not been initialised");
  if (std::memcmp(address_of(place), &kValid, sizeof kValid)) warpcheck_fail(kDeviceError, "an mbarrier has been overwritten");
  if (machine->launch->check_races && !ordered(found->second.initialised, this_fiber()))
    warpcheck_fail(kDeviceError, "race: an mbarrier is used, and nothing orders that after its initialisation");
  return found->second;
}

void count_bytes(Mbarrier& barrier, std::int64_t bytes) {
  barrier.transactions += bytes;
  if (std::abs(barrier.transactions) > kMaxCount) warpcheck_fail(kDeviceError, "more bytes than an mbarrier can count");
}

void end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.pending || barrier.transactions) return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  for (Fiber* fiber : barrier.waiting) fiber->owner->warps[fiber->warp].runnable |= 1u << fiber->lane;
  barrier.waiting.clear();
}

void require_aligned(const void* shared, const void* global, std::uint32_t bytes) {
  for (const void* address : {shared, global})
    if (reinterpret_cast<std::uintptr_t>(address) % 16)
      warpcheck_fail(kDeviceError, "a bulk copy at an address that is no multiple of 16");
  if (bytes % 16) warpcheck_fail(kDeviceError, "a bulk copy of %u bytes, which is no multiple of 16", bytes);
}

void learn(Fiber& self, std::uint32_t agent, std::uint32_t clock) {
  if (!machine->launch->check_races) return;
  const Uninterrupted scope;
  machine->fenced = true;
  std::uint32_t& known = self.acquired.threads[agent];
  known = std::max(known, clock + 1);
}

void land_store(Store& store) {
  if (!store.landed) std::memcpy(store.to, address_of(store.from), store.bytes);
  store.landed = true;
}

}  // namespace

void Machine::land(std::size_t number) {
  const Load load = loads[number];
  std::memcpy(address_of(load.to), load.from, load.bytes);
  landed(load.to, load.bytes);
  count_bytes(*load.barrier, -static_cast<std::int64_t>(load.bytes));
  const Uninterrupted scope;
  loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(number));
  if (launch->check_races) {
    fenced = true;
    std::uint32_t& known = load.barrier->known.threads[load.agent];
    known = std::max(known, load.clock + 1);
  }
  end_phase_if_complete(*load.barrier);
}

// A thread exits.
void leave_copies(Fiber& self) {
  for (const Store& store : self.stores)
    if (!store.landed)
      warpcheck_fail(kDeviceError, "a thread exits and its bulk copy may still read shared memory: no cp.async.bulk.wait_group");
  if (self.owner->live > 1) return;
  for (const Load& load : machine->loads)
    if (load.to.block == self.owner)
      warpcheck_fail(kDeviceError, "a block exits while a bulk copy into its shared memory is on its way");
}

}  // namespace warpcheck

using namespace warpcheck;

void warpcheck_mbarrier_init(void* where, std::uint32_t count) {
  const SharedPlace place = place_of(where);
  Fiber& self = this_fiber();
  if (count < 1 || count > kMaxCount) warpcheck_fail(kDeviceError, "an mbarrier for %u arrivals", count);
  if (place.block != self.owner) warpcheck_fail(kDeviceError, "an mbarrier of another block is initialised");
  check_access(thread_actor(self), where, 8, 8, kWrite);
  std::memcpy(where, &kValid, sizeof kValid);
  const Uninterrupted scope;
  const Mbarrier fresh{0, count, count, 0, {}, {thread_actor(self).number, self.owner->epoch, self.clock, 0, false}, {}, 0};
  if (!place.block->mbarriers.emplace(key_of(place), fresh).second)
    warpcheck_fail(kDeviceError, "an mbarrier is initialised again without mbarrier.inval before");
}

void warpcheck_mbarrier_inval(void* where) {
  const SharedPlace place = place_of(where);
  Mbarrier& barrier = mbarrier_at(place);
  if (!barrier.waiting.empty()) warpcheck_fail(kDeviceError, "an mbarrier is invalidated while a thread waits for it");
  for (const Load& load : machine->loads)
    if (load.barrier == &barrier) warpcheck_fail(kDeviceError, "an mbarrier is invalidated while a bulk copy counts on it");
  check_access(thread_actor(this_fiber()), where, 8, 8, kWrite);
  const Uninterrupted scope;
  place.block->mbarriers.erase(key_of(place));
}

void warpcheck_mbarrier_arrive(void* where, std::uint32_t count, std::uint32_t bytes) {
  const SharedPlace place = place_of(where);
  Fiber& self = this_fiber();
  check_access(thread_actor(self), where, 8, 8, kAtomic);
  Mbarrier& barrier = mbarrier_at(place);
  if (!place.block->active) warpcheck_fail(kDeviceError, "an arrival at an mbarrier of a block that has exited");
  count_bytes(barrier, bytes);
  if ((barrier.pending -= count) < 0)
    warpcheck_fail(kDeviceError, "more arrivals in a phase than the %d that the mbarrier is for", int(barrier.expected));
  release(self);
  {
    const Uninterrupted scope;
    if (machine->launch->check_races) barrier.known.join(self.released);
    end_phase_if_complete(barrier);
  }
  warpcheck_pause();
}

bool warpcheck_mbarrier_wait(void* where, std::uint32_t parity, bool blocks, int line) {
  const SharedPlace place = place_of(where);
  Machine& m = *machine;
  Fiber& self = this_fiber();
  if (place.block != self.owner) warpcheck_fail(kDeviceError, "a wait at an mbarrier of another block");
  check_access(thread_actor(self), where, 8, 8, kAtomicRead);
  Mbarrier& barrier = mbarrier_at(place);
  const auto over = [&] { return (barrier.phase & 1) != (parity & 1); };
  for (std::size_t i = 0; !m.launch->seeded && i < m.loads.size() && !over();) {
    if (m.loads[i].barrier == &barrier) m.land(i);
    else ++i;
  }
  while (!over() && blocks) {
    barrier.line = line;
    {
      const Uninterrupted scope;
      barrier.waiting.push_back(&self);
    }
    suspend(self);
  }
  if (!over()) {
    warpcheck_pause();
    return false;
  }
  if (m.fenced) acquire(self, barrier.known);
  return true;
}

void warpcheck_bulk_load(void* shared, const void* global, std::uint32_t bytes, void* where) {
  Machine& m = *machine;
  Fiber& self = this_fiber();
  require_aligned(shared, global, bytes);
  const SharedPlace to = find_shared(*self.owner, shared, bytes), at = place_of(where);
  if (!to.block) warpcheck_fail(kDeviceError, "a bulk copy to what is not shared memory");
  if (to.block != at.block) warpcheck_fail(kDeviceError, "a bulk copy to one block's memory counts on another one's mbarrier");
  Mbarrier& barrier = mbarrier_at(at);
  const Mark& initialised = barrier.initialised;
  if (m.launch->check_races && at.block->fibers[(initialised.thread - 1) % kNumbers].inits_fenced <= initialised.clock)
    warpcheck_fail(kDeviceError, "race: a bulk copy counts on an mbarrier without a fence after its initialisation");
  const Actor agent = new_agent(self);
  check_access(agent, global, bytes, 16, kRead);
  check_access(agent, shared, bytes, 16, kStartWrite);
  {
    const Uninterrupted scope;
    m.loads.push_back({to, global, bytes, &barrier, agent.number, agent.clock});
  }
  // By default it lands as late as somebody waits for it, which shows a wait that is missing.
  if (m.launch->seeded ? m.random() % 2 : !barrier.waiting.empty()) m.land(m.loads.size() - 1);
}

void warpcheck_bulk_store(void* global, const void* shared, std::uint32_t bytes) {
  Fiber& self = this_fiber();
  require_aligned(shared, global, bytes);
  const SharedPlace from = find_shared(*self.owner, shared, bytes);
  if (from.block != self.owner) warpcheck_fail(kDeviceError, "a bulk copy from what is not the block's shared memory");
  const Actor reader = new_agent(self), writer = new_agent(self);
  check_access(reader, shared, bytes, 16, kRead);
  check_access(writer, global, bytes, 16, kWrite);
  {
    const Uninterrupted scope;
    self.stores.push_back(
        {global, from, bytes, self.store_groups, false, reader.number, reader.clock, writer.number, writer.clock});
  }
  if (machine->launch->seeded && machine->random() % 2) std::memcpy(global, address_of(from), bytes);  // and perhaps again later
}

void warpcheck_bulk_commit() { ++this_fiber().store_groups; }

void warpcheck_bulk_wait(int groups_left, bool only_read) {
  Fiber& self = this_fiber();
  std::size_t kept = 0;
  for (Store& store : self.stores) {
    const bool waited = store.group < self.store_groups - groups_left;
    if (waited) {
      land_store(store);
      learn(self, store.reader, store.reader_clock);
    }
    if (waited && !only_read) learn(self, store.writer, store.writer_clock);
    else self.stores[kept++] = store;
  }
  self.stores.resize(kept);
}
