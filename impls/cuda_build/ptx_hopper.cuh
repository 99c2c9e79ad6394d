// PTX instructions of sm_90 and newer: clusters, mbarriers and bulk copies, one small function each. See ptx.cuh.
//
// Addresses are generic pointers. Each function has a twin in host/ptx_hopper_host.h.

#pragma once

#include "ptx.cuh"

#if defined(WARPCHECK_HOST)
#include "host/ptx_hopper_host.h"
#else

namespace ptx {

__device__ __forceinline__ unsigned int cluster_ctarank() {
  unsigned int rank;
  asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The number of blocks in the cluster.
__device__ __forceinline__ unsigned int cluster_nctarank() {
  unsigned int count;
  asm("mov.u32 %0, %cluster_nctarank;" : "=r"(count));
  return count;
}

// Where block `rank` of the cluster keeps its twin of what lies at `shared`: an address to load from, to store to and for
// atomics. The peer must run (a cluster barrier says so) and must not exit before the last access.
template <typename T>
__device__ __forceinline__ T* mapa(T* shared, unsigned int rank) {
  unsigned long long peer;
  asm("mapa.u64 %0, %1, %2;" : "=l"(peer) : "l"(shared), "r"(rank));
  return reinterpret_cast<T*>(peer);
}

// *peer += value, for an address from mapa; nobody waits for it.
__device__ __forceinline__ void cluster_add(unsigned int* peer, unsigned int value) {
  asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(shared_address(peer)), "r"(value) : "memory");
}

// The two halves of a barrier of all threads of the cluster that have not exited, each executed by whole warps. What a thread did
// before it arrived is seen by all that have waited.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// Arrives, and lets others see nothing but what a fence has released before.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;"); }

// An mbarrier is eight bytes of shared memory, 8-byte aligned. A phase of it ends when `count` arrivals have come and as many
// bytes as were announced; then the next one begins. The first phase has parity 0: a wait for parity 1 is over at once.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, unsigned int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void mbarrier_inval(unsigned long long* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Shows initialised mbarriers to bulk copies and, with cluster_arrive_relaxed after it, to the cluster.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Announces bytes that a copy will bring, and arrives.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned long long* barrier, unsigned int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

// Arrives at the mbarrier of another block, whose address is from mapa.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned long long* peer) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(shared_address(peer)) : "memory");
}

// Whether the phase with this parity is over; it may wait a while to find out.
__device__ __forceinline__ bool mbarrier_try_wait(unsigned long long* barrier, unsigned int parity) {
  unsigned int over;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(over)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return over;
}

// Waits for the end of the phase with this parity.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned int parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// The same when threads of other blocks arrive, too.
__device__ __forceinline__ void mbarrier_wait_cluster(unsigned long long* barrier, unsigned int parity) {
  unsigned int over = 0;
  while (!over) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
        : "=r"(over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

// Shows what this thread has written, or knows to be written, to bulk copies that start after it.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

// Starts copying `bytes` bytes, which the mbarrier is told of when they are there. Addresses and size are multiples of 16.
// `policy` is of evict_first or evict_last.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, unsigned int bytes, unsigned long long* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void bulk_load(void* shared, const void* global, unsigned int bytes, unsigned long long* barrier,
                                          unsigned long long policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
                   shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
               : "memory");
}

// The other way. The copy belongs to the group that this thread commits next.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, unsigned int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_store(void* global, const void* shared, unsigned int bytes, unsigned long long policy) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
                   __cvta_generic_to_global(global)),
               "r"(shared_address(shared)), "r"(bytes), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's last groups are unfinished.
template <int N>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// … until at most N of them have not read all of their shared memory, which may then be written again. Needed before the end.
template <int N>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

}  // namespace ptx

#endif
