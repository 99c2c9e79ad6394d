// The blocks that share a row: what they have in shared memory, and how they add up, wait for each other and read from each
// other.

#pragma once

#include "tuning.cuh"

#if CLUSTERS
#include "ptx_hopper.cuh"
#endif

namespace bracketing {

// The blocks that share a row: which of them this one is, how many there are (a power of two: by its logarithm numbers are
// shifted, since to divide by it takes a hundred cycles), how they wait for each other, and where a peer keeps its twin of
// something in shared memory. Between rows a block arrives when it is done with what the peers have shown, and waits only when
// it needs them again: until then it may neither write to their memory nor give up its own.
#if CLUSTERS
struct Blocks {
  static __device__ unsigned int rank() { return ptx::cluster_ctarank(); }
  static __device__ unsigned int count() { return ptx::cluster_nctarank(); }
  static __device__ unsigned int log2() { return 31 - __clz(static_cast<int>(count())); }
  static __device__ void sync() { ptx::cluster_sync(); }
  static __device__ void begin() { ptx::cluster_arrive_relaxed(); }  // as if there had been a row
  static __device__ void arrive() { ptx::cluster_arrive(); }
  static __device__ void wait() { ptx::cluster_wait(); }
  template <typename T>
  static __device__ T* twin(T* shared, unsigned int rank) {
    return ptx::mapa(shared, rank);
  }
};
#else
struct Blocks {
  static __device__ unsigned int rank() { return 0; }
  static __device__ unsigned int count() { return 1; }
  static __device__ unsigned int log2() { return 0; }
  static __device__ void sync() { __syncthreads(); }
  static __device__ void begin() {}
  static __device__ void arrive() {}
  static __device__ void wait() {}
  template <typename T>
  static __device__ T* twin(T* shared, unsigned int) {
    return shared;
  }
};
#endif

// What a block has found in its pass over its slice.
struct alignas(16) Tally {
  unsigned int candidates;  // keys inside the bracket; counted even where there is no room for them
  unsigned int low;         // the bracket's lower end
  unsigned int at_low;      // keys that are it, unless those are candidates
  unsigned int few;         // Bracket::few
  unsigned int above;       // keys above the bracket
  unsigned int at_high;     // keys that are its upper end, when that is not kNone
};

template <typename Bits>
struct Shared {
  union {
    Pack<Bits> ring[kDepth][kThreads];  // see Slice; for a small k
    Bits keys[kSample];                 // the block's share of the sample, for its peers to read; for other k
  };
  Bits bits[kCandidates];
  unsigned int index[kCandidates];  // in the row; for a small k
  Tally tally;
  // What all blocks of a cluster have shown (peers.cuh): their tallies, and the keys of their candidates, as many places for
  // each.
  Tally tallies[kMostBlocks];
  Bits candidates[CLUSTERS ? kSample : 1];
  unsigned int partial[2][kWarps];
  unsigned int largest_of[kWarps][kWarp];
  unsigned int histogram[2][kBins];
  unsigned int merged[kBins];
  Choice<unsigned int> choice;
  unsigned int separator, reached, highest, reaching;
};

// Adds a number up over the block, for all of its threads. Two sets of partial sums take turns: one barrier a sum is enough.
struct Sum {
  unsigned int (*partial)[kWarps];
  int turn = 0;

  __device__ unsigned int operator()(unsigned int mine) {
    const int lane = threadIdx.x % kWarp;
    const unsigned int warp = __reduce_add_sync(kAllLanes, mine);
    if (lane == 0) partial[turn][threadIdx.x / kWarp] = warp;
    __syncthreads();
    const unsigned int total = __reduce_add_sync(kAllLanes, lane < kWarps ? partial[turn][lane] : 0u);
    turn ^= 1;
    return total;
  }
};

// What the blocks have at place `place` of arrays in shared memory that are one: neighbours are read from one block, each
// thread reads from all.
struct Spread {
  static __device__ unsigned int block(unsigned int place) { return (place / kWarp) & (Blocks::count() - 1); }
  static __device__ unsigned int at(unsigned int place) {
    return ((place / kWarp) >> Blocks::log2()) * kWarp + place % kWarp;
  }
};

}  // namespace bracketing
