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

#include "rows.cuh"

#ifndef CLUSTERS
#error "define CLUSTERS as 1 for a kernel to be launched in clusters, else 0"
#endif
#if CLUSTERS
#include "ptx_hopper.cuh"
#endif

namespace {

using namespace rows;

constexpr int kThreads = THREADS;
constexpr int kWarps = kThreads / kWarp;
constexpr int kSample = SAMPLE;          // keys sampled in a row; also how many candidates a row can have
constexpr int kCandidates = CANDIDATES;  // how many of them one block can hold
constexpr int kUnroll = 4;               // packs that a thread loads before it looks at the first
constexpr int kKeysOfThread = kSample / kThreads;
constexpr unsigned int kNone = ~0u;  // above every key

static_assert(kSample % kThreads == 0 && kThreads % kWarp == 0 && kWarps <= kWarp, "unsupported sizes");

// The bracket's ranks in the sample are those expected of the k-th key, and this much further out: kSigmas standard deviations of
// a binomial distribution, and kMargin for where it is not like a normal one, and for rows whose neighbours are alike.
constexpr float kSigmas = SIGMAS;
constexpr float kMargin = MARGIN;

// The blocks that share a row: which of them this one is, how they wait for each other, and where a peer keeps its twin of
// something in shared memory.
#if CLUSTERS
struct Blocks {
  static __device__ unsigned int rank() { return ptx::cluster_ctarank(); }
  static __device__ unsigned int count() { return ptx::cluster_nctarank(); }
  static __device__ void sync() { ptx::cluster_sync(); }
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
struct Tally {
  unsigned int above;       // keys above the bracket
  unsigned int at_high;     // keys that are its upper end, when that is not kNone
  unsigned int at_low;      // keys that are its lower end, unless those are candidates
  unsigned int candidates;  // the others inside; counted even where there is no room for them
};

template <typename Bits>
struct Shared {
  Bits keys[kSample];  // first the block's share of the sample, for its peers to read; then all blocks' candidates
  Bits bits[kCandidates];
  unsigned int index[kCandidates];
  Tally tally;
  unsigned int sampled;
  unsigned int partial[2][kWarps];
  unsigned int histogram[2][kBins];
  unsigned int merged[kBins];
  Choice<unsigned int> choice;
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

// Keys spread over the block's threads. Places that hold none have key 0, which is never counted.
struct Keys {
  unsigned int key[kKeysOfThread];

  // A key that at least `rank` of the keys reach, and at most `enough` of them unless more are equal: with enough == rank, one
  // that separates the rank largest from the rest. All keys of rank and above are in [lowest, highest], and 1 <= rank.
  // `reached` becomes how many reach it; `all` is how many keys there are.
  __device__ unsigned int select(unsigned int rank, unsigned int enough, unsigned int lowest, unsigned int highest,
                                 unsigned int all, Sum& sum, unsigned int& reached) const {
    const unsigned int differing = lowest ^ highest;
    int bit = differing ? 31 - __clz(differing) : -1;
    unsigned int answer = differing ? highest & ~((2u << bit) - 1) : highest;
    reached = all;
    for (; bit >= 0; --bit) {
      const unsigned int trial = answer | 1u << bit;
      unsigned int mine = 0;
      for (int j = 0; j < kKeysOfThread; ++j) mine += key[j] >= trial;
      const unsigned int count = sum(mine);
      if (count < rank) continue;
      answer = trial;
      reached = count;
      if (count <= enough) break;
    }
    return answer;
  }
};

// The part of a row that this block reads and writes. Blocks take turns at kThreads packs at a time, so that a row's large
// elements are spread over the blocks even if they stand together; the first block also has what is not in packs.
template <typename Format>
struct Slice {
  using Bits = typename Format::Bits;
  const Bits* in;
  Bits* out;
  unsigned int n;
  Cut<Bits> cut;
  unsigned int first, step;  // packs

  __device__ Slice(const Bits* in_, Bits* out_, long long n_)
      : in(in_), out(out_), n(static_cast<unsigned int>(n_)), cut(in_, n_), first(Blocks::rank() * kThreads + threadIdx.x),
        step(Blocks::count() * kThreads) {}

  __device__ const Pack<Bits>* packs() const { return reinterpret_cast<const Pack<Bits>*>(in + cut.head); }
  __device__ unsigned int index_of(unsigned int pack) const { return static_cast<unsigned int>(cut.head) + pack * Pack<Bits>::kLanes; }

  // Whether a pack of `out` can be stored as one.
  __device__ bool aligned() const {
    return (reinterpret_cast<unsigned long long>(in) ^ reinterpret_cast<unsigned long long>(out)) % 16 == 0;
  }

  // visit(pack, index of its first element) for every pack that is this thread's. Several loads are under way at a time.
  template <typename Visit>
  __device__ void for_packs(Visit visit) const {
    const unsigned int count = static_cast<unsigned int>(cut.packs);
    for (unsigned int i = first; i < count; i += kUnroll * step) {
      Pack<Bits> pack[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (i + u * step < count) pack[u] = packs()[i + u * step];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (i + u * step < count) visit(pack[u], index_of(i + u * step));
    }
  }

  // visit(index) for the elements outside of packs that are this thread's.
  template <typename Visit>
  __device__ void for_rest(Visit visit) const {
    if (Blocks::rank() != 0) return;
    if (threadIdx.x < cut.head) visit(static_cast<unsigned int>(threadIdx.x));
    if (threadIdx.x < n - cut.tail) visit(static_cast<unsigned int>(cut.tail + threadIdx.x));
  }

  __device__ void store(const Pack<Bits>& pack, unsigned int index, bool whole) const {
    if (whole) {
      *reinterpret_cast<Pack<Bits>*>(out + index) = pack;
    } else {
      for (int j = 0; j < Pack<Bits>::kLanes; ++j) out[index + j] = pack.get(j);
    }
  }

  __device__ void fill() const {
    const Pack<Bits> pack = Pack<Bits>::filled(Format::kMinusInfinity);
    const bool whole = aligned();
    for (unsigned int i = first; i < cut.packs; i += step) store(pack, index_of(i), whole);
    for_rest([&](unsigned int i) { out[i] = Format::kMinusInfinity; });
  }

  // Keeps what has at least the key `least`. What stays in place is not written.
  __device__ void mask(unsigned int least) const {
    const bool whole = aligned(), in_place = in == out;
    const auto masked = [=](Bits bits) { return Format::key(bits) < least ? Format::kMinusInfinity : bits; };
    for_packs([&](const Pack<Bits>& pack, unsigned int index) {
      const Pack<Bits> result = pack.mapped(masked);
      bool same = in_place;
      for (int w = 0; w < 4; ++w) same &= result.word[w] == pack.word[w];
      if (!same) store(result, index, whole);
    });
    for_rest([&](unsigned int i) { out[i] = masked(in[i]); });
  }
};

// Takes this block's share of the sample: packs at nearly even distances, and no pattern that a row is likely to follow.
template <typename Format>
__device__ void take_sample(const Slice<Format>& slice, Shared<typename Format::Bits>& shared) {
  using Bits = typename Format::Bits;
  constexpr unsigned int kLanes = Pack<Bits>::kLanes;
  const unsigned int blocks = Blocks::count(), rank = Blocks::rank();
  const unsigned int packs = static_cast<unsigned int>(slice.cut.packs);
  const unsigned int chunks = (packs + kThreads - 1) / kThreads;
  const unsigned int own_chunks = (chunks + blocks - 1 - rank) / blocks;
  // Only the row's last chunk may be short.
  unsigned int own = own_chunks * kThreads;
  if (chunks && (chunks - 1) % blocks == rank) own -= chunks * kThreads - packs;
  const unsigned int wanted = kSample / kLanes / blocks;
  const unsigned int taken = own < wanted ? own : wanted;
  for (unsigned int t = threadIdx.x; t < taken; t += kThreads) {
    const unsigned int begin = static_cast<unsigned long long>(t) * own / taken;
    const unsigned int end = static_cast<unsigned long long>(t + 1) * own / taken;
    const unsigned int ordinal = begin + __umulhi((t + rank * kThreads) * 2654435769u, end - begin);
    const unsigned int i = (ordinal / kThreads * blocks + rank) * kThreads + ordinal % kThreads;
    const Pack<Bits> pack = slice.packs()[i];
    for (unsigned int j = 0; j < kLanes; ++j) shared.keys[t * kLanes + j] = Format::key(pack.get(j));
  }
  if (threadIdx.x == 0) shared.sampled = taken * kLanes;
}

// Lane b of every warp gets the number that block b has at `shared`, other lanes 0.
__device__ unsigned int of_block(unsigned int* shared) {
  const unsigned int lane = threadIdx.x % kWarp;
  return lane < Blocks::count() ? *Blocks::twin(shared, lane) : 0u;
}

// Where the k-th largest key is looked for. Candidates are the keys strictly inside; with `few`, those equal to `low` too, and
// there is no upper end.
struct Bracket {
  unsigned int low, high;
  bool few;
};

// All of the row, for rows that need no sample: every element but the -infs is a candidate.
__device__ inline Bracket whole_row() { return {0, kNone, false}; }

template <typename Format>
__device__ Bracket bracket(Shared<typename Format::Bits>& shared, unsigned int n, unsigned int k, Sum& sum) {
  constexpr unsigned int kShare = kSample;
  const unsigned int share = kShare / Blocks::count();
  const unsigned int sampled_there = of_block(&shared.sampled);
  const unsigned int sampled = __reduce_add_sync(kAllLanes, sampled_there);
  Keys keys;
  for (int j = 0; j < kKeysOfThread; ++j) {
    const unsigned int place = threadIdx.x + j * kThreads;
    const unsigned int block = place / share, at = place % share;
    const bool there = at < __shfl_sync(kAllLanes, sampled_there, block);
    keys.key[j] = there ? Blocks::twin(shared.keys, block)[at] : 0u;
  }
  const float density = static_cast<float>(sampled) / static_cast<float>(n);
  const float mean = static_cast<float>(k) * density;
  const float rest = 1.0f - static_cast<float>(k) / static_cast<float>(n);
  const float margin = kSigmas * sqrtf(mean * rest) + kMargin;
  const unsigned int lower = static_cast<unsigned int>(mean + margin) + 1;
  unsigned int reached = sampled;
  Bracket found = whole_row();
  if (lower < sampled) found.low = keys.select(lower, lower + lower / 4, 0, Format::kHighestKey, sampled, sum, reached);
  // All candidates may stand together, in one block.
  if (static_cast<float>(reached) + 4.0f * sqrtf(static_cast<float>(reached)) < kCandidates * density) {
    found.few = true;
    return found;
  }
  const int upper = static_cast<int>(mean - margin);
  if (upper >= 1) found.high = keys.select(upper, upper, 0, Format::kHighestKey, sampled, sum, reached);
  return found;
}

// One pass over the slice: counts and collects. `tally` in shared memory is this block's afterwards, once Blocks::sync() is over.
template <typename Format>
__device__ void collect(const Slice<Format>& slice, const Bracket& bracket, Shared<typename Format::Bits>& shared, Sum& sum) {
  using Bits = typename Format::Bits;
  const auto add = [&](Bits bits, unsigned int index) {
    const unsigned int place = atomicAdd(&shared.tally.candidates, 1u);
    if (place < kCandidates) {
      shared.bits[place] = bits;
      shared.index[place] = index;
    }
  };
  if (bracket.few) {
    const unsigned int bound = Format::pattern(bracket.low);
    const auto look = [&](Bits bits, unsigned int index) {
      if (Format::key(bits) >= bracket.low) add(bits, index);
    };
    slice.for_packs([&](const Pack<Bits>& pack, unsigned int index) {
      if (!Format::any_reaches(pack, bound)) return;
      for (int j = 0; j < Pack<Bits>::kLanes; ++j) look(pack.get(j), index + j);
    });
    slice.for_rest([&](unsigned int i) { look(slice.in[i], i); });
    return;
  }
  unsigned int above = 0, at_high = 0, at_low = 0;
  const auto look = [&](Bits bits, unsigned int index) {
    const unsigned int key = Format::key(bits);
    above += key > bracket.high;
    if (key - bracket.low > bracket.high - bracket.low) return;  // outside, on either side
    if (key == bracket.high) ++at_high;
    else if (key == bracket.low) ++at_low;
    else add(bits, index);
  };
  slice.for_packs([&](const Pack<Bits>& pack, unsigned int index) {
    for (int j = 0; j < Pack<Bits>::kLanes; ++j) look(pack.get(j), index + j);
  });
  slice.for_rest([&](unsigned int i) { look(slice.in[i], i); });
  above = sum(above), at_high = sum(at_high), at_low = sum(at_low);
  if (threadIdx.x == 0) shared.tally.above = above, shared.tally.at_high = at_high, shared.tally.at_low = at_low;
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
    slice.for_packs([&](const Pack<Bits>& pack, unsigned int) {
      for (int j = 0; j < Pack<Bits>::kLanes; ++j) look(pack.get(j));
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

// How a row is written: what reaches the key `least` stays.
struct Verdict {
  unsigned int least;
  bool candidates_only;  // nothing else can stay
  bool all;              // everything does
};

// Reads the row, and decides. Every thread of the blocks that share the row must call it; 0 < k < n.
template <typename Format>
__device__ Verdict decide(const Slice<Format>& slice, unsigned int k, Shared<typename Format::Bits>& shared) {
  Sum sum{shared.partial};
  Bracket where = whole_row();
  if (threadIdx.x == 0) shared.tally = {0, 0, 0, 0};
  if (slice.n > kCandidates) {
    take_sample(slice, shared);
    Blocks::sync();
    where = bracket<Format>(shared, slice.n, k, sum);
  } else {
    __syncthreads();
  }
  collect(slice, where, shared, sum);
  Blocks::sync();

  const unsigned int candidates_there = of_block(&shared.tally.candidates);
  const unsigned int above = __reduce_add_sync(kAllLanes, of_block(&shared.tally.above));
  const unsigned int at_high = __reduce_add_sync(kAllLanes, of_block(&shared.tally.at_high));
  const unsigned int at_low = __reduce_add_sync(kAllLanes, of_block(&shared.tally.at_low));
  const unsigned int candidates = __reduce_add_sync(kAllLanes, candidates_there);
  const bool room = candidates <= kSample && __reduce_max_sync(kAllLanes, candidates_there) <= kCandidates;
  const unsigned int inside = at_high + candidates + at_low;

  Verdict verdict{0, false, false};
  if (k <= above || k - above > inside || !room) {
    verdict.least = radix_select(slice, k, shared);
    Blocks::arrive();
    return verdict;
  }
  const unsigned int rank = k - above - at_high;  // among the candidates; wraps around if the answer is `high`
  if (k <= above + at_high) {
    verdict.least = where.high;
  } else if (rank > candidates) {
    verdict.least = where.low;
    verdict.all = above + inside == slice.n;
  } else {
    // The sample is no longer needed by anyone: the last sync said so.
    unsigned int begin = 0;
    for (unsigned int b = 0; b < Blocks::count(); ++b) {
      const unsigned int count = __shfl_sync(kAllLanes, candidates_there, b);
      const typename Format::Bits* const bits = Blocks::twin(shared.bits, b);
      for (unsigned int i = threadIdx.x; i < count; i += kThreads) shared.keys[begin + i] = Format::key(bits[i]);
      begin += count;
    }
    __syncthreads();
    Keys keys;
    for (int j = 0; j < kKeysOfThread; ++j) {
      const unsigned int place = threadIdx.x + j * kThreads;
      keys.key[j] = place < candidates ? shared.keys[place] : 0u;
    }
    unsigned int reached;
    const unsigned int highest = where.high < Format::kHighestKey ? where.high : Format::kHighestKey;
    const unsigned int separator = keys.select(rank, rank, where.low, highest, candidates, sum, reached);
    // It separates candidates; what is not above the bracket's lower end is none, and must not come through with all of them.
    verdict.least = separator > where.low ? separator : where.low + !where.few;
    verdict.candidates_only = where.few;
  }
  Blocks::arrive();
  return verdict;
}

template <typename Format>
__device__ void mask_rows(const void* in, void* out, long long in_stride, long long out_stride, long long batch, long long n,
                          const void* k_rows, int k_bytes, long long k_stride, long long k_scalar) {
  using Bits = typename Format::Bits;
  __shared__ Shared<Bits> shared;
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

// Strides are in elements. Any grid of at least one block (cluster), kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS_PER_SM)
    bracket_mask(const void* in, void* out, long long in_stride, long long out_stride, long long batch, long long vocab,
                 const void* k_rows, int k_bytes, long long k_stride, long long k_scalar) {
  mask_rows<FORMAT>(in, out, in_stride, out_stride, batch, vocab, k_rows, k_bytes, k_stride, k_scalar);
}
