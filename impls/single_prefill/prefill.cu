// single_prefill: attention in one pass over the keys, for tensor cores with mma.sync (sm_80 and later).
//
// A block computes a tile of queries of one head; each warp has kWarpRows of them, all keys, and its output in registers. Tiles
// of keys and values stream through buffers in shared memory by asynchronous copies, from the last tile to the first, kAhead
// of each at a time. The warp multiplies its queries by a tile of keys, applies the hook and the masks, turns scores into
// probabilities (softmax.cuh) and, straight from the registers, multiplies them by the values. Tiles that no row of a warp sees
// cost it nothing, and only tiles that some row does not see whole are masked.
//
// `out` may be `q`: a block reads its queries once, into shared memory, and writes the same rows of the same head when it
// is done; no other block reads or writes them. Neither is __restrict__.
//
// Offsets are 64-bit. Strides are in elements. Copies of 16 bytes need every row to start at a multiple of 16 bytes:
// `aligned` says so, and otherwise elements are copied one by one.

#include "mask.cuh"
#include "ptx.cuh"
#include "softmax.cuh"
#include "tile.cuh"
#include "variants.cuh"

#if !defined(INPUT) || !defined(ACCUMULATOR) || !defined(TRANSFORM) || !defined(MASK) || !defined(WINDOW) || \
    !defined(HEAD_DIM) || !defined(WARPS) || !defined(WARP_ROWS) || !defined(TILE_KEYS) || !defined(AHEAD) || \
    !defined(BLOCKS_PER_SM)
#error "see cuda.py for the macros"
#endif

namespace prefill {
namespace {

using Input = ptx::INPUT;         // Half or Bfloat16
using Accumulator = ACCUMULATOR;  // FloatAccumulator or HalfAccumulator, of q·k
using Transform = TRANSFORM;      // a struct of variants.cuh
constexpr Mask kMask = Mask::MASK;
constexpr bool kWindow = WINDOW;
constexpr int kHeadDim = HEAD_DIM;
constexpr int kWarps = WARPS;
constexpr int kWarpRows = WARP_ROWS;
constexpr int kTileKeys = TILE_KEYS;
constexpr int kAhead = AHEAD;

constexpr int kThreads = 32 * kWarps;
constexpr int kTileRows = kWarps * kWarpRows;
constexpr int kAtoms = kWarpRows / 16;
constexpr int kKeyBlocks = kTileKeys / 8;
constexpr int kOutBlocks = kHeadDim / 8;
constexpr bool kHalfSums = kSame<Accumulator, HalfAccumulator>;
constexpr bool kPlain = kSame<Transform, Plain>;

static_assert(!kHalfSums || kSame<Input, ptx::Half>, "bfloat16 products cannot be accumulated in half");
static_assert(kWarpRows % 16 == 0 && kWarpRows <= 32 && kTileKeys % 32 == 0 && kAhead >= 1, "unsupported tile");

using Rows = Tile<kHeadDim>;
using Online = Softmax<kAtoms, kKeyBlocks, kOutBlocks>;
using Scores = Online::Scores;
using Out = Online::Out;
using Sums = typename Accumulator::Fragment[kAtoms][kKeyBlocks];

// Shared memory: the tile of queries, kAhead tiles of keys, kAhead tiles of values.
constexpr int kRing = kTileRows * Rows::kRowBytes;
constexpr int kBufferBytes = kTileKeys * Rows::kRowBytes;

struct Arguments {
  const Bits *q, *k, *v;
  Bits* out;
  float* lse;
  const unsigned char* mask;
  const float* slopes;
  long long q_row, q_head, k_row, k_head, v_row, v_head, out_row, out_head, mask_row, mask_key, slopes_stride;
  int qo_len, kv_len, window_left, heads, group;
  bool aligned;
  float scale, soft_cap, soft_cap_inverse, q_factor;
};

__device__ __forceinline__ void multiply_add(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
  ptx::mma_m16n8k16_f32<Input>(d, a, b);
}

__device__ __forceinline__ void multiply_add(unsigned int (&d)[2], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
  ptx::mma_m16n8k16_f16(d, a, b);
}

__device__ __forceinline__ unsigned int pack(float lo, float hi) {
  if constexpr (kSame<Input, ptx::Half>) return ptx::pack_half(lo, hi);
  return ptx::pack_bfloat16(lo, hi);
}

// sums += q · k of the warp's rows and a tile's keys, along ascending dimensions.
__device__ __forceinline__ void multiply_keys(Sums& sums, const unsigned char* shared, const Rows::Reads& q,
                                              const Rows::Reads& k) {
#pragma unroll (kHeadDim <= 128 ? kHeadDim / 16 : 4)
  for (int d = 0; d < kHeadDim / 16; ++d) {
    unsigned int a[kAtoms][4];
#pragma unroll
    for (int atom = 0; atom < kAtoms; ++atom) ptx::ldmatrix_x4(a[atom], shared + q.offset(atom, d));
#pragma unroll
    for (int n = 0; n < kTileKeys / 16; ++n) {
      unsigned int r[4];
      ptx::ldmatrix_x4(r, shared + k.offset(n, d));
      const unsigned int b[2][2] = {{r[0], r[1]}, {r[2], r[3]}};
#pragma unroll
      for (int atom = 0; atom < kAtoms; ++atom) {
        multiply_add(sums[atom][2 * n], a[atom], b[0]);
        multiply_add(sums[atom][2 * n + 1], a[atom], b[1]);
      }
    }
  }
}

// out += p · v for a tile's values and the probabilities p, rounded to the input type, that its scores become. No barrier is in
// between: the exponentials of sixteen keys are computed while the tensor core works on the sixteen before.
__device__ __forceinline__ void multiply_values(Out& out, Scores& s, Online& online, const unsigned char* shared,
                                                const Rows::Reads& v) {
#pragma unroll
  for (int n = 0; n < kTileKeys / 16; ++n) {
    online.exponentiate(s, 2 * n, 2 * n + 2);
    unsigned int a[kAtoms][4];
#pragma unroll
    for (int atom = 0; atom < kAtoms; ++atom) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&block)[4] = s[atom][2 * n + i / 2];
        a[atom][i] = pack(block[i % 2 * 2], block[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      unsigned int r[4];
      ptx::ldmatrix_x4_trans(r, shared + v.offset(n, d));
      const unsigned int b[2][2] = {{r[0], r[1]}, {r[2], r[3]}};
#pragma unroll
      for (int atom = 0; atom < kAtoms; ++atom) {
        multiply_add(out[atom][2 * d], a[atom], b[0]);
        multiply_add(out[atom][2 * d + 1], a[atom], b[1]);
      }
    }
  }
}

// Writes the warp's rows: normalises, goes through the rows of the tile of queries that only this warp has read, and copies.
__device__ __forceinline__ void write(Out& out, const Online& online, const Arguments& call, unsigned char* tile, int warp,
                                      int lane, int head, int tile_row) {
  unsigned char* mine = tile + warp * kWarpRows * Rows::kRowBytes;
#pragma unroll
  for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = 16 * a + 8 * h + lane / 4;
      const float sum = row_sum(online.sum[a][h]);
      const bool empty = sum == 0.0f;
      const float inverse = 1.0f / sum;
#pragma unroll
      for (int n = 0; n < kOutBlocks; ++n) {
        const unsigned int pair = pack(out[a][n][2 * h] * inverse, out[a][n][2 * h + 1] * inverse);
        *reinterpret_cast<unsigned int*>(mine + Rows::offset(row, n) + lane % 4 * 4) = empty ? 0 : pair;
      }
      const int query = tile_row + warp * kWarpRows + row;
      if (call.lse != nullptr && lane % 4 == 0 && query < call.qo_len) {
        call.lse[static_cast<long long>(query) * call.heads + head] = empty ? minus_infinity() : online.shift[a][h] + log2f(sum);
      }
    }
  }
  __syncwarp();
  Bits* to = call.out + head * call.out_head + tile_row * call.out_row;
  Rows::store<kWarpRows>(tile, warp * kWarpRows, to, call.out_row, call.qo_len - tile_row, call.aligned);
}

// x, which is the same for all lanes of a warp. From this the compiler sees it, and keeps what depends on it in registers that
// the lanes share.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(kAllLanes, x, 0); }

// One block of the grid. Tiles of queries go from the last to the first, so that under a causal mask the longest come first.
__device__ __forceinline__ void attend(const Arguments& call, unsigned char* shared) {
  const int warp = uniform(threadIdx.x / 32);
  const int lane = threadIdx.x % 32;
  const int head = blockIdx.x;
  const int tile_row = ((call.qo_len - 1) / kTileRows - static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y)) * kTileRows;
  if (tile_row < 0) return;
  const int warp_row = tile_row + warp * kWarpRows;

  const Visibility<kMask, kWindow, kTileKeys> visibility{call.qo_len, call.kv_len, call.window_left};
  const Span span = visibility.span(tile_row, kTileRows);
  const Span mine = visibility.span(warp_row, kWarpRows);

  Rows::load<kTileRows, kThreads>(shared, Rows::source<kThreads>(call.q + head * call.q_head + tile_row * call.q_row, call.q_row),
                                  call.q_row, call.qo_len - tile_row, call.aligned);
  ptx::cp_async_commit();

  // Copies run ahead of the tile that is computed: with one buffer each, the next keys are loaded while the values are
  // used and the other way round; with more, kAhead - 1 tiles are on their way.
  const int kv_head = head / call.group;
  const auto load = [&](const Bits* from, long long head_stride, long long stride, int tile, int buffer) {
    if (tile < span.begin) return;
    const int key = tile * kTileKeys;
    Rows::load<kTileKeys, kThreads>(shared + kRing + buffer * kBufferBytes,
                                    Rows::source<kThreads>(from + kv_head * head_stride + key * stride, stride), stride,
                                    call.kv_len - key, call.aligned);
  };
  const auto load_keys = [&](int tile) { load(call.k, call.k_head, call.k_row, tile, tile % kAhead); };
  const auto load_values = [&](int tile) { load(call.v, call.v_head, call.v_row, tile, kAhead + tile % kAhead); };

  int tile = span.end - 1;
  if constexpr (kAhead == 1) {
    load_keys(tile);
    ptx::cp_async_commit();
  } else {
    for (int i = 0; i < kAhead - 1; ++i) {
      load_keys(tile - i);
      load_values(tile - i);
      ptx::cp_async_commit();
    }
  }
  if constexpr (kHalfSums) {
    if (call.q_factor != 1.0f) {
      ptx::cp_async_wait<kAhead == 1 ? 1 : kAhead - 1>();
      Rows::scale_halves<kTileRows, kThreads>(shared, call.q_factor);
    }
  }

  HookArguments hook_arguments = {call.scale, 0.0f, call.soft_cap, call.soft_cap_inverse};
  if (call.slopes != nullptr) hook_arguments.alibi_slope = call.slopes[head * call.slopes_stride];
  const Transform hook(hook_arguments);
  Online online(unit<Accumulator>(hook));
  Out out = {};

  for (; tile >= span.begin; --tile) {
    const int key = tile * kTileKeys;
    bool needed = tile >= mine.begin && tile < mine.end;
    MaskBits<kWarpRows, kTileKeys> bits;
    if constexpr (kMask == Mask::Custom) {
      if (needed) {
        bits.load(call.mask + warp_row * call.mask_row + key * call.mask_key, call.mask_row, call.mask_key,
                  call.qo_len - warp_row, call.kv_len - key);
        needed = bits.any();
      }
    }

    ptx::cp_async_wait<kAhead == 1 ? 0 : kAhead - 2>();
    __syncthreads();  // the keys are there for all, and all are done with the tile before
    if constexpr (kAhead == 1) {
      load_values(tile);
      ptx::cp_async_commit();
    } else {
      load_keys(tile - kAhead + 1);
    }
    Scores s;
    if (needed) {
      Sums sums = {};
      multiply_keys(sums, shared, {warp * kWarpRows * Rows::kRowBytes, Rows::rows_then_chunks(lane)},
                    {kRing + tile % kAhead * kBufferBytes, Rows::chunks_then_rows(lane)});
#pragma unroll
      for (int a = 0; a < kAtoms; ++a) {
#pragma unroll
        for (int n = 0; n < kKeyBlocks; ++n) to_floats<Accumulator>(sums[a][n], s[a][n]);
      }
      if constexpr (!kPlain) {
        transform<Accumulator>(s, hook, {warp_row + lane / 4, key + lane % 4 * 2, call.qo_len, call.kv_len, head, 0.0f});
      }
    }
    if constexpr (kAhead == 1) {
      ptx::cp_async_wait<0>();
      __syncthreads();  // the values are there for all, and all are done with the keys
      load_keys(tile - 1);
    } else {
      load_values(tile - kAhead + 1);
    }
    ptx::cp_async_commit();
    if (needed) {
      online.prepare(s);
      if constexpr (kMask == Mask::Custom) bits.hide(s);
      if (tile < mine.full_begin || tile >= mine.full_end) visibility.hide_outside(s, warp_row, key);
      online.rescale(s, out);
      multiply_values(out, s, online, shared,
                      {kRing + (kAhead + tile % kAhead) * kBufferBytes, Rows::rows_then_chunks(lane)});
    }
  }

  // Without any tile, the copies of the queries may still be on their way to where the output goes.
  ptx::cp_async_wait<0>();
  __syncthreads();
  write(out, online, call, shared, warp, lane, head, tile_row);
}

}  // namespace
}  // namespace prefill

// Grid: heads, then in y and z together at least as many blocks as there are tiles of queries. Block: kThreads threads. Shared
// memory: a tile of queries and the ring. `q_factor` is a power of two that q is multiplied by first, for HalfAccumulator;
// q·k is multiplied by `scale` then. mask, slopes and lse may be null; lse is contiguous.
extern "C" __global__ void __launch_bounds__(prefill::kThreads, BLOCKS_PER_SM) single_prefill(
    const void* q, const void* k, const void* v, void* out, float* lse, const unsigned char* mask, const float* slopes,
    long long q_row, long long q_head, long long k_row, long long k_head, long long v_row, long long v_head, long long out_row,
    long long out_head, long long mask_row, long long mask_key, long long slopes_stride, int qo_len, int kv_len, int window_left,
    int heads, int group, int aligned, float scale, float soft_cap, float soft_cap_inverse, float q_factor) {
  using prefill::Bits;
  extern __shared__ __align__(128) unsigned char shared[];
  prefill::attend(
      {static_cast<const Bits*>(q), static_cast<const Bits*>(k), static_cast<const Bits*>(v), static_cast<Bits*>(out), lse, mask,
       slopes, q_row, q_head, k_row, k_head, v_row, v_head, out_row, out_head, mask_row, mask_key, slopes_stride, qo_len, kv_len,
       window_left, heads, group, aligned != 0, scale, soft_cap, soft_cap_inverse, q_factor},
      shared);
}
