// How bracket_mask.cu is compiled: what cuda.Tuning defines, and what follows from it or is fixed.

#pragma once

#include "rows.cuh"

#ifndef CLUSTERS
#error "define CLUSTERS as 1 for a kernel to be launched in clusters, else 0"
#endif

namespace bracketing {

using namespace rows;

constexpr int kThreads = THREADS;
constexpr int kWarps = kThreads / kWarp;
constexpr int kSample = SAMPLE;          // keys sampled in a row at most, if k is not small; also how many candidates it can have
constexpr int kCandidates = CANDIDATES;  // how many candidates a block can hold
constexpr int kBatch = BATCH;            // packs that a thread loads before it looks at the first
constexpr int kDepth = DEPTH;            // … that are on their way while it looks at others
constexpr int kUnroll = UNROLL;          // … and that it looks at in one turn of the loop then
constexpr int kKeysOfThread = kSample / kThreads;
constexpr int kSketch = 2;               // packs of a thread in a sample for a small k, at most, unless that is all
constexpr unsigned int kGroup = 4;       // packs that are sampled together: what memory hands out at a time
// One pack in so many is sampled, or fewer; where rows are few, what is read of them stays in the L2 cache.
constexpr unsigned int kSparsity = CLUSTERS ? 4 : 16;
constexpr unsigned int kNone = ~0u;      // above every key
constexpr int kMostBlocks = 16;          // that share a row; a power of two, as all counts of blocks

static_assert(kSample % kThreads == 0 && kThreads % kWarp == 0 && kWarps <= kWarp, "unsupported threads");
static_assert((kWarps & (kWarps - 1)) == 0 && (kSample & (kSample - 1)) == 0, "not powers of two");
static_assert(kSample >= kMostBlocks * kWarp && kSample <= 1 << 16, "unsupported samples");
static_assert(kCandidates <= kSample, "unsupported candidates");

// The bracket's ranks in the sample are those expected of the k-th key, and this much further out: standard deviations of a
// binomial distribution, and kMargin for where it is not like a normal one. A bracket for a large k is as wide as its
// candidates fit in, and misses more often; one for a small k costs little to be sure of.
constexpr float kSigmasSmall = SIGMAS;
constexpr float kSigmas = SIGMAS < MOST_SIGMAS ? SIGMAS : MOST_SIGMAS;
constexpr float kMargin = MARGIN;

}  // namespace bracketing
