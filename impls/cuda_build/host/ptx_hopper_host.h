// The twins of ptx_hopper.cuh's instructions, for the host. Only ptx_hopper.cuh includes this.
#pragma once

#include "memory.h"
#include "runtime.h"

namespace ptx {

WARPCHECK_UNCHECKED unsigned int cluster_ctarank() { return warpcheck_thread->cluster_rank; }
WARPCHECK_UNCHECKED unsigned int cluster_nctarank() { return warpcheck_thread->cluster_size; }

template <typename T>
T* mapa(T* shared, unsigned int rank) {
  return static_cast<T*>(warpcheck_map_shared(shared, rank));
}
inline void cluster_add(unsigned int* peer, unsigned int value) { atomicAdd(peer, value); }

inline void cluster_arrive(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  warpcheck_cluster_arrive(1, file, line);
}
inline void cluster_arrive_relaxed(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  warpcheck_cluster_arrive(0, file, line);
}
inline void cluster_wait() { warpcheck_cluster_wait(); }
inline void cluster_sync(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  cluster_arrive(file, line);
  cluster_wait();
}

inline void mbarrier_init(unsigned long long* barrier, unsigned int count) { warpcheck_mbarrier_init(barrier, count); }
inline void mbarrier_inval(unsigned long long* barrier) { warpcheck_mbarrier_inval(barrier); }
inline void fence_mbarrier_init() { warpcheck_fence_proxy(1); }
inline void mbarrier_arrive(unsigned long long* barrier) { warpcheck_mbarrier_arrive(barrier, 1, 0); }
inline void mbarrier_arrive_expect(unsigned long long* barrier, unsigned int bytes) {
  warpcheck_mbarrier_arrive(barrier, 1, bytes);
}
inline void mbarrier_arrive_cluster(unsigned long long* peer) { warpcheck_mbarrier_arrive(peer, 1, 0); }
inline bool mbarrier_try_wait(unsigned long long* barrier, unsigned int parity, int line = __builtin_LINE()) {
  return warpcheck_mbarrier_wait(barrier, parity, false, line);
}
inline void mbarrier_wait(unsigned long long* barrier, unsigned int parity, int line = __builtin_LINE()) {
  warpcheck_mbarrier_wait(barrier, parity, true, line);
}
inline void mbarrier_wait_cluster(unsigned long long* barrier, unsigned int parity, int line = __builtin_LINE()) {
  warpcheck_mbarrier_wait(barrier, parity, true, line);
}
inline void fence_proxy_async() { warpcheck_fence_proxy(0); }

inline void bulk_load(void* shared, const void* global, unsigned int bytes, unsigned long long* barrier) {
  warpcheck_bulk_load(shared, global, bytes, barrier);
}
inline void bulk_load(void* shared, const void* global, unsigned int bytes, unsigned long long* barrier, unsigned long long) {
  warpcheck_bulk_load(shared, global, bytes, barrier);
}
inline void bulk_store(void* global, const void* shared, unsigned int bytes) { warpcheck_bulk_store(global, shared, bytes); }
inline void bulk_store(void* global, const void* shared, unsigned int bytes, unsigned long long) {
  warpcheck_bulk_store(global, shared, bytes);
}
inline void bulk_commit() { warpcheck_bulk_commit(); }
template <int N>
void bulk_wait() {
  warpcheck_bulk_wait(N, false);
}
template <int N>
void bulk_wait_read() {
  warpcheck_bulk_wait(N, true);
}

}  // namespace ptx
