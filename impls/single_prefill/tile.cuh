// Rows of 16-bit elements in shared memory, and the mma fragments that are read from them.

#pragma once

#include "ptx.cuh"

namespace prefill {

using Bits = unsigned short;

// A tile of rows of kHeadDim elements. Chunk c (16 bytes) of row r lies where chunk c ^ (r % 8) would in a plain matrix, so
// that ldmatrix, which reads one chunk of eight rows at once, meets every bank once.
template <int kHeadDim>
struct Tile {
  static constexpr int kRowBytes = 2 * kHeadDim;
  static constexpr int kChunks = kRowBytes / 16;

  static __device__ __forceinline__ int offset(int row, int chunk) { return row * kRowBytes + (chunk ^ row % 8) * 16; }

  // This lane's row for ldmatrix: of an A operand or a transposed B operand (rows l % 16, then the next chunk) …
  static __device__ __forceinline__ int rows_then_chunks(int lane) { return offset(lane % 16, lane / 16); }
  // … and of a B operand (eight rows in two chunks, then the next eight rows).
  static __device__ __forceinline__ int chunks_then_rows(int lane) {
    return offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  // Where a lane's reads of a tile go, from the start of shared memory: pairs of chunks to the right and sixteens of rows down
  // from `lane`, its first chunk. Only the low bits of the pair meet the swizzle, so that four registers and immediate
  // offsets reach everything; the compiler would compute each address anew.
  struct Reads {
    int at[4];

    __device__ __forceinline__ Reads(int tile, int lane) {
#pragma unroll
      for (int i = 0; i < 4; ++i) at[i] = ptx::opaque(tile + (lane ^ i * 32));
    }
    __device__ __forceinline__ int offset(int sixteens, int pair) const {
      return at[pair % 4] + pair / 4 * 128 + sixteens * 16 * kRowBytes;
    }
  };

  // Where this thread's part of a copy starts: each thread copies one chunk of every kStep-th row.
  template <int kThreads>
  static __device__ __forceinline__ const Bits* source(const Bits* rows, long long stride) {
    return rows + threadIdx.x / kChunks * stride + threadIdx.x % kChunks * 8;
  }

  // Starts filling the tile with kRows rows, `stride` elements apart; rows from `end` on become zeros, and are not read. The
  // block's threads share the work, each with its own source(). `aligned`: 16-byte loads may be used, and the copy is
  // asynchronous.
  template <int kRows, int kThreads>
  static __device__ __forceinline__ void load(unsigned char* tile, const Bits* source, long long stride, int end, bool aligned) {
    static_assert(kThreads % kChunks == 0 && kRows * kChunks % kThreads == 0, "the threads' parts are equal");
    constexpr int kStep = kThreads / kChunks;
    const int chunk = threadIdx.x % kChunks;
    const int first = threadIdx.x / kChunks;
    if (aligned) {
#pragma unroll
      for (int i = 0; i < kRows / kStep; ++i) {
        const int row = first + i * kStep;
        ptx::cp_async_16(tile + offset(row, chunk), source, row < end);
        source += kStep * stride;
      }
    } else {
#pragma unroll 1
      for (int row = first; row < kRows; row += kStep) {
        Bits* to = reinterpret_cast<Bits*>(tile + offset(row, chunk));
#pragma unroll
        for (int i = 0; i < 8; ++i) to[i] = row < end ? source[i] : Bits(0);
        source += kStep * stride;
      }
    }
  }

  // Multiplies the halves that this thread's load() of the same shape wrote by `factor`, rounding once.
  template <int kRows, int kThreads>
  static __device__ __forceinline__ void scale_halves(unsigned char* tile, float factor) {
    constexpr int kStep = kThreads / kChunks;
    const int chunk = threadIdx.x % kChunks;
#pragma unroll 1
    for (int row = threadIdx.x / kChunks; row < kRows; row += kStep) {
      unsigned int* pairs = reinterpret_cast<unsigned int*>(tile + offset(row, chunk));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = ptx::unpack_half(pairs[i]);
        pairs[i] = ptx::pack_half(factor * pair.x, factor * pair.y);
      }
    }
  }

  // Copies the rows [first, first + kRows) of the tile, those below `end`, to a matrix whose row 0 is at `to`; by one warp.
  template <int kRows>
  static __device__ __forceinline__ void store(const unsigned char* tile, int first, Bits* to, long long stride, int end,
                                               bool aligned) {
    const int lane = threadIdx.x % 32;
    if (aligned) {
#pragma unroll 4
      for (int i = lane; i < kRows * kChunks; i += 32) {
        const int row = first + i / kChunks;
        const int chunk = i % kChunks;
        if (row < end) {
          *reinterpret_cast<uint4*>(to + row * stride + chunk * 8) = *reinterpret_cast<const uint4*>(tile + offset(row, chunk));
        }
      }
    } else {
#pragma unroll 1
      for (int i = lane; i < kRows * kHeadDim; i += 32) {
        const int row = first + i / kHeadDim;
        const int column = i % kHeadDim;
        if (row < end) {
          to[row * stride + column] = reinterpret_cast<const Bits*>(tile + offset(row, column / 8))[column % 8];
        }
      }
    }
  }
};

}  // namespace prefill
