// A block's part of a row: how it is read, filled and masked.

#pragma once

#include "blocks.cuh"

namespace bracketing {

template <typename Bits>
struct Batch {
  Pack<Bits> pack[kUnroll];
};

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

  __device__ Slice(const Bits* in_, Bits* out_, long long n_) : in(in_), out(out_), n(static_cast<unsigned int>(n_)) {
    const Cut<Bits> cut(in_, n_);
    head = static_cast<unsigned int>(cut.head);
    packs = static_cast<unsigned int>(cut.packs);
    tail = static_cast<unsigned int>(cut.tail);
    first = Blocks::rank() * kThreads + threadIdx.x;
    step = Blocks::count() * kThreads;
  }

  // How many packs a block has; the last block has fewest.
  __device__ unsigned int packs_of(unsigned int rank) const {
    const unsigned int chunks = (packs + kThreads - 1) / kThreads;
    const unsigned int own = (chunks + Blocks::count() - 1 - rank) / Blocks::count() * kThreads;
    // Only the row's last chunk may be short.
    return chunks && (chunks - 1) % Blocks::count() == rank ? own - (chunks * kThreads - packs) : own;
  }

  __device__ Pack<Bits> pack(unsigned int i) const { return reinterpret_cast<const Pack<Bits>*>(in + head)[i]; }
  __device__ unsigned int index_of(unsigned int pack) const { return head + pack * Pack<Bits>::kLanes; }

  // The packs from the i-th on that are this thread's, kUnroll of them; -infs where there is none.
  __device__ Batch<Bits> load(unsigned int i) const {
    Batch<Bits> batch;
    if (i + (kUnroll - 1) * step < packs) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) batch.pack[u] = pack(i + u * step);
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        batch.pack[u] = i + u * step < packs ? pack(i + u * step) : Pack<Bits>::filled(Format::word(Format::kMinusInfinity));
    }
    return batch;
  }

  // visit(pack, index of its first element, whether it is there) for every pack that is this thread's, and perhaps for some that
  // are not there, so that all threads of a warp visit at the same time. `batch` is what load(first) gives.
  template <typename Visit>
  __device__ void for_packs(Batch<Bits> batch, Visit visit) const {
    const unsigned int lane = threadIdx.x % kWarp;
    for (unsigned int i = first; i - lane < packs;) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) visit(batch.pack[u], index_of(i + u * step), i + u * step < packs);
      i += kUnroll * step;
      if (i - lane < packs) batch = load(i);
    }
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
    for_packs(load(first), [&](const Pack<Bits>& pack, unsigned int index, bool there) {
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
};

}  // namespace bracketing
