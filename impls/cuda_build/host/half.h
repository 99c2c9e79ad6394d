// The functions on half and bfloat16 that CUDA's headers declare for devices only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// The product of two halves is exact in double, and the sum is too unless the exponents lie far apart; then nothing near a tie of
// half is left to round twice, except when the smaller term alone breaks that tie. Rounding to odd first keeps that.
inline double warpcheck_round_to_odd_fma(double x, double y, double z) {
  const double product = x * y, sum = product + z;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (z - part);
  if (error == 0 || !std::isfinite(sum)) return sum;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum);
  if (!(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
  return std::bit_cast<double>(bits);
}

inline __half __hfma(__half x, __half y, __half z) {
  return __double2half(warpcheck_round_to_odd_fma(__half2float(x), __half2float(y), __half2float(z)));
}
inline __half2 __hfma2(__half2 x, __half2 y, __half2 z) { return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)}; }
inline __nv_bfloat16 __hfma(__nv_bfloat16 x, __nv_bfloat16 y, __nv_bfloat16 z) {
  return __double2bfloat16(warpcheck_round_to_odd_fma(__bfloat162float(x), __bfloat162float(y), __bfloat162float(z)));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 x, __nv_bfloat162 y, __nv_bfloat162 z) {
  return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)};
}
inline __half hexp2(__half x) { return __float2half_rn(std::exp2(__half2float(x))); }
inline __half2 h2exp2(__half2 x) { return {hexp2(x.x), hexp2(x.y)}; }
inline __half hexp(__half x) { return __float2half_rn(std::exp(__half2float(x))); }
inline __half hrcp(__half x) { return __float2half_rn(1.0f / __half2float(x)); }
inline __half hsqrt(__half x) { return __float2half_rn(std::sqrt(__half2float(x))); }
