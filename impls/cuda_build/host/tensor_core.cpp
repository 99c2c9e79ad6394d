// mma.sync and ldmatrix, for a whole warp at once.
//
// The model of a tensor core: of `block` products and the accumulator, all exact, each is cut to a multiple of one unit,
// 2^(e - 23 - extra bits), where e is the exponent of the largest; their sum is exact; a float result is truncated, a half result
// rounded to nearest even. Longer sums are several such steps. (Fasi, Higham, Mikaitis, Pranesh, PeerJ CS 7:e330, 2021.)
#include "tensor_core.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "machine.h"

namespace warpcheck {

namespace {

constexpr int kM = 16, kN = 8, kK = 16;

double pow2(int e) { return std::bit_cast<double>(std::uint64_t(e + 1023) << 52); }

int exponent(double x) { return int(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7FF) - 1023; }  // -1023 for 0, 1024 for inf and NaN

double from_half(std::uint16_t bits) {
  const int e = bits >> 10 & 31, fraction = bits & 1023;
  double value = e ? (1024 + fraction) * pow2(e - 25) : fraction * pow2(-24);
  if (e == 31) value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  return bits & 0x8000 ? -value : value;
}

double from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t(bits) << 16); }

float to_float_truncated(double x) {
  float nearest = static_cast<float>(x);
  if (std::isfinite(nearest) && std::fabs(nearest) > std::fabs(x))
    nearest = std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - 1);
  return nearest;
}

std::uint16_t to_half_nearest(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7FFF;
  x = std::fabs(x);
  const int e = std::max(exponent(x), -14);
  if (e > 15) return sign | 0x7C00;
  const double units = std::nearbyint(x * pow2(10 - e));  // below 2048, or 2048 itself: then the exponent grows
  return sign | static_cast<std::uint16_t>((e + 14) * 1024 + static_cast<int>(units));
}

// For each of N columns: accumulators + the sum of a row's products with the column. Written for the compiler to vectorise.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void add_block(double* accumulators, const double* row, const double (*columns)[kN], int count, int extra_bits) {
  double products[kK][kN], largest[kN], plain[kN];
  for (int n = 0; n < kN; ++n) plain[n] = accumulators[n], largest[n] = std::fabs(accumulators[n]);
  for (int k = 0; k < count; ++k) {
    for (int n = 0; n < kN; ++n) {
      products[k][n] = row[k] * columns[k][n];
      const double size = std::fabs(products[k][n]);
      largest[n] = largest[n] < size ? size : largest[n];
      plain[n] += products[k][n];
    }
  }
  double scale[kN];
  for (int n = 0; n < kN; ++n) {
    // Infinities and NaNs scale to nothing here, and go the plain way below; so do zeros, whose sums are signed.
    const int top = std::isfinite(plain[n]) && largest[n] > 0 ? exponent(largest[n]) : 2000;
    scale[n] = top == 2000 ? 0 : pow2(23 + extra_bits - top);
  }
  // Less than 17 * 2^26: an int is wide enough, and converting to it truncates.
  int sums[kN];
  for (int n = 0; n < kN; ++n) sums[n] = static_cast<int>(accumulators[n] * scale[n]);
  for (int k = 0; k < count; ++k)
    for (int n = 0; n < kN; ++n) sums[n] += static_cast<int>(products[k][n] * scale[n]);
  for (int n = 0; n < kN; ++n) accumulators[n] = scale[n] == 0 ? plain[n] : sums[n] / scale[n];
}

std::uint16_t half_of(std::uint32_t pair, int i) { return static_cast<std::uint16_t>(pair >> (16 * i)); }

}  // namespace

}  // namespace warpcheck

using namespace warpcheck;

void warpcheck_mma(void** operands, std::uint32_t mask) {
  if (mask != ~0u) warpcheck_fail(kDeviceError, "mma.sync needs all 32 lanes");
  const auto lane = [&](int l) -> const Mma& { return *static_cast<const Mma*>(operands[l]); };
  const Mma::Type type = lane(0).type;
  double a[kM][kK], b[kK][kN];
  const auto decode = type == Mma::kBfloat16ToFloat ? from_bfloat16 : from_half;
  for (int l = 0; l < kLanes; ++l) {
    const int group = l / 4, pair = l % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      for (int r = 0; r < 4; ++r) a[group + r % 2 * 8][pair + r / 2 * 8 + i] = decode(half_of(lane(l).a[r], i));
      for (int r = 0; r < 2; ++r) b[pair + r * 8 + i][group] = decode(half_of(lane(l).b[r], i));
    }
  }
  const int block = machine->launch->tensor_block, extra_bits = machine->launch->tensor_extra_bits;
  for (int row = 0; row < kM; ++row) {
    double d[kN];
    const auto place = [&](int n) { return std::pair(lane(row % 8 * 4 + n / 2).d, row / 8 * 2 + n % 2); };
    for (int n = 0; n < kN; ++n) {
      const auto [fragment, i] = place(n);
      d[n] = type == Mma::kHalfToHalf ? from_half(static_cast<std::uint16_t*>(fragment)[i]) : static_cast<float*>(fragment)[i];
    }
    for (int k = 0; k < kK; k += block) {
      add_block(d, a[row] + k, b + k, block, extra_bits);
      for (int n = 0; n < kN; ++n) d[n] = type == Mma::kHalfToHalf ? from_half(to_half_nearest(d[n])) : to_float_truncated(d[n]);
    }
    for (int n = 0; n < kN; ++n) {
      const auto [fragment, i] = place(n);
      if (type == Mma::kHalfToHalf) static_cast<std::uint16_t*>(fragment)[i] = to_half_nearest(d[n]);
      else static_cast<float*>(fragment)[i] = static_cast<float>(d[n]);
    }
  }
}

void warpcheck_ldmatrix(void** operands, std::uint32_t mask) {
  if (mask != ~0u) warpcheck_fail(kDeviceError, "ldmatrix needs all 32 lanes");
  const auto lane = [&](int l) -> const LoadMatrix& { return *static_cast<const LoadMatrix*>(operands[l]); };
  const int matrices = lane(0).matrices;
  Fiber& me = *static_cast<Fiber*>(warpcheck_thread);
  std::uint16_t rows[4 * 8][8];
  for (int l = 0; l < matrices * 8; ++l) {
    if (reinterpret_cast<std::uintptr_t>(lane(l).row) % 16)
      warpcheck_fail(kDeviceError, "ldmatrix of a row that is not aligned to 16 bytes");
    check_access(thread_actor(me.owner->fibers[me.warp * kLanes + l]), lane(l).row, sizeof rows[l], 16, kRead);
    std::memcpy(rows[l], lane(l).row, sizeof rows[l]);
  }
  for (int l = 0; l < kLanes; ++l) {
    for (int m = 0; m < matrices; ++m) {
      const int row = l / 4, pair = l % 4 * 2;
      const auto element = [&](int i) -> std::uint32_t {
        return lane(l).transposed ? rows[m * 8 + pair + i][row] : rows[m * 8 + row][pair + i];
      };
      lane(l).r[m] = element(0) | element(1) << 16;
    }
  }
}
