// A block's part of a row: how it is read, filled and masked.

#pragma once

#include "blocks.cuh"

namespace bracketing {

// The part of a row that this block reads and writes. Blocks take turns at kThreads packs at a time, so that a row's large
// elements are spread over the blocks even if they stand together; the first block also has what is not in packs.
template <typename Format>
struct Slice {
  using Bits = typename Format::Bits;
  const Bits* in;
  Bits* out;
  unsigned int n;
  unsigned int head, packs, tail;  // as in Cut
  unsigned int first, step;        // packs
  Pack<Bits>* ring;                // this thread's place in its first pack

  __device__ Slice(const Bits* in_, Bits* out_, long long n_, Shared<Bits>& shared)
      : in(in_), out(out_), n(static_cast<unsigned int>(n_)), ring(&shared.ring[0][threadIdx.x]) {
    const Cut<Bits> cut(in_, n_);
    head = static_cast<unsigned int>(cut.head);
    packs = static_cast<unsigned int>(cut.packs);
    tail = static_cast<unsigned int>(cut.tail);
    first = Blocks::rank() * kThreads + threadIdx.x;
    step = kThreads << Blocks::log2();
  }

  // How many packs a block has; the last block has fewest.
  __device__ unsigned int packs_of(unsigned int rank) const {
    const unsigned int chunks = (packs + kThreads - 1) / kThreads;
    const unsigned int own = ((chunks + Blocks::count() - 1 - rank) >> Blocks::log2()) * kThreads;
    // Only the row's last chunk may be short.
    return chunks && ((chunks - 1) & (Blocks::count() - 1)) == rank ? own - (chunks * kThreads - packs) : own;
  }

  __device__ Pack<Bits> pack(unsigned int i) const { return reinterpret_cast<const Pack<Bits>*>(in + head)[i]; }
  __device__ unsigned int index_of(unsigned int pack) const { return head + pack * Pack<Bits>::kLanes; }

  // visit(pack, index of its first element, whether it is there) for every pack that is this thread's, and perhaps for some
  // that are not there, so that all threads of a warp visit at the same time.
  template <typename Visit>
  __device__ void for_packs(Visit visit) const {
    const unsigned int lane = threadIdx.x % kWarp;
    for (unsigned int i = first; i - lane < packs; i += kBatch * step) {
      Pack<Bits> batch[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u)
        batch[u] = i + u * step < packs ? pack(i + u * step) : Pack<Bits>::filled(0);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) visit(batch[u], index_of(i + u * step), i + u * step < packs);
    }
  }

  // The same for a small k. There is little to do for a pack then, and memory would wait for a thread that only asks for more
  // when it has worked on what it has: a ring in shared memory holds the next kDepth packs of each thread. A thread reads what
  // it has copied itself, so no barrier is needed. begin() comes first; there may be other work between the two.
  __device__ void begin() const {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) fetch(d, first + d * step);
  }
  template <typename Visit>
  __device__ void for_packs_begun(Visit visit) const {
    const unsigned int lane = threadIdx.x % kWarp;
    int d = 0;
#pragma unroll kUnroll
    for (unsigned int i = first; i - lane < packs; i += step) {
      ptx::cp_async_wait<kDepth - 1>();
      visit(ring[d * kThreads], index_of(i), i < packs);
      // What was there has been used, so its place is free.
      fetch(d, i + kDepth * step);
      d = (d + 1) % kDepth;
    }
    finish();
  }
  // Instead of it, if it is not wanted any more: nothing is on its way after this.
  __device__ void finish() const { ptx::cp_async_wait<0>(); }

  // Whether the ring has room for all packs of every block.
  __device__ bool fits() const { return packs <= kDepth * step; }
  // If so: visit(pack) for those that are this thread's, between begin() and for_packs_begun().
  template <typename Visit>
  __device__ void for_packs_there(Visit visit) const {
    finish();
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (first + d * step < packs) visit(ring[d * kThreads]);
  }

  // visit(index) for the elements outside of packs that are this thread's.
  template <typename Visit>
  __device__ void for_rest(Visit visit) const {
    if (Blocks::rank() != 0) return;
    if (threadIdx.x < head) visit(static_cast<unsigned int>(threadIdx.x));
    if (threadIdx.x < n - tail) visit(tail + threadIdx.x);
  }

  // Whether a pack of `out` can be stored as one.
  __device__ bool aligned() const {
    return (reinterpret_cast<unsigned long long>(in) ^ reinterpret_cast<unsigned long long>(out)) % 16 == 0;
  }

  __device__ void store(const Pack<Bits>& pack, unsigned int index, bool whole) const {
    if (whole) {
      *reinterpret_cast<Pack<Bits>*>(out + index) = pack;
    } else {
      for (int j = 0; j < Pack<Bits>::kLanes; ++j) out[index + j] = pack.get(j);
    }
  }

  __device__ void fill() const {
    const Pack<Bits> pack = Pack<Bits>::filled(Format::word(Format::kMinusInfinity));
    const bool whole = aligned();
    for (unsigned int i = first; i < packs; i += step) store(pack, index_of(i), whole);
    for_rest([&](unsigned int i) { out[i] = Format::kMinusInfinity; });
  }

  // Keeps what has at least the key `least`. What stays in place is not written.
  __device__ void mask(unsigned int least) const {
    const bool whole = aligned(), in_place = in == out;
    const unsigned int bound = Format::bound_below(least), nothing = Format::word(Format::kMinusInfinity);
    for_packs([&](const Pack<Bits>& pack, unsigned int index, bool there) {
      Pack<Bits> result;
      bool same = in_place;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const unsigned int kept = Format::exceeding(pack.word[w], bound);
        result.word[w] = (pack.word[w] & kept) | (nothing & ~kept);
        same &= result.word[w] == pack.word[w];
      }
      if (there && !same) store(result, index, whole);
    });
    for_rest([&](unsigned int i) { out[i] = Format::key(in[i]) < least ? Format::kMinusInfinity : in[i]; });
  }

 private:
  // Zeros where there is no pack.
  __device__ void fetch(int d, unsigned int i) const {
    ptx::cp_async_16(&ring[d * kThreads], reinterpret_cast<const Pack<Bits>*>(in + head) + i, i < packs);
    ptx::cp_async_commit();
  }
};

}  // namespace bracketing
