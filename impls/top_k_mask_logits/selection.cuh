// Which key has a rank: among keys that a block's threads hold, and, by radix select, in a row.

#pragma once

#include "blocks.cuh"
#include "slice.cuh"

namespace bracketing {

// Keys that a block's threads hold, as what `separate` takes: keys(visit) calls visit(key) for each of the thread's.
template <int kEach>
struct Held {
  const unsigned int (&key)[kEach];

  template <typename Visit>
  __device__ void operator()(Visit visit) const {
#pragma unroll
    for (int j = 0; j < kEach; ++j) visit(key[j]);
  }
};

// A key that separates the `rank` largest of keys that are spread over the block's threads from the rest, ties of the last
// included: found by what looks like a radix select, but within [lowest, highest], which holds the key of that rank. Every
// thread of the block calls it.
template <typename Keys, typename Bits>
__device__ unsigned int separate(const Keys& keys, unsigned int rank, unsigned int lowest, unsigned int highest,
                                 Shared<Bits>& shared) {
  for (;;) {
    const unsigned int span = highest - lowest;
    const int shift = span < kBins ? 0 : 24 - __clz(static_cast<int>(span));
    for (int i = threadIdx.x; i < kBins; i += kThreads) shared.merged[i] = 0;
    __syncthreads();
    keys([&](unsigned int key) {
      if (key - lowest <= span) atomicAdd(&shared.merged[(key - lowest) >> shift], 1u);
    });
    __syncthreads();
    if (threadIdx.x < kWarp) choose(shared.merged, rank, &shared.choice);
    __syncthreads();
    lowest += shared.choice.digit << shift;
    rank = shared.choice.rank;
    if (shift == 0 || shared.choice.population == rank) return lowest;
    highest = lowest + min(highest - lowest, (1u << shift) - 1);  // lowest + (1u << shift) can be too large for 32 bits
  }
}

// The same when the highest key is not known, if as many as `rank` keys reach `lowest`. `reaching` becomes how many do.
// shared.highest and shared.reaching are 0 before.
template <typename Keys, typename Bits>
__device__ unsigned int separate_from(const Keys& keys, unsigned int rank, unsigned int lowest, Shared<Bits>& shared,
                                      unsigned int& reaching) {
  unsigned int highest = 0, mine = 0;
  keys([&](unsigned int key) { highest = max(highest, key), mine += key >= lowest; });
  highest = __reduce_max_sync(kAllLanes, highest);
  mine = __reduce_add_sync(kAllLanes, mine);
  if (threadIdx.x % kWarp == 0 && mine) atomicMax(&shared.highest, highest), atomicAdd(&shared.reaching, mine);
  __syncthreads();
  reaching = shared.reaching;
  return reaching < rank ? 0 : separate(keys, rank, lowest, shared.highest, shared);
}

// The same, roughly: at least `rank` keys reach it, and not many more. Of the keys that are in one lane of any warp only the
// largest counts; rank <= kWarp / 2. `reached` becomes how many of the threads' largest keys reach it.
template <typename Bits>
__device__ unsigned int separate_roughly(unsigned int largest, unsigned int rank, Shared<Bits>& shared, unsigned int& reached) {
  const unsigned int lane = threadIdx.x % kWarp;
  shared.largest_of[threadIdx.x / kWarp][lane] = largest;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    unsigned int key[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) largest = max(largest, key[w] = shared.largest_of[w][lane]);
    unsigned int before = 0;  // lanes in front of this one when they stand in order
#pragma unroll 8
    for (unsigned int l = 0; l < kWarp; ++l) {
      const unsigned int other = __shfl_sync(kAllLanes, largest, l);
      before += other > largest || (other == largest && l < lane);
    }
    const unsigned int place = __ffs(static_cast<int>(__ballot_sync(kAllLanes, before == rank - 1))) - 1;
    const unsigned int found = __shfl_sync(kAllLanes, largest, place);
    unsigned int mine = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) mine += key[w] >= found;
    mine = __reduce_add_sync(kAllLanes, mine);
    if (lane == 0) shared.separator = found, shared.reached = mine;
  }
  __syncthreads();
  reached = shared.reached;
  return shared.separator;
}

// The least key to keep, by radix select over the row, 8 bits at a time: always right, and slow.
template <typename Format>
__device__ unsigned int radix_select(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared) {
  using Bits = typename Format::Bits;
  unsigned int prefix = 0, searched = 0, rank = k;  // the digits found so far, and ones where they are
  for (int shift = 8 * (Format::kDigits - 1), turn = 0;; shift -= 8, turn ^= 1) {
    // The peers that read this histogram two digits ago have arrived at the last digit's sync since.
    unsigned int* const histogram = shared.histogram[turn];
    for (int i = threadIdx.x; i < kBins; i += kThreads) histogram[i] = 0;
    __syncthreads();
    // Equal digits in a row are added at once: that is what rows with few different digits have.
    unsigned int digit = 0, run = 0;
    const auto look = [&](Bits bits) {
      const unsigned int key = Format::key(bits);
      if ((key & searched) != prefix) return;
      const unsigned int next = key >> shift & 0xFF;
      if (next != digit && run) {
        atomicAdd(&histogram[digit], run);
        run = 0;
      }
      digit = next;
      ++run;
    };
    slice.for_packs([&](const Pack<Bits>& pack, unsigned int, bool there) {
      for (int j = 0; j < Pack<Bits>::kLanes && there; ++j) look(pack.get(j));
    });
    slice.for_rest([&](unsigned int i) { look(slice.in[i]); });
    if (run) atomicAdd(&histogram[digit], run);
    Blocks::sync();
    for (int i = threadIdx.x; i < kBins; i += kThreads) {
      unsigned int total = 0;
      for (unsigned int b = 0; b < Blocks::count(); ++b) total += Blocks::twin(histogram, b)[i];
      shared.merged[i] = total;
    }
    __syncthreads();
    if (threadIdx.x < kWarp) choose(shared.merged, rank, &shared.choice);
    __syncthreads();
    prefix |= shared.choice.digit << shift;
    searched |= 0xFFu << shift;
    rank = shared.choice.rank;
    // If all keys with this prefix are among the k largest, prefix followed by zeros separates as well as the k-th key does.
    if (shift == 0 || shared.choice.population == rank) return prefix;
  }
}

}  // namespace bracketing
