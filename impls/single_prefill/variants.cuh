// What becomes of a sum q·k before the mask: scale it, and the LogitsTransform hook, one struct a variant.
//
// A struct takes the sum and returns the score, divided by unit(); the softmax multiplies by that, for nothing. All is float,
// whatever the products were accumulated in: to_floats() converts before it, and apply() rounds back to the accumulator's type
// after it. It sees positions past the last query and the last key too; what it returns there is not used.

#pragma once

#include "ptx.cuh"

namespace prefill {

// Where a score stands.
struct Position {
  int qo_idx, kv_idx;
  int qo_len, kv_len;
  int head;        // the query's
  float distance;  // kv_idx - (qo_idx + kv_len - qo_len), exact up to 2^24
};

// What the structs know of the call, for one head.
struct HookArguments {
  float scale;
  float alibi_slope;
  float soft_cap, soft_cap_inverse;
};

// No hook at all: apply() is not called.
struct Plain {
  float scale;
  __device__ explicit Plain(const HookArguments& arguments) : scale(arguments.scale) {}
  __device__ float operator()(float sum, const Position&) const { return sum; }
  __device__ float unit() const { return scale; }
};

struct Alibi {
  float scale, slope;
  __device__ explicit Alibi(const HookArguments& arguments) : scale(arguments.scale), slope(arguments.alibi_slope) {}
  // The product is rounded apart: many of a lane's scores are equally far from their query, and share it.
  __device__ float operator()(float sum, const Position& at) const { return fmaf(sum, scale, __fmul_rn(slope, at.distance)); }
  __device__ float unit() const { return 1.0f; }
};

struct SoftCap {
  float cap, scale;
  __device__ explicit SoftCap(const HookArguments& arguments)
      : cap(arguments.soft_cap), scale(arguments.scale * arguments.soft_cap_inverse) {}
  __device__ float operator()(float sum, const Position&) const { return ptx::tanh_approx(sum * scale); }
  __device__ float unit() const { return cap; }
};

struct AlibiThenSoftCap {
  Alibi alibi;
  float cap, inverse;
  __device__ explicit AlibiThenSoftCap(const HookArguments& arguments)
      : alibi(arguments), cap(arguments.soft_cap), inverse(arguments.soft_cap_inverse) {}
  __device__ float operator()(float sum, const Position& at) const { return ptx::tanh_approx(alibi(sum, at) * inverse); }
  __device__ float unit() const { return cap; }
};

// A user's hook: any type that has no state and an operator that makes a score of the scaled sum and a Position.
template <typename Hook>
struct UserTransform {
  Hook hook;
  float scale;
  __device__ explicit UserTransform(const HookArguments& arguments) : hook{}, scale(arguments.scale) {}
  __device__ float operator()(float sum, const Position& at) const { return hook(scale * sum, at); }
  __device__ float unit() const { return 1.0f; }
};

// What q·k is accumulated in, for a 16x8 block of scores: Fragment is one lane's four.
struct FloatAccumulator {
  using Fragment = float[4];
};

struct HalfAccumulator {
  using Fragment = unsigned int[2];
};

template <typename A, typename B>
inline constexpr bool kSame = false;
template <typename A>
inline constexpr bool kSame<A, A> = true;

// The scores of a fragment as floats.
template <typename Accumulator>
__device__ __forceinline__ void to_floats(const typename Accumulator::Fragment& sums, float (&scores)[4]) {
  if constexpr (kSame<Accumulator, HalfAccumulator>) {
    const float2 first = ptx::unpack_half(sums[0]);
    const float2 second = ptx::unpack_half(sums[1]);
    scores[0] = first.x;
    scores[1] = first.y;
    scores[2] = second.x;
    scores[3] = second.y;
  } else {
    for (int i = 0; i < 4; ++i) scores[i] = sums[i];
  }
}

// What the scores that apply() makes are multiples of: a half is rounded as the score itself.
template <typename Accumulator, typename Hook>
__device__ __forceinline__ float unit(const Hook& hook) {
  return kSame<Accumulator, HalfAccumulator> && !kSame<Hook, Plain> ? 1.0f : hook.unit();
}

// Two neighbours in a row through the hook: float before it, and what the accumulator holds after it.
template <typename Accumulator, typename Hook>
__device__ __forceinline__ void apply(const Hook& hook, Position at, float next, float& first, float& second) {
  first = hook(first, at);
  at.kv_idx += 1;
  at.distance = next;
  second = hook(second, at);
  if constexpr (kSame<Accumulator, HalfAccumulator>) {
    const float2 rounded = ptx::unpack_half(ptx::pack_half(first * hook.unit(), second * hook.unit()));
    first = rounded.x;
    second = rounded.y;
  }
}

// The hook on a tile's scores: a lane holds rows 8 apart and pairs of keys 8 apart, and `first` is where the
// first one stands. Distances are constants away from one another, and those that are equal are seen to be.
template <typename Accumulator, typename Hook, int kAtoms, int kKeyBlocks>
__device__ __forceinline__ void transform(float (&s)[kAtoms][kKeyBlocks][4], const Hook& hook, const Position& first) {
  const float distance = static_cast<float>(first.kv_idx - first.kv_len - (first.qo_idx - first.qo_len));
#pragma unroll
  for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Position at = first;
      at.qo_idx += 16 * a + 8 * h;
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
        const int apart = 8 * n - 16 * a - 8 * h;
        at.kv_idx = first.kv_idx + 8 * n;
        at.distance = distance + static_cast<float>(apart);
        apply<Accumulator>(hook, at, distance + static_cast<float>(apart + 1), s[a][n][2 * h], s[a][n][2 * h + 1]);
      }
    }
  }
}

}  // namespace prefill
