// What a kernel compiled for the host and the runtime that executes it know of each other.
//
// A CUDA thread is a fiber. A fiber runs until it must wait (barrier, warp operation) or ends, so between two such points a
// thread is never interrupted. The functions here are defined in runtime.cpp, which is one shared object for all kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpcheck {

struct Index {
  unsigned int x, y, z;
};

// The part of a thread that kernels read directly.
struct Thread {
  Index thread, block, block_dim, grid_dim;
  unsigned int lane;
  unsigned int cluster_rank, cluster_size;
  unsigned char* dynamic_shared;
};

// Computes a warp operation for all lanes of `mask` at once: operands[l] is what lane l passed to warpcheck_meet.
using Combine = void (*)(void** operands, std::uint32_t mask);

// A kernel, as its shared object exports it.
struct Entry {
  void (*call)(void** arguments);
  const int* sizes;    // of the parameters, in bytes
  int parameters;
  void* (*anchor)();   // the address of a thread-local variable of the shared object, for the calling thread
  std::ptrdiff_t tls_start;  // of the thread-local segment, relative to the anchor; set by warpcheck_prepare
  std::size_t tls_size;
  const unsigned char *image_begin, *image_end;  // the shared object in memory
};

// Addresses [begin, end).
struct Range {
  const unsigned char *begin, *end;
};

struct Launch {
  Entry* entry;
  void** arguments;
  Index grid, block;
  std::size_t shared_bytes;
  int poison;             // byte that fills shared memory at block start, or -1
  int tensor_block;       // products a tensor core sums at once
  int tensor_extra_bits;  // bits it keeps beyond float's 24
  int resident;           // blocks in flight at once, whole clusters
  int cluster;            // blocks of a cluster, side by side along x
  int seeded;             // 1: arbitrary order of threads and blocks, from seed
  std::uint64_t seed;
  double budget;          // seconds of CPU time
  int check_races, check_memory;  // the entry was built for it
  const Range* memory;    // where a kernel may read and write besides its own; none: anywhere
  int memory_count;
  const Range* variables; // of static shared memory, as offsets into its segment
  int variable_count;
  std::uint64_t switches;  // out: how often a thread gave way to another
};

enum Status { kDone = 0, kHang = 1, kDeviceError = 2 };

// kAtomic reads and writes; volatile accesses count as atomic. After kStartWrite there is nothing to read until the write ends.
// kReadOnly reads what nobody writes in this launch.
enum Access { kRead, kWrite, kAtomic, kAtomicRead, kStartWrite, kReadOnly };

enum BarrierKind { kBarrierPlain, kBarrierCount, kBarrierAnd, kBarrierOr };

}  // namespace warpcheck

extern "C" {
// The running thread. __thread, not thread_local: no call to an initialiser at each use.
extern __thread warpcheck::Thread* warpcheck_thread __attribute__((tls_model("initial-exec")));

// Waits until all lanes of `mask` are here with the same `combine`; the last one to arrive runs it.
void warpcheck_meet(std::uint32_t mask, warpcheck::Combine combine, void* operands, const char* name);

// Waits until `count` threads (0: all that have not exited) are at barrier `id`. What it returns depends on `kind`.
int warpcheck_barrier(int id, int count, int kind, int predicate, const char* file, int line);

// Barrier `id` counts this thread as arrived, and the thread goes on.
void warpcheck_barrier_arrive(int id, int count, const char* file, int line);

// A point where an arbitrary order may let other threads run: atomics and whatever else threads can spin on.
void warpcheck_pause();

// Ends the launch with a verdict. Fibers are abandoned, not unwound.
[[noreturn]] void warpcheck_fail(int status, const char* format, ...) __attribute__((format(printf, 2, 3)));

void warpcheck_copy_async(void* shared, const void* global, int bytes, int valid_bytes);
void warpcheck_copy_commit();
void warpcheck_copy_wait(int groups_left);

// Clusters: where a peer keeps its twin of what lies at `address`; the two halves of the cluster's barrier.
void* warpcheck_map_shared(const void* address, std::uint32_t rank);
void warpcheck_cluster_arrive(int releases, const char* file, int line);
void warpcheck_cluster_wait();

// mbarriers. An arrival may be at a peer's, and may announce bytes. A wait is for the end of the phase with that parity; one that
// does not block says whether it is over.
void warpcheck_mbarrier_init(void* barrier, std::uint32_t count);
void warpcheck_mbarrier_inval(void* barrier);
void warpcheck_mbarrier_arrive(void* barrier, std::uint32_t count, std::uint32_t bytes);
bool warpcheck_mbarrier_wait(void* barrier, std::uint32_t parity, bool blocks, int line);

// Bulk copies. They land as late as somebody waits for them, or at any time if the order is arbitrary.
void warpcheck_bulk_load(void* shared, const void* global, std::uint32_t bytes, void* barrier);
void warpcheck_bulk_store(void* global, const void* shared, std::uint32_t bytes);
void warpcheck_bulk_commit();
void warpcheck_bulk_wait(int groups_left, bool only_read);
void warpcheck_fence_proxy(int inits_only);

// A thread reads or writes memory. `alignment` is what the address must be a multiple of.
void warpcheck_access(const void* address, std::size_t bytes, std::size_t alignment, int access);

// __threadfence.
void warpcheck_fence();

// Of a clock that runs while the process does. (<chrono> would double the time that a small kernel takes to compile.)
long long warpcheck_nanoseconds();

// Warp operations that are the same for every kernel; operands as in tensor_core.h, and none for __syncwarp.
void warpcheck_sync_lanes(void** operands, std::uint32_t mask);
void warpcheck_mma(void** operands, std::uint32_t mask);
void warpcheck_ldmatrix(void** operands, std::uint32_t mask);

const char* warpcheck_prepare(warpcheck::Entry* entry);
int warpcheck_launch(warpcheck::Launch* launch, char* message, std::size_t message_size);
}
