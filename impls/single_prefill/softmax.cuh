// The online softmax of a warp's rows, in base 2.
//
// A row keeps a `shift` and sums of 2^(score - shift). The shift need not be the largest score so far, only near it: it moves
// when a score exceeds it by more than kSlack, so that most tiles rescale nothing, and a probability is at most 2^kSlack, which
// every input type holds. Rows move on their own.

#pragma once

#include "ptx.cuh"

namespace prefill {

constexpr unsigned int kAllLanes = 0xFFFFFFFFu;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kSlack = 8.0f;
// From here on a shift is so coarse that 2^(score * factor - shift) could overflow when only the shift was rounded.
constexpr float kCoarse = 4194304.0f;

__device__ __forceinline__ float infinity() { return __int_as_float(0x7F800000); }
__device__ __forceinline__ float minus_infinity() { return -infinity(); }

// Over the four lanes that hold a row.
__device__ __forceinline__ float row_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// kAtoms times sixteen rows. A lane holds two rows of each, h = 0 and 1, and of an 8-column block the elements 2h and 2h + 1.
template <int kAtoms, int kKeyBlocks, int kOutBlocks>
struct Softmax {
  using Scores = float[kAtoms][kKeyBlocks][4];
  using Out = float[kAtoms][kOutBlocks][4];

  // Scores are multiples of `scale` and in base e; `factor` is scale * log2(e). Multiplying is left to the exponent's fused
  // multiply-add, 2^(score * folded - shift), with folded = factor. It is done first, and folded is 1, if the factor is not
  // positive (-inf must stay -inf) or infinite, and from when a shift is coarse.
  float scale, factor, folded;
  float shift[kAtoms][2];  // never -inf
  float sum[kAtoms][2];    // of this lane's columns

  __device__ explicit Softmax(float scale)
      : scale(scale), factor(scale * kLog2E), folded(factor > 0.0f && factor < infinity() ? factor : 1.0f) {
    for (int a = 0; a < kAtoms; ++a) {
      for (int h = 0; h < 2; ++h) {
        shift[a][h] = 0.0f;
        sum[a][h] = 0.0f;
      }
    }
  }

  __device__ __forceinline__ void multiply(Scores& s) const {
#pragma unroll
    for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[a][n][i] = s[a][n][i] * scale * kLog2E;
      }
    }
  }

  // To be called on each tile's scores before they are masked.
  __device__ __forceinline__ void prepare(Scores& s) const {
    if (folded != factor) multiply(s);
  }

  // The rare part of rescale(). `most` holds this lane's largest score of each row.
  __device__ __forceinline__ void move(Scores& s, Out& out, float (&most)[kAtoms][2]) {
    bool coarse = false;
#pragma unroll
    for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
      for (int h = 0; h < 2; ++h) coarse |= fabsf(most[a][h] * folded) >= kCoarse && most[a][h] != minus_infinity();
    }
    if (folded == factor && __any_sync(kAllLanes, coarse)) {
      multiply(s);
#pragma unroll
      for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
        for (int h = 0; h < 2; ++h) most[a][h] = most[a][h] * scale * kLog2E;
      }
      folded = 1.0f;
    }
#pragma unroll
    for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float candidate = row_maximum(most[a][h]) * folded;
        // A row whose sum is zero has seen no key yet, and takes any shift that is not -inf.
        const bool fresh = row_sum(sum[a][h]) == 0.0f && candidate != minus_infinity();
        if (fresh || candidate > shift[a][h] + kSlack) {
          const float rescale = fresh ? 0.0f : ptx::ex2(shift[a][h] - candidate);
          shift[a][h] = candidate;
          sum[a][h] *= rescale;
#pragma unroll
          for (int n = 0; n < kOutBlocks; ++n) {
            out[a][n][2 * h] *= rescale;
            out[a][n][2 * h + 1] *= rescale;
          }
        }
      }
    }
  }

  // Takes in prepared and masked scores: moves the shifts that they exceed, and rescales `out` and the sums with them. A NaN is
  // never the maximum.
  __device__ __forceinline__ void rescale(Scores& s, Out& out) {
    float most[kAtoms][2];
    bool exceeded = false;
#pragma unroll
    for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        most[a][h] = fmaxf(s[a][0][2 * h], s[a][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < kKeyBlocks; ++n) {
          most[a][h] = fmaxf(most[a][h], fmaxf(s[a][n][2 * h], s[a][n][2 * h + 1]));
        }
        exceeded |= sum[a][h] == 0.0f || most[a][h] * folded > shift[a][h] + kSlack;
      }
    }
    if (__any_sync(kAllLanes, exceeded)) move(s, out, most);
  }

  // Turns the scores of key blocks [first, last) into probabilities relative to the shifts. A NaN stays one.
  __device__ __forceinline__ void exponentiate(Scores& s, int first, int last) {
#pragma unroll
    for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int n = first; n < last; ++n) {
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i) {
            s[a][n][i] = ptx::ex2(fmaf(s[a][n][i], folded, -shift[a][h]));
            sum[a][h] += s[a][n][i];
          }
        }
      }
    }
  }
};

}  // namespace prefill
