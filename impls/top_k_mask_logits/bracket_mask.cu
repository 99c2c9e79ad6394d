// top_k_mask_logits with one read and one write of device memory for most rows. A cluster of blocks shares a row, or one has it.
//
//  1. A sample of the row brackets the k-th largest key: it lies in [low, high], but for a very small probability. For a small
//     k each block has a bracket of its own, without an upper end, from a sample of its slice.
//  2. One pass over the row counts the elements above the bracket and collects those inside, the candidates.
//  3. The blocks show each other their candidates, and select the k-th largest key among them. If each has only a few, it ranks
//     its own among all instead.
//  4. The row is written. When few elements are kept (k is small), all that can be kept are candidates, so the row is filled
//     with -inf and they are put back: the row is not read again. Otherwise it is, mostly from the L2 cache.
//
// If the bracket has missed, or holds more than there is room for, a radix select over the row is exact for every input. Before
// step 4 nothing is written, so every way here is open until then.
//
// In place (out == in) is safe: a block reads, in every step, nothing but its own slice of the row, and what it learns of
// others goes through shared memory. In step 4 with a fill, the block's reads of the row have ended at a barrier before, also
// those that shared memory was filled from; without, an element is written by the thread that reads it, after it has read it.
// `in` and `out` may be the same, so neither is __restrict__ and nothing is loaded through the read-only cache.
//
// Rows have fewer than 2^32 elements (radix_mask.cu takes longer ones); offsets of rows are 64-bit.

#include "blocks.cuh"
#include "brackets.cuh"
#include "peers.cuh"
#include "selection.cuh"
#include "slice.cuh"

namespace {

using namespace bracketing;

// Adds elements of a pack to the candidates, those with ones in `marks`. Whole warps call it.
template <typename Bits>
__device__ void add_candidates(const Pack<Bits>& pack, unsigned int index, const Pack<Bits>& marks,
                               Shared<Bits>& shared) {
  constexpr int kLanes = Pack<Bits>::kLanes;
  const unsigned int lane = threadIdx.x % kWarp, before = (1u << lane) - 1;
  unsigned int votes[kLanes], total = 0;
#pragma unroll
  for (int j = 0; j < kLanes; ++j) {
    votes[j] = __ballot_sync(kAllLanes, marks.get(j) != 0);
    total += __popc(votes[j]);
  }
  if (!total) return;
  unsigned int begin = 0;
  if (lane == 0) begin = atomicAdd(&shared.tally.candidates, total);
  begin = __shfl_sync(kAllLanes, begin, 0);
#pragma unroll
  for (int j = 0; j < kLanes; ++j) {
    const unsigned int place = begin + __popc(votes[j] & before);
    if (marks.get(j) && place < kCandidates) shared.bits[place] = pack.get(j), shared.index[place] = index + j;
    begin += __popc(votes[j]);
  }
}

// The same of one element, by one thread.
template <typename Bits>
__device__ void add_candidate(Bits bits, unsigned int index, Shared<Bits>& shared) {
  const unsigned int place = atomicAdd(&shared.tally.candidates, 1u);
  if (place < kCandidates) shared.bits[place] = bits, shared.index[place] = index;
}

// One pass over the slice, which has begun with `few`: counts and collects. `tally` in shared memory is this block's
// afterwards, once Blocks::sync() is over.
template <typename Format>
__device__ void collect(const Slice<Format>& slice, const Bracket& where, Shared<typename Format::Bits>& shared, Sum& sum) {
  using Bits = typename Format::Bits;
  constexpr int kLanes = Pack<Bits>::kLanes;
  const unsigned int reach = Format::bound_below(where.low);
  if (threadIdx.x == 0) shared.tally.low = where.low, shared.tally.few = where.few;
  if (where.few) {
    slice.for_packs_begun([&](const Pack<Bits>& pack, unsigned int index, bool there) {
      Pack<Bits> marks;
      bool any = false;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        marks.word[w] = there ? Format::exceeding(pack.word[w], reach) : 0u;
        any |= marks.word[w] != 0;
      }
      if (__any_sync(kAllLanes, any)) add_candidates(pack, index, marks, shared);
    });
    slice.for_rest([&](unsigned int i) {
      if (Format::key(slice.in[i]) >= where.low) add_candidate(slice.in[i], i, shared);
    });
    return;
  }
  // Nothing is above NaN. Without an upper end, keys equal to the lower one may be many: they are counted as they come.
  const bool open = where.high == kNone;
  const unsigned int over = Format::word_of_key(open ? where.low : where.high);
  const unsigned int some_over = (open ? where.low : where.high) < Format::kHighestKey ? kNone : 0u;
  unsigned int above = 0, at_high = 0, at_low = 0;
  // Counts an element that is inside, and says whether it is a candidate.
  const auto is_candidate = [&](Bits bits) {
    const unsigned int key = Format::key(bits);
    at_high += key == where.high;
    at_low += key == where.low && key != where.high;
    return key != where.high && key != where.low;
  };
  slice.for_packs([&](const Pack<Bits>& pack, unsigned int index, bool there) {
    Pack<Bits> marks;
    unsigned int count = 0, inside = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const unsigned int beyond = Format::exceeding(pack.word[w], over) & some_over;
      const unsigned int between = Format::exceeding(pack.word[w], reach) & ~beyond;
      marks.word[w] = !there ? 0u : open ? beyond : between;
      count += (open ? between : beyond) & (kLanes == 4 ? 1u : 0x10001u);
      inside |= marks.word[w];
    }
    count = kLanes == 4 ? count : (count & 0xFFFFu) + (count >> 16);
    if (there) (open ? at_low : above) += count;
    if (!__any_sync(kAllLanes, inside)) return;
    if (!open) {
#pragma unroll
      for (int j = 0; j < kLanes; ++j)
        if (marks.get(j) && !is_candidate(pack.get(j))) marks.clear(j);
    }
    add_candidates(pack, index, marks, shared);
  });
  slice.for_rest([&](unsigned int i) {
    const Bits bits = slice.in[i];
    const unsigned int key = Format::key(bits);
    above += where.high != kNone && key > where.high;
    if (key >= where.low && key <= where.high && is_candidate(bits)) add_candidate(bits, i, shared);
  });
  above = sum(above), at_high = sum(at_high), at_low = sum(at_low);
  if (threadIdx.x == 0) shared.tally.above = above, shared.tally.at_high = at_high, shared.tally.at_low = at_low;
}

// How a row is written: what reaches the key `least` stays.
struct Verdict {
  unsigned int least;
  bool candidates_only;  // nothing else can stay
  bool all;              // everything does
};

// Reads the row, and decides. Every thread of the blocks that share the row must call it; 0 < k < n. It waits for the peers to
// be done with the last row, and arrives when it is done with this one.
template <typename Format>
__device__ Verdict decide(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared) {
  using Bits = typename Format::Bits;
  Sum sum{shared.partial};
  if (threadIdx.x == 0) shared.tally = Tally{}, shared.highest = 0, shared.reaching = 0;
  // Rows that need no sample: every element but the -infs is a candidate.
  Bracket where{0, kNone, false};
  if (slice.n <= kCandidates) {
    Blocks::wait();
    __syncthreads();
  } else if (!bracket_few(slice, k, shared, sum, where)) {
    where = bracket(slice, k, shared);
  }
  collect(slice, where, shared, sum);
  show<Format>(shared);
  Blocks::sync();

  const Tally there = tally_of(threadIdx.x % kWarp, shared);
  const bool room = __all_sync(kAllLanes, there.candidates <= most_shown());
  const unsigned int above = __reduce_add_sync(kAllLanes, there.above);
  const unsigned int at_high = __reduce_add_sync(kAllLanes, there.at_high);
  // Every block knows all of its elements above the highest of the lower ends.
  const unsigned int low = __reduce_max_sync(kAllLanes, there.low);
  const unsigned int at_low = __reduce_add_sync(kAllLanes, there.low == low ? there.at_low : 0u);

  Verdict verdict{0, false, false};
  if (keep_largest<Format>(k, low, there, shared)) {
    verdict.candidates_only = true;
  } else if (k <= above || !room) {
    verdict.least = radix_select(slice, k, shared);
  } else if (k <= above + at_high) {
    verdict.least = where.high;
  } else {
    const unsigned int rank = k - above - at_high;
    // If elements equal to `low` have been counted, not all of them are candidates, and none must come through with those.
    const unsigned int lowest = low + (at_low != 0);
    unsigned int reaching;
    verdict.least = separate_from(Candidates<Format>{shared}, rank, lowest, shared, reaching);
    if (rank <= reaching) {
      verdict.candidates_only = where.few;
    } else if (rank - reaching <= at_low) {
      verdict.least = low;
      verdict.all = above + at_high + reaching + at_low == slice.n;
    } else {
      verdict.least = radix_select(slice, k, shared);
    }
  }
  Blocks::arrive();
  return verdict;
}

template <typename Format>
__device__ void mask_rows(const void* in, void* out, long long in_stride, long long out_stride, long long batch, long long n,
                          const void* k_rows, int k_bytes, long long k_stride, long long k_scalar) {
  using Bits = typename Format::Bits;
  extern __shared__ __align__(16) unsigned char memory[];
  Shared<Bits>& shared = *reinterpret_cast<Shared<Bits>*>(memory);
  Blocks::begin();
  for (long long row = blockIdx.x >> Blocks::log2(); row < batch; row += gridDim.x >> Blocks::log2()) {
    const Slice<Format> slice(static_cast<const Bits*>(in) + row * in_stride, static_cast<Bits*>(out) + row * out_stride, n,
                              shared);
    // The same for all blocks that share the row, so the barriers below are met by all threads or by none.
    const long long k = row_k(k_rows, k_bytes, k_stride, k_scalar, row, n);
    if (k == 0) {
      slice.fill();
    } else if (k == n) {
      if (slice.in != slice.out) slice.mask(0);
    } else {
      const Verdict verdict = decide(slice, static_cast<unsigned int>(k), shared);
      if (verdict.candidates_only) {
        slice.fill();
        __syncthreads();
        for (unsigned int i = threadIdx.x; i < shared.tally.candidates; i += kThreads)
          if (Format::key(shared.bits[i]) >= verdict.least) slice.out[shared.index[i]] = shared.bits[i];
      } else if (!verdict.all || slice.in != slice.out) {
        slice.mask(verdict.least);
      }
      // What the next row begins with is not to be seen by threads that still work on this one.
      __syncthreads();
    }
  }
  Blocks::wait();
}

}  // namespace

#ifndef FORMAT
#error "define FORMAT as Float32, Float16 or Bfloat16"
#endif
static_assert(sizeof(Shared<FORMAT::Bits>) <= SHARED_BYTES, "too little shared memory");

// Strides are in elements. Any grid of at least one block (cluster), kThreads threads, SHARED_BYTES of dynamic shared memory.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS_PER_SM)
    bracket_mask(const void* in, void* out, long long in_stride, long long out_stride, long long batch, long long vocab,
                 const void* k_rows, int k_bytes, long long k_stride, long long k_scalar) {
  mask_rows<FORMAT>(in, out, in_stride, out_stride, batch, vocab, k_rows, k_bytes, k_stride, k_scalar);
}
