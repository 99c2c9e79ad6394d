// top_k_mask_logits with one read and one write of device memory for most rows: a row belongs to a cluster of blocks, or to one.
//
//  1. A sample of the row brackets the k-th largest key: it lies in [low, high], but for a very small probability.
//  2. One pass over the row counts the elements above the bracket and collects those inside, the candidates.
//  3. The k-th largest key is selected among the candidates, whose blocks have shown them to each other.
//  4. The row is written. When few elements are kept (k is small), all that can be kept are candidates, so the row is filled
//     with -inf and they are put back: the row is not read again. Otherwise it is, mostly from the L2 cache.
//
// If the bracket has missed, or holds more than there is room for, a radix select over the row is exact for every input. Before
// step 4 nothing is written, so every way here is open until then.
//
// In place (out == in) is safe: a block reads, in every step, nothing but its own slice of the row, and what it learns of others
// goes through shared memory. In step 4 with a fill, the block's reads of the row have ended at a barrier before; without, an
// element is written by the thread that reads it, after it has read it. `in` and `out` may be the same, so neither is
// __restrict__ and nothing is loaded through the read-only cache.
//
// Rows have fewer than 2^32 elements (radix_mask.cu takes longer ones); offsets of rows are 64-bit.

#include "blocks.cuh"
#include "brackets.cuh"
#include "selection.cuh"
#include "slice.cuh"

namespace {

using namespace bracketing;

// Adds elements of a pack to the candidates, those with ones in `marks`; `places` is how many there is room for. Whole warps call
// it.
template <typename Bits>
__device__ void add_candidates(const Pack<Bits>& pack, unsigned int index, const Pack<Bits>& marks, unsigned int places,
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
    if (marks.get(j) && place < places) {
      shared.bits[place] = pack.get(j);
      if (place < kPlaces) shared.index[place] = index + j;
    }
    begin += __popc(votes[j]);
  }
}

// The same of one element, by one thread.
template <typename Bits>
__device__ void add_candidate(Bits bits, unsigned int index, unsigned int places, Shared<Bits>& shared) {
  const unsigned int place = atomicAdd(&shared.tally.candidates, 1u);
  if (place >= places) return;
  shared.bits[place] = bits;
  if (place < kPlaces) shared.index[place] = index;
}

// One pass over the slice: counts and collects. `tally` in shared memory is this block's afterwards, once Blocks::sync() is over.
// `batch` is what slice.load(slice.first) gives.
template <typename Format>
__device__ void collect(const Slice<Format>& slice, const Batch<typename Format::Bits>& batch, const Bracket& where,
                        Shared<typename Format::Bits>& shared, Sum& sum) {
  using Bits = typename Format::Bits;
  constexpr int kLanes = Pack<Bits>::kLanes;
  const unsigned int reach = Format::bound_below(where.low);
  if (where.few) {
    slice.for_packs(batch, [&](const Pack<Bits>& pack, unsigned int index, bool) {
      Pack<Bits> marks;
      bool any = false;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        marks.word[w] = Format::exceeding(pack.word[w], reach);
        any |= marks.word[w] != 0;
      }
      if (__any_sync(kAllLanes, any)) add_candidates(pack, index, marks, kPlaces, shared);
    });
    slice.for_rest([&](unsigned int i) {
      if (Format::key(slice.in[i]) >= where.low) add_candidate(slice.in[i], i, kPlaces, shared);
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
  slice.for_packs(batch, [&](const Pack<Bits>& pack, unsigned int index, bool there) {
    Pack<Bits> marks;
    unsigned int count = 0, inside = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const unsigned int beyond = Format::exceeding(pack.word[w], over) & some_over;
      const unsigned int between = Format::exceeding(pack.word[w], reach) & ~beyond;
      marks.word[w] = open ? beyond : there ? between : 0u;
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
    add_candidates(pack, index, marks, kCandidates, shared);
  });
  slice.for_rest([&](unsigned int i) {
    const Bits bits = slice.in[i];
    const unsigned int key = Format::key(bits);
    above += where.high != kNone && key > where.high;
    if (key >= where.low && key <= where.high && is_candidate(bits)) add_candidate(bits, i, kCandidates, shared);
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

// Reads the row, and decides. Every thread of the blocks that share the row must call it; 0 < k < n.
template <typename Format>
__device__ Verdict decide(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared) {
  using Bits = typename Format::Bits;
  Sum sum{shared.partial};
  if (threadIdx.x == 0) shared.tally = {0, 0, 0, 0}, shared.highest = 0;
  // Rows that need no sample: every element but the -infs is a candidate.
  Bracket where{0, kNone, false};
  Batch<Bits> batch;
  if (slice.n > kCandidates) {
    if (!bracket_few(slice, k, shared, sum, where, batch)) {
      where = bracket(slice, k, shared);
      batch = slice.load(slice.first);
    }
  } else {
    batch = slice.load(slice.first);
    __syncthreads();
  }
  collect(slice, batch, where, shared, sum);
  Blocks::sync();

  const unsigned int lane = threadIdx.x % kWarp;
  Tally there{0, 0, 0, 0};
  if (lane < Blocks::count()) there = *Blocks::twin(&shared.tally, lane);
  const unsigned int candidates = __reduce_add_sync(kAllLanes, there.candidates);
  const unsigned int places = where.few ? kPlaces : kCandidates;
  const bool room = candidates <= kSample && __reduce_max_sync(kAllLanes, there.candidates) <= places;
  const unsigned int above = __reduce_add_sync(kAllLanes, there.above);
  const unsigned int at_high = __reduce_add_sync(kAllLanes, there.at_high);
  const unsigned int inside = at_high + candidates + __reduce_add_sync(kAllLanes, there.at_low);

  Verdict verdict{0, false, false};
  const unsigned int rank = k - above - at_high;  // among the candidates, if neither end of the bracket is the answer
  if (k <= above || k - above > inside || !room) {
    verdict.least = radix_select(slice, k, shared);
  } else if (k <= above + at_high) {
    verdict.least = where.high;
  } else if (rank > candidates) {
    verdict.least = where.low;
    verdict.all = above + inside == slice.n;
  } else {
    const unsigned int end = sum_through(there.candidates);  // of block `lane` in the row of all
    // The key of the candidate at `place` in that row. Whole warps call it.
    const auto key_at = [&](unsigned int place) -> unsigned int {
      unsigned int block = 0, begin = 0;
      for (unsigned int b = 0; b + 1 < Blocks::count(); ++b) {
        const unsigned int end_of_b = __shfl_sync(kAllLanes, end, b);
        if (place >= end_of_b) block = b + 1, begin = end_of_b;
      }
      return place < candidates ? Format::key(Blocks::twin(shared.bits, block)[place - begin]) : 0u;
    };
    // Most rows of a small k have no more candidates than there are threads.
    unsigned int separator;
    if (candidates <= kThreads) {
      const unsigned int key[1] = {key_at(threadIdx.x)};
      separator = separate_below_highest(key, rank, where.low, shared);
    } else {
      unsigned int key[kKeysOfThread];
#pragma unroll
      for (int j = 0; j < kKeysOfThread; ++j) key[j] = key_at(threadIdx.x + j * kThreads);
      separator = separate_below_highest(key, rank, where.low, shared);
    }
    // It separates candidates; what is not above the bracket's lower end is none, and must not come through with all of them.
    verdict.least = max(separator, where.low + !where.few);
    verdict.candidates_only = where.few;
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
  for (long long row = blockIdx.x / Blocks::count(); row < batch; row += gridDim.x / Blocks::count()) {
    const Slice<Format> slice(static_cast<const Bits*>(in) + row * in_stride, static_cast<Bits*>(out) + row * out_stride, n);
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
      // Until the peers have read this block's shared memory it may neither be used for the next row nor be given up.
      Blocks::wait();
    }
  }
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
