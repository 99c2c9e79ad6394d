// The PTX instructions that the kernels use, one small function each. Inline PTX lives here and in ptx_hopper.cuh, nowhere else.
// What is here exists from sm_80 on.
//
// Halves and bfloat16s are bits here, two in an unsigned int with the first in the low half: no CUDA header is included, so
// neither the operators of half nor the macros that remove them can change what a kernel does.
//
// With WARPCHECK_HOST, which is for running a kernel's source on the CPU, each function has a twin in host/ptx_host.h.

#pragma once

namespace ptx {

// What the 16-bit operands of an mma are.
struct Half {};
struct Bfloat16 {};

// x, which the compiler must hold in a register from here on: it cannot take apart how x was computed, nor compute it again.
__device__ __forceinline__ int opaque(int x) {
#if !defined(WARPCHECK_HOST)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

}  // namespace ptx

#if defined(WARPCHECK_HOST)
#include "host/ptx_host.h"
#else

namespace ptx {

__device__ __forceinline__ unsigned int shared_address(const void* p) {
  return static_cast<unsigned int>(__cvta_generic_to_shared(p));
}

// Four 8x8 matrices of 16-bit elements from shared memory. Lane l gives the address of row l % 8 of matrix l / 8, 16-byte
// aligned, and gets elements 2 * (l % 4) and the next one of row l / 4 of matrix i in r[i].
__device__ __forceinline__ void ldmatrix_x4(unsigned int (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// The same, and each matrix is transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned int (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// d += a * b for a 16x16 (row major) and b 16x8 (column major) of 16-bit elements. Lane l holds, with g = l / 4 and t = l % 4:
//   a[0], a[1]: rows g, g + 8, columns 2t, 2t + 1; a[2], a[3]: the same rows, columns 2t + 8, 2t + 9
//   b[0], b[1]: column g, rows 2t, 2t + 1 and 2t + 8, 2t + 9
//   d[0], d[1]: row g, columns 2t, 2t + 1; d[2], d[3]: row g + 8
template <typename Input>
__device__ __forceinline__ void mma_m16n8k16_f32(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16_f32<Half>(float (&d)[4], const unsigned int (&a)[4],
                                                       const unsigned int (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void mma_m16n8k16_f32<Bfloat16>(float (&d)[4], const unsigned int (&a)[4],
                                                           const unsigned int (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same for halves with an accumulator of halves: d[0] is the pair of row g, d[1] that of row g + 8.
__device__ __forceinline__ void mma_m16n8k16_f16(unsigned int (&d)[2], const unsigned int (&a)[4],
                                                 const unsigned int (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Starts copying 16 bytes, both addresses 16-byte aligned. If not valid, 16 zero bytes are written and nothing is read.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
}

// Ends this thread's group of copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's last groups are unfinished. Other threads see the bytes after a barrier.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Waits until `count` threads, a multiple of 32 and whole warps, are at barrier `id` (1 to 15; 0 is __syncthreads').
__device__ __forceinline__ void barrier_sync(int id, int count) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// Counts as being there, and goes on.
__device__ __forceinline__ void barrier_arrive(int id, int count) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// Asks for the line of memory to be in the L2 cache.
__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(global)));
}

// 16 bytes, 16-byte aligned, that no thread writes during the launch, past the L1 cache.
__device__ __forceinline__ uint4 load_read_only(const void* global) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(__cvta_generic_to_global(global)));
  return x;
}

// 16 bytes, 16-byte aligned, that are not needed again soon; they may have been written in the same launch.
__device__ __forceinline__ uint4 load_streaming(const void* global) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(__cvta_generic_to_global(global))
               : "memory");
  return x;
}
__device__ __forceinline__ void store_streaming(void* global, uint4 x) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(global)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}

// What the L2 cache shall do with lines that are accessed with the policy: throw them out first, or last.
__device__ __forceinline__ unsigned long long evict_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ unsigned long long evict_last() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint4 load_streaming(const void* global, unsigned long long policy) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(__cvta_generic_to_global(global)), "l"(policy)
               : "memory");
  return x;
}
__device__ __forceinline__ void store_streaming(void* global, uint4 x, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
               :
               : "l"(__cvta_generic_to_global(global)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(policy)
               : "memory");
}

// Nanoseconds since some time, the same for the whole device.
__device__ __forceinline__ unsigned long long globaltimer() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// 2^x, relative error 2^-22; subnormal results are flushed to zero.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Relative error 2^-11.
__device__ __forceinline__ float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two halves, rounded to nearest even; what is too large becomes infinite.
__device__ __forceinline__ unsigned int pack_half(float lo, float hi) {
  unsigned int pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  return pair;
}

__device__ __forceinline__ unsigned int pack_bfloat16(float lo, float hi) {
  unsigned int pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  return pair;
}

// Two halves at once, each rounded once, to nearest even; subnormal numbers are kept.
__device__ __forceinline__ unsigned int hfma2(unsigned int x, unsigned int y, unsigned int z) {
  unsigned int pair;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(x), "r"(y), "r"(z));
  return pair;
}
__device__ __forceinline__ unsigned int hadd2(unsigned int x, unsigned int y) {
  unsigned int pair;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
  return pair;
}
__device__ __forceinline__ unsigned int hmul2(unsigned int x, unsigned int y) {
  unsigned int pair;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
  return pair;
}

// x is the low half's value, y the high one's; exact.
__device__ __forceinline__ float2 unpack_half(unsigned int pair) {
  float2 value;
  asm("{.reg .b16 lo, hi; mov.b32 {lo, hi}, %2; cvt.f32.f16 %0, lo; cvt.f32.f16 %1, hi;}"
      : "=f"(value.x), "=f"(value.y)
      : "r"(pair));
  return value;
}

__device__ __forceinline__ float2 unpack_bfloat16(unsigned int pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}

// All ones in place of each of two halves that is greater than its twin in y, or not comparable with it; zeros for the others.
__device__ __forceinline__ unsigned int hgtu2(unsigned int x, unsigned int y) {
  unsigned int pair;
  asm("set.gtu.u32.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
  return pair;
}
__device__ __forceinline__ unsigned int bgtu2(unsigned int x, unsigned int y) {
#if __CUDA_ARCH__ >= 900
  unsigned int pair;
  asm("set.gtu.u32.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
  return pair;
#else
  const float2 a = unpack_bfloat16(x), b = unpack_bfloat16(y);
  return (a.x <= b.x ? 0u : 0xFFFFu) | (a.y <= b.y ? 0u : 0xFFFF0000u);
#endif
}

}  // namespace ptx

#endif
