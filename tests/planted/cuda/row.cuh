// What the planted masks share: rows of float32 as bits, keys in the order of the values, and what each kernel is given.
#pragma once

constexpr int kThreads = 64;
constexpr unsigned int kMinusInfinity = 0xFF800000u;

// -inf lowest, both zeros equal, every NaN the same and above +inf; the lowest key is 1, so that 0 keeps all.
__device__ inline unsigned int key(unsigned int bits) {
  const unsigned int magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return ~0u;
  return bits >> 31 ? 0x80000000u - magnitude : 0x80000000u + magnitude;
}

__device__ inline unsigned int masked(unsigned int bits, unsigned int least) { return key(bits) < least ? kMinusInfinity : bits; }

// How many of the row's elements, every kThreads-th from this thread's on, have at least this key.
__device__ inline int count(const unsigned int* row, int n, unsigned int least) {
  int found = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) found += key(row[i]) >= least;
  return found;
}

// Adds a number up over the block's threads, for all of them, by way of kThreads words of shared memory: as it should be. A kernel
// whose fault lies there has its own.
struct Sum {
  int* partial;

  __device__ int operator()(int mine) const {
    partial[threadIdx.x] = mine;
    __syncthreads();
    int total = 0;
    for (int t = 0; t < kThreads; ++t) total += partial[t];
    __syncthreads();
    return total;
  }
};

// What is kept of a row, listed in shared memory that a kernel provides, in any order; `kept` is 0 before.
struct List {
  int* kept;
  int* index;
  unsigned int* bits;

  __device__ void fill(const unsigned int* row, int n, unsigned int least) const {
    for (int i = threadIdx.x; i < n; i += kThreads) {
      if (key(row[i]) < least) continue;
      const int place = atomicAdd(kept, 1);
      bits[place] = row[i];
      index[place] = i;
    }
    __syncthreads();
  }
};

// The key of the row's k-th largest element, bit by bit. `sum` adds a number up over the block's threads, for all of them.
template <typename Adder>
__device__ unsigned int threshold(const unsigned int* row, int n, long long k, Adder sum) {
  if (k <= 0) return ~0u;  // see write(): nothing is kept
  unsigned int least = 0;
  for (unsigned int bit = 1u << 31; bit; bit >>= 1)
    if (sum(count(row, n, least | bit)) >= k) least |= bit;
  return least;
}

__device__ inline void write(const unsigned int* in, unsigned int* out, int begin, int end, long long k, unsigned int least) {
  for (int i = begin + threadIdx.x; i < end; i += kThreads) out[i] = k <= 0 ? kMinusInfinity : masked(in[i], least);
}

// Each row's k, clipped to [0, n], stands in `ks`. Strides are in elements.
#define MASK                                                                                                             \
  extern "C" __global__ void mask(const unsigned int* in, unsigned int* out, long long in_stride, long long out_stride, \
                                  int batch, int n, const long long* ks)
