// The blocks that share a row: what they have in shared memory, and how they add up, wait for each other and read from each other.

#pragma once

#include "tuning.cuh"

#ifndef CLUSTERS
#error "define CLUSTERS as 1 for a kernel to be launched in clusters, else 0"
#endif
#if CLUSTERS
#include "ptx_hopper.cuh"
#endif

namespace bracketing {

// The blocks that share a row: which of them this one is, how they wait for each other, and where a peer keeps its twin of
// something in shared memory.
#if CLUSTERS
struct Blocks {
  static __device__ unsigned int rank() { return ptx::cluster_ctarank(); }
  static __device__ unsigned int count() { return ptx::cluster_nctarank(); }
  static __device__ void sync() { ptx::cluster_sync(); }
  static __device__ void arrive() { ptx::cluster_arrive(); }
  // Of the block's own threads too: what a thread does between the two is over.
  static __device__ void wait() {
    ptx::cluster_wait();
    __syncthreads();
  }
  template <typename T>
  static __device__ T* twin(T* shared, unsigned int rank) {
    return ptx::mapa(shared, rank);
  }
};
#else
struct Blocks {
  static __device__ unsigned int rank() { return 0; }
  static __device__ unsigned int count() { return 1; }
  static __device__ void sync() { __syncthreads(); }
  static __device__ void arrive() {}
  static __device__ void wait() { __syncthreads(); }
  template <typename T>
  static __device__ T* twin(T* shared, unsigned int) {
    return shared;
  }
};
#endif

// What a pass over the row has found, in one block or in all.
struct alignas(16) Tally {
  unsigned int above;       // keys above the bracket
  unsigned int at_high;     // keys that are its upper end, when that is not kNone
  unsigned int at_low;      // keys that are its lower end, unless those are candidates
  unsigned int candidates;  // the others inside; counted even where there is no room for them
};

template <typename Bits>
struct Shared {
  Bits keys[kSample];  // the block's share of the sample, for its peers to read
  Bits largest[kSketch / Pack<Bits>::kLanes];  // of each pack sampled, for the peers likewise
  Bits bits[kCandidates];
  unsigned int index[kPlaces];
  Tally tally;
  unsigned int partial[2][kWarps];
  unsigned int largest_of[kWarps][kWarp];
  unsigned int histogram[2][kBins];
  unsigned int merged[kBins];
  Choice<unsigned int> choice;
  unsigned int separator, reached, highest;
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

// What the blocks have at place `place` of arrays in shared memory that are one, `log2` of the number of blocks: neighbours are
// read from one block, each thread reads from all.
struct Spread {
  unsigned int log2 = 31 - __clz(static_cast<int>(Blocks::count()));

  __device__ unsigned int block(unsigned int place) const { return place / kWarp & (Blocks::count() - 1); }
  __device__ unsigned int at(unsigned int place) const { return (place / kWarp >> log2) * kWarp + place % kWarp; }
};

}  // namespace bracketing
