// A bracket of the k-th largest key, from a sample of the row.

#pragma once

#include "blocks.cuh"
#include "selection.cuh"
#include "slice.cuh"

namespace bracketing {

// How many packs each block samples when the row's sample has `most` keys at most: the same number in all, and few enough for the
// memory traffic not to grow much.
template <typename Format>
__device__ unsigned int packs_to_sample(const Slice<Format>& slice, unsigned int most) {
  const unsigned int blocks = Blocks::count(), own = slice.packs_of(blocks - 1);
  return min(min(own, own / kSparsity + kWarp), most / Pack<typename Format::Bits>::kLanes / blocks) / kGroup * kGroup;
}

// Calls visit(i, pack) for the i-th of this block's `count` packs in the sample, each by one thread. Groups of them lie at nearly
// even distances, in no pattern that a row is likely to follow.
template <int kMost, typename Format, typename Visit>
__device__ void sample(const Slice<Format>& slice, unsigned int count, Visit visit) {
  using Bits = typename Format::Bits;
  constexpr int kEach = (kMost / Pack<Bits>::kLanes + kThreads - 1) / kThreads;
  const unsigned int blocks = Blocks::count(), rank = Blocks::rank();
  const unsigned int groups = count / kGroup, own_groups = slice.packs_of(rank) / kGroup;
  const unsigned int distance = groups ? own_groups / groups : 0, over = own_groups - distance * groups;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const unsigned int i = threadIdx.x + j * kThreads, g = i / kGroup;
    if (g >= groups) continue;
    const unsigned int group =
        g * distance + g * over / groups + __umulhi((g + rank * kThreads) * 2654435769u, distance);
    const unsigned int ordinal = group * kGroup + i % kGroup;
    visit(i, slice.pack((ordinal / kThreads * blocks + rank) * kThreads + ordinal % kThreads));
  }
}

// Where the k-th largest key is looked for. Candidates are the keys strictly inside; with `few`, those equal to `low` too, and
// there is no upper end.
struct Bracket {
  unsigned int low, high;
  bool few;
};

// The ranks, in a sample, of keys that bracket the k-th largest of a row.
struct Ranks {
  float density;  // of the sample in the row
  unsigned int lower;
  int upper;

  __device__ Ranks(unsigned int sampled, unsigned int n, unsigned int k, float sigmas) {
    density = static_cast<float>(sampled) / static_cast<float>(n);
    const float mean = static_cast<float>(k) * density;
    const float margin = sigmas * sqrtf(mean * (1.0f - static_cast<float>(k) / static_cast<float>(n))) + kMargin;
    lower = static_cast<unsigned int>(mean + margin) + 1;
    upper = static_cast<int>(mean - margin);
  }

  // Whether there is room for the candidates if so many keys of the sample are. All may stand together, in one block.
  __device__ bool fits(unsigned int reached) const {
    return static_cast<float>(reached) + 4.0f * sqrtf(static_cast<float>(reached)) < kPlaces * density;
  }
};

// For a small k: from the largest key of each pack sampled. Few packs have more than one of the sample's largest keys, so these
// will do, and at least as many keys reach what so many packs do. Finds none for other k.
template <typename Format>
__device__ bool bracket_few(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared, Sum& sum,
                            Bracket& where, Batch<typename Format::Bits>& batch) {
  using Bits = typename Format::Bits;
  constexpr int kLanes = Pack<Bits>::kLanes, kMost = kSketch / kLanes;
  const unsigned int count = packs_to_sample(slice, kSketch), packs = count * Blocks::count();
  const Ranks ranks(packs * kLanes, slice.n, k, kSigmasSmall);
  const bool by_warp = ranks.lower <= kWarp / 2;
  const unsigned int enough = by_warp ? 2 * ranks.lower : ranks.lower + ranks.lower / 4;
  const bool may = ranks.lower <= packs / 4 && ranks.fits(enough);
  if (!may) return false;
  sample<kSketch>(slice, count, [&](unsigned int i, const Pack<Bits>& pack) {
    unsigned int largest = 0;
#pragma unroll
    for (int j = 0; j < kLanes; ++j) largest = max(largest, static_cast<unsigned int>(Format::key(pack.get(j))));
    shared.largest[i] = static_cast<Bits>(largest);
  });
  // What the pass over the row begins with is under way while the bracket is looked for.
  batch = slice.load(slice.first);
  Blocks::sync();
  constexpr int kMostPlaces = kMost % (kMostBlocks * kWarp) ? kMost + kMostBlocks * kWarp : kMost;
  const Spread spread;
  unsigned int key[(kMostPlaces + kThreads - 1) / kThreads], largest = 0, found, reached;
#pragma unroll
  for (int j = 0; j < (kMostPlaces + kThreads - 1) / kThreads; ++j) {
    const unsigned int place = threadIdx.x + j * kThreads, at = spread.at(place);
    // Read in any case, so that no load waits for another.
    const unsigned int there = Blocks::twin(shared.largest, spread.block(place))[min(at, count - 1)];
    largest = max(largest, key[j] = at < count ? there : 0u);
  }
  if (by_warp) {
    found = separate_roughly(largest, ranks.lower, shared, reached);
  } else {
    found = separate(key, ranks.lower, 0, Format::kHighestKey, shared);
    unsigned int mine = 0;
    for (unsigned int k : key) mine += k >= found;
    reached = sum(mine);
  }
  // Too many that reach it are equal to it, and not above.
  where = {found, kNone, found && reached <= enough};
  return true;
}

// For any k, from all keys of a larger sample.
template <typename Format>
__device__ Bracket bracket(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared) {
  using Bits = typename Format::Bits;
  constexpr int kLanes = Pack<Bits>::kLanes;
  const unsigned int count = packs_to_sample(slice, kSample), keys_there = count * kLanes;
  sample<kSample>(slice, count, [&](unsigned int i, const Pack<Bits>& pack) {
#pragma unroll
    for (int j = 0; j < kLanes; ++j) shared.keys[i * kLanes + j] = Format::key(pack.get(j));
  });
  Blocks::sync();
  const Spread spread;
  unsigned int key[kKeysOfThread];
#pragma unroll
  for (int j = 0; j < kKeysOfThread; ++j) {
    const unsigned int place = threadIdx.x + j * kThreads, at = spread.at(place);
    key[j] = at < keys_there ? Blocks::twin(shared.keys, spread.block(place))[at] : 0u;
  }
  const unsigned int sampled = keys_there * Blocks::count();
  const Ranks ranks(sampled, slice.n, k, kSigmas);
  const unsigned int low = ranks.lower < sampled ? separate(key, ranks.lower, 0, Format::kHighestKey, shared) : 0;
  const unsigned int high = ranks.upper >= 1 ? separate(key, ranks.upper, low, Format::kHighestKey, shared) : kNone;
  return {low, high, false};
}

}  // namespace bracketing
