// When few elements are kept, the row is filled and they are put back from a list. A thread puts back what another may be yet to fill.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads], index[kThreads], kept;
  __shared__ unsigned int bits[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  unsigned int* const to = out + blockIdx.x * out_stride;
  const Sum sum{partial};
  const unsigned int least = threshold(row, n, ks[blockIdx.x], sum);
  if (threadIdx.x == 0) kept = 0;
  if (sum(count(row, n, least)) > kThreads || ks[blockIdx.x] <= 0) {
    write(row, to, 0, n, ks[blockIdx.x], least);
    return;
  }
  List{&kept, index, bits}.fill(row, n, least);
  for (int i = threadIdx.x; i < n; i += kThreads) to[i] = kMinusInfinity;
  if (static_cast<int>(threadIdx.x) < kept) to[index[threadIdx.x]] = bits[threadIdx.x];
}
