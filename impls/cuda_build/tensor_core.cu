// What a tensor core makes of 16 dot products, row r of `a` [16, 16] (halves) times 2^-12 plus c[r]: for finding out in what
// blocks it sums, and how it rounds. One warp; every column of b is the same, and column 0 of the result is kept.

#include "ptx.cuh"

constexpr unsigned int SCALE = 0x0C000C00;  // twice 2^-12

extern "C" __global__ void multiply(const unsigned int* a, const float* c, float* single, float* half) {
  const int row = threadIdx.x / 4, pair = threadIdx.x % 4;
  const unsigned int fragment[4] = {a[row * 8 + pair], a[(row + 8) * 8 + pair], a[row * 8 + pair + 4],
                                    a[(row + 8) * 8 + pair + 4]};
  const unsigned int scale[2] = {SCALE, SCALE};
  const float low = c[row], high = c[row + 8];
  float sums[4] = {low, low, high, high};
  ptx::mma_m16n8k16_f32<ptx::Half>(sums, fragment, scale);
  unsigned int rounded[2] = {ptx::pack_half(low, low), ptx::pack_half(high, high)};
  ptx::mma_m16n8k16_f16(rounded, fragment, scale);
  if (pair == 0) {
    single[row] = sums[0];
    single[row + 8] = sums[2];
    half[row] = ptx::unpack_half(rounded[0]).x;
    half[row + 8] = ptx::unpack_half(rounded[1]).x;
  }
}
