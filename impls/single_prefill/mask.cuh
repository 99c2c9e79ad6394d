// Which keys a query sees.

#pragma once

#include "softmax.cuh"

namespace prefill {

enum class Mask { None, Causal, Custom };

// A range of tiles of keys: those that some row needs, and among them those that every row sees whole.
struct Span {
  int begin, end, full_begin, full_end;
};

// qo_len + kv_len is an int, and so is everything here.
template <Mask kMask, bool kWindow, int kTileKeys>
struct Visibility {
  int qo_len, kv_len;
  int window_left;  // at most kv_len

  // Row r sees keys [left(r), right(r)), but for what a custom mask hides. Both grow with r.
  __device__ __forceinline__ int left(int row) const {
    const int key = row - qo_len + kv_len - window_left;
    return kWindow && key > 0 ? key : 0;
  }
  __device__ __forceinline__ int right(int row) const {
    const int key = row - qo_len + kv_len + 1;
    return kMask != Mask::Causal ? kv_len : key > 0 ? key : 0;
  }

  // Of `rows` rows from `first` on, those that there are; empty if there is none.
  __device__ __forceinline__ Span span(int first, int rows) const {
    if (first >= qo_len) return {0, 0, 0, 0};
    const int last = qo_len - first < rows ? qo_len - 1 : first + rows - 1;
    return {left(first) / kTileKeys, tiles(right(last)), tiles(left(last)), right(first) / kTileKeys};
  }
  static __device__ __forceinline__ int tiles(int keys) { return keys / kTileKeys + (keys % kTileKeys != 0); }

  // Sets the scores of hidden keys to -inf. `row` is the warp's first row, `key` the tile's first key.
  template <int kAtoms, int kBlocks>
  __device__ __forceinline__ void hide_outside(float (&s)[kAtoms][kBlocks][4], int row, int key) const {
    const int lane = threadIdx.x % 32;
    const int column = lane % 4 * 2;
    // Of the warp's first row, counted from this lane's first column.
    const int end = kv_len - key - column;
    const int causal_end = end + row - qo_len + 1;
    const int window_begin = end + row - qo_len - window_left;
#pragma unroll
    for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int down = 16 * a + 8 * h + lane / 4;
        const int row_end = kMask == Mask::Causal && causal_end + down < end ? causal_end + down : end;
        const int row_begin = window_begin + down;
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const bool hidden = 8 * n + i >= row_end || (kWindow && 8 * n + i < row_begin);
            if (hidden) s[a][n][2 * h + i] = minus_infinity();
          }
        }
      }
    }
  }
};

// One tile of a custom mask for the rows of a warp: lane r holds row r's bits.
template <int kRows, int kTileKeys>
struct MaskBits {
  static constexpr int kWords = kTileKeys / 32;
  unsigned int word[kWords];

  // `mask` points at the warp's first row and the tile's first key; `rows` and `keys` of each are inside the mask.
  __device__ __forceinline__ void load(const unsigned char* mask, long long row_stride, long long key_stride, int rows,
                                       int keys) {
    const int lane = threadIdx.x % 32;
    constexpr int kBatch = 8;  // loads in flight a lane
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const bool inside = 32 * w + lane < keys;
      const unsigned char* column = mask + (32 * w + lane) * key_stride;
      word[w] = 0;
#pragma unroll 1
      for (int first = 0; first < kRows; first += kBatch) {
        unsigned char byte[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          byte[i] = inside && first + i < rows ? column[(first + i) * row_stride] : 0;
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const unsigned int bits = __ballot_sync(kAllLanes, byte[i] != 0);
          if (lane == first + i) word[w] = bits;
        }
      }
    }
  }

  // Whether any row sees any key.
  __device__ __forceinline__ bool any() const {
    unsigned int all = 0;
    for (int w = 0; w < kWords; ++w) all |= word[w];
    return __any_sync(kAllLanes, all != 0);
  }

  template <int kAtoms, int kBlocks>
  __device__ __forceinline__ void hide(float (&s)[kAtoms][kBlocks][4]) const {
    const int lane = threadIdx.x % 32;
    const int column = lane % 4 * 2;
#pragma unroll
    for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          const unsigned int bits = __shfl_sync(kAllLanes, word[w], 16 * a + 8 * h + lane / 4) >> column;
#pragma unroll
          for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              if (!(bits >> (8 * n + i) & 1)) s[a][4 * w + n][2 * h + i] = minus_infinity();
            }
          }
        }
      }
    }
  }
};

}  // namespace prefill
