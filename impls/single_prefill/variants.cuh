// What becomes of a scaled score before the mask: the LogitsTransform hook, one struct a variant.
//
// A hook takes and returns floats, whatever the products were accumulated in: to_floats() converts before it, and apply() rounds
// back to the accumulator's type after it. A hook sees positions past the last query and the last key too; what it returns there is not used.

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

// What the built-in hooks know of the call, for one head.
struct HookArguments {
  float alibi_slope;
  float soft_cap, soft_cap_inverse;
};

// No hook at all: apply() is not called.
struct Plain {
  __device__ explicit Plain(const HookArguments&) {}
  __device__ float operator()(float score, const Position&) const { return score; }
};

struct Alibi {
  float slope;
  __device__ explicit Alibi(const HookArguments& arguments) : slope(arguments.alibi_slope) {}
  __device__ float operator()(float score, const Position& at) const { return fmaf(slope, at.distance, score); }
};

struct SoftCap {
  float cap, inverse;
  __device__ explicit SoftCap(const HookArguments& arguments)
      : cap(arguments.soft_cap), inverse(arguments.soft_cap_inverse) {}
  __device__ float operator()(float score, const Position&) const { return cap * ptx::tanh_approx(score * inverse); }
};

struct AlibiThenSoftCap {
  Alibi alibi;
  SoftCap soft_cap;
  __device__ explicit AlibiThenSoftCap(const HookArguments& arguments) : alibi(arguments), soft_cap(arguments) {}
  __device__ float operator()(float score, const Position& at) const { return soft_cap(alibi(score, at), at); }
};

// A user's hook: any type that has no state and the operator that the structs above have.
template <typename Hook>
struct UserTransform {
  Hook hook;
  __device__ explicit UserTransform(const HookArguments&) : hook{} {}
  __device__ float operator()(float score, const Position& at) const { return hook(score, at); }
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

// Two neighbours in a row through the hook: float before it, and what the accumulator holds after it.
template <typename Accumulator, typename Hook>
__device__ __forceinline__ void apply(const Hook& hook, float scale, Position at, float& first, float& second) {
  first = hook(scale * first, at);
  at.kv_idx += 1;
  at.distance += 1.0f;
  second = hook(scale * second, at);
  if constexpr (kSame<Accumulator, HalfAccumulator>) {
    const float2 rounded = ptx::unpack_half(ptx::pack_half(first, second));
    first = rounded.x;
    second = rounded.y;
  }
}

// The hook on a tile's scores: a lane holds rows 8 apart and pairs of keys 8 apart, and `first` is where the first one stands.
template <typename Accumulator, typename Hook, int kAtoms, int kKeyBlocks>
__device__ __forceinline__ void transform(float (&s)[kAtoms][kKeyBlocks][4], const Hook& hook, float scale,
                                          const Position& first) {
#pragma unroll
  for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Position at = first;
      at.qo_idx += 16 * a + 8 * h;
      const float distance = static_cast<float>(first.kv_idx - first.kv_len - (at.qo_idx - first.qo_len));
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
        at.kv_idx = first.kv_idx + 8 * n;
        at.distance = distance + static_cast<float>(8 * n);
        apply<Accumulator>(hook, scale, at, s[a][n][2 * h], s[a][n][2 * h + 1]);
      }
    }
  }
}

}  // namespace prefill
