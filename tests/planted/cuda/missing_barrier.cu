// No barrier before the partial sums are read.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const auto sum = [&](int mine) {
    partial[threadIdx.x] = mine;
    int total = 0;
    for (int t = 0; t < kThreads; ++t) total += partial[t];
    __syncthreads();
    return total;
  };
  const unsigned int least = threshold(row, n, ks[blockIdx.x], sum);
  __syncthreads();
  write(row, out + blockIdx.x * out_stride, 0, n, ks[blockIdx.x], least);
}
