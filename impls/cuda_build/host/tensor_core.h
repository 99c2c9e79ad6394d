// Operands of the warp-wide matrix instructions, one struct a lane.
#pragma once

#include <cstdint>

namespace warpcheck {

// mma.sync.m16n8k16, d += a * b.
struct Mma {
  enum Type { kHalfToFloat, kBfloat16ToFloat, kHalfToHalf };
  const std::uint32_t* a;  // 4
  const std::uint32_t* b;  // 2
  void* d;                 // float[4] or uint32_t[2]
  Type type;
};

// ldmatrix: lane l names row l % 8 of matrix l / 8.
struct LoadMatrix {
  const void* row;
  std::uint32_t* r;
  int matrices;  // 1, 2 or 4
  bool transposed;
};

}  // namespace warpcheck
