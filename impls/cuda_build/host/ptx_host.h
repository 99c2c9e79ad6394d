// The twins of ptx.cuh's instructions, for the host. Only ptx.cuh includes this.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime.h"
#include "tensor_core.h"

namespace ptx {

inline void load_matrix(std::uint32_t* r, const void* row, int matrices, bool transposed) {
  warpcheck::LoadMatrix operands{row, r, matrices, transposed};
  warpcheck_meet(~0u, warpcheck_ldmatrix, &operands, transposed ? "ldmatrix.trans" : "ldmatrix");
}

inline void ldmatrix_x4(unsigned int (&r)[4], const void* row) { load_matrix(r, row, 4, false); }
inline void ldmatrix_x4_trans(unsigned int (&r)[4], const void* row) { load_matrix(r, row, 4, true); }

template <typename Input>
inline constexpr warpcheck::Mma::Type kToFloat = warpcheck::Mma::kHalfToFloat;
template <>
inline constexpr warpcheck::Mma::Type kToFloat<Bfloat16> = warpcheck::Mma::kBfloat16ToFloat;

template <typename Input>
void mma_m16n8k16_f32(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
  warpcheck::Mma operands{a, b, d, kToFloat<Input>};
  warpcheck_meet(~0u, warpcheck_mma, &operands, "mma");
}

inline void mma_m16n8k16_f16(unsigned int (&d)[2], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
  warpcheck::Mma operands{a, b, d, warpcheck::Mma::kHalfToHalf};
  warpcheck_meet(~0u, warpcheck_mma, &operands, "mma");
}

inline void cp_async_16(void* shared, const void* global, bool valid) {
  warpcheck_copy_async(shared, global, 16, valid ? 16 : 0);
}
inline void cp_async_commit() { warpcheck_copy_commit(); }
template <int N>
void cp_async_wait() {
  warpcheck_copy_wait(N);
}

inline void barrier_sync(int id, int count, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  warpcheck_barrier(id, count, warpcheck::kBarrierPlain, 0, file, line);
}
inline void barrier_arrive(int id, int count, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  warpcheck_barrier_arrive(id, count, file, line);
}

// Hints change nothing here. Vectors are misaligned at an address that is no multiple of their size.
inline void prefetch_l2(const void*) {}
inline uint4 load_read_only(const void* global) { return warpcheck::read_only(static_cast<const uint4*>(global)); }
inline uint4 load_streaming(const void* global) { return *warpcheck::aligned(static_cast<const uint4*>(global)); }
inline void store_streaming(void* global, uint4 x) { *warpcheck::aligned(static_cast<uint4*>(global)) = x; }
inline unsigned long long evict_first() { return 0; }
inline unsigned long long evict_last() { return 0; }
inline uint4 load_streaming(const void* global, unsigned long long) { return load_streaming(global); }
inline void store_streaming(void* global, uint4 x, unsigned long long) { store_streaming(global, x); }

inline unsigned long long globaltimer() { return static_cast<unsigned long long>(warpcheck_nanoseconds()); }

// An error within what PTX documents, the same for x and -x every time: a bound that holds for exact results only is no bound.
inline float with_error(float y, float x, double relative) {
  if (!std::isfinite(y) || y == 0) return y;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(std::fabs(x)) * 0x9E3779B1u;
  bits = (bits ^ (bits >> 15)) * 0x85EBCA77u;
  const double part = static_cast<std::int32_t>(bits ^ (bits >> 13)) * 0x1p-31;  // in [-1, 1)
  return static_cast<float>(y * (1 + part * relative));
}

inline float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

inline float ex2(float x) {
  x = flush(x);
  const float y = std::exp2(x);
  return flush(x == std::floor(x) ? y : with_error(y, x, 0x1p-23));
}
inline float lg2(float x) { return std::log2(x); }
inline float rcp(float x) { return with_error(1.0f / x, x, 0x1p-24); }
inline float tanh_approx(float x) {
  const float y = with_error(std::tanh(x), x, 0x1p-11 * 0.99);
  return std::fabs(y) > 1 ? std::copysign(1.0f, y) : y;
}

// Through CUDA's own host conversions.
inline unsigned int pack_half(float lo, float hi) {
  return __half_as_ushort(__float2half_rn(lo)) | static_cast<unsigned int>(__half_as_ushort(__float2half_rn(hi))) << 16;
}
inline unsigned int pack_bfloat16(float lo, float hi) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(lo)) |
         static_cast<unsigned int>(__bfloat16_as_ushort(__float2bfloat16_rn(hi))) << 16;
}
inline float2 unpack_half(unsigned int pair) {
  return {__half2float(__ushort_as_half(static_cast<unsigned short>(pair))),
          __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)))};
}
inline float2 unpack_bfloat16(unsigned int pair) {
  return {std::bit_cast<float>(pair << 16), std::bit_cast<float>(pair & 0xFFFF0000u)};
}
inline unsigned int hfma2(unsigned int x, unsigned int y, unsigned int z) {
  unsigned int pair = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto half = [=](unsigned int of) { return __ushort_as_half(static_cast<unsigned short>(of >> shift)); };
    pair |= static_cast<unsigned int>(__half_as_ushort(__hfma(half(x), half(y), half(z)))) << shift;
  }
  return pair;
}
// Sums and products of two halves are exact in float, or so finely rounded that rounding twice does no harm.
inline unsigned int hadd2(unsigned int x, unsigned int y) {
  const float2 a = unpack_half(x), b = unpack_half(y);
  return pack_half(a.x + b.x, a.y + b.y);
}
inline unsigned int hmul2(unsigned int x, unsigned int y) {
  const float2 a = unpack_half(x), b = unpack_half(y);
  return pack_half(a.x * b.x, a.y * b.y);
}
inline unsigned int warpcheck_gtu2(float2 a, float2 b) {
  return (a.x <= b.x ? 0u : 0xFFFFu) | (a.y <= b.y ? 0u : 0xFFFF0000u);
}
inline unsigned int hgtu2(unsigned int x, unsigned int y) { return warpcheck_gtu2(unpack_half(x), unpack_half(y)); }
inline unsigned int bgtu2(unsigned int x, unsigned int y) { return warpcheck_gtu2(unpack_bfloat16(x), unpack_bfloat16(y)); }

}  // namespace ptx
