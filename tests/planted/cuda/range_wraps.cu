// The k-th largest key is looked for in a range that becomes 256 times narrower with each step. The upper end of the narrower range is
// computed as the lower one and what is left of the keys below it, which wraps around where the range ends with the highest key there is.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const long long k = ks[blockIdx.x];
  const Sum sum{partial};
  unsigned int lowest = 1, highest = ~0u;  // no key is 0
  for (int turn = 0; turn < 5; ++turn) {
    const unsigned int span = highest - lowest;
    const int shift = span < 256 ? 0 : 24 - __clz(static_cast<int>(span));
    unsigned int digit = 0;
    for (unsigned int bit = 128; bit; bit >>= 1) {
      const unsigned int step = (digit | bit) << shift;
      if (step >> shift == (digit | bit) && step <= span && sum(count(row, n, lowest + step)) >= k) digit |= bit;
    }
    lowest += digit << shift;
    if (shift == 0) break;  // at the latest in the fourth, were the ranges right
    highest = min(highest, lowest + (1u << shift) - 1);
  }
  write(row, out + blockIdx.x * out_stride, 0, n, k, lowest);
}
