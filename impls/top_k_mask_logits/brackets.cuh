// A bracket of the k-th largest key, from a sample of the row.

#pragma once

#include "blocks.cuh"
#include "peers.cuh"
#include "selection.cuh"
#include "slice.cuh"

namespace bracketing {

// How many packs each block samples, `most` at most: the same number in all, and few enough for the memory traffic not to grow
// much.
template <typename Format>
__device__ unsigned int packs_to_sample(const Slice<Format>& slice, unsigned int most) {
  const unsigned int own = slice.packs_of(Blocks::count() - 1);
  return min(min(own, own / kSparsity + kWarp), most) / kGroup * kGroup;
}

// The i-th of the `count` packs that are this block's sample. Groups of them lie at nearly even distances, in no pattern that a
// row is likely to follow.
template <typename Format>
__device__ Pack<typename Format::Bits> sampled(const Slice<Format>& slice, unsigned int count, unsigned int i) {
  const unsigned int rank = Blocks::rank();
  const unsigned int groups = count / kGroup, own_groups = slice.packs_of(rank) / kGroup;
  const unsigned int distance = own_groups / groups, over = own_groups - distance * groups, g = i / kGroup;
  const unsigned int group = g * distance + g * over / groups + __umulhi((g + rank * kThreads) * 2654435769u, distance);
  const unsigned int ordinal = group * kGroup + i % kGroup;
  return slice.pack((((ordinal / kThreads) << Blocks::log2()) + rank) * kThreads + ordinal % kThreads);
}

// Where a block looks for the k-th largest key of the row. Candidates are the keys strictly inside; with `few`, those equal to
// `low` too. Where there is no upper end (kNone), the blocks' lower ends may differ.
struct Bracket {
  unsigned int low, high;
  bool few;
};

// The ranks, in a sample of which a part `density` of the row's n keys is, of keys that bracket the k-th largest of the row.
struct Ranks {
  unsigned int lower;
  int upper;

  __device__ Ranks(float density, unsigned int n, unsigned int k, float sigmas) {
    const float mean = static_cast<float>(k) * density;
    const float margin = sigmas * sqrtf(mean * (1.0f - static_cast<float>(k) / static_cast<float>(n))) + kMargin;
    lower = static_cast<unsigned int>(mean + margin) + 1;
    upper = static_cast<int>(mean - margin);
  }
};

// The largest key in a pack.
template <typename Format>
__device__ unsigned int largest_key(const Pack<typename Format::Bits>& pack) {
  unsigned int largest = 0;
#pragma unroll
  for (int j = 0; j < pack.kLanes; ++j) largest = max(largest, static_cast<unsigned int>(Format::key(pack.get(j))));
  return largest;
}

// What a sample of `count` packs of a block's slice tells of a small k: the largest key of each is looked at, or of all that a
// thread has.
template <typename Format>
struct Sketch {
  static constexpr int kLanes = Pack<typename Format::Bits>::kLanes;
  unsigned int count = 0;
  unsigned int rank = 0;    // of a bound, among these keys
  unsigned int enough = 0;  // keys that reach it, at most
  bool fits = false;        // whether there is room for the candidates then

  Sketch() = default;

  // The rank is that of a bound which the k largest of the row reach: all but surely if they are spread over it, or stand
  // together, as in sorted rows. Then all may be in one block, but only one in kLanes is the largest of its pack; `ends` is how
  // many packs in the sample may be partly among the k largest then.
  __device__ Sketch(const Slice<Format>& slice, unsigned int count_, unsigned int ends, unsigned int k) : count(count_) {
    const float density = static_cast<float>(count * kLanes) / static_cast<float>(slice.n);
    const float part = density * static_cast<float>(Blocks::count());  // of the slice
    rank = Ranks(density, slice.n, k, kSigmasSmall).lower;
    if (Blocks::count() > 1) rank = max(rank, static_cast<unsigned int>(static_cast<float>(k / kLanes) * part) + ends + 1);
    enough = by_warp() ? 2 * rank : rank + rank / 4;
    const float most = static_cast<float>(enough) + 4.0f * sqrtf(static_cast<float>(enough));
    fits = rank <= count / 4 && most < static_cast<float>(most_shown()) * part;
  }

  __device__ bool by_warp() const { return rank <= kWarp / 2; }
};

// For a small k: from the largest key of each pack sampled, in the block's own slice alone, so that it need not wait for its
// peers, who find other bounds. Few packs have more than one of the sample's largest keys, so the largest of each will do, and
// at least as many keys reach what so many packs do. A slice that is on the chip as a whole is its own sample. Finds none for
// other k; all blocks agree on that.
template <typename Format>
__device__ bool bracket_few(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared, Sum& sum,
                            Bracket& where) {
  using Bits = typename Format::Bits;
  Sketch<Format> sketch;
  if (Blocks::count() > 1 && slice.fits()) sketch = Sketch<Format>(slice, slice.packs_of(0), 2, k);
  // There a thread has one key for all of its packs: a bound that more than half of these reach may be reached by many elements.
  const bool whole = sketch.fits && sketch.rank <= kThreads / 2;
  // A larger sample costs more, and leaves fewer candidates.
  if (!whole) sketch = Sketch<Format>(slice, packs_to_sample(slice, kThreads), 2 * kGroup, k);
  if (!sketch.fits) sketch = Sketch<Format>(slice, packs_to_sample(slice, kSketch * kThreads), 2 * kGroup, k);
  if (!sketch.fits) return false;
  unsigned int key[kSketch] = {}, largest = 0, found, reached;
  if (whole) {
    slice.begin();
    Blocks::wait();  // while memory is waited for
    slice.for_packs_there([&](const Pack<Bits>& pack) { largest = max(largest, largest_key<Format>(pack)); });
    key[0] = largest;
  } else {
    Pack<Bits> pack[kSketch];
#pragma unroll
    for (int j = 0; j < kSketch; ++j)
      if (threadIdx.x + j * kThreads < sketch.count) pack[j] = sampled(slice, sketch.count, threadIdx.x + j * kThreads);
    // What the pass over the row begins with is under way while the bracket is looked for.
    slice.begin();
    Blocks::wait();
#pragma unroll
    for (int j = 0; j < kSketch; ++j) {
      if (threadIdx.x + j * kThreads < sketch.count) key[j] = largest_key<Format>(pack[j]);
      largest = max(largest, key[j]);
    }
  }
  if (sketch.by_warp()) {
    found = separate_roughly(largest, sketch.rank, shared, reached);
  } else {
    found = separate(Held<kSketch>{key}, sketch.rank, 0, Format::kHighestKey, shared);
    unsigned int mine = 0;
    for (unsigned int k : key) mine += k >= found;
    reached = sum(mine);
  }
  // Too many that reach it are equal to it, and not above.
  where = {found, kNone, found && reached <= sketch.enough};
  if (!where.few) slice.finish();
  return true;
}

// For any k, from all keys of a larger sample of the row.
template <typename Format>
__device__ Bracket bracket(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared) {
  using Bits = typename Format::Bits;
  constexpr int kLanes = Pack<Bits>::kLanes;
  const unsigned int count = packs_to_sample(slice, (kSample / kLanes) >> Blocks::log2()), keys_there = count * kLanes;
  for (unsigned int i = threadIdx.x; i < count; i += kThreads) {
    const Pack<Bits> pack = sampled(slice, count, i);
#pragma unroll
    for (int l = 0; l < kLanes; ++l) shared.keys[i * kLanes + l] = Format::key(pack.get(l));
  }
  Blocks::wait();
  Blocks::sync();
  const Spread spread;
  unsigned int key[kKeysOfThread];
#pragma unroll
  for (int j = 0; j < kKeysOfThread; ++j) {
    const unsigned int place = threadIdx.x + j * kThreads, at = spread.at(place);
    key[j] = at < keys_there ? Blocks::twin(shared.keys, spread.block(place))[at] : 0u;
  }
  const Held<kKeysOfThread> keys{key};
  const unsigned int all = keys_there << Blocks::log2();
  const Ranks ranks(static_cast<float>(all) / static_cast<float>(slice.n), slice.n, k, kSigmas);
  const unsigned int low = ranks.lower < all ? separate(keys, ranks.lower, 0, Format::kHighestKey, shared) : 0;
  const unsigned int high = ranks.upper >= 1 ? separate(keys, ranks.upper, low, Format::kHighestKey, shared) : kNone;
  return {low, high, false};
}

}  // namespace bracketing
