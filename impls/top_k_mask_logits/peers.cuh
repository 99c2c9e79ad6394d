// What the blocks that share a row show each other: their tallies, and the keys of their candidates. Each writes them into the
// shared memory of all, before a barrier of the cluster: to read them from the peers after it takes longer, since all read at
// the same time, and wait for what they read.

#pragma once

#include "blocks.cuh"

namespace bracketing {

// How many candidates a block can show.
__device__ inline unsigned int most_shown() { return min(kCandidates, kSample >> Blocks::log2()); }

// Where in Shared::candidates those of a block stand.
__device__ inline unsigned int place_of(unsigned int block) { return block * (kSample >> Blocks::log2()); }

// visit(block, first, step): the block's warps divide up the blocks that share the row, and a thread has every step-th thing
// there, from `first` on.
template <typename Visit>
__device__ void for_blocks(Visit visit) {
  const unsigned int all = 31 - __clz(kWarps);  // as a logarithm, like those below
  const unsigned int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const unsigned int log2 = all - min(all, Blocks::log2()), warps = 1u << log2;  // for each
  for (unsigned int b = warp >> log2; b < Blocks::count(); b += kWarps >> log2)
    visit(b, (warp & (warps - 1)) * kWarp + lane, warps * kWarp);
}

// Shows the block's tally and, if there is room, its candidates. Seen after the next Blocks::sync().
template <typename Format>
__device__ void show(Shared<typename Format::Bits>& shared) {
  if (Blocks::count() == 1) return;
  __syncthreads();
  const Tally tally = shared.tally;
  if (threadIdx.x < Blocks::count()) *Blocks::twin(&shared.tallies[Blocks::rank()], threadIdx.x) = tally;
  if (tally.candidates > most_shown()) return;
  for_blocks([&](unsigned int block, unsigned int first, unsigned int step) {
    auto* const there = Blocks::twin(&shared.candidates[place_of(Blocks::rank())], block);
    // With zeros as far as `greater` looks.
    for (unsigned int i = first; i < max(tally.candidates, static_cast<unsigned int>(kWarp)); i += step)
      there[i] = i < tally.candidates ? Format::key(shared.bits[i]) : 0;
  });
}

// What block `rank` has shown; zeros for a block that there is not.
template <typename Bits>
__device__ Tally tally_of(unsigned int rank, const Shared<Bits>& shared) {
  if (rank >= Blocks::count()) return Tally{};
  return Blocks::count() == 1 ? shared.tally : shared.tallies[rank];
}

// visit(key) for every candidate of the row, once in a block.
template <typename Format>
struct Candidates {
  const Shared<typename Format::Bits>& shared;

  template <typename Visit>
  __device__ void operator()(Visit visit) const {
    if (Blocks::count() == 1) {
      const unsigned int count = shared.tally.candidates;
      for (unsigned int i = threadIdx.x; i < count; i += kThreads) visit(Format::key(shared.bits[i]));
    } else {
      for_blocks([&](unsigned int block, unsigned int first, unsigned int step) {
        const unsigned int count = shared.tallies[block].candidates;
        const auto* const there = &shared.candidates[place_of(block)];
        for (unsigned int i = first; i < count; i += step) visit(there[i]);
      });
    }
  }
};

// How many candidates have a key greater than this, if no block has more than a warp has lanes. Whole warps call it.
template <typename Bits>
__device__ unsigned int greater(unsigned int key, const Shared<Bits>& shared) {
  const unsigned int blocks = Blocks::count(), step = place_of(1);
  const Bits* there = &shared.candidates[threadIdx.x % kWarp];
  unsigned int count = 0;
#pragma unroll 8
  for (unsigned int b = 0; b < blocks; ++b, there += step) count += *there > key;
  return __reduce_add_sync(kAllLanes, count);
}

// For few candidates of a small k, if k of them reach `low`, which is not 0 and the highest of the lower ends: makes -inf of
// this block's that are not among the k largest of the row or equal to the last of those. A warp compares a candidate with all.
// Else it is false, for all blocks alike, and nothing has changed. `there` is tally_of(lane).
template <typename Format>
__device__ bool keep_largest(unsigned int k, unsigned int low, const Tally& there, Shared<typename Format::Bits>& shared) {
  const bool few = there.few && there.candidates <= kWarp;
  if (Blocks::count() == 1 || !__all_sync(kAllLanes, few || threadIdx.x % kWarp >= Blocks::count())) return false;
  if (greater(low - 1, shared) < k) return false;
  const unsigned int own = shared.tally.candidates;
  for (unsigned int c = threadIdx.x / kWarp; c < own; c += kWarps) {
    const bool kept = greater(Format::key(shared.bits[c]), shared) < k;
    __syncwarp();  // all of the warp have read it
    if (!kept && threadIdx.x % kWarp == 0) shared.bits[c] = Format::kMinusInfinity;
  }
  return true;
}

}  // namespace bracketing
