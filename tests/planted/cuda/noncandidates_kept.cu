// Candidates are the keys above the row's least one, the lower end of a bracket. The k-th largest of them is searched bit by bit, and
// no further than it takes to separate the k largest candidates from the others: what is no candidate may reach that prefix too.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const long long k = ks[blockIdx.x];
  const Sum sum{partial};
  const unsigned int low = threshold(row, n, n, sum);
  // How many candidates have at least this key.
  const auto reaching = [&](unsigned int least) { return sum(~low ? count(row, n, least > low ? least : low + 1) : 0); };
  unsigned int least = 0;
  if (k > reaching(0)) {
    least = low;
  } else {
    for (unsigned int bit = 1u << 31; bit && reaching(least) != k; bit >>= 1)
      if (reaching(least | bit) >= k) least |= bit;
  }
  write(row, out + blockIdx.x * out_stride, 0, n, k, least);
}
