// A block goes from row to row, fills each and puts the kept elements back from a list. The list is emptied for the next row while
// other threads may still look how long the last row's was.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads], index[kThreads], kept;
  __shared__ unsigned int bits[kThreads];
  const Sum sum{partial};
  for (int row_index = blockIdx.x; row_index < batch; row_index += gridDim.x) {
    const unsigned int* const row = in + row_index * in_stride;
    unsigned int* const to = out + row_index * out_stride;
    const unsigned int least = threshold(row, n, ks[row_index], sum);
    if (threadIdx.x == 0) kept = 0;
    if (sum(count(row, n, least)) > kThreads || ks[row_index] <= 0) {
      write(row, to, 0, n, ks[row_index], least);
      continue;
    }
    List{&kept, index, bits}.fill(row, n, least);
    for (int i = threadIdx.x; i < n; i += kThreads) to[i] = kMinusInfinity;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < kept) to[index[threadIdx.x]] = bits[threadIdx.x];
  }
}
