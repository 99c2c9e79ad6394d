// Clusters: their blocks' shared memory, and their barrier.
#include <algorithm>
#include <cstring>

#include "machine.h"

namespace warpcheck {

namespace {

// The block's own static shared memory is where kernels address it; a peer's lies where it waits for its turn.
unsigned char* static_of(const Block& block) {
  return machine->current == &block ? machine->static_shared : const_cast<unsigned char*>(block.saved_static.data());
}

bool find_in(Block& block, const unsigned char* address, std::size_t bytes, SharedPlace& place) {
  const Launch& l = *machine->launch;
  const unsigned char* const begin = static_of(block);
  if (begin <= address && address < begin + l.entry->tls_size) {
    place = {&block, false, static_cast<std::size_t>(address - begin)};
    return true;
  }
  const unsigned char* const dynamic = block.dynamic_begin;
  if (dynamic - kMargin <= address && address < dynamic + l.shared_bytes + kMargin) {
    const bool before = address < dynamic;  // as an offset past the end: outside, too
    place = {&block, true, before ? l.shared_bytes + kMargin : static_cast<std::size_t>(address - dynamic)};
    return true;
  }
  return false;
}

void arrive_all(Cluster& cluster) {
  ++cluster.phase;
  cluster.arrived = 0;
  for (int rank = 0; rank < machine->launch->cluster; ++rank) {
    Block& block = *cluster.blocks[rank];
    for (int w = 0; w < block.warp_count; ++w) {
      block.warps[w].runnable |= block.warps[w].cluster_waiting;
      block.warps[w].cluster_waiting = 0;
    }
  }
}

}  // namespace

// Own first, then the peers'. Those that have exited are still there.
SharedPlace find_shared(const Block& self, const void* where, std::size_t bytes) {
  const auto* const address = static_cast<const unsigned char*>(where);
  SharedPlace place{};
  if (find_in(const_cast<Block&>(self), address, bytes, place)) return place;
  for (int rank = 0; machine->launch->cluster > 1 && rank < machine->launch->cluster; ++rank)
    if (find_in(*self.cluster->blocks[rank], address, bytes, place)) return place;
  return place;
}

unsigned char* address_of(const SharedPlace& place) {
  return (place.dynamic ? place.block->dynamic_begin : static_of(*place.block)) + place.offset;
}

void arrive_if_all(Cluster& cluster) {
  if (cluster.arrived && cluster.arrived == cluster.live) arrive_all(cluster);
}

// A thread exits: the cluster's barrier does not wait for it.
void leave_cluster(Fiber& self) {
  Block& block = *self.owner;
  Cluster& cluster = *block.cluster;
  if (self.cluster_arrived > cluster.phase) --cluster.arrived;
  --cluster.live;
  arrive_if_all(cluster);
  if (block.live > 1 || machine->launch->cluster == 1) return;
  check_exit(self);
  const int poison = machine->launch->poison;
  if (poison < 0) return;
  // Whoever still reads it had better see nothing sensible.
  std::memset(block.dynamic_begin, poison, machine->launch->shared_bytes);
  std::fill(block.saved_static.begin(), block.saved_static.end(), static_cast<unsigned char>(poison));
}

}  // namespace warpcheck

using namespace warpcheck;

void* warpcheck_map_shared(const void* address, std::uint32_t rank) {
  Block& self = *this_fiber().owner;
  const SharedPlace own = find_shared(self, address, 1);
  if (!own.block) warpcheck_fail(kDeviceError, "mapa of an address that is not in shared memory");
  if (rank >= static_cast<std::uint32_t>(machine->launch->cluster))
    warpcheck_fail(kDeviceError, "mapa to block %u of a cluster of %d", rank, machine->launch->cluster);
  Block& peer = *self.cluster->blocks[rank];
  if (!peer.active) warpcheck_fail(kDeviceError, "mapa to block %u of the cluster, which has exited", rank);
  return address_of({&peer, own.dynamic, own.offset});
}

void warpcheck_cluster_arrive(int releases, const char*, int line) {
  Fiber& self = this_fiber();
  Cluster& cluster = *self.owner->cluster;
  Warp& warp = self.owner->warps[self.warp];
  if (self.cluster_arrived != self.cluster_waited)
    warpcheck_fail(kDeviceError, "a thread arrives at the cluster barrier again before it has waited");
  ++self.cluster_arrived;
  if (warp.cluster_phase != self.cluster_arrived) {
    warp.cluster_phase = self.cluster_arrived;
    warp.cluster_line = line;
  } else if (warp.cluster_line != line) {
    warpcheck_fail(kDeviceError, "lanes of a warp arrive at the cluster barrier in lines %d and %d", warp.cluster_line, line);
  }
  if (releases) release(self);
  self.cluster_released[self.cluster_arrived % 3] = self.fenced;
  if (machine->fenced) {
    const Uninterrupted scope;
    cluster.known.join(self.acquired);
    cluster.known.join(self.owner->acquired);
  }
  ++cluster.arrived;
  arrive_if_all(cluster);
}

void warpcheck_cluster_wait() {
  Fiber& self = this_fiber();
  Cluster& cluster = *self.owner->cluster;
  if (self.cluster_arrived == self.cluster_waited)
    warpcheck_fail(kDeviceError, "a thread waits at the cluster barrier without having arrived");
  if (cluster.phase < self.cluster_arrived) {
    self.owner->warps[self.warp].cluster_waiting |= 1u << self.lane;
    suspend(self);
  }
  self.cluster_waited = self.cluster_arrived;
  self.owner->peers_run = true;
  if (machine->fenced) acquire(self, cluster.known);
  if (machine->launch->seeded) machine->give_way(self);
}
