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
constexpr int kSample = SAMPLE;          // keys sampled in a row at most; also how many candidates a row can have
constexpr int kSketch = SKETCH;          // … when k is small
constexpr int kCandidates = CANDIDATES;  // how many candidates a block can hold
constexpr int kPlaces = PLACES;          // … and where they are
constexpr int kUnroll = UNROLL;          // packs that a thread loads before it looks at the first
constexpr int kKeysOfThread = kSample / kThreads;
constexpr unsigned int kGroup = 4;       // packs that are sampled together: what memory hands out at a time
constexpr unsigned int kSparsity = 16;   // one pack in so many is sampled, or fewer
constexpr unsigned int kNone = ~0u;      // above every key
constexpr int kMostBlocks = 16;          // that share a row; a power of two, as all counts of blocks

static_assert(kSample % kThreads == 0 && kThreads % kWarp == 0 && kWarps <= kWarp, "unsupported threads");
static_assert(kSketch <= kSample && kSample >= kMostBlocks * kWarp && kSample <= 1 << 16, "unsupported samples");
static_assert(kPlaces <= kCandidates && kCandidates <= kSample, "unsupported candidates");

// The bracket's ranks in the sample are those expected of the k-th key, and this much further out: standard deviations of a
// binomial distribution, and kMargin for where it is not like a normal one. A bracket for a large k is as wide as its candidates
// fit in, and misses more often; one for a small k costs little to be sure of.
constexpr float kSigmasSmall = SIGMAS;
constexpr float kSigmas = SIGMAS < 4 ? SIGMAS : 4;
constexpr float kMargin = MARGIN;

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

// A key that separates the `rank` largest of keys that are spread over the block's threads from the rest, ties of the last included:
// found by what looks like a radix select, but within [lowest, highest], which holds the key of that rank. Places without a key have
// key 0. Every thread of the block calls it.
template <int kEach, typename Bits>
__device__ unsigned int separate(const unsigned int (&key)[kEach], unsigned int rank, unsigned int lowest, unsigned int highest,
                                 Shared<Bits>& shared) {
  for (;;) {
    const unsigned int span = highest - lowest;
    const int shift = span < kBins ? 0 : 24 - __clz(static_cast<int>(span));
    for (int i = threadIdx.x; i < kBins; i += kThreads) shared.merged[i] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (key[j] - lowest <= span) atomicAdd(&shared.merged[(key[j] - lowest) >> shift], 1u);
    __syncthreads();
    if (threadIdx.x < kWarp) choose(shared.merged, rank, &shared.choice);
    __syncthreads();
    lowest += shared.choice.digit << shift;
    rank = shared.choice.rank;
    if (shift == 0 || shared.choice.population == rank) return lowest;
    highest = min(highest, lowest + (1u << shift) - 1);
  }
}

// The same when the highest key is not known; shared.highest is 0 before.
template <int kEach, typename Bits>
__device__ unsigned int separate_below_highest(const unsigned int (&key)[kEach], unsigned int rank, unsigned int lowest,
                                               Shared<Bits>& shared) {
  unsigned int highest = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) highest = max(highest, key[j]);
  highest = __reduce_max_sync(kAllLanes, highest);
  if (threadIdx.x % kWarp == 0) atomicMax(&shared.highest, highest);
  __syncthreads();
  return separate(key, rank, lowest, shared.highest, shared);
}

// The same, roughly: at least `rank` keys reach it, and not many more. Of the keys that are in one lane of any warp only the largest
// counts; rank <= kWarp / 2. `reached` becomes how many of the threads' largest keys reach it.
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

template <typename Bits>
struct Batch {
  Pack<Bits> pack[kUnroll];
};

// The part of a row that this block reads and writes. Blocks take turns at kThreads packs at a time, so that a row's large
// elements are spread over the blocks even if they stand together; the first block also has what is not in packs.
template <typename Format>
struct Slice {
  using Bits = typename Format::Bits;
  const Bits* in;
  Bits* out;
  unsigned int n;
  unsigned int head, packs, tail;  // as in Cut
  unsigned int first, step;        // packs

  __device__ Slice(const Bits* in_, Bits* out_, long long n_) : in(in_), out(out_), n(static_cast<unsigned int>(n_)) {
    const Cut<Bits> cut(in_, n_);
    head = static_cast<unsigned int>(cut.head);
    packs = static_cast<unsigned int>(cut.packs);
    tail = static_cast<unsigned int>(cut.tail);
    first = Blocks::rank() * kThreads + threadIdx.x;
    step = Blocks::count() * kThreads;
  }

  __device__ Pack<Bits> pack(unsigned int i) const { return reinterpret_cast<const Pack<Bits>*>(in + head)[i]; }
  __device__ unsigned int index_of(unsigned int pack) const { return head + pack * Pack<Bits>::kLanes; }

  // The packs from the i-th on that are this thread's, kUnroll of them; -infs where there is none.
  __device__ Batch<Bits> load(unsigned int i) const {
    Batch<Bits> batch;
    if (i + (kUnroll - 1) * step < packs) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) batch.pack[u] = pack(i + u * step);
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        batch.pack[u] = i + u * step < packs ? pack(i + u * step) : Pack<Bits>::filled(Format::word(Format::kMinusInfinity));
    }
    return batch;
  }

  // visit(pack, index of its first element, whether it is there) for every pack that is this thread's, and perhaps for some that
  // are not there, so that all threads of a warp visit at the same time. `batch` is what load(first) gives.
  template <typename Visit>
  __device__ void for_packs(Batch<Bits> batch, Visit visit) const {
    const unsigned int lane = threadIdx.x % kWarp;
    for (unsigned int i = first; i - lane < packs;) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) visit(batch.pack[u], index_of(i + u * step), i + u * step < packs);
      i += kUnroll * step;
      if (i - lane < packs) batch = load(i);
    }
  }

  // visit(index) for the elements outside of packs that are this thread's.
  template <typename Visit>
  __device__ void for_rest(Visit visit) const {
    if (Blocks::rank() != 0) return;
    if (threadIdx.x < head) visit(static_cast<unsigned int>(threadIdx.x));
    if (threadIdx.x < n - tail) visit(tail + threadIdx.x);
  }

  // Whether a pack of `out` can be stored as one.
  __device__ bool aligned() const {
    return (reinterpret_cast<unsigned long long>(in) ^ reinterpret_cast<unsigned long long>(out)) % 16 == 0;
  }

  __device__ void store(const Pack<Bits>& pack, unsigned int index, bool whole) const {
    if (whole) {
      *reinterpret_cast<Pack<Bits>*>(out + index) = pack;
    } else {
      for (int j = 0; j < Pack<Bits>::kLanes; ++j) out[index + j] = pack.get(j);
    }
  }

  __device__ void fill() const {
    const Pack<Bits> pack = Pack<Bits>::filled(Format::word(Format::kMinusInfinity));
    const bool whole = aligned();
    for (unsigned int i = first; i < packs; i += step) store(pack, index_of(i), whole);
    for_rest([&](unsigned int i) { out[i] = Format::kMinusInfinity; });
  }

  // Keeps what has at least the key `least`. What stays in place is not written.
  __device__ void mask(unsigned int least) const {
    const bool whole = aligned(), in_place = in == out;
    const unsigned int bound = Format::bound_below(least), nothing = Format::word(Format::kMinusInfinity);
    for_packs(load(first), [&](const Pack<Bits>& pack, unsigned int index, bool there) {
      Pack<Bits> result;
      bool same = in_place;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const unsigned int kept = Format::exceeding(pack.word[w], bound);
        result.word[w] = (pack.word[w] & kept) | (nothing & ~kept);
        same &= result.word[w] == pack.word[w];
      }
      if (there && !same) store(result, index, whole);
    });
    for_rest([&](unsigned int i) { out[i] = Format::key(in[i]) < least ? Format::kMinusInfinity : in[i]; });
  }
};

// How many packs each block samples when the row's sample has `most` keys at most: the same number in all, and few enough for the
// memory traffic not to grow much.
template <typename Format>
__device__ unsigned int packs_to_sample(const Slice<Format>& slice, unsigned int most) {
  const unsigned int blocks = Blocks::count();
  const unsigned int chunks = (slice.packs + kThreads - 1) / kThreads;
  // Of the block that has fewest: when all have as many chunks, it is the one with the last, which may be short.
  unsigned int own = chunks / blocks * kThreads;
  if (own && chunks % blocks == 0) own -= chunks * kThreads - slice.packs;
  return min(min(own, own / kSparsity + kWarp), most / Pack<typename Format::Bits>::kLanes / blocks) / kGroup * kGroup;
}

// Calls visit(i, pack) for the i-th of this block's `count` packs in the sample, each by one thread. Groups of them lie at nearly
// even distances, in no pattern that a row is likely to follow.
template <int kMost, typename Format, typename Visit>
__device__ void sample(const Slice<Format>& slice, unsigned int count, Visit visit) {
  using Bits = typename Format::Bits;
  constexpr int kEach = (kMost / Pack<Bits>::kLanes + kThreads - 1) / kThreads;
  const unsigned int blocks = Blocks::count(), rank = Blocks::rank();
  const unsigned int chunks = (slice.packs + kThreads - 1) / kThreads;
  unsigned int own = (chunks + blocks - 1 - rank) / blocks * kThreads;
  if (chunks && (chunks - 1) % blocks == rank) own -= chunks * kThreads - slice.packs;
  const unsigned int groups = count / kGroup, own_groups = own / kGroup;
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

// What the blocks have at place `place` of arrays in shared memory that are one, `log2` of the number of blocks: neighbours are
// read from one block, each thread reads from all.
struct Spread {
  unsigned int log2 = 31 - __clz(static_cast<int>(Blocks::count()));

  __device__ unsigned int block(unsigned int place) const { return place / kWarp & (Blocks::count() - 1); }
  __device__ unsigned int at(unsigned int place) const { return (place / kWarp >> log2) * kWarp + place % kWarp; }
};

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
    slice.for_packs(slice.load(slice.first), [&](const Pack<Bits>& pack, unsigned int, bool there) {
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
    unsigned int end = there.candidates;  // of block `lane` in the row of all
    for (unsigned int step = 1; step < kWarp; step *= 2) {
      const unsigned int below = __shfl_up_sync(kAllLanes, end, step);
      if (lane >= step) end += below;
    }
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
