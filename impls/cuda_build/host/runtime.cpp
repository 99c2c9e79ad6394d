// Launches: which fiber runs when, and how a launch ends.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "machine.h"

__thread warpcheck::Thread* warpcheck_thread = nullptr;

namespace warpcheck {

__thread Machine* machine = nullptr;

namespace {

Machine& this_machine() {
  // By pointer: what is thread-local here comes out of the little space that the loader has left for libraries opened late.
  static thread_local std::unique_ptr<Machine> own = std::make_unique<Machine>();
  return *(machine = own.get());
}

void thread_main() {
  Machine& m = *machine;
  m.inside = true;
  m.launch->entry->call(m.launch->arguments);
  m.leave(*static_cast<Fiber*>(warpcheck_thread));
}

Index unflatten(std::uint64_t number, const Index& size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

char* new_stacks() {
  // Pages that no thread touches cost nothing.
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* pages = mmap(nullptr, kMaxThreads * kStackStride, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(pages);
}

}  // namespace

Machine::Machine() = default;

Machine::~Machine() {
  for (auto& block : blocks) munmap(block->stacks, kMaxThreads * kStackStride);
  machine = nullptr;
}

std::uint64_t Machine::random() {  // splitmix64
  std::uint64_t z = random_state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Starts the next cluster in the blocks from `first` on, if they are free.
void Machine::start_cluster(std::size_t first) {
  const auto size = static_cast<std::size_t>(launch->cluster);
  for (std::size_t i = 0; i < size; ++i)
    if (blocks[first + i]->active) return;
  Cluster& cluster = *clusters[first / size];
  cluster.arrived = cluster.live = 0;
  cluster.phase = 0;
  cluster.known = {};
  for (std::size_t i = 0; i < size; ++i) {
    Block& block = *(cluster.blocks[i] = blocks[first + i].get());
    block.cluster = &cluster;
    block.rank = static_cast<unsigned int>(i);
    start(block);
    cluster.live += block.threads;
  }
}

void Machine::start(Block& block) {
  const Launch& l = *launch;
  block.number = static_cast<std::uint32_t>(next_block);
  block.index = unflatten(next_block++, l.grid);
  block.active = true;
  block.live = block.threads = static_cast<int>(l.block.x * l.block.y * l.block.z);
  block.warp_count = (block.threads + kLanes - 1) / kLanes;
  std::memset(block.barriers, 0, sizeof block.barriers);
  block.dynamic_shared.resize(l.shared_bytes + 2 * kMargin + 1024);
  const auto address = reinterpret_cast<std::uintptr_t>(block.dynamic_shared.data() + kMargin);
  unsigned char* shared = block.dynamic_begin = block.dynamic_shared.data() + kMargin + (1024 - address % 1024) % 1024;
  block.saved_static.resize(l.entry->tls_size);
  block.mbarriers.clear();
  block.copies_started = 0;
  block.peers_run = block.shared_is_seen = false;
  enter(block);
  if (l.poison >= 0) {
    std::memset(shared, l.poison, l.shared_bytes);
    std::memset(static_shared, l.poison, l.entry->tls_size);
  }
  if (checked(l)) start_checking(block);
  for (int w = 0; w < block.warp_count; ++w) {
    const int lanes = block.threads - w * kLanes;
    block.warps[w].live = block.warps[w].runnable = lanes >= kLanes ? ~0u : (1u << lanes) - 1;
    block.warps[w].meetings_used = 0;
    block.warps[w].cluster_waiting = block.warps[w].cluster_phase = 0;
  }
  for (int t = 0; t < block.threads; ++t) {
    Fiber& fiber = block.fibers[t];
    fiber.thread = unflatten(t, l.block);
    fiber.block = block.index;
    fiber.block_dim = l.block;
    fiber.grid_dim = l.grid;
    fiber.lane = t % kLanes;
    fiber.dynamic_shared = shared;
    fiber.cluster_rank = block.rank;
    fiber.cluster_size = static_cast<unsigned int>(l.cluster);
    fiber.owner = &block;
    fiber.warp = t / kLanes;
    fiber.groups = 0;
    fiber.copies.clear();
    fiber.clock = 1;
    std::memset(fiber.known, 0, sizeof fiber.known);
    fiber.fenced = fiber.proxy_fenced = fiber.proxy_epoch = fiber.inits_fenced = 0;
    fiber.cluster_arrived = fiber.cluster_waited = 0;
    std::memset(fiber.cluster_released, 0, sizeof fiber.cluster_released);
    fiber.store_groups = 0;
    fiber.stores.clear();
    char* const stack = block.stacks + t * kStackStride;
    if (!fiber.has_stack) mprotect(stack, kGuard, PROT_NONE);  // a full stack faults
    fiber.has_stack = true;
    // Tops at different distances from a page's end, or all threads' locals compete for the same few lines of the cache.
    make_context(fiber.context, stack + kGuard, kStack - t % 61 * 64, thread_main);
  }
}

// Puts the block's static shared memory in place. Kernels address it as thread-local variables, the same for all blocks.
void Machine::enter(Block& block) {
  if (current == &block) return;
  if (current) std::memcpy(current->saved_static.data(), static_shared, launch->entry->tls_size);
  std::memcpy(static_shared, block.saved_static.data(), launch->entry->tls_size);
  current = &block;
}

void Machine::run(Launch& what) {
  launch = &what;
  const Entry& entry = *what.entry;
  static_shared = static_cast<unsigned char*>(entry.anchor()) + entry.tls_start;
  next_block = 0;
  block_count = std::uint64_t(what.grid.x) * what.grid.y * what.grid.z;
  random_state = what.seed;
  current = nullptr;
  pauses = 0;
  pages.clear();
  left_at.clear();
  fenced = false;
  last_page = 0;
  loads.clear();
  const std::size_t size = what.cluster;
  const std::size_t resident = what.resident;
  while (blocks.size() < resident && blocks.size() < block_count) {
    blocks.push_back(std::make_unique<Block>());
    blocks.back()->fibers = std::make_unique<Fiber[]>(kMaxThreads);
    blocks.back()->stacks = new_stacks();
  }
  for (auto& block : blocks) block->active = false;
  while (clusters.size() < resident) clusters.push_back(std::make_unique<Cluster>());
  for (;;) {
    for (std::size_t i = 0; i + size <= std::min(resident, blocks.size()) && next_block < block_count; i += size)
      start_cluster(i);
    Fiber* first = what.seeded ? pick_any() : pick(nullptr);
    if (!first) return;  // a block that cannot go on has failed before this
    enter(*first->owner);
    warpcheck_thread = first;
    switch_context(main, first->context);
    inside = false;
  }
}

// The next fiber to run, in a fixed order: first the same warp, so that its lanes meet soon, then the others.
Fiber* Machine::pick(const Fiber* after) {
  if (after) {
    Block& block = *after->owner;
    for (int i = 0; i < block.warp_count; ++i) {
      const int w = after->warp + i < block.warp_count ? after->warp + i : after->warp + i - block.warp_count;
      if (std::uint32_t ready = block.warps[w].runnable) {
        const std::uint32_t later = i == 0 ? ready & ~((2u << after->lane) - 1) : ready;
        return &block.fibers[w * kLanes + __builtin_ctz(later ? later : ready)];
      }
    }
  }
  for (auto& block : blocks) {
    if (!block->active) continue;
    for (int w = 0; w < block->warp_count; ++w)
      if (std::uint32_t ready = block->warps[w].runnable) return &block->fibers[w * kLanes + __builtin_ctz(ready)];
  }
  return nullptr;
}

// Any fiber that can run, each as likely as the others.
Fiber* Machine::pick_any() {
  unsigned int count = 0;
  for (auto& block : blocks)
    for (int w = 0; block->active && w < block->warp_count; ++w) count += __builtin_popcount(block->warps[w].runnable);
  if (!count) return nullptr;
  unsigned int choice = random() % count;
  for (auto& block : blocks) {
    for (int w = 0; block->active && w < block->warp_count; ++w) {
      std::uint32_t ready = block->warps[w].runnable;
      const unsigned int lanes = __builtin_popcount(ready);
      if (choice < lanes) {
        while (choice--) ready &= ready - 1;
        return &block->fibers[w * kLanes + __builtin_ctz(ready)];
      }
      choice -= lanes;
    }
  }
  return nullptr;
}

// Switches to `next` from a fiber that may run again later.
void Machine::resume(Fiber& next) {
  Fiber& from = *static_cast<Fiber*>(warpcheck_thread);
  if (&from == &next) return;
  if (from.owner != next.owner) enter(*next.owner);
  ++launch->switches;
  warpcheck_thread = &next;
  switch_context(from.context, next.context);
  inside = true;
}

// Runs others until `self` is runnable and picked again.
void Machine::give_way(Fiber& self) {
  if (launch->seeded && !loads.empty() && random() % 4 == 0) land(random() % loads.size());
  Fiber* next = launch->seeded ? pick_any() : pick(&self);
  for (; !next; next = pick(&self)) {  // nobody waits in vain for a copy
    if (loads.empty()) fail_stuck();
    land(0);
  }
  resume(*next);
}

// Ends a thread.
void Machine::leave(Fiber& self) {
  if (!self.copies.empty()) warpcheck_copy_wait(-1);
  Block& block = *self.owner;
  leave_copies(self);
  Warp& warp = block.warps[self.warp];
  const std::uint32_t bit = 1u << self.lane;
  warp.live &= ~bit;
  warp.runnable &= ~bit;
  for (std::uint32_t used = warp.meetings_used; used; used &= used - 1) {
    const Meeting& meeting = warp.meetings[__builtin_ctz(used)];
    if (meeting.mask & bit)
      warpcheck_fail(kDeviceError, "the mask 0x%08x of %s names a lane that has exited", meeting.mask, meeting.name);
  }
  leave_cluster(self);
  if (--block.live == 0) {
    block.active = false;
    if (launch->resident > 1) current = nullptr;  // nobody needs its shared memory any more
    switch_context(self.context, main);
  }
  for (Barrier& barrier : block.barriers)
    if (barrier.arrived && barrier.expected == 0 && barrier.arrived == block.live) release(block, barrier);
  give_way(self);
  __builtin_unreachable();
}

}  // namespace warpcheck

using namespace warpcheck;

int warpcheck_launch(Launch* launch, char* message, std::size_t message_size) {
  Machine& m = this_machine();
  m.message = message;
  m.message_size = message_size;
  install_handlers();
  Watchdog watchdog(launch->budget);
  m.status = kDone;
  if (sigsetjmp(m.escape, 1) == 0) m.run(*launch);
  m.inside = false;
  warpcheck_thread = nullptr;
  return m.status;
}
