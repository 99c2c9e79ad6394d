// Threads without an element leave their partial sum as it was, and it is added all the same.
#include "row.cuh"

MASK {
  __shared__ int partial[kThreads];
  const unsigned int* const row = in + blockIdx.x * in_stride;
  const auto sum = [&](int mine) {
    if (static_cast<int>(threadIdx.x) < n) partial[threadIdx.x] = mine;
    __syncthreads();
    int total = 0;
    for (int t = 0; t < kThreads; ++t) total += partial[t];
    __syncthreads();
    return total;
  };
  const unsigned int least = threshold(row, n, ks[blockIdx.x], sum);
  __syncthreads();
  write(row, out + blockIdx.x * out_stride, 0, n, ks[blockIdx.x], least);
}
