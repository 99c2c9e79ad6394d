// top_k_mask_logits by exact radix select: one block a row, rows in a grid-stride loop.
//
// Each row is read once per 8-bit digit of the key, from the top digit down. A pass counts the digit's values among the keys
// that share the digits found so far, and one warp finds the value that holds the k-th largest key. After the last digit the
// k-th largest key itself is known, and a final pass keeps what is not below it.
//
// Elements are handled as bits, never as floating-point numbers: a NaN's payload survives, and no compiler flag can flush a
// subnormal.
//
// In place (out == in) is safe: the last counting pass ends at a block barrier before the final pass writes, and in the final
// pass each element is read and written by one thread, which reads it first. Blocks share no rows. `in` and `out` may be the
// same, so neither is __restrict__ and nothing is loaded through the read-only cache.
//
// All offsets are 64-bit. Counts are 32-bit, since shared-memory atomics are slow at 64; rows of 2^32 elements and more have
// entry points of their own.

namespace {

constexpr int kBins = 256;
constexpr int kWarp = 32;
constexpr int kThreads = 1024;  // as in cuda.py

// A 16- or 32-bit floating-point format, by its bits. kInfinity is the pattern of +inf.
template <typename Bits_, Bits_ kInfinity>
struct Format {
  using Bits = Bits_;
  static constexpr int kDigits = sizeof(Bits);
  static constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
  static constexpr Bits kMinusInfinity = kSign | kInfinity;

  // Unsigned keys in the order of the values: 0 for -inf, kInfinity for both zeros, 2 * kInfinity for +inf, and one more for
  // every NaN. 2 * kInfinity + 1 fits in Bits for each format used here.
  static __device__ Bits key(Bits bits) {
    const Bits magnitude = bits & Bits(~kSign);
    if (magnitude > kInfinity) return Bits(2 * kInfinity + 1);
    return Bits(bits & kSign ? kInfinity - magnitude : kInfinity + magnitude);
  }
};

using Float32 = Format<unsigned int, 0x7F800000u>;
using Float16 = Format<unsigned short, 0x7C00>;
using Bfloat16 = Format<unsigned short, 0x7F80>;

// 16 bytes of a row: the widest load and store there is.
template <typename Bits>
struct alignas(16) Pack {
  static constexpr int kLanes = 16 / sizeof(Bits);
  Bits lane[kLanes];
};

// A row of n elements cut at 16-byte boundaries: `head` single elements, `packs` packs, and single elements from `tail` on.
template <typename Bits>
struct Cut {
  long long head, packs, tail;

  __device__ Cut(const Bits* row, long long n) {
    const long long misaligned = reinterpret_cast<unsigned long long>(row) % 16;
    head = (16 - misaligned) % 16 / static_cast<long long>(sizeof(Bits));
    if (head > n) head = n;
    packs = (n - head) / Pack<Bits>::kLanes;
    tail = head + packs * Pack<Bits>::kLanes;
  }
};

// Calls visit(bits) for every element of the row, spread over the block's threads.
template <typename Bits, typename Visit>
__device__ void for_each(const Bits* row, long long n, Visit visit) {
  const Cut<Bits> cut(row, n);
  const Pack<Bits>* packs = reinterpret_cast<const Pack<Bits>*>(row + cut.head);
  for (long long i = threadIdx.x; i < cut.head; i += blockDim.x) visit(row[i]);
  for (long long i = threadIdx.x; i < cut.packs; i += blockDim.x) {
    const Pack<Bits> pack = packs[i];
    for (int j = 0; j < Pack<Bits>::kLanes; ++j) visit(pack.lane[j]);
  }
  for (long long i = cut.tail + threadIdx.x; i < n; i += blockDim.x) visit(row[i]);
}

// out[i] = f(in[i]) for every element of the row. Each is read and then written by one thread, so out may be in.
template <typename Bits, typename F>
__device__ void transform(const Bits* in, Bits* out, long long n, F f) {
  if ((reinterpret_cast<unsigned long long>(in) ^ reinterpret_cast<unsigned long long>(out)) % 16 != 0) {
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = f(in[i]);
    return;
  }
  const Cut<Bits> cut(in, n);
  const Pack<Bits>* in_packs = reinterpret_cast<const Pack<Bits>*>(in + cut.head);
  Pack<Bits>* out_packs = reinterpret_cast<Pack<Bits>*>(out + cut.head);
  for (long long i = threadIdx.x; i < cut.head; i += blockDim.x) out[i] = f(in[i]);
  for (long long i = threadIdx.x; i < cut.packs; i += blockDim.x) {
    Pack<Bits> pack = in_packs[i];
    for (int j = 0; j < Pack<Bits>::kLanes; ++j) pack.lane[j] = f(pack.lane[j]);
    out_packs[i] = pack;
  }
  for (long long i = cut.tail + threadIdx.x; i < n; i += blockDim.x) out[i] = f(in[i]);
}

// The digit value that holds the rank-th largest key, the key's rank among those with that digit, and how many those are.
template <typename Counter>
struct Choice {
  unsigned int digit;
  Counter rank, population;
};

// Finds the Choice from a histogram. Run by one whole warp; 1 <= rank <= the histogram's sum. Lane l holds the l-th eight bins
// from the top.
template <typename Counter>
__device__ void choose(const Counter* histogram, Counter rank, Choice<Counter>* choice) {
  constexpr int kBinsPerLane = kBins / kWarp;
  const int lane = threadIdx.x;
  const int top = kBins - 1 - lane * kBinsPerLane;
  Counter sum = 0;
  for (int j = 0; j < kBinsPerLane; ++j) sum += histogram[top - j];
  Counter through = sum;  // elements in this lane's bins and all above
  for (int step = 1; step < kWarp; step *= 2) {
    const Counter above = __shfl_up_sync(0xFFFFFFFFu, through, step);
    if (lane >= step) through += above;
  }
  Counter above = through - sum;
  if (above >= rank || rank > through) return;  // exactly one lane goes on
  for (int j = 0; j < kBinsPerLane; ++j) {
    const Counter population = histogram[top - j];
    if (rank <= above + population) {
      *choice = {static_cast<unsigned int>(top - j), rank - above, population};
      return;
    }
    above += population;
  }
}

// The smallest key to keep, so that the row's k largest keys and all ties of the k-th are kept; 1 <= k <= n. Every thread of
// the block must call it, and gets the answer.
template <typename Format, typename Counter>
__device__ typename Format::Bits threshold(const typename Format::Bits* row, long long n, long long k) {
  using Bits = typename Format::Bits;
  __shared__ Counter histogram[kBins];
  __shared__ Choice<Counter> choice;

  Bits prefix = 0;    // the digits found so far
  Bits searched = 0;  // ones where prefix is known
  Counter rank = static_cast<Counter>(k);
  for (int shift = 8 * (Format::kDigits - 1);; shift -= 8) {
    // Only warp 0 reads the histogram, and the barrier at the end of a pass comes after it: also for the row before.
    for (int i = threadIdx.x; i < kBins; i += blockDim.x) histogram[i] = 0;
    __syncthreads();
    for_each(row, n, [&](Bits bits) {
      const Bits key = Format::key(bits);
      if ((key & searched) == prefix) atomicAdd(&histogram[(key >> shift) & 0xFF], Counter(1));
    });
    __syncthreads();
    if (threadIdx.x < kWarp) choose(histogram, rank, &choice);
    __syncthreads();
    prefix = Bits(prefix | (choice.digit << shift));
    searched = Bits(searched | (0xFFu << shift));
    rank = choice.rank;
    // If all keys with this prefix are among the k largest, prefix followed by zeros separates as well as the k-th key does.
    if (shift == 0 || choice.population == rank) return prefix;
  }
}

// A row's k, clipped to [0, n]. k_bytes is the size of k_rows' elements; 0 means that every row's is k_scalar.
__device__ long long row_k(const void* k_rows, int k_bytes, long long k_stride, long long k_scalar, long long row, long long n) {
  long long k = k_scalar;
  if (k_bytes == 4) k = static_cast<const int*>(k_rows)[row * k_stride];
  if (k_bytes == 8) k = static_cast<const long long*>(k_rows)[row * k_stride];
  return k < 0 ? 0 : k > n ? n : k;
}

template <typename Format, typename Counter>
__device__ void mask_rows(const void* in, void* out, long long in_stride, long long out_stride, long long batch, long long n,
                          const void* k_rows, int k_bytes, long long k_stride, long long k_scalar) {
  using Bits = typename Format::Bits;
  for (long long row = blockIdx.x; row < batch; row += gridDim.x) {
    const Bits* row_in = static_cast<const Bits*>(in) + row * in_stride;
    Bits* row_out = static_cast<Bits*>(out) + row * out_stride;
    // The same for the whole block, so the barriers below are met by all threads or by none.
    const long long k = row_k(k_rows, k_bytes, k_stride, k_scalar, row, n);
    if (k == 0) {
      transform(row_in, row_out, n, [](Bits) { return Format::kMinusInfinity; });
    } else if (k == n) {
      if (row_in != row_out) transform(row_in, row_out, n, [](Bits bits) { return bits; });
    } else {
      const Bits least = threshold<Format, Counter>(row_in, n, k);
      transform(row_in, row_out, n, [=](Bits bits) { return Format::key(bits) < least ? Format::kMinusInfinity : bits; });
    }
  }
}

}  // namespace

#ifndef FORMAT
#error "define FORMAT as Float32, Float16 or Bfloat16"
#endif

// Strides are in elements. Any grid of at least one block, kThreads threads.
#define ENTRY_POINT(NAME, COUNTER)                                                                                         \
  extern "C" __global__ void __launch_bounds__(kThreads) NAME(                                                             \
      const void* in, void* out, long long in_stride, long long out_stride, long long batch, long long vocab,              \
      const void* k_rows, int k_bytes, long long k_stride, long long k_scalar) {                                           \
    mask_rows<FORMAT, COUNTER>(in, out, in_stride, out_stride, batch, vocab, k_rows, k_bytes, k_stride, k_scalar);         \
  }

ENTRY_POINT(radix_mask, unsigned int)
ENTRY_POINT(radix_mask_wide, unsigned long long)  // rows of 2^32 elements and more
