// Rows of logits as bits: the order of the values as integer keys, and 16 bytes at a time. What the mask kernels share.
//
// Elements are moved as bits, never as floating-point numbers, so that a NaN's payload survives.

#pragma once

#include "ptx.cuh"

namespace rows {

constexpr int kWarp = 32;
constexpr unsigned int kAllLanes = 0xFFFFFFFFu;

// A 16- or 32-bit floating-point format, by its bits. kInfinity is the pattern of +inf.
template <typename Bits_, Bits_ kInfinity_>
struct Format {
  using Bits = Bits_;
  static constexpr Bits kInfinity = kInfinity_;
  static constexpr int kDigits = sizeof(Bits);
  static constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
  static constexpr Bits kMinusInfinity = kSign | kInfinity;
  static constexpr unsigned int kHighestKey = 2u * kInfinity + 1;

  // Unsigned keys in the order of the values: 0 for -inf, kInfinity for both zeros, 2 * kInfinity for +inf, and one more for
  // every NaN. 2 * kInfinity + 1 fits in Bits for each format used here.
  static __device__ Bits key(Bits bits) {
    const Bits magnitude = bits & Bits(~kSign);
    if (magnitude > kInfinity) return Bits(kHighestKey);
    return Bits(bits & kSign ? kInfinity - magnitude : kInfinity + magnitude);
  }

  // Words full of an element, and of one that has this key.
  static __device__ unsigned int word(Bits bits) { return sizeof(Bits) == 4 ? bits : bits * 0x10001u; }
  static __device__ unsigned int word_of_key(unsigned int key) {
    return word(Bits(key >= kInfinity ? key - kInfinity : kSign | (kInfinity - key)));
  }

  // The bound that exactly the elements with this key and above exceed (see `exceeding`): NaN for all, +inf for NaN alone.
  static __device__ unsigned int bound_below(unsigned int key) { return word_of_key(key ? key - 1 : kHighestKey); }
};

// 16 bytes of a row: the widest load and store there is.
template <typename Bits>
struct alignas(16) Pack {
  static constexpr int kLanes = 16 / sizeof(Bits);
  static constexpr int kLanesOfWord = 4 / sizeof(Bits);
  unsigned int word[4];

  __device__ Bits get(int lane) const {
    return Bits(word[lane / kLanesOfWord] >> (8 * sizeof(Bits) * (lane % kLanesOfWord)));
  }
  __device__ void clear(int lane) {
    word[lane / kLanesOfWord] &= kLanesOfWord == 1 ? 0u : lane % 2 ? 0xFFFFu : 0xFFFF0000u;
  }
  static __device__ Pack filled(unsigned int word) { return {{word, word, word, word}}; }
  // Each element e becomes f(e).
  template <typename F>
  __device__ Pack mapped(F f) const {
    Pack result;
    for (int w = 0; w < 4; ++w) {
      result.word[w] = f(get(w * kLanesOfWord));
      if (kLanesOfWord == 2) result.word[w] |= static_cast<unsigned int>(f(get(w * 2 + 1))) << 16;
    }
    return result;
  }
};

// Each format tells which elements of a word are greater than their twins in `bound`, or not comparable since one of both is
// NaN: all ones in their place, else zeros. Numbers are compared as what they are, subnormals included, so these sources must
// not be compiled with a flag that flushes those.
struct Float32 : Format<unsigned int, 0x7F800000u> {
  static __device__ unsigned int exceeding(unsigned int word, unsigned int bound) {
    return __uint_as_float(word) <= __uint_as_float(bound) ? 0u : ~0u;
  }
};

struct Float16 : Format<unsigned short, 0x7C00> {
  static __device__ unsigned int exceeding(unsigned int word, unsigned int bound) { return ptx::hgtu2(word, bound); }
};

struct Bfloat16 : Format<unsigned short, 0x7F80> {
  static __device__ unsigned int exceeding(unsigned int word, unsigned int bound) { return ptx::bgtu2(word, bound); }
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

// A row's k, clipped to [0, n]. k_bytes is the size of k_rows' elements; 0 means that every row's is k_scalar.
__device__ inline long long row_k(const void* k_rows, int k_bytes, long long k_stride, long long k_scalar, long long row,
                                  long long n) {
  long long k = k_scalar;
  if (k_bytes == 4) k = static_cast<const int*>(k_rows)[row * k_stride];
  if (k_bytes == 8) k = static_cast<const long long*>(k_rows)[row * k_stride];
  return k < 0 ? 0 : k > n ? n : k;
}

// The sum of x over the lanes up to this one. Whole warps call it.
template <typename T>
__device__ T sum_through(T x) {
  const int lane = threadIdx.x % kWarp;
  for (int step = 1; step < kWarp; step *= 2) {
    const T before = __shfl_up_sync(kAllLanes, x, step);
    if (lane >= step) x += before;
  }
  return x;
}

constexpr int kBins = 256;

// The digit value that holds the rank-th largest key, the key's rank among those with that digit, and how many those are.
// Aligned, since a compiler reads it as a whole, with what is before or behind it up to the next 16 bytes: which others may be
// writing.
template <typename Counter>
struct alignas(16) Choice {
  unsigned int digit;
  Counter rank, population;
};

// Finds the Choice from a histogram. Run by warp 0, whole; 1 <= rank <= the histogram's sum. Lane l holds the l-th eight bins
// from the top.
template <typename Counter>
__device__ void choose(const Counter* histogram, Counter rank, Choice<Counter>* choice) {
  constexpr int kBinsPerLane = kBins / kWarp;
  const int lane = threadIdx.x;
  const int top = kBins - 1 - lane * kBinsPerLane;
  Counter sum = 0;
  for (int j = 0; j < kBinsPerLane; ++j) sum += histogram[top - j];
  const Counter through = sum_through(sum);  // elements in this lane's bins and all above
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

}  // namespace rows
