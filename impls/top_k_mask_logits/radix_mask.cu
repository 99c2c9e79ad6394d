// top_k_mask_logits by exact radix select, for rows of 2^32 elements and more: one block a row, rows in a grid-stride loop.
//
// Each row is read once per 8-bit digit of the key, from the top digit down. A pass counts the digit's values among the keys
// that share the digits found so far, and one warp finds the value that holds the k-th largest key. After the last digit the
// k-th largest key itself is known, and a final pass keeps what is not below it.
//
// In place (out == in) is safe: the last counting pass ends at a block barrier before the final pass writes, and in the final
// pass each element is read and written by one thread, which reads it first. Blocks share no rows. `in` and `out` may be the
// same, so neither is __restrict__ and nothing is loaded through the read-only cache.
//
// All offsets and counts are 64-bit. bracket_mask.cu is faster, and counts in 32 bits.

#include "rows.cuh"

namespace {

using namespace rows;

constexpr int kThreads = 1024;  // as in cuda.py

using Counter = unsigned long long;

// Calls visit(bits) for every element of the row, spread over the block's threads.
template <typename Bits, typename Visit>
__device__ void for_each(const Bits* row, long long n, Visit visit) {
  const Cut<Bits> cut(row, n);
  const Pack<Bits>* packs = reinterpret_cast<const Pack<Bits>*>(row + cut.head);
  for (long long i = threadIdx.x; i < cut.head; i += blockDim.x) visit(row[i]);
  for (long long i = threadIdx.x; i < cut.packs; i += blockDim.x) {
    const Pack<Bits> pack = packs[i];
    for (int j = 0; j < Pack<Bits>::kLanes; ++j) visit(pack.get(j));
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
    const Pack<Bits> pack = in_packs[i];
    out_packs[i] = pack.mapped(f);
  }
  for (long long i = cut.tail + threadIdx.x; i < n; i += blockDim.x) out[i] = f(in[i]);
}

// The smallest key to keep, so that the row's k largest keys and all ties of the k-th are kept; 1 <= k <= n. Every thread of
// the block must call it, and gets the answer.
template <typename Format>
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

template <typename Format>
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
      const Bits least = threshold<Format>(row_in, n, k);
      transform(row_in, row_out, n, [=](Bits bits) { return Format::key(bits) < least ? Format::kMinusInfinity : bits; });
    }
  }
}

}  // namespace

#ifndef FORMAT
#error "define FORMAT as Float32, Float16 or Bfloat16"
#endif

// Strides are in elements. Any grid of at least one block, kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads)
    radix_mask(const void* in, void* out, long long in_stride, long long out_stride, long long batch, long long vocab,
               const void* k_rows, int k_bytes, long long k_stride, long long k_scalar) {
  mask_rows<FORMAT>(in, out, in_stride, out_stride, batch, vocab, k_rows, k_bytes, k_stride, k_scalar);
}
