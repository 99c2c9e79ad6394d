// CUDA's integer, conversion and floating-point intrinsics, by their definitions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

inline int __popc(unsigned int x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned int>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned int __brev(unsigned int x) {
  unsigned int y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
  return y;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned int>(x))) << 32 | __brev(static_cast<unsigned int>(x >> 32));
}

inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned int>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xFF) << (8 * i);
  return result;
}

inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
  return static_cast<unsigned int>(((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
inline int __mulhi(int x, int y) { return static_cast<int>((static_cast<long long>(x) * y) >> 32); }
inline unsigned int __umulhi(unsigned int x, unsigned int y) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(x) * y) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(x) * y) >> 64);
}
inline unsigned int __sad(int x, int y, unsigned int z) {
  return z + static_cast<unsigned int>(x > y ? static_cast<long long>(x) - y : static_cast<long long>(y) - x);
}

inline unsigned int __float_as_uint(float x) { return std::bit_cast<unsigned int>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned int x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// Conversions saturate, and NaN gives 0, as on a GPU; in C++ that is undefined.
template <typename Integer>
Integer warpcheck_saturate(double x) {
  constexpr double kLeast = static_cast<double>(std::numeric_limits<Integer>::min());
  if (std::isnan(x)) return 0;
  if (x <= kLeast) return std::numeric_limits<Integer>::min();
  if (x >= static_cast<double>(std::numeric_limits<Integer>::max())) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(x);
}
inline int __float2int_rn(float x) { return warpcheck_saturate<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return warpcheck_saturate<int>(std::trunc(x)); }
inline int __float2int_rd(float x) { return warpcheck_saturate<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return warpcheck_saturate<int>(std::ceil(x)); }
inline unsigned int __float2uint_rn(float x) { return warpcheck_saturate<unsigned int>(std::nearbyint(x)); }
inline unsigned int __float2uint_rz(float x) { return warpcheck_saturate<unsigned int>(std::trunc(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned int x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return static_cast<float>(std::pow(10.0, static_cast<double>(x))); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

// As in CUDA, where operands of two integer types give the wider, and the unsigned one of two equally wide.
template <typename T, typename U>
constexpr auto min(T x, U y) {
  using Both = decltype(true ? x : y);
  return static_cast<Both>(x) < static_cast<Both>(y) ? static_cast<Both>(x) : static_cast<Both>(y);
}
template <typename T, typename U>
constexpr auto max(T x, U y) {
  using Both = decltype(true ? x : y);
  return static_cast<Both>(x) > static_cast<Both>(y) ? static_cast<Both>(x) : static_cast<Both>(y);
}
// Of a NaN and a number, the number: CUDA's min and max are fmin and fmax for floating point.
inline float min(float x, float y) { return std::fmin(x, y); }
inline float max(float x, float y) { return std::fmax(x, y); }
inline double min(double x, double y) { return std::fmin(x, y); }
inline double max(double x, double y) { return std::fmax(x, y); }
